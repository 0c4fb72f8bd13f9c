"""Markup: HTML as text that is escaped unless it was made here.

Ids and names come from outside, and may look like anything. A plain `str` is escaped wherever it is put on a page;
only `Markup`, which `tag` returns, stays as it is. So nothing that was read from logs can become an element, an
attribute or a script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from newcomer.errors import one_line

LONG = 60  # characters of a name that are shown
VOID = ("meta", "link", "br", "line", "rect", "circle", "path", "polyline", "polygon")

Attributes = Mapping[str, str | float | int]


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def joined(parts: Sequence[str]) -> Markup:
    """Parts one after another, those that are plain text escaped.

    >>> joined(["a < b", tag("br")])
    'a &lt; b<br>'
    """
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts))


def tag(name: str, *children: str, given: Attributes | None = None) -> Markup:
    """An element; its attributes are `given`, numbers among them rounded to two digits.

    >>> tag("p", "Tom & ", tag("b", "Jerry"), given={"class": "x"})
    '<p class="x">Tom &amp; <b>Jerry</b></p>'
    """
    inside = "".join(f' {key}="{escape(_value(value))}"' for key, value in (given or {}).items())
    if name in VOID and not children:
        return Markup(f"<{name}{inside}>" if name in VOID[:3] else f"<{name}{inside}/>")
    return Markup(f"<{name}{inside}>{joined(children)}</{name}>")


def named(text: object, limit: int = LONG) -> str:
    """An id or a name in one line that is not too long."""
    return one_line(str(text), limit)


def table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """A table; the first cell of a row is its head. On a phone cells stand one below another, each with its head."""
    top = tag("tr", *(tag("th", head, given={"scope": "col"}) for head in heads))
    body = []
    for row in rows:
        first = tag("th", row[0], given={"scope": "row", "data-head": heads[0]})
        cells = [tag("td", cell, given={"data-head": head}) for head, cell in zip(heads[1:], row[1:], strict=True)]
        body.append(tag("tr", first, *cells))
    whole = tag("table", tag("caption", caption), tag("thead", top), tag("tbody", *body))
    reach = {"class": "scroll", "role": "region", "aria-label": caption, "tabindex": "0"}
    return tag("div", whole, given=reach)


def listed(items: Sequence[str], *, kind: str = "ul") -> Markup:
    """A list."""
    return tag(kind, *(tag("li", item) for item in items))


def folded(summary: str, *inside: str, opened: bool = False) -> Markup:
    """What is shown when it is asked for, without a script."""
    return tag("details", tag("summary", summary), *inside, given={"open": "open"} if opened else {})


def _value(value: str | float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)

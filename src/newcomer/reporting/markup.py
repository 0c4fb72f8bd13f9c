"""Markup: HTML as text that is escaped unless it was made here.

Ids and names come from outside, and may look like anything. A plain `str` is escaped wherever it is put on a page;
only `Markup`, which `markup_tag` returns, stays as it is. So nothing that was read from logs can become an element, an
attribute or a script.

Drawing: the few kinds of chart that a page needs, as SVG of our own that is read without a script.

A chart is drawn 340 units wide, so that its letters are of reading size on a phone, and is not enlarged much beyond
that. Every chart has a title and a description for those who cannot see it. Values that are not finite are not drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from math import ceil, floor, isfinite, log10

from newcomer.charts.palette import BLUE, INK
from newcomer.errors import error_in_one_line

LONG = 60  # characters of a name that are shown
VOID = ("meta", "link", "br", "line", "rect", "circle", "path", "polyline", "polygon")

Attributes = Mapping[str, str | float | int]


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def _joined_markup(parts: Sequence[str]) -> Markup:
    """Parts one after another, those that are plain text escaped.

    >>> _joined_markup(["a < b", markup_tag("br")])
    'a &lt; b<br>'
    """
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts))


def markup_tag(name: str, *children: str, given: Attributes | None = None) -> Markup:
    """An element; its attributes are `given`, numbers among them rounded to two digits.

    >>> markup_tag("p", "Tom & ", markup_tag("b", "Jerry"), given={"class": "x"})
    '<p class="x">Tom &amp; <b>Jerry</b></p>'
    """
    inside = "".join(f' {key}="{escape(_value(value))}"' for key, value in (given or {}).items())
    if name in VOID and not children:
        return Markup(f"<{name}{inside}>" if name in VOID[:3] else f"<{name}{inside}/>")
    return Markup(f"<{name}{inside}>{_joined_markup(children)}</{name}>")


def name_markup(text: object, limit: int = LONG) -> str:
    """An id or a name in one line that is not too long."""
    return error_in_one_line(str(text), limit)


def table_markup(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """A table; the first cell of a row is its head. On a phone cells stand one below another, each with its head."""
    top = markup_tag("tr", *(markup_tag("th", head, given={"scope": "col"}) for head in heads))
    body = []
    for row in rows:
        first = markup_tag("th", row[0], given={"scope": "row", "data-head": heads[0]})
        cells = [
            markup_tag("td", cell, given={"data-head": head}) for head, cell in zip(heads[1:], row[1:], strict=True)
        ]
        body.append(markup_tag("tr", first, *cells))
    whole = markup_tag("table", markup_tag("caption", caption), markup_tag("thead", top), markup_tag("tbody", *body))
    reach = {"class": "scroll", "role": "region", "aria-label": caption, "tabindex": "0"}
    return markup_tag("div", whole, given=reach)


def list_markup(items: Sequence[str], *, kind: str = "ul") -> Markup:
    """A list."""
    return markup_tag(kind, *(markup_tag("li", item) for item in items))


def folded_markup(summary: str, *inside: str, opened: bool = False) -> Markup:
    """What is shown when it is asked for, without a script."""
    return markup_tag("details", markup_tag("summary", summary), *inside, given={"open": "open"} if opened else {})


def _value(value: str | float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


WIDTH, HEIGHT, ROW = 340.0, 210.0, 22.0
TOP, RIGHT, BOTTOM, SIDE = 24.0, 12.0, 40.0, 18.0
HUGE = 1e150  # beyond which nothing is drawn: differences would not be finite
LETTER = 6.6  # units of width that a character takes
GRID = "#D5D8DC"


@dataclass(frozen=True)
class SvgLine:
    """Points of one colour, joined; each within `low` and `high`, shaded, where these are given. Without y a band."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    dashes: Sequence[int] = ()


@dataclass(frozen=True)
class Bar:
    """A value with a name; an interval where one is given."""

    name: str
    value: float
    colour: str = BLUE
    low: float | None = None
    high: float | None = None
    told: str = ""  # in numbers, at the end of the bar


@dataclass(frozen=True)
class SvgAxis:
    """Where numbers fall: `low` and `high` of the data at `first` and `last` units."""

    low: float
    high: float
    first: float
    last: float
    ticks: tuple[float, ...] = ()
    labels: tuple[str, ...] = field(default=())

    @classmethod
    def over(cls, values: Sequence[float], first: float, last: float, *, zero: bool = False) -> SvgAxis:
        """An axis with round ticks that holds all finite values, and zero if asked for."""
        held = [value for value in values if abs(value) < HUGE] + ([0.0] if zero else [])
        low, high = (min(held), max(held)) if held else (0.0, 1.0)
        if high - low < 1e-12 * max(abs(low), abs(high), 1e-300):
            low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
        pad = 0.04 * (high - low)
        low, high = low - pad * (low != 0.0), high + pad
        ticks = tuple(tick for tick in round_ticks_of_markup(low, high) if low <= tick <= high)
        digits = max(0, -floor(log10(ticks[1] - ticks[0]) + 1e-9)) if len(ticks) > 1 else 2
        return cls(low, high, first, last, ticks, tuple(_short(tick, digits) for tick in ticks))

    def __call__(self, value: float) -> float:
        """The place of a value; what lies outside is put at the nearer end."""
        share = (value - self.low) / (self.high - self.low)
        return self.first + (self.last - self.first) * min(max(share, 0.0), 1.0)


def round_ticks_of_markup(low: float, high: float, count: int = 4) -> tuple[float, ...]:
    """About `count` round numbers from below `low` to above `high`.

    >>> round_ticks_of_markup(0.0, 0.83)
    (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    """
    raw = (high - low) / count
    size = 10.0 ** floor(log10(raw))
    step = next(size * factor for factor in (1.0, 2.0, 5.0, 10.0) if size * factor >= 0.8 * raw)
    return tuple(float(f"{i * step:.12g}") for i in range(floor(low / step + 1e-9), ceil(high / step - 1e-9) + 1))


def line_chart_markup(
    title: str,
    description: str,
    lines: Sequence[SvgLine],
    *,
    x_label: str,
    y_label: str,
    x_ticks: Sequence[tuple[float, str]] = (),
    zero: bool = False,
) -> Markup:
    """Lines over numbers; `x_ticks` are places and their names where they are not numbers to be rounded."""
    values = [v for line in lines for part in (line.y, line.low, line.high) for v in part]
    upright = SvgAxis.over(values, HEIGHT - BOTTOM, TOP, zero=zero)
    left = 10.0 + LETTER * max((len(label) for label in upright.labels), default=1)
    x = [v for line in lines for v in line.x]
    if x_ticks:
        places = [*x, *(place for place, _ in x_ticks)]
        across = SvgAxis(
            min(places), max(places) if max(places) > min(places) else min(places) + 1, left, WIDTH - RIGHT
        )
        ticks = list(x_ticks)
    else:
        across = SvgAxis.over(x, left, WIDTH - RIGHT)
        ticks = list(zip(across.ticks, across.labels, strict=True))
    parts = [_text(0, 12, y_label, weight="600"), *_grid(upright, left)]
    for place, label in ticks:
        last = across(place) > WIDTH - RIGHT - 4 * len(label)  # or half of it would stand outside
        parts.append(_text(across(place), HEIGHT - BOTTOM + 16, label, anchor="end" if last else "middle"))
    parts += [_text((left + WIDTH - RIGHT) / 2, HEIGHT - 6, x_label, anchor="middle")]
    parts += [_band(line, across, upright) for line in lines if len(line.low)]
    parts += [part for line in lines for part in _stroke(line, across, upright)]
    return _svg_markup(title, description, parts, HEIGHT)


def bar_chart_markup(title: str, description: str, bars: Sequence[Bar], *, x_label: str) -> Markup:
    """Bars from zero to the right or to the left, one below another, each with its name above it.

    Where a bar has an interval, the value is a dot and the interval a line through it.
    """
    values = [v for bar in bars for v in (bar.value, bar.low, bar.high) if v is not None]
    across = SvgAxis.over(values, SIDE, WIDTH - SIDE, zero=True)
    height = TOP / 2 + len(bars) * 1.6 * ROW + BOTTOM
    zero, parts = across(0.0), []
    end = height - BOTTOM
    for tick, label in zip(across.ticks, across.labels, strict=True):
        parts += [_rule(across(tick), 8, across(tick), end, INK if tick == 0 else GRID)]
        parts += [_text(across(tick), end + 16, label, anchor="middle")]
    for number, bar in enumerate(bars):
        top = 8 + number * 1.6 * ROW
        parts += [_text(8, top + 13, name_markup(bar.name, 40)), _text(WIDTH - 8, top + 13, bar.told, anchor="end")]
        parts += _bar(bar, across, zero, top + 18)
    parts += [_text(WIDTH / 2, height - 6, x_label, anchor="middle")]
    return _svg_markup(title, description, parts, height)


def share_chart_markup(title: str, description: str, bars: Sequence[Bar]) -> Markup:
    """Parts of one whole in one bar."""
    total, at, parts = sum(bar.value for bar in bars) or 1.0, 0.0, []
    for bar in bars:
        wide = WIDTH * bar.value / total
        parts.append(markup_tag("rect", given={"x": at, "y": 4.0, "width": wide, "height": 30.0, "fill": bar.colour}))
        at += wide
    return _svg_markup(title, description, parts, 38.0)


def _svg_markup(title: str, description: str, parts: Sequence[Markup], height: float) -> Markup:
    """A picture with a title and a description, as wide as there is room for, up to half as much again."""
    given = {
        "viewBox": f"0 0 {WIDTH:.0f} {height:.0f}",
        "role": "img",
        "aria-label": f"{title}. {description}",
        "xmlns": "http://www.w3.org/2000/svg",
    }
    return markup_tag("svg", markup_tag("title", title), markup_tag("desc", description), *parts, given=given)


def legend_markup(lines: Sequence[tuple[str, str, Sequence[int]]]) -> Markup:
    """Names beside a stroke, or a patch, of their colours: (name, colour, dashes)."""
    return markup_tag("ul", *(markup_tag("li", _swatch(*one), one[0]) for one in lines), given={"class": "legend"})


def figure_markup(picture: Markup, caption: str, *, beside: Sequence[str] = ()) -> Markup:
    """A picture with what it shows below it."""
    return markup_tag("figure", picture, *beside, markup_tag("figcaption", caption))


def _swatch(name: str, colour: str, dashes: Sequence[int]) -> Markup:
    stroke: dict[str, str | float] = {"x1": 0, "y1": 6, "x2": 24, "y2": 6, "stroke": colour, "stroke-width": 4}
    if any(dashes[1:]):
        stroke["stroke-dasharray"] = " ".join(map(str, dashes))
    picture = {"viewBox": "0 0 24 12", "class": "swatch", "aria-hidden": "true"}
    return markup_tag("svg", markup_tag("line", given=stroke), given=picture)


def _grid(upright: SvgAxis, left: float) -> list[Markup]:
    """Lines across, with their numbers; zero is darker."""
    parts = []
    for tick, label in zip(upright.ticks, upright.labels, strict=True):
        parts.append(_rule(left, upright(tick), WIDTH - RIGHT, upright(tick), INK if tick == 0 else GRID))
        parts.append(_text(left - 4, upright(tick) + 4, label, anchor="end"))
    return parts


def _band(line: SvgLine, across: SvgAxis, upright: SvgAxis) -> Markup:
    """The area between low and high."""
    both = [(x, low, high) for x, low, high in zip(line.x, line.low, line.high, strict=True) if not _odd(low, high)]
    points = [(across(x), upright(high)) for x, _, high in both] + [
        (across(x), upright(low)) for x, low, _ in both[::-1]
    ]
    return markup_tag("polygon", given={"points": _points(points), "fill": line.colour, "fill-opacity": 0.15})


def _stroke(line: SvgLine, across: SvgAxis, upright: SvgAxis) -> list[Markup]:
    """The line itself, and a dot at each point where there are few."""
    points = [(across(x), upright(y)) for x, y in zip(line.x, line.y, strict=False) if not _odd(x, y)]
    given: dict[str, str | float] = {"fill": "none", "stroke": line.colour, "stroke-width": 2}
    if any(line.dashes[1:]):
        given["stroke-dasharray"] = " ".join(map(str, line.dashes))
    dots = [markup_tag("circle", given={"cx": x, "cy": y, "r": 2.5, "fill": line.colour}) for x, y in points]
    drawn = [markup_tag("polyline", given={"points": _points(points), **given})] if points else []
    return [*drawn, *(dots if len(points) <= 40 else [])]


def _bar(bar: Bar, across: SvgAxis, zero: float, top: float) -> list[Markup]:
    """A bar from zero, or a dot with its interval."""
    if not isfinite(bar.value):
        return []
    at = across(bar.value)
    if bar.low is None or bar.high is None:
        left, wide = min(zero, at), max(abs(at - zero), 1.0)
        return [markup_tag("rect", given={"x": left, "y": top, "width": wide, "height": 10.0, "fill": bar.colour})]
    ends = [across(end) if isfinite(end) else at for end in (bar.low, bar.high)]
    through = _rule(ends[0], top + 5, ends[1], top + 5, bar.colour, width=3)
    return [through, markup_tag("circle", given={"cx": at, "cy": top + 5, "r": 5.0, "fill": bar.colour})]


def _rule(x1: float, y1: float, x2: float, y2: float, colour: str, *, width: float = 1) -> Markup:
    given: dict[str, str | float] = {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "stroke": colour, "stroke-width": width}
    return markup_tag("line", given=given)


def _text(x: float, y: float, text: str, *, anchor: str = "start", weight: str = "400") -> Markup:
    if not text:
        return _joined_markup([])
    return markup_tag("text", text, given={"x": x, "y": y, "text-anchor": anchor, "font-weight": weight})


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _odd(*values: float) -> bool:
    return not all(map(isfinite, values))


def _short(value: float, digits: int) -> str:
    """A number on an axis.

    >>> _short(20000.0, 0), _short(0.05, 2)
    ('20k', '0.05')
    """
    if abs(value) >= 10_000 and digits == 0:
        return f"{value / 1_000_000:g}M" if abs(value) >= 1_000_000 else f"{value / 1000:g}k"
    return f"{value:.{digits}f}" if digits <= 4 else f"{value:.3g}"

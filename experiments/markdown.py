"""Numbers and tables as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A table.

    >>> print(table(["N", "error"], [["5", "0.1"]]))
    | N | error |
    | --- | --- |
    | 5 | 0.1 |
    """
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body))


def number(mean: float, error: float | None) -> str:
    """A mean with its standard error, with as many digits as the error deserves.

    >>> number(84.61, 2.13)
    '84.6 ± 2.1'
    """
    if error is None or error == 0:
        return f"{mean:.3g}" if abs(mean) > 1e-9 else "0"
    digits = 0 if error >= 10 else 1 if error >= 0.5 else 2 if error >= 0.05 else 3
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def short(value: float) -> str:
    """A number alone: three digits, thousands separated.

    >>> short(2174240.0)
    '2,174,240'
    """
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def replaced(page: str, start: str, text: str) -> str:
    """The page with the table that begins with `start`, up to the next empty line, in other words.

    >>> replaced("before\\n\\n| a |\\n| 1 |\\n\\nafter", "| a |", "| b |")
    'before\\n\\n| b |\\n\\nafter'
    """
    first = page.index(start)
    return page[:first] + text + page[(page + "\n").index("\n\n", first) :]

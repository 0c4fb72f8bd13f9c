"""Line charts in plain text, for terminals and logs: each series has a letter, so the chart needs no colour.

What a fit found, as Rich renderables: pure functions from plain numbers, so that they can be looked at and tested.

The scree plot draws square roots of eigenvalues (how far users reach along a direction); the part of a bar that
chance alone would give is shaded, so the picture can be read without colours.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from newcomer.arrays import Floats
from newcomer.errors import NewcomerError

_MARKS = string.ascii_uppercase + string.ascii_lowercase + string.digits


def terminal_curves(
    series: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    width: int = 72,
    height: int = 16,
    x_title: str = "",
    y_title: str = "",
) -> str:
    """Draw series of (x, y) into a text of at most `width` columns; `height` counts the rows of the plot itself.

    Where two series meet, the one named first is seen. The legend gives each series' letter and its last value.

    >>> print(terminal_curves({"up": ([0, 1, 2], [0, 1, 4])}, width=24, height=4))
        4 |               AA
    2.667 |           AAAA
          |      AAAAA
        0 |AAAAAA
          +-----------------
           0               2
    <BLANKLINE>
      A up           4
    """
    lines = {name: _points(name, *pair) for name, pair in series.items()}
    if not 1 <= len(lines) <= len(_MARKS) or width < 24 or height < 3:
        raise NewcomerError("this chart cannot be drawn", todo="pass 1 to 62 series, width >= 24 and height >= 3")
    x_low, x_high = _range(x for x, _ in lines.values())
    y_low, y_high = _range(y for _, y in lines.values())
    labels = _labels(y_low, y_high, height)
    margin = max(map(len, labels))
    canvas = np.full((height, width - margin - 2), " ")
    for mark, (x, y) in reversed(list(zip(_MARKS, lines.values(), strict=False))):
        _trace(canvas, mark, (x - x_low) / (x_high - x_low), (y - y_low) / (y_high - y_low))
    rows = [f"{label:>{margin}} |" + "".join(row).rstrip() for label, row in zip(labels, canvas, strict=True)]
    head = [y_title] if y_title else []
    return "\n".join([*head, *rows, *_foot(x_low, x_high, x_title, margin, width), "", *_legend(lines, width)])


def _points(name: str, x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    """The series as arrays, if it can be drawn."""
    across, up = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if across.ndim != 1 or across.shape != up.shape or not len(across) or not np.isfinite([across, up]).all():
        raise NewcomerError(f"series '{name}' cannot be drawn", todo="pass equally many finite x and y")
    return across, up


def _range(values: Iterable[Floats]) -> tuple[float, float]:
    """Smallest and largest of all values, apart even where all are equal."""
    together = np.concatenate(list(values))
    low, high = float(together.min()), float(together.max())
    return (low, high) if high > low else (low, low + 1.0)


def _labels(low: float, high: float, height: int) -> list[str]:
    """Values of the y axis at the top, the middle and the bottom row."""
    labels = [""] * height
    for row in (0, (height - 1) // 2, height - 1):
        labels[row] = f"{high - (high - low) * row / (height - 1):.4g}"
    return labels


def _trace(canvas: NDArray[np.str_], mark: str, x: Floats, y: Floats) -> None:
    """Mark a line, given in fractions of the axes, in every column that it crosses."""
    rows, columns = canvas.shape
    order = np.argsort(x, kind="stable")
    first, last = (round(float(end) * (columns - 1)) for end in (x[order[0]], x[order[-1]]))
    across = np.arange(first, last + 1)
    up = np.interp(across / (columns - 1), x[order], y[order])
    canvas[np.rint((1.0 - up) * (rows - 1)).astype(int), across] = mark


def _foot(low: float, high: float, title: str, margin: int, width: int) -> list[str]:
    """The x axis: a line, its ends and its title between them, cut where there is no room."""
    left, right, room = f"{low:.4g}", f"{high:.4g}", width - margin - 2
    middle = title[: max(room - len(left) - len(right) - 2, 0)].center(room - len(left) - len(right))
    return [" " * margin + " +" + "-" * room, " " * (margin + 2) + left + middle + right]


def _legend(lines: Mapping[str, tuple[Floats, Floats]], width: int) -> list[str]:
    """One line a series: letter, name, last value; long names are cut."""
    room = min(max(map(len, lines)), width - 20)
    return [
        f"  {mark} {name if len(name) <= room else name[: room - 3] + '...':<{room}}  {y[np.argmax(x)]:>10.4g}"
        for mark, (name, (x, y)) in zip(_MARKS, lines.items(), strict=False)
    ]


ROWS = 12  # eigenvalues drawn; more do not fit a screen
WIDTH = 40  # cells of the longest bar, where there is room
BESIDE = 22  # columns that stand beside a bar: its number, the eigenvalue, "kept", and the gaps


class FitToWidth:
    """Something that is made for the columns there are: `make(columns)` is called when it is printed."""

    def __init__(self, make: Callable[[int], RenderableType]) -> None:
        self.make = make

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.make(options.max_width)


@dataclass(frozen=True)
class Glyphs:
    """Characters of the plot."""

    signal: str = "█"
    chance: str = "▒"
    beyond: str = "·"


BLOCKS = Glyphs()
ASCII = Glyphs(signal="#", chance="=", beyond=".")


def terminal_glyphs(encoding: str) -> Glyphs:
    """Blocks where the terminal has them, ASCII elsewhere.

    >>> terminal_glyphs("ascii").signal
    '#'
    """
    return BLOCKS if encoding.lower().replace("-", "").startswith("utf") else ASCII


def scree_rows_in_terminal(values: Sequence[float], rank: int) -> int:
    """How many eigenvalues to draw: the kept ones and up to four of the others, within the screen.

    >>> scree_rows_in_terminal([1.0] * 50, 2), scree_rows_in_terminal([1.0] * 50, 40)
    (6, 12)
    """
    return min(len(values), max(min(rank + 4, ROWS), min(rank, ROWS)))


def terminal_scree(
    values: Sequence[float],
    band: Sequence[float],
    *,
    rank: int,
    total: int,
    glyphs: Glyphs = BLOCKS,
    columns: int = WIDTH + BESIDE,
) -> Table:
    """One bar an eigenvalue, of `total`, with what chance would give (`band`, same length or empty) shaded in it."""
    width = min(WIDTH, max(columns - BESIDE, 1))
    shown = scree_rows_in_terminal(values, rank)
    limits = list(band) or [0.0] * shown
    top = max([*values[:shown], *limits[:shown], 1e-300])
    table = Table.grid(padding=(0, 1))
    for right in (True, False, True, False):
        table.add_column(justify="right" if right else "left", no_wrap=True)
    for i in range(shown):
        kept = i < rank
        bar = terminal_scree_bar(
            _length(values[i], top, width), _length(limits[i], top, width), kept=kept, glyphs=glyphs
        )
        table.add_row(f"   {i + 1}", bar, terminal_number(values[i]), Text("kept" if kept else "", style="green"))
    if shown < total:
        table.add_row("", Text(f"and {total - shown:,} more", style="dim"), "", "")
    return table


def terminal_scree_bar(length: int, chance: int, *, kept: bool, glyphs: Glyphs) -> Text:
    """A bar of `length` cells whose first `chance` cells are what chance gives."""
    return Text.assemble(
        (glyphs.chance * min(length, chance), "cyan" if kept else "dim"),
        (glyphs.signal * max(length - chance, 0), "cyan"),
        (glyphs.beyond * max(chance - length, 0), "dim"),
    )


def terminal_scree_legend(chance: str, glyphs: Glyphs = BLOCKS, columns: int = 80) -> Text:
    """How to read the plot; `chance` says how the band was found. One line, or as many as it takes."""
    parts = [f"{glyphs.chance}{glyphs.beyond} within chance ({chance})"] if chance else []
    parts += [f"{glyphs.signal} beyond it" if chance else f"{glyphs.signal} eigenvalues", "(bars: square roots)"]
    line = "     " + "   ".join(parts)
    return Text(line if len(line) <= columns else "\n".join(parts), style="dim")


def _length(value: float, top: float, width: int) -> int:
    """Cells of a bar: the square root of an eigenvalue, `top` filling the width; a negative one has none."""
    return round(width * math.sqrt(max(value, 0.0) / top))


def terminal_facts(rows: Iterable[tuple[str, RenderableType]]) -> Table:
    """Labelled lines, the labels in a column of their own."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True, min_width=8)
    table.add_column(overflow="fold")
    for label, content in rows:
        table.add_row(label, content)
    return table


def terminal_number(value: float) -> str:
    """Three significant figures without needless exponents.

    >>> terminal_number(27.931), terminal_number(5168.2), terminal_number(1e-9)
    ('27.9', '5,168', '1.0e-09')
    """
    if not math.isfinite(value):
        return "infinite" if math.isinf(value) else "unknown"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:#.3g}".rstrip(".")
    return f"{value:.1e}"


def terminal_count(amount: int, word: str, plural: str = "") -> str:
    """`1 user`, `5,000 users`."""
    return f"{amount:,} {word if amount == 1 else plural or word + 's'}"

"""Line charts in plain text, for terminals and logs: each series has a letter, so the chart needs no colour."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from newcomer.arrays import Floats
from newcomer.errors import NewcomerError

_MARKS = string.ascii_uppercase + string.ascii_lowercase + string.digits


def curves(
    series: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    width: int = 72,
    height: int = 16,
    x_title: str = "",
    y_title: str = "",
) -> str:
    """Draw series of (x, y) into a text of at most `width` columns; `height` counts the rows of the plot itself.

    Where two series meet, the one named first is seen. The legend gives each series' letter and its last value.

    >>> print(curves({"up": ([0, 1, 2], [0, 1, 4])}, width=24, height=4))
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

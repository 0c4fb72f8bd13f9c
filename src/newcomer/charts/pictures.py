"""Pictures: PNG files by Altair and vl-convert (extra [report]); with `newcomer.charts.plot` all that draws with them.

White background, one colour per policy (`newcomer.charts.palette`), legends beside the plot, bands of one standard
error. A picture is made of panels; a panel is layers of one chart, bands below, lines above them, marks on top.

PNG files made smaller without changing a pixel: the renderer compresses little and keeps an unused alpha channel.

The format is that of the PNG specification (W3C): chunks of length, type, data and checksum; pixels row by row behind a
byte that says how the row was filtered, all of it deflated.
"""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.optimize import isotonic_regression

from newcomer.charts.palette import palette_colours, palette_dashes
from newcomer.errors import MissingExtra, NewcomerError, error_name_hint
from newcomer.files import write_file
from newcomer.simulate import simulated_curves, simulated_exits

try:
    import altair as alt
    import vl_convert  # noqa: F401  (Altair finds it by itself; without it there is no PNG)
except ImportError as missing:
    raise MissingExtra.of("report", purpose="charts") from missing

POINTS = 300  # points of a line that are drawn; more cannot be seen
DENSE = 25  # points of a line beyond which their marks are small
IN_ALL = 4_800  # points of all lines of a panel: Altair refuses a table of more than 5,000 rows
MANY = 4  # panels up to which a picture is drawn at twice its nominal size
_FONT = "DejaVu Sans, Liberation Sans, Arial, sans-serif"


@dataclass(frozen=True)
class Axis:
    """One axis of a chart: the column it shows, its title, whether it is logarithmic, whether it must show zero, and
    how many places it has where it counts things: 1, 2, ...
    """

    column: str
    title: str
    log: bool = False
    zero: bool = True
    places: int = 0


def regret_curves(rows: pl.DataFrame, path: str | Path, *, title: str = "", labelled: bool = False) -> Path:
    """Mean cumulative regret of each policy against the round, from the rows of `play`.

    Bands are one standard error over users; a diamond marks the median round in which users left the subspace.
    """
    return _save(regret_chart(rows, title=title, labelled=labelled), path)


def regret_chart(rows: pl.DataFrame, *, title: str = "", labelled: bool = False) -> alt.LayerChart:
    """The chart of `regret_curves`, before it is a file and before it has the house style."""
    lines = simulated_curves(rows)
    x, y = Axis("t", "round"), Axis("regret", "cumulative regret (mean over users)")
    shape = _Lines(x, y, "policy", "regret_se", False, _names([lines], "policy"), labelled)
    chart: alt.LayerChart = shape.panel(lines, _switches(rows, lines)).properties(title=title, width=520, height=340)
    return chart


def draw_lines(
    frame: pl.DataFrame,
    path: str | Path,
    *,
    x: Axis,
    y: Axis,
    series: str = "policy",
    error: str | None = None,
    facet: str | None = None,
    columns: int = 2,
    points: pl.DataFrame | None = None,
    marked: bool = False,
    title: str = "",
    labelled: bool = False,
) -> Path:
    """Lines with bands, one for each value of the column `series`, in the order of the frame.

    Parameters
    ----------
    frame : long table with the columns of `x` and `y`, `series`, and those below.
    error : column with the half height of the band.
    facet : column that splits the picture into panels with axes of their own, `columns` in a row.
    points : rows with the columns of `x`, `y` and `series` (and `facet`) to mark with a diamond.
    marked : show each point of a line, for lines of few points.
    labelled : names at the ends of the lines, in place of a legend; for pictures without facets.
    """
    _check_columns(frame, [x.column, y.column, series, *[name for name in (error, facet) if name]])
    if facet is None:
        shape = _Lines(x, y, series, error, marked, _names([frame], series), labelled)
        return _save(shape.panel(frame, points).properties(title=title, width=520, height=340), path)
    panels = [
        Panel(
            str(value),
            _only(frame, facet, value),
            x,
            y,
            None if points is None else _only(points, facet, value),
            marked,
        )
        for value in frame[facet].unique(maintain_order=True)
    ]
    return draw_panels(panels, path, series=series, error=error, columns=columns, title=title)


@dataclass(frozen=True)
class Panel:
    """One of several charts in a picture, with axes of its own; a line break in the title starts a second line."""

    title: str
    frame: pl.DataFrame
    x: Axis
    y: Axis
    points: pl.DataFrame | None = None
    marked: bool = False


def draw_panels(
    panels: Sequence[Panel],
    path: str | Path,
    *,
    series: str = "policy",
    error: str | None = None,
    columns: int = 2,
    title: str = "",
) -> Path:
    """Several line charts with one legend, `columns` in a row; the arguments are those of `draw_lines`."""
    names = _names([panel.frame for panel in panels], series)
    charts = [
        _Lines(panel.x, panel.y, series, error, panel.marked, names)
        .panel(panel.frame, panel.points)
        .properties(title=_subtitle(panel.title), width=330, height=230)
        for panel in panels
    ]
    return _save(alt.concat(*charts, columns=columns, title=title, spacing=30), path, panels=len(charts))


def draw_outlines(
    frame: pl.DataFrame, path: str | Path, *, series: str, facet: str, columns: int = 3, title: str = ""
) -> Path:
    """Closed outlines in the plane, filled lightly, one panel for each value of `facet` with axes of equal scale.

    `frame` has `x`, `y` and `order` (the place of a point along its outline); an outline of one point is a dot.
    """
    _check_columns(frame, ["x", "y", "order", series, facet])
    hues = palette_colours(_names([frame], series))
    panels = [
        _outlines(_only(frame, facet, value), series, hues).properties(
            title=_subtitle(str(value)), width=300, height=300
        )
        for value in frame[facet].unique(maintain_order=True)
    ]
    return _save(alt.concat(*panels, columns=columns, title=title, spacing=30), path, legend_size=200)


def _outlines(frame: pl.DataFrame, series: str, hues: dict[str, str]) -> Any:
    """One panel of outlines: both axes span 1.08 times the wider of the two ranges, around the middle of each."""
    middle = [(float(frame[c].min()) + float(frame[c].max())) / 2 for c in ("x", "y")]  # type: ignore[arg-type]
    half = 0.54 * max(float(frame[c].max()) - float(frame[c].min()) for c in ("x", "y"))  # type: ignore[arg-type]
    x, y = (
        channel(
            f"{column}:Q", title=f"beta, coordinate {place}", scale=alt.Scale(domain=[m - half, m + half], nice=False)
        )
        for channel, column, place, m in zip((alt.X, alt.Y), ("x", "y"), (1, 2), middle, strict=True)
    )
    stroke = alt.Color(f"{series}:N", title=None, scale=alt.Scale(domain=list(hues), range=list(hues.values())))
    layers = []
    for (name,), outline in frame.group_by(series, maintain_order=True):
        base = alt.Chart(outline).encode(x, y, stroke)
        dot = base.mark_circle(size=90, opacity=1)
        line = base.mark_line(interpolate="linear-closed", fill=hues[str(name)], fillOpacity=0.12, clip=True)
        layers.append(dot if len(outline) == 1 else line.encode(alt.Order("order:Q")))
    return alt.layer(*layers)


def _names(frames: Sequence[pl.DataFrame], series: str) -> tuple[str, ...]:
    """Names of lines, in the order in which they occur: the order of the legend."""
    return tuple(dict.fromkeys(str(name) for frame in frames for name in frame[series].unique(maintain_order=True)))


def _subtitle(text: str) -> alt.Title:
    return alt.Title(text.split("\n"), fontSize=13, fontWeight="normal")


@dataclass(frozen=True)
class _Lines:
    """What all panels of a line chart have in common."""

    x: Axis
    y: Axis
    series: str
    error: str | None
    marked: bool
    names: tuple[str, ...]
    labelled: bool = False

    @cached_property
    def hues(self) -> dict[str, str]:
        """The colour of each line."""
        return palette_colours(self.names)

    def panel(self, frame: pl.DataFrame, points: pl.DataFrame | None) -> Any:
        """Bands below, lines above them, marks on top."""
        shown = _thin(_positive(frame, self.x, self.y), self.series, self.x)
        across, up = _channel(alt.X, self.x, shown), _channel(alt.Y, self.y, shown)
        line = alt.Chart(shown).mark_line().encode(across, up, self._stroke(), self._pattern())
        bands = [] if self.error is None else self._bands(shown)
        many = len(shown) > DENSE * max(shown[self.series].n_unique(), 1)  # rims would hide the line between them
        dots = self._marks(shown, "circle", 20 if many else 45, rim=not many) if self.marked else []
        diamonds = [] if points is None else self._marks(points, "diamond", 150)
        ends = self._labels(shown) if self.labelled else []
        return alt.layer(*(layer.encode(across, up) for layer in [*bands, line, *dots, *diamonds, *ends]))

    def _labels(self, frame: pl.DataFrame) -> list[Any]:
        """The name of each line at its right end, moved apart where lines end close to each other."""
        last = frame.filter(pl.col(self.x.column) == pl.col(self.x.column).max().over(self.series))
        last = last.sort(self.y.column, maintain_order=True)
        room = 0.05 * float(frame[self.y.column].max() or 1.0)  # type: ignore[arg-type]
        apart = room * np.arange(len(last))
        places = isotonic_regression(last[self.y.column].to_numpy() - apart).x + apart  # nearest, and `room` apart
        moved = last.with_columns(pl.Series(self.y.column, places))
        return [
            alt.Chart(row)
            .mark_text(align="left", dx=7, fontSize=12, color=self.hues[name], font=_FONT)
            .encode(text=alt.Text(f"{self.series}:N"))
            for name, row in self._by_series(moved)
        ]

    def _bands(self, frame: pl.DataFrame) -> list[Any]:
        """Areas of constant colour: as an encoded channel they would spoil the legend of the lines."""
        middle, half = pl.col(self.y.column), pl.col(str(self.error)).fill_null(0.0)
        low = middle - half
        if self.y.log:  # a band that reaches zero would leave the picture
            low = pl.when(low > 0).then(low).otherwise(middle / 10)
        edges = frame.with_columns(low.alias(self.y.column), _high=middle + half)
        return [
            alt.Chart(band).mark_area(color=self.hues[name], opacity=0.18, clip=True).encode(alt.Y2("_high:Q"))
            for name, band in self._by_series(edges)
        ]

    def _marks(self, frame: pl.DataFrame, shape: str, size: int, *, rim: bool = True) -> list[Any]:
        """A symbol at every point, in the colour of its line, with a white rim or without."""
        return [
            alt.Chart(points).mark_point(
                shape=shape, size=size, fill=hue, stroke="white" if rim else hue, strokeWidth=2 if rim else 0, opacity=1
            )
            for hue, points in ((self.hues[name], points) for name, points in self._by_series(frame))
        ]

    def _by_series(self, frame: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
        """Name and rows of each line."""
        return ((str(name), rows) for (name,), rows in frame.group_by(self.series, maintain_order=True))

    def _stroke(self) -> alt.Color:
        """Colours of all lines of the picture, so that a line has its own in every panel, and the legend them all."""
        hues = alt.Scale(domain=list(self.names), range=list(self.hues.values()))
        legend: dict[str, Any] = {"legend": None} if self.labelled else {}
        return alt.Color(f"{self.series}:N", title=None, scale=hues, **legend)

    def _pattern(self) -> alt.StrokeDash:
        """Dashes that tell lines of one colour apart."""
        patterns = [list(pattern) for pattern in palette_dashes(self.names).values()]
        legend: dict[str, Any] = {"legend": None} if self.labelled else {}
        scale = alt.Scale(domain=list(self.names), range=patterns)
        return alt.StrokeDash(f"{self.series}:N", title=None, scale=scale, **legend)


def _switches(rows: pl.DataFrame, lines: pl.DataFrame) -> pl.DataFrame:
    """Where on its curve the median user of a policy left the subspace; none if most users never left."""
    never = pl.lit(np.inf)
    median = (
        simulated_exits(rows).group_by("policy").agg(t=pl.col("left_at").cast(pl.Float64).fill_null(never).median())
    )
    median = median.filter(pl.col("t").is_finite()).with_columns(pl.col("t").round().cast(pl.Int64))
    return median.join(lines, on=["policy", "t"]).select("policy", "t", "regret")


def _channel(channel: type[Any], axis: Axis, frame: pl.DataFrame) -> Any:
    """An axis of Altair; a logarithmic one ends at the data, not at the next power of ten, and has our ticks."""
    field = f"{axis.column}:Q"
    if axis.places:
        ticks = alt.Axis(values=list(range(1, axis.places + 1)), format="d", grid=False)
        return channel(
            field, title=axis.title, scale=alt.Scale(domain=[0.5, axis.places + 0.5], nice=False), axis=ticks
        )
    if not axis.log:
        return channel(field, title=axis.title, scale=alt.Scale(zero=axis.zero), axis=alt.Axis(tickCount=6))
    low, high = frame[axis.column].to_numpy().min() / 1.2, frame[axis.column].to_numpy().max() * 1.2
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    return channel(field, title=axis.title, scale=scale, axis=alt.Axis(values=_ticks(low, high), format=",~g"))


def _ticks(low: float, high: float) -> list[float]:
    """Powers of ten; with fewer than two of them in sight also their doubles and fives.

    >>> _ticks(0.9, 30.0), _ticks(0.9, 300.0)
    ([1.0, 2.0, 5.0, 10.0, 20.0], [1.0, 10.0, 100.0])
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    few = math.log10(high / low) < 2
    return [m * 10.0**p for p in powers for m in ((1, 2, 5) if few else (1,)) if low <= m * 10.0**p <= high]


def _thin(frame: pl.DataFrame, series: str, x: Axis) -> pl.DataFrame:
    """At most about `POINTS` points of each line, fewer of many lines, evenly spaced in rank, the ends among them.

    The renderer's time and the picture's size grow with the points, its looks do not.
    """
    place, last = pl.int_range(pl.len()).over(series), pl.len().over(series) - 1
    most = min(POINTS, max(IN_ALL // max(frame[series].n_unique(), 1), 2))
    step = (last // most + 1).cast(pl.Int64)
    return frame.sort(x.column, maintain_order=True).filter((place % step == 0) | (place == last))


def _positive(frame: pl.DataFrame, *axes: Axis) -> pl.DataFrame:
    """Without the rows that a logarithmic axis cannot show."""
    return frame.filter(*[pl.col(axis.column) > 0 for axis in axes if axis.log])


def _only(frame: pl.DataFrame, column: str, value: object) -> pl.DataFrame:
    return frame.filter(pl.col(column) == value)


def _check_columns(frame: pl.DataFrame, names: Sequence[str]) -> None:
    """Say which column is missing; Altair would draw an empty picture."""
    for name in names:
        if name not in frame.columns:
            hint = error_name_hint(name, frame.columns)
            raise NewcomerError(f"the table to draw has no column '{name}'{hint}", todo=f"it has {frame.columns}")


def styled_picture(chart: Any, *, legend_size: int = 400) -> Any:
    """The chart in the house style: white, one font, a light grid, room beside the legend."""
    text = {"labelFont": _FONT, "titleFont": _FONT, "labelFontSize": 12}
    axis = {"titleFontSize": 13, "titleFontWeight": "normal", "gridColor": "#EEEEEE", "labelFlush": False}
    return (
        chart.configure(background="white", font=_FONT, padding=12)
        .configure_axis(**text, **axis, labelOverlap="greedy", labelSeparation=6)
        .configure_legend(**text, labelLimit=360, offset=14, symbolSize=legend_size, symbolStrokeWidth=3)
        .configure_title(font=_FONT, fontSize=14, anchor="start", offset=10)
        .configure_line(strokeWidth=2.2)
        .configure_view(stroke=None)
    )


def _save(chart: Any, path: str | Path, *, legend_size: int = 400, panels: int = 1) -> Path:
    """Write the PNG in the house style, at twice the nominal size, or less where many panels would make a huge file."""
    styled = styled_picture(chart, legend_size=legend_size)
    with alt.data_transformers.enable("default", max_rows=None):
        drawn = io.BytesIO()
        styled.save(drawn, format="png", scale_factor=2 if panels <= MANY else 1.3)
    write_file(Path(path), squeezed_png(drawn.getvalue()))
    return Path(path)


SIGNATURE = b"\x89PNG\r\n\x1a\n"
EIGHT_BIT_RGBA = bytes([8, 6, 0, 0, 0])  # depth, colour type, compression, filter method, interlacing
EIGHT_BIT_RGB = bytes([8, 2, 0, 0, 0])
PLAIN, LEFT = 0, 1  # rows as they are, or each pixel less the one to its left


def squeezed_png(data: bytes) -> bytes:
    """The same picture as opaque RGB at full compression; anything but an opaque 8-bit RGBA picture as it is.

    Rows that the renderer filtered hold each pixel less its left neighbour; their running sum (modulo 256) is the row.
    """
    parts = list(_chunks(data))
    head = parts[0][1] if parts and parts[0][0] == b"IHDR" else b""
    if head[8:] != EIGHT_BIT_RGBA:
        return data
    width, height = struct.unpack(">II", head[:8])
    packed = b"".join(body for kind, body in parts if kind == b"IDAT")
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + 4 * width)
    if not np.isin(rows[:, 0], (PLAIN, LEFT)).all():
        return data
    pixels = rows[:, 1:].reshape(height, width, 4).copy()
    filtered = rows[:, 0] == LEFT
    pixels[filtered] = np.cumsum(pixels[filtered], axis=1, dtype=np.uint8)
    if not (pixels[..., 3] == 255).all():
        return data
    plain = np.zeros((height, 1 + 3 * width), np.uint8)
    plain[:, 1:] = pixels[..., :3].reshape(height, -1)
    body = [
        (b"IHDR", head[:8] + EIGHT_BIT_RGB),
        *((kind, content) for kind, content in parts if kind == b"pHYs"),  # the resolution
        (b"IDAT", zlib.compress(plain.tobytes(), 9)),
        (b"IEND", b""),
    ]
    return SIGNATURE + b"".join(_chunk(kind, content) for kind, content in body)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Type and data of each chunk; nothing if this is no PNG."""
    place = len(SIGNATURE) if data.startswith(SIGNATURE) else len(data)
    while place + 12 <= len(data):
        (size,) = struct.unpack(">I", data[place : place + 4])
        yield data[place + 4 : place + 8], data[place + 8 : place + 8 + size]
        place += 12 + size


def _chunk(kind: bytes, body: bytes) -> bytes:
    """Length, type, data and checksum of type and data."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

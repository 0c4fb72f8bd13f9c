"""The paper's bounds on the error of the subspace, beside the calibrated estimate: what `inspect --bounds` shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from newcomer.cli.text_charts import FitToWidth, number

if TYPE_CHECKING:
    from newcomer.cli.model_summary import ModelSummary
    from newcomer.model import Model

NARROW = 50  # columns that the table of radii takes


@dataclass(frozen=True)
class RadiusFindings:
    """One kind of radius: the paper's, the sharper form, and the paper's with coverage taken as known (Delta_D = 0).

    Spectral, clipped at 1; `_raw` is not clipped.
    """

    kind: str
    theorem: float
    theorem_raw: float
    identity: float
    identity_raw: float
    simplified: float
    simplified_raw: float

    @classmethod
    def of(cls, model: Model, kind: str, delta: float) -> RadiusFindings:
        """Ask the model."""
        theorem = [model.radius(kind, delta=delta, clip=clip) for clip in (True, False)]
        identity = [model.radius(kind, delta=delta, clip=clip, form="identity") for clip in (True, False)]
        simplified = [model.radius(kind, delta=delta, clip=clip, simplified=True) for clip in (True, False)]
        return cls(kind, *theorem, *identity, *simplified)


def kinds_of(model: Model) -> tuple[str, ...]:
    """The radii of the paper that a model can tell: where one-hot actions are many, not all, or none."""
    from newcomer.radius import KINDS

    kept = model.evidence.radius
    if kept is None:
        return ()
    return KINDS if kept.walk or kept.martingale else KINDS[:-1]


def bounds_of(found: ModelSummary) -> RenderableType:
    """Every bound, with what it is worth; lambda_A is that of Assumption 2 of the paper."""
    if found.rank in (0, found.dim):
        return "none: " + ("no subspace" if found.rank == 0 else "the whole space")
    outer = Table.grid()
    weakest = f"coverage of the weakest direction (lambda_A) {number(found.coverage.lambda_A)}"
    ridge = "" if found.ridge.value is None else f", ridge {number(found.ridge.value)} ({found.ridge.why})"
    outer.add_row(f"sine of the largest angle to the true subspace, at most, with probability {1 - found.delta:g}")
    outer.add_row(f"{weakest}{ridge}")
    if not found.radius:
        outer.add_row("this fit keeps nothing to compute bounds from: --estimator sold does")
        return outer
    outer.add_row(FitToWidth(lambda room: radius_table(found.radius) if room >= NARROW else radius_lines(found.radius)))
    outer.add_row(Text(verdict(found.radius), "yellow"))
    return outer


def radius_table(radii: Sequence[RadiusFindings]) -> Table:
    """A row for each kind of radius, a column for each form; a form is shown with its value without clipping."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    table.add_row(*(Text(word, style="dim") for word in ("", "theorem", "sharper form", "coverage known")))
    for radius in radii:
        forms = [
            (radius.theorem, radius.theorem_raw),
            (radius.identity, radius.identity_raw),
            (radius.simplified, radius.simplified_raw),
        ]
        table.add_row(radius.kind, *(shown(*form) for form in forms))
    return table


def radius_lines(radii: Sequence[RadiusFindings]) -> Text:
    """The same for a terminal that has no room for the columns."""
    lines = []
    for one in radii:
        forms = (one.theorem, one.theorem_raw), (one.identity, one.identity_raw), (one.simplified, one.simplified_raw)
        theorem, sharper, known = (shown(*form) for form in forms)
        lines.append(Text.assemble(f"{one.kind} ", theorem, ", sharper form ", sharper, ", coverage known ", known))
    return Text("\n").join(lines)


def shown(value: float, raw: float) -> Text:
    """A radius, or, faintly, the raw bound of one that says nothing."""
    return Text(number(value)) if value < 1 else Text(number(raw), style="dim")


def verdict(radii: Sequence[RadiusFindings]) -> str:
    """What the bounds are worth, said plainly."""
    best = [min(radius.theorem, radius.identity) for radius in radii]
    if min(best) < 1:
        return "A bound of 1 or more is vacuous."
    return "All vacuous (1 or more): for this many users the theory promises nothing."

"""The lines of regret figures: policies that play, the fits behind them, and the table of their curves.

The paper's ProBALL is drawn three times at each tau: H, E and M are its Hoeffding, empirical Bernstein and martingale
Bernstein radius. Lines that have no tau (the baselines) are repeated in every panel of their world.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import polars as pl

from newcomer.paper.figure import Draw, Figure
from newcomer.paper.jobs import SLOW, ExitRule, Fit, JobFolder, Play
from newcomer.paper.players import paper_radius
from newcomer.paper.scale import REPLAY, SIMULATIONS, Scale
from newcomer.simulate import simulated_curves, simulated_totals

KINDS = {"H": "hoeffding", "E": "bernstein", "M": "martingale"}
POINTS = 100  # rounds of a curve that are kept
RIDGE = 1.0  # of SOLD in the simulation; not stated in the paper
RANK = 2  # of the simulation


@dataclass(frozen=True)
class Line:
    """One line of a regret figure: its label, and its run, which says the world and tau of its panel."""

    label: str
    play: Play

    @property
    def tau(self) -> float | None:
        """ProBALL's tau; None for a line that is in every panel of its world."""
        return self.play.exit.tau if self.play.exit else None


Lines = Callable[[JobFolder], list[Line]]


def sold(scale: Scale, world: str, *, users: int | None = None, seed: int = 1) -> Fit:
    """The paper's fit: SOLD with a ridge in the simulation, with pseudo-inverses on MovieLens; the true rank."""
    if world in SIMULATIONS:
        return Fit(world, users or scale.users, scale.steps, "sold", RANK, RIDGE, seed)
    return Fit(world, users or scale.film_users, scale.film_steps, "sold-pinv", scale.rank, None, seed)


def prior(scale: Scale, world: str, *, users: int | None = None) -> Fit:
    """What PriorUCB learns from the same logs: everything is chosen from the data."""
    return replace(sold(scale, world, users=users), estimator="em", rank=0, ridge=None)


def sure(scale: Scale, world: str) -> Fit:
    """What LOCAL-UCB learns from the same logs: a basis of the true rank, which SOLD is given too, and its radius.

    The radius is calibrated, and Frobenius, in which LOCAL-UCB's constraint is written.
    """
    return replace(sold(scale, world), estimator="em", ridge=None, calibrate=True)


def fits(scale: Scale, worlds: Sequence[str], *, local: bool = False) -> list[Fit]:
    """The fits of every world: SOLD's, the prior's and, for figures with LOCAL-UCB, the calibrated one."""
    makers = (sold, prior, sure) if local else (sold, prior)
    return [make(scale, world) for world in worlds for make in makers]


def run(scale: Scale, world: str, policy: str, *, fit: Fit | None = None, latent: bool = False) -> Play:
    """A play at the horizon of its world: that of the simulation, or that of MovieLens."""
    rounds = scale.rounds if world in SIMULATIONS else scale.film_rounds
    return Play(world, policy, rounds, scale.trials, fit, latent=latent)


def baseline(scale: Scale, world: str, policy: str) -> Line:
    """A rival, in every panel of its world.

    Most rivals learn from the newcomer alone; mmUCB has its epsilon from SOLD's fit, and LOCAL-UCB a fit of its own.
    """
    fit = {"mmUCB": sold, SLOW: sure}.get(policy)
    return Line(policy, run(scale, world, policy, fit=fit and fit(scale, world)))


def own_lines(scale: Scale, world: str, *, users: int | None = None) -> list[Line]:
    """The lines that the paper lacks: both honest baselines, and the prior that the same logs show.

    In the simulation every round has fresh actions, so that there is nothing for EmpiricalArms to average.
    """
    found = {"PopulationMean": sold(scale, world, users=users), "PriorUCB": prior(scale, world, users=users)}
    if world not in SIMULATIONS:
        found["EmpiricalArms"] = prior(scale, world, users=users)
    return [Line(policy, run(scale, world, policy, fit=fit)) for policy, fit in found.items()]


def proball(kept: JobFolder, policy: str, fit: Fit) -> list[Line]:
    """ProBALL with the subspace and each of the three radii of a fit, at each tau of its world.

    The fit's model says what Delta is; before the fit is finished the lines can only be counted. Lines whose radius
    and tau lead out of the subspace in the same round share one run (`newcomer.paper.jobs`), so a grid of eighteen
    lines is far fewer plays.
    """
    play, radii, dim = run(kept.scale, fit.world, policy, fit=fit), dict.fromkeys(KINDS, math.nan), kept.scale.dim
    if kept.place(fit).is_file():
        model = kept.model(fit)
        radii, dim = {letter: paper_radius(model, kind) for letter, kind in KINDS.items()}, model.dim
    return [
        Line(f"{letter}-{policy}", replace(play, exit=ExitRule(radius, tau, dim)))
        for tau in kept.scale.taus[fit.world]
        for letter, radius in radii.items()
    ]


def played(
    name: str,
    *,
    claim: str,
    caption: Callable[[Scale], str],
    fits: Callable[[Scale], Sequence[Fit]],
    lines: Lines,
    draw: Draw,
    values: Sequence[str] = ("regret",),
) -> Figure:
    """A figure of curves, from policies that play.

    `fits` must contain the fit of every play in `lines`; `draw` is one of the pictures of
    `newcomer.paper.panels`. `values` are what newcomers are compared by: "regret" of all rounds, "reward" of the
    last 25.
    """
    return Figure(
        name=name,
        claim=claim,
        caption=caption,
        fits=fits,
        jobs=lambda kept: [line.play for line in lines(kept)],
        table=lambda kept: curve_table(kept, lines(kept)),
        draw=draw,
        newcomers=lambda kept: newcomer_table(kept, lines(kept), values),
    )


def newcomer_table(kept: JobFolder, lines: Sequence[Line], values: Sequence[str] = ("regret",)) -> pl.DataFrame:
    """What every newcomer got by every line: `world`, `tau`, `policy`, `value`, then `n1`, `n2`, ..., one a newcomer.

    The same column of the same world is the same newcomer, with the same candidates and noise, in every figure. Of real
    people the mean over the lines is taken off: differences stay, and what a person rated does not.
    """
    found = [_by_newcomer(line, kept.rows(line.play), value) for value in values for line in lines]
    table = pl.concat(found)
    if REPLAY in table["world"]:
        table = table.with_columns(pl.col("^n[0-9]+$") - pl.col("^n[0-9]+$").mean().over("value"))
    return table


def _by_newcomer(line: Line, rows: pl.DataFrame, value: str) -> pl.DataFrame:
    """One row of the table."""
    own = simulated_totals(rows).sort("user")[value]
    place = {"world": line.play.world, "tau": line.tau, "policy": line.label, "value": value}
    row = pl.DataFrame(place | {f"n{i}": number for i, number in enumerate(own, start=1)})
    return row.with_columns(pl.col("tau").cast(pl.Float64))


def curve_table(kept: JobFolder, lines: Sequence[Line]) -> pl.DataFrame:
    """The curves of finished lines, one under the other.

    Columns `world`, `tau` (null: in every panel), `policy`, `t`, `left_at` (null: the subspace is never left, or
    there is none), then cumulative regret and the reward of the last 25 rounds, each with its standard error over
    newcomers.
    """
    return pl.concat([_curve(line, kept.rows(line.play)) for line in lines])


def _curve(line: Line, rows: pl.DataFrame) -> pl.DataFrame:
    """About `POINTS` evenly spaced rounds of one curve, and with them the last round and the one in which it leaves."""
    left, curve = line.play.left_at, simulated_curves(rows)
    if left is not None and left > line.play.rounds:
        left = None
    step = -(-len(curve) // POINTS)
    shown = ((pl.col("t") - 1) % step == 0) | (pl.col("t") == pl.col("t").max()) | (pl.col("t") == (left or 0))
    return curve.filter(shown).select(
        pl.lit(line.play.world).alias("world"),
        pl.lit(line.tau, dtype=pl.Float64).alias("tau"),
        pl.lit(line.label).alias("policy"),
        "t",
        pl.lit(left, dtype=pl.Float64).alias("left_at"),
        "regret",
        "regret_se",
        "reward",
        "reward_se",
    )

"""Fits and lines that several figures share."""

from __future__ import annotations

from newcomer.experiments.contenders import available
from newcomer.experiments.figure import Line
from newcomer.experiments.jobs import Fit, Play
from newcomer.experiments.scale import SIMULATIONS, Scale

RIDGE = 1.0  # of SOLD in the simulation; not stated in the paper
RANK = 2


def sold(scale: Scale, world: str, *, users: int | None = None, seed: int = 1) -> Fit:
    """The paper's fit: SOLD with a ridge in the simulation, with pseudo-inverses on MovieLens; the true rank."""
    if world in SIMULATIONS:
        return Fit(world, users or scale.users, scale.steps, "sold", RANK, RIDGE, seed)
    return Fit(world, users or scale.film_users, scale.film_steps, "sold-pinv", scale.rank, None, seed)


def prior(scale: Scale, world: str, *, users: int | None = None, seed: int = 1) -> Fit:
    """What PriorUCB learns from the same logs: everything chosen from the data."""
    same = sold(scale, world, users=users, seed=seed)
    return Fit(world, same.users, same.steps, "em", 0, None, seed)


def sure(scale: Scale, world: str) -> Fit:
    """What LOCAL-UCB learns from the same logs: a basis of the true rank, as SOLD is given, with its calibrated radius."""
    same = sold(scale, world)
    return Fit(world, same.users, same.steps, "em", same.rank, None, same.seed, calibrate=True)


def fits(scale: Scale, worlds: tuple[str, ...]) -> list[Fit]:
    """Both fits of every world."""
    return [make(scale, world) for world in worlds for make in (sold, prior)]


def rounds_of(scale: Scale, world: str) -> int:
    """Horizon of a world's figures."""
    return scale.rounds if world in SIMULATIONS else scale.film_rounds


def run(scale: Scale, world: str, policy: str, *, fit: Fit | None = None, latent: bool = False) -> Play:
    """A play at the world's horizon."""
    return Play(world, policy, rounds_of(scale, world), scale.trials, fit, latent=latent)


def plain(scale: Scale, world: str, policy: str) -> Line:
    """A line of a baseline, in every panel of its world; mmUCB's epsilon comes from the fit."""
    fit = sold(scale, world) if policy == "mmUCB" else None
    return Line(world, policy, run(scale, world, policy, fit=fit))


def local(scale: Scale, world: str) -> Line:
    """LOCAL-UCB, in every panel of its world."""
    return Line(world, "LOCAL-UCB", run(scale, world, "LOCAL-UCB", fit=sure(scale, world)))


def honest(scale: Scale, world: str, *, users: int | None = None) -> list[Line]:
    """The lines that the paper lacks: no personalisation, and the prior of the same logs."""
    lines = [Line(world, "PopulationMean", run(scale, world, "PopulationMean", fit=sold(scale, world, users=users)))]
    if available("PriorUCB"):
        lines.append(Line(world, "PriorUCB", run(scale, world, "PriorUCB", fit=prior(scale, world, users=users))))
    return lines

"""The MovieLens figures: regret and rolling rating of ProBALL with SOLD's subspace, with the true one, and of its rivals.

Every figure is drawn for both factorisations of the ratings (`newcomer.worlds.factorise`): the literal one is the paper's
description, the balanced one has the eigenvalues that its plots show. Regret and rating come from the same runs.
"""

from __future__ import annotations

from dataclasses import replace

from newcomer.experiments.bench import Bench
from newcomer.experiments.figure import (
    Draw,
    Figure,
    Line,
    Lines,
    curve_table,
    played,
    proball,
    rating_panels,
    regret_panels,
)
from newcomer.experiments.jobs import Play
from newcomer.experiments.scale import FILMS, Scale
from newcomer.experiments.sweeps import fits, honest, local, plain, run, sold, sure

UCB = ("LinUCB", "mUCB", "mmUCB", "mmUCB, fitted epsilon")
TS = ("LinTS", "mTS", "mmTS", "MixTS")
SWEEP = {
    "movielens-together": ("LinUCB", "LinTS", "mmTS", "MixTS"),
    "movielens-ucb": UCB,
    "movielens-ts": TS,
    "lowdim": UCB[1:],
    "truth": UCB,
}


def together(scale: Scale, bench: Bench) -> list[Line]:
    """Both versions of ProBALL in one picture."""
    return _lines(scale, bench, "movielens-together", ("ProBALL-UCB", "ProBALL-TS"))


def ucb(scale: Scale, bench: Bench) -> list[Line]:
    """The optimistic algorithms."""
    return [local(scale, world) for world in FILMS] + _lines(scale, bench, "movielens-ucb", ("ProBALL-UCB",))


def ts(scale: Scale, bench: Bench) -> list[Line]:
    """The Thompson samplers."""
    return _lines(scale, bench, "movielens-ts", ("ProBALL-TS",))


def lowdim(scale: Scale, bench: Bench) -> list[Line]:
    """Rivals that are given the true k-dimensional features. mUCB's models lie in that span, so they gain nothing."""
    lines = [Line(world, "LinUCB, true features", low_linucb(scale, world)) for world in FILMS]
    return lines + _lines(scale, bench, "lowdim", ("ProBALL-UCB",))


def truth(scale: Scale, bench: Bench) -> list[Line]:
    """ProBALL-UCB with the true basis and SOLD's radii."""
    lines = _lines(scale, bench, "truth", ("ProBALL-UCB",))
    return [replace(line, play=replace(line.play, truth=True)) if "ProBALL" in line.policy else line for line in lines]


def low_linucb(scale: Scale, world: str) -> Play:
    """LinUCB on U*^T phi."""
    return run(scale, world, "LinUCB", latent=True)


def _lines(scale: Scale, bench: Bench, name: str, versions: tuple[str, ...]) -> list[Line]:
    found: list[Line] = []
    for world in FILMS:
        found += [plain(scale, world, policy) for policy in SWEEP[name]]
        for version in versions:
            found += proball(bench, scale.taus[world], run(scale, world, version, fit=sold(scale, world)))
        found += honest(scale, world)
    return found


def caption(scale: Scale) -> str:
    """What the paper does not state."""
    return (
        f"d = {scale.dim}, k = {scale.rank}, {scale.film_users:,} histories of {scale.film_steps} steps with uniform "
        "behaviour, "
        f"pseudo-inverse SOLD with the true rank, T = {scale.film_rounds}, noise variance 0.5, practical widths, "
        f"tau' = 0, {scale.trials} newcomers, bands "
        "of one standard error, a diamond where the subspace is left. Ours: K = 20 movies of distinct genre strings, "
        "features scaled to norm at most "
        "1, delta = 0.05, R = largest |reward| and L = largest |beta_1||beta_2| in the logs (plug-ins), histories of "
        "users drawn with replacement; "
        f"baselines have {scale.rank} k-means clusters of the true user vectors with their shares as weights, mmTS "
        "the variance and MixTS the covariance "
        "(+ 0.1 of the pooled variance) within a cluster; mmUCB has epsilon = Delta_off as the paper says, and the "
        "90% quantile of the "
        "clusters' reward error. LOCAL-UCB: EM's basis of the true rank and its calibrated radius. tau = 0.5 and 0.1 are the paper's; the smaller ones are ours."
    )


def _pair(name: str, lines: Lines, claim: str) -> tuple[Figure, Figure]:
    """The regret and the rating figure of the same runs."""
    return _one(f"{name}-regret", lines, claim, regret_panels), _one(f"{name}-rating", lines, claim, rating_panels)


def _one(name: str, lines: Lines, claim: str, draw: Draw) -> Figure:
    return Figure(
        name=name,
        claim=claim,
        caption=caption,
        fits=lambda scale: fits(scale, FILMS) + [sure(scale, world) for world in FILMS if lines is ucb],
        jobs=played(lines),
        table=curve_table(lines),
        draw=draw,
    )


FIGURES = (
    _one(
        "movielens-together",
        together,
        "ProBALL-UCB outperforms LinUCB; ProBALL-TS outperforms MixTS and mmTS.",
        regret_panels,
    ),
    *_pair("movielens-ucb", ucb, "ProBALL-UCB is no worse than LinUCB for any tau and outperforms mUCB and mmUCB."),
    *_pair("movielens-ts", ts, "All variants of ProBALL-TS outperform TS, mmTS and MixTS."),
    *_pair(
        "lowdim",
        lowdim,
        "With tau small enough ProBALL-UCB is no worse than LinUCB, mUCB, mmUCB on the true low-dimensional features.",
    ),
    *_pair(
        "truth", truth, "With the true subspace ProBALL-UCB is no worse than LinUCB and outperforms mUCB and mmUCB."
    ),
)

"""Replay on real ratings: no simulator. Newcomers are held-out users, candidates movies they really rated.

See `newcomer.worlds.replay` for what keeps it honest. Everything that policies know comes from the other users' ratings: movie
features, logs, clusters. Regret is the best rating on offer less the rating of the movie chosen.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from newcomer.charts.pictures import Axis, Panel, draw_panels
from newcomer.experiments.bench import Bench
from newcomer.experiments.contenders import available
from newcomer.experiments.figure import Figure, Line, curve_table, played
from newcomer.experiments.jobs import Fit, Play
from newcomer.experiments.scale import REPLAY, Scale

SWEEP = {
    "Uniform": "",
    "LinUCB": "",
    "LinTS": "",
    "mUCB": "",
    "mmUCB, fitted epsilon": "",
    "mTS": "",
    "mmTS": "",
    "MixTS": "",
    "ProBALL-UCB": "sold",
    "ProBALL-TS": "sold",
    "PopulationMean": "sold",
    "PriorTS": "em",
    "PriorUCB": "em",
}  # policy: estimator of its model


def fits(scale: Scale) -> list[Fit]:
    """Models of the real histories: SOLD with the rank of the figures, and everything chosen from the data."""
    return [Fit(REPLAY, 0, 0, "sold", scale.rank), Fit(REPLAY, 0, 0, "em", 0)]


def lines(scale: Scale, bench: Bench) -> list[Line]:
    """One line for each policy."""
    models = {fit.estimator: fit for fit in fits(scale)}
    return [
        Line(REPLAY, policy, Play(REPLAY, policy, scale.replay_rounds, scale.replay_trials, models.get(estimator)))
        for policy, estimator in SWEEP.items()
        if available(policy)
    ]


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Regret, and the rating of what was recommended."""
    x = Axis("t", "recommendation")
    regret = frame.rename({"regret": "value", "regret_se": "se"}).select("policy", "t", "value", "se")
    rating = frame.rename({"reward": "value", "reward_se": "se"}).select("policy", "t", "value", "se")
    panels = [
        Panel("rating lost so far (best on offer less chosen)", regret, x, Axis("value", "cumulative regret")),
        Panel("rating of the movies chosen", rating, x, Axis("value", "rating (mean of last 25)", zero=False)),
    ]
    return draw_panels(panels, path, error="se")


def _caption(scale: Scale) -> str:
    return (
        f"{scale.replay_trials} newcomers from the 30% of users held out of everything, {scale.replay_rounds} rounds "
        "of 10 movies each, which that user really rated and "
        f"which are offered only once; the reward is the real rating. Features (d = {scale.replay_dim}), clusters "
        f"({scale.rank}) and logs (whole real histories) come from the other 70%. "
        f"ProBALL: SOLD with its default ridge and rank {scale.rank} (its own null keeps all directions: histories "
        "are long), default radius, tau = 1, so it never leaves the subspace within this horizon. Noise sd of the "
        "baselines: the factorisation's held-out error. Bands of one standard error."
    )


FIGURES = (
    Figure(
        name="replay",
        claim="(not in the paper) What each policy is worth to real people, without a simulator.",
        caption=_caption,
        fits=fits,
        jobs=played(lines),
        table=curve_table(lines),
        draw=draw,
    ),
)

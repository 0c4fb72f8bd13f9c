"""replay: what each policy is worth to real people, without a simulator.

Newcomers are held-out users, candidates are movies they really rated; see `newcomer.paper.worlds.replay` for what keeps
it honest. Everything that policies know comes from the other users' ratings: movie features, logs, clusters. Regret is
the best rating on offer less the rating of the movie chosen.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from newcomer.charts.pictures import Axis, Panel, draw_panels
from newcomer.paper.jobs import Fit, JobFolder, Play
from newcomer.paper.lines import Line, played
from newcomer.paper.scale import REPLAY, Scale

# What a policy learned offline: nothing (though some are given clusters), SOLD's model, or the distribution of users.
FROM_ITSELF = ("Uniform", "LinUCB", "LinTS", "mUCB", "mmUCB, fitted epsilon", "mTS", "mmTS", "MixTS")
FROM_SOLD = ("ProBALL-UCB", "ProBALL-TS", "PopulationMean")
FROM_EM = ("PriorTS", "PriorUCB", "EmpiricalArms")


def fits(scale: Scale) -> list[Fit]:
    """Models of the whole real histories: SOLD with the rank of the figures, EM with everything chosen."""
    return [Fit(REPLAY, 0, 0, "sold", scale.rank), Fit(REPLAY, 0, 0, "em", 0)]


def lines(kept: JobFolder) -> list[Line]:
    """One line for each policy."""
    scale = kept.scale
    models = zip((FROM_ITSELF, FROM_SOLD, FROM_EM), (None, *fits(scale)), strict=True)
    return [
        Line(policy, Play(REPLAY, policy, scale.replay_rounds, scale.replay_trials, fit))
        for policies, fit in models
        for policy in policies
    ]


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Regret on the left, on the right the rating of what was recommended."""
    x = Axis("t", "recommendation")
    regret, rating = (frame.select("policy", "t", value=name, se=f"{name}_se") for name in ("regret", "reward"))
    panels = [
        Panel("rating lost so far (best on offer less chosen)", regret, x, Axis("value", "cumulative regret")),
        Panel("rating of the movies chosen", rating, x, Axis("value", "rating (mean of last 25)", zero=False)),
    ]
    return draw_panels(panels, path, error="se")


def caption(scale: Scale) -> str:
    """What has been done."""
    return (
        f"{scale.replay_trials} newcomers from the 30% of users held out of everything, {scale.replay_rounds} rounds "
        "of 10 movies each, which that user really rated and which are offered only once; the reward is the real "
        f"rating. Features (d = {scale.replay_dim}), clusters ({scale.rank}) and logs (whole real histories) come "
        f"from the other 70%. ProBALL: SOLD with its default ridge and rank {scale.rank} (its own null keeps all "
        "directions: histories are long), default radius, tau = 1, so it never leaves the subspace within this "
        "horizon. Noise sd of the baselines: the factorisation's held-out error. Bands of one standard error."
    )


FIGURES = (
    played(
        "replay",
        claim="(not in the paper) What each policy is worth to real people, without a simulator.",
        caption=caption,
        fits=fits,
        lines=lines,
        draw=draw,
        values=("regret", "reward"),
    ),
)

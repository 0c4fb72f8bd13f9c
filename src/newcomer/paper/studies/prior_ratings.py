"""Stars and clicks: what the Gaussian working model makes of rewards from 1 to 5, and of rewards that are 0 or 1.

Stars are real: the replay of MovieLens ratings of held-out users (`newcomer.paper.worlds.replay`). Clicks are logistic
in a latent score (`studies.stars_and_clicks`; d = 21, k = 2, a mean of its own, 5000 users of 20 steps). Reliability:
for users who were in no fit, the posterior mean reward after 0, 5 and 20 random rewards of theirs is compared with what
they then really gave, in ten bins of equal size; a reliable prediction lies on the diagonal. `slope` is the regression
of rewards on predictions within that cell (1 is right), `gain` the share of the variance about the mean reward that is
predicted. The working model is linear with one noise variance: predictions can leave the range of rewards, and against
a logistic truth they bend away from the diagonal at the ends (too low for actions hardly ever clicked). Choosing needs
their order, which this keeps.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from newcomer._fit import fit
from newcomer.arrays import Floats
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.em.likelihood import likelihood_posterior
from newcomer.model import Model
from newcomer.paper.figure import Point, study
from newcomer.paper.scale import Scale, Setting
from newcomer.paper.studies.stars_and_clicks import CLICKS, STARS, rewarded_by
from newcomer.population import Population
from newcomer.worlds.world import Newcomers, world_stream

SEEN, BINS = (0, 5, 20), 10
FUTURE = 60  # rewards of each user that are predicted
OFFERED = 10  # candidates of a round whose rewards are read


def sweep(scale: Scale) -> list[Point]:
    """The replay once, clicks in several worlds."""
    newcomers, seeds = (20, 2) if scale.quick else (300, 5)
    worlds = [(STARS, 0), *((CLICKS, seed) for seed in range(1, seeds + 1))]
    return [{"rewards": name, "newcomers": newcomers, "seed": seed} for name, seed in worlds]


def run(setting: Setting, *, rewards: str, newcomers: int, seed: int) -> pl.DataFrame:
    """Predicted and actual rewards of held-out users, one row for each of their future rewards and each number seen."""
    place, logs = rewarded_by(rewards, setting, seed)
    model = fit(logs, null=False, calibrate=False, outcome="gaussian")  # what is studied; clicks may take another link
    past, given, future, actual = _held_out(place, newcomers, seed)
    parts = []
    for seen in SEEN:
        predicted = _predict(model, past[:, :seen], given[:, :seen], future)
        cell = {"seen": seen, "user": np.repeat(np.arange(newcomers), FUTURE), "predicted": predicted.ravel()}
        parts.append(pl.DataFrame({**cell, "actual": actual.ravel()}))
    rank = model.factor.shape[1]
    return pl.concat(parts).with_columns(rewards=pl.lit(rewards), seed=pl.lit(seed), rank=pl.lit(rank))


def _held_out(place: Newcomers, users: int, seed: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Features and rewards of the first few and of later random interactions: (n, h, d), (n, h), (n, f, d), (n, f)."""
    cut = max(SEEN)
    rounds = cut + FUTURE
    found = []
    for user in range(users):
        episode = place.episode(world_stream(seed, "held-out user", user), -(-rounds // OFFERED))
        features, rewards = episode.actions[:, :OFFERED], episode.rewards[:, :OFFERED]
        found.append((features.reshape(-1, place.dim)[:rounds], rewards.ravel()[:rounds]))
    features, rewards = (np.stack(part) for part in zip(*found, strict=True))
    return features[:, :cut], rewards[:, :cut], features[:, cut:], rewards[:, cut:]


def _predict(model: Model, past: Floats, given: Floats, future: Floats) -> Floats:
    """Posterior mean rewards (n, f) of future actions: phi^T (m + L E[z | past]), or phi^T m where nothing was seen."""
    prior = Population(model.mean, model.factor, model.noise_variance)
    beta = np.broadcast_to(model.mean, (len(future), model.dim))
    if past.shape[1] and model.factor.shape[1]:
        beta = model.mean + likelihood_posterior(prior, past, given).mean @ model.factor.T
    return np.asarray(np.einsum("nfd,nd->nf", future, beta))


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Ten bins of equal size for each world and number of rewards seen.

    A user's rewards depend on each other, so users are the units of the standard error: within a bin they are first
    averaged by user, and users weighted by their rows.
    """
    by = ["rewards", "seen"]
    bin_of = (pl.col("predicted").rank("ordinal").over(by) - 1) * BINS // pl.len().over(by)
    users = (
        rows.with_columns(bin=bin_of)
        .group_by(*by, "bin", "seed", "user")
        .agg(pl.col("predicted", "actual").mean(), rows=pl.len())
    )
    weight = pl.col("rows") / pl.col("rows").sum()
    bins = users.group_by(*by, "bin").agg(
        predicted=(pl.col("predicted") * weight).sum(),
        actual=(pl.col("actual") * weight).sum(),
        actual_se=(weight * (pl.col("actual") - (pl.col("actual") * weight).sum())).pow(2).sum().sqrt(),
        rows=pl.col("rows").sum(),
    )
    return bins.join(_fits(rows, by), on=by).sort(*by, "bin", descending=[True, False, False])


def _fits(rows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """How well predictions do in each cell: slope and bias, the share of variance predicted, and their range."""
    slope = pl.cov("predicted", "actual") / pl.col("predicted").var()
    gain = 1 - (pl.col("actual") - pl.col("predicted")).pow(2).mean() / pl.col("actual").var()
    bias = (pl.col("predicted") - pl.col("actual")).mean()
    ends = {"lowest": pl.col("predicted").min(), "highest": pl.col("predicted").max()}
    return rows.group_by(by).agg(slope=slope, bias=bias, gain=gain, ranks=pl.col("rank").max(), **ends)


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Actual against predicted, with the diagonal."""
    lines = frame.select(
        "rewards", pl.format("after {} rewards", "seen").alias("line"), "predicted", "actual", "actual_se"
    )
    ends = lines.group_by("rewards", maintain_order=True).agg(
        predicted=pl.concat_list(pl.col("predicted").min(), pl.col("predicted").max()).first()
    )
    diagonal = ends.explode("predicted").select(
        "rewards", line=pl.lit("exact"), predicted="predicted", actual="predicted", actual_se=pl.lit(0.0)
    )
    x, y = Axis("predicted", "predicted mean reward", zero=False), Axis("actual", "mean reward given", zero=False)
    return draw_lines(
        pl.concat([diagonal, lines]), path, x=x, y=y, series="line", error="actual_se", facet="rewards", marked=True
    )


STUDY = study(
    "prior-ratings",
    claim="Predicted means have the right scale for stars and for clicks; before the first reward stars are predicted "
    "too low, and so are rare clicks.",
    about=__doc__,
    sweep=sweep,
    run=run,
    table=table,
    draw=draw,
)

"""Stars and clicks: what the Gaussian working model makes of rewards from 1 to 5, and of rewards that are 0 or 1.

Stars are real: the replay of MovieLens ratings of held-out users (`newcomer.worlds.replay`). Clicks are logistic in a latent score (`beyond.clicks`; d = 21, k = 2, a
mean of its own, 5000 users of 20 steps). Reliability: for users who were in no fit, the posterior mean reward after 0, 5 and 20 random rewards
of theirs is compared with what they then really gave, in ten bins of equal size; a reliable prediction lies on the diagonal.
`slope` is the regression of rewards on predictions within that cell (1 is right), `gain` the share of the variance about the mean reward that is predicted.
The working model is linear with one noise variance: predictions can leave the range of rewards, and against a logistic truth they bend
away from the diagonal at the ends (too low for actions hardly ever clicked). Choosing needs their order, which this keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from newcomer.charts.pictures import Axis, draw_lines
from newcomer.experiments.bench import Bench
from newcomer.experiments.beyond.clicks import Clicks
from newcomer.experiments.beyond.common import Verdict, finished, grid, nothing, quick, rounded
from newcomer.experiments.figure import Figure
from newcomer.experiments.jobs import Scalar, Table
from newcomer.experiments.places import Setting, world
from newcomer.experiments.scale import REPLAY, Scale
from newcomer.fitting import fit
from newcomer.logs import Logs
from newcomer.model import Model
from newcomer.population.likelihood import posterior_of
from newcomer.population.record import Population
from newcomer.worlds.episodes import Newcomers, stream
from newcomer.worlds.synthetic import Synthetic

Floats = NDArray[np.float64]
NAME = "prior-ratings"
STARS, CLICKS = "stars, real ratings", "clicks, logistic"
SEEN, BINS = (0, 5, 20), 10
FUTURE = 60  # rewards of each user that are predicted
SLOPE = (0.9, 1.1)


def jobs(scale: Scale, bench: Bench | None = None) -> list[Table]:
    """The replay once, clicks in several worlds."""
    newcomers, seeds = (20, 2) if quick(scale) else (300, 5)
    points: list[dict[str, Scalar]] = [{"rewards": STARS, "newcomers": newcomers, "seed": 0}]
    points += [{"rewards": CLICKS, "newcomers": newcomers, "seed": seed} for seed in range(1, seeds + 1)]
    return grid(NAME, points)


def place(name: str, setting: Setting, seed: int) -> tuple[Newcomers, Logs]:
    """A world of stars or clicks and its logs."""
    if name == STARS:
        replay = world(REPLAY, setting)
        return replay, replay.logs(None, None, 0)  # type: ignore[arg-type]
    clicks = Clicks(Synthetic(dim=20, offset=0.5, seed=seed))
    return clicks, clicks.logs(1000 if quick(setting.sizes) else 5000, 20, seed)


def run(setting: Setting, arguments: Mapping[str, Scalar]) -> pl.DataFrame:
    """Predicted and actual rewards of held-out users."""
    name, newcomers, seed = str(arguments["rewards"]), int(arguments["newcomers"] or 0), int(arguments["seed"] or 0)
    where, logs = place(name, setting, seed)
    model = fit(logs, null=False, calibrate=False)
    past, given, future, actual = _held_out(where, newcomers, seed)
    parts = []
    for seen in SEEN:
        predicted = _predict(model, past[:, :seen], given[:, :seen], future)
        cell = {"seen": seen, "user": np.repeat(np.arange(newcomers), FUTURE), "predicted": predicted.ravel()}
        parts.append(pl.DataFrame({**cell, "actual": actual.ravel()}))
    rank = model.factor.shape[1]
    return pl.concat(parts).with_columns(rewards=pl.lit(name), seed=pl.lit(seed), rank=pl.lit(rank))


def _held_out(where: Newcomers, users: int, seed: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Features and rewards of the first few and of later random interactions: (n, h, d), (n, h), (n, f, d), (n, f)."""
    rounds = max(SEEN) + FUTURE
    found = []
    for user in range(users):
        rng = stream(seed, "held-out user", user)
        episode = where.episode(rng, -(-rounds // 10))
        features, rewards = episode.actions[:, :10].reshape(-1, where.dim), episode.rewards[:, :10].ravel()
        found.append((features[:rounds], rewards[:rounds]))
    features, rewards = (np.stack(part) for part in zip(*found, strict=True))
    cut = max(SEEN)
    return features[:, :cut], rewards[:, :cut], features[:, cut:], rewards[:, cut:]


def _predict(model: Model, past: Floats, given: Floats, future: Floats) -> Floats:
    """Posterior mean rewards (n, f)."""
    population = Population(model.mean, model.factor, model.noise_variance)
    beta = np.broadcast_to(model.mean, (len(future), model.dim))
    if past.shape[1] and model.factor.shape[1]:
        beta = model.mean + posterior_of(population, past, given).mean @ model.factor.T
    return np.asarray(np.einsum("nfd,nd->nf", future, beta))


def table(scale: Scale, bench: Bench) -> pl.DataFrame:
    """Ten bins of equal size for each world and number of rewards seen."""
    rows = finished(jobs(scale), bench)
    by = ["rewards", "seen"]
    place_ = ((pl.col("predicted").rank("ordinal").over(by) - 1) * BINS // pl.len().over(by)).alias("bin")
    users = (
        rows.with_columns(place_)
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
    return rounded(bins.join(_fits(rows, by), on=by).sort(*by, "bin", descending=[True, False, False]))


def _fits(rows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    slope = pl.cov("predicted", "actual") / pl.col("predicted").var()
    gain = 1 - (pl.col("actual") - pl.col("predicted")).pow(2).mean() / pl.col("actual").var()
    bias = (pl.col("predicted") - pl.col("actual")).mean()
    ends = {"lowest": pl.col("predicted").min(), "highest": pl.col("predicted").max()}
    return rows.group_by(by).agg(slope=slope, bias=bias, gain=gain, ranks=pl.col("rank").max(), **ends)


def verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """Slope of rewards on predictions, and the largest distance of a bin from the diagonal."""
    found = []
    low, high = SLOPE
    for (name, seen), own in frame.group_by("rewards", "seen", maintain_order=True):
        first = own.row(0, named=True)
        gap = float((own["predicted"] - own["actual"]).abs().max())  # type: ignore[arg-type]
        told = (
            f"slope {first['slope']:.3g}, bias {first['bias']:.2g}, worst bin {gap:.2g} off; explains {first['gain']:.1%} of the variance;"
            f" predictions from {first['lowest']:.2g} to {first['highest']:.2g}"
        )
        holds = low <= first["slope"] <= high
        found.append(Verdict(f"{name}, after {seen} rewards", f"slope {low:g} to {high:g}", told, holds))
    return found


def details(frame: pl.DataFrame) -> pl.DataFrame:
    """The bins."""
    told = pl.format("{}: {}", pl.col("predicted").round(2), pl.col("actual").round(2))
    return frame.with_columns(told=told).pivot("bin", index=["rewards", "seen"], values="told")


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


FIGURE = Figure(
    name=NAME,
    claim="Predicted means are reliable for stars and for clicks, although the working model is Gaussian.",
    caption=lambda scale: "Held-out users; ten bins of equal size; bands of one standard error, users as units.",
    fits=nothing,
    jobs=jobs,
    table=table,
    draw=draw,
)

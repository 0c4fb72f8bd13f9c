"""How often do the checks accuse clean logs, and how often do they find what is wrong?

Clean: 1,250 data sets, 250 of each of five designs, 300 users, two tastes, level 0.05. "features": 12 normal features,
10 rows each; "features, ragged": 6 to 14 rows; "actions": 30 actions of unequal popularity, drawn with replacement, 10
rows; "actions once, ragged": the same without replacement, 6 to 14 rows; "actions once, good ones popular": 10 rows,
log-odds of an action rise by 0.7 an sd of its mean; "all clean": the five together. `alarm` is the share of sets
in which the test alone has p <= 0.05, `named` that in which the finding is doubtful or broken after Holm's correction;
the test "any" is the whole: a set in which any adjusted p-value is at most 0.05, or any is named.

Power: 20 data sets of each fault and strength, 2,000 users, 20 rows, features. A logger who knows the taste, or learns
it from the rewards so far, takes one of two candidates with log-odds of so much an sd of taste; rewards of all actions,
or along a random direction of the features, drift by so many sd of rewards over a history; the logarithm of the length
moves by so much an sd of taste; so much of the variance of features belongs to the user; people log 20 of 100 actions
with log-odds of so much an sd of their own rewards, noise and all, in random order.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from newcomer.arrays import Floats
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.checks.quick import TESTS, quick_check
from newcomer.logs import Logs
from newcomer.paper.figure import Point, study
from newcomer.paper.scale import Scale, Setting
from newcomer.paper.worlds.biased_logs import biased_softmax_choice
from newcomer.worlds.world import world_stream

LEVEL, DIM, ACTIONS, TASTES, NOISE = 0.05, 12, 30, 2, 1.5
DESIGNS = ("features", "features, ragged", "actions", "actions once, ragged", "actions once, good ones popular")
MANY = 100  # actions of which people log what they like
CLEAN, BLOCK, POWER = 250, 50, 20  # clean sets of a design, and of a job; sets of a fault and strength
FAULTS: dict[str, tuple[str, tuple[float, ...]]] = {
    "logger knows taste": ("preference-dependent logging", (0.1, 0.2, 0.5, 1.0)),
    "logger learns taste": ("adaptive logging", (0.1, 0.2, 0.5, 1.0)),
    "all rewards drift": ("drift", (0.05, 0.1, 0.25, 0.5)),
    "a direction drifts": ("drift", (0.05, 0.1, 0.25, 0.5)),
    "length by taste": ("history length", (0.05, 0.1, 0.2, 0.5)),
    "contexts of the user": ("contexts", (0.01, 0.02, 0.05, 0.1)),
    "people log what they like": ("self-selection", (0.25, 0.5, 1.0, 2.0)),
}
TOGETHER = "all clean"
SCHEMA = {
    "design": pl.String,
    "strength": pl.Float64,
    "test": pl.String,
    "alarm": pl.Boolean,
    "named": pl.Boolean,
    "effect": pl.Float64,
}


def sweep(scale: Scale) -> list[Point]:
    """Blocks of clean sets of every design, and of sets of every fault and strength."""
    clean, size, power, each = (1, 5, 1, 2) if scale.quick else (CLEAN // BLOCK, BLOCK, 1, POWER)
    points: list[Point] = [
        {"design": design, "strength": 0.0, "sets": size, "seed": seed}
        for design in DESIGNS
        for seed in range(1, clean + 1)
    ]
    return points + [
        {"design": fault, "strength": strength, "sets": each, "seed": seed}
        for fault, (_, strengths) in FAULTS.items()
        for strength in strengths
        for seed in range(1, power + 1)
    ]


def run(setting: Setting, *, design: str, strength: float, sets: int, seed: int) -> pl.DataFrame:
    """What every test says of every set of a block."""
    rng = world_stream(seed, f"check {design} {strength}")
    rows = []
    for number in range(sets):
        logs = clean(rng, design) if design in DESIGNS else faulty(rng, design, strength)
        found = quick_check(logs, level=LEVEL, seed=1000 * seed + number)
        tested = [found[name] for name in TESTS if found[name].p_value is not None]
        named = [one.verdict in ("doubtful", "broken") for one in tested]
        wanted = [design in DESIGNS or one.name == FAULTS[design][0] for one in tested]
        each = zip(tested, named, wanted, strict=True)
        rows += [
            _row(design, strength, o.name, float(o.p_value or 0), n, float(o.effect or 0)) for o, n, w in each if w
        ]
        smallest = min(one.adjusted or 0.0 for one in tested)
        rows.append(_row(design, strength, "any", smallest, any(named), 0.0))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _row(design: str, strength: float, test: str, p: float, named: bool, effect: float) -> tuple[object, ...]:
    return design, strength, test, p <= LEVEL, named, effect


def clean(rng: np.random.Generator, design: str, users: int = 300) -> Logs:
    """A small clean data set."""
    lengths = rng.integers(6, 15, users) if "ragged" in design else np.full(users, 10)
    user = np.repeat(np.arange(users), lengths)
    tastes = rng.standard_normal((users, TASTES))
    if design.startswith("features"):
        features = rng.standard_normal((len(user), DIM))
        betas = tastes @ _loadings(rng, DIM) + 0.3
        reward = np.einsum("nd,nd->n", features, betas[user]) + NOISE * rng.standard_normal(len(user))
        return Logs.from_arrays(user=user, features=features, reward=reward)
    popular = 0.7 * rng.standard_normal(ACTIONS)
    if "once" in design:
        drawn = np.argsort(-(popular + rng.gumbel(size=(users, ACTIONS))), axis=1)
        action = drawn[user, np.arange(len(user)) - np.repeat(np.cumsum(lengths) - lengths, lengths)]
    else:
        action = biased_softmax_choice(rng, np.broadcast_to(popular, (len(user), ACTIONS)))
    mean = popular / 0.7 if "good" in design else rng.standard_normal(ACTIONS)
    liked = np.sqrt(ACTIONS) * tastes @ _loadings(rng, ACTIONS) + mean
    reward = liked[user, action] + NOISE * rng.standard_normal(len(user))
    return Logs.from_arrays(user=user, action=action, reward=reward)


def faulty(rng: np.random.Generator, fault: str, strength: float, users: int = 2000, steps: int = 20) -> Logs:
    """A data set with one fault."""
    if fault == "people log what they like":
        return self_selected(rng, strength, users, steps)
    tastes = rng.standard_normal((users, TASTES))
    betas = tastes @ _loadings(rng, DIM)
    noise = NOISE * rng.standard_normal((users, steps))
    shown = _shown(rng, fault, strength, betas, noise)
    reward = np.einsum("nhd,nd->nh", shown, betas) + noise
    place, deviation = np.linspace(0, 1, steps), np.sqrt(1 + NOISE**2)
    along = rng.standard_normal(DIM)
    if fault == "all rewards drift":
        reward = reward + strength * deviation * place
    if fault == "a direction drifts":
        reward = reward + strength * deviation * place * (shown @ (along / np.linalg.norm(along)))
    lengths = np.full(users, steps)
    if fault == "length by taste":
        lengths = np.clip(np.rint(steps / 2 * np.exp(strength * tastes[:, 0])), 2, steps).astype(np.int64)
    kept = np.arange(steps) < lengths[:, None]
    user = np.repeat(np.arange(users), lengths)
    return Logs.from_arrays(user=user, features=shown[kept], reward=reward[kept])


def self_selected(rng: np.random.Generator, strength: float, users: int = 2000, steps: int = 20) -> Logs:
    """People who log `steps` of `MANY` actions, none twice, by their own rewards."""
    liked = np.sqrt(MANY) * rng.standard_normal((users, TASTES)) @ _loadings(rng, MANY) + rng.standard_normal(MANY)
    liked = liked + NOISE * rng.standard_normal((users, MANY))
    odds = strength * liked / np.sqrt(1 + NOISE**2) + rng.gumbel(size=liked.shape)
    action = rng.permuted(np.argsort(-odds, axis=1)[:, :steps], axis=1)
    reward = np.take_along_axis(liked, action, axis=1)
    return Logs.from_arrays(user=np.repeat(np.arange(users), steps), action=action.ravel(), reward=reward.ravel())


def _shown(rng: np.random.Generator, fault: str, strength: float, betas: Floats, noise: Floats) -> Floats:
    """Features (n, H, d) that the logger shows, of two candidates each time."""
    users, steps = noise.shape
    own = np.sqrt(strength if fault == "contexts of the user" else 0.0)
    offers = own * rng.standard_normal((users, 1, 1, DIM))
    offers = offers + np.sqrt(1 - own**2) * rng.standard_normal((users, steps, 2, DIM))
    if fault not in ("logger knows taste", "logger learns taste"):
        return np.asarray(offers[:, :, 0])
    shown, guess = np.empty((users, steps, DIM)), np.zeros((users, DIM))
    for step in range(steps):
        believed = betas if fault == "logger knows taste" else guess / (step + DIM)
        scores = strength * np.einsum("nkd,nd->nk", offers[:, step], believed)
        shown[:, step] = offers[np.arange(users), step, biased_softmax_choice(rng, scores)]
        paid = np.einsum("nd,nd->n", shown[:, step], betas) + noise[:, step]
        guess += paid[:, None] * shown[:, step]
    return shown


def _loadings(rng: np.random.Generator, size: int) -> Floats:
    """Two directions (2, size), such that tastes move rewards of unit features by 1 in all."""
    return np.asarray(np.linalg.qr(rng.standard_normal((size, TASTES)))[0].T / np.sqrt(TASTES))


def table(rows: pl.DataFrame) -> pl.DataFrame:
    """Shares of sets of every design, strength and test."""
    share, clean = pl.col("alarm").mean(), rows.filter(pl.col("design").is_in(DESIGNS))
    together = clean.with_columns(design=pl.lit(TOGETHER))
    return (
        pl.concat([together, rows])
        .group_by("design", "strength", "test", maintain_order=True)
        .agg(
            sets=pl.len(),
            alarm=share,
            alarm_se=(share * (1 - share) / pl.len()).sqrt(),
            named=pl.col("named").mean(),
            effect=pl.col("effect").mean(),
        )
    )


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Power curves, a panel a fault."""
    shown = frame.filter(pl.col("design").is_in(list(FAULTS)), pl.col("test") != "any")
    long = pl.concat(
        [
            shown.select("design", "strength", policy=pl.lit(name), share=pl.col(column))
            for name, column in {"the test alone": "alarm", "doubtful or broken": "named"}.items()
        ]
    )
    x, y = Axis("strength", "strength of the fault"), Axis("share", "share of data sets")
    return draw_lines(long, path, x=x, y=y, facet="design", columns=3, marked=True, series="policy")


STUDY = study(
    "check-rates",
    claim="Clean logs are accused as seldom as promised, and faults that matter are found.",
    about=__doc__,
    sweep=sweep,
    run=run,
    table=table,
    draw=draw,
)

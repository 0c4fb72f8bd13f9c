"""From numbers of single users to the records of an evaluation: averages, paired differences, intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from newcomer.arrays import Floats, Ints
from newcomer.evaluation.cold_start import CHANCE, ERROR, ORDER, REWARD
from newcomer.evaluation.predictors import MEAN, OURS
from newcomer.evaluation.results import CurveStep, LearningStep, PolicyRow
from newcomer.gain.per_user import UserTable
from newcomer.interval import FEWEST, Interval

STEPS = (0, 1, 2, 5, 10, 20)  # interactions after which rewards are predicted
TOLD = (1, 5, 10, 20)  # rounds of the simulation that are told


def curves_of(judged: UserTable) -> tuple[CurveStep, ...]:
    """Every predictor after every number of interactions; PriorUCB ranks by more than it expects, and has no error."""
    told = []
    for name in (name for name in judged.names if name not in (OURS, CHANCE)):
        for place, t in enumerate(STEPS):
            own, mean = judged.of(name)[:, place], judged.of(MEAN)[:, place]
            people = int(np.isfinite(own[:, REWARD]).sum())
            if people >= FEWEST:
                error, order, reward = (Interval.of(own[:, kind], judged.folds) for kind in (ERROR, ORDER, REWARD))
                saved = Interval.of(mean[:, ERROR] - own[:, ERROR], judged.folds)
                over = Interval.of(own[:, REWARD] - judged.of(OURS)[:, place, REWARD], judged.folds)
                told.append(CurveStep(name, t, people, error, saved, order, reward, over))
    return tuple(told)


def table_rows(played: UserTable, rounds: Sequence[int]) -> tuple[PolicyRow, ...]:
    """Average rewards a round of each policy over the first rounds; rewards are (n, P, T)."""
    people, _, length = played.people.values.shape
    if people < FEWEST:
        return ()
    told = sorted({t for t in rounds if t <= length} | {length})
    rewards = {name: played.of(name) for name in played.names}
    return tuple(_row(name, t, rewards, played.folds) for name in played.names for t in told)


def _row(name: str, rounds: int, rewards: Mapping[str, Floats], folds: Ints | None = None) -> PolicyRow:
    own, mean, ours = (rewards[one][:, :rounds].mean(axis=1) for one in (name, MEAN, OURS))
    reward, over_mean, over_ours = (Interval.of(one, folds) for one in (own, own - mean, own - ours))
    return PolicyRow(name, rounds, len(own), reward, over_mean, over_ours)


def simulated_rows(rows: pl.DataFrame) -> tuple[PolicyRow, ...]:
    """The same of the rows of `play`."""
    names = rows["policy"].unique(maintain_order=True).to_list()
    users, rounds = rows["user"].n_unique(), rows["t"].n_unique()
    won = {
        name: rows.filter(pl.col("policy") == name).sort("user", "t")["reward"].to_numpy().reshape(users, rounds)
        for name in names
    }
    return tuple(_row(name, t, won) for name in names for t in TOLD if t <= rounds)


def learning_of(
    judged: UserTable, learned: Sequence[dict[float, tuple[int, UserTable]]], users: int, look: int
) -> tuple[LearningStep, ...]:
    """Gains after `look` interactions by users fitted to: those of the folds together, and all `users` last."""
    place = STEPS.index(look)
    ours, mean = (judged.of(name)[:, place, REWARD] for name in (OURS, MEAN))
    if int(np.isfinite(ours).sum()) < FEWEST:
        return ()
    told = []
    for share in (share for share in learned[0] if all(share in one for one in learned)):
        fewer = UserTable.joined([one[share][1] for one in learned])
        own = _aligned(judged, fewer, fewer.of(OURS)[:, 0, REWARD])
        fewer_users = round(np.mean([one[share][0] for one in learned]))
        gains = (Interval.of(one, judged.folds) for one in (own - mean, ours - own))
        told.append(LearningStep(fewer_users, look, *gains))
    whole = LearningStep(users, look, Interval.of(ours - mean, judged.folds), Interval.of(0.0 * ours))
    return (*told, whole) if told else ()


def _aligned(judged: UserTable, other: UserTable, values: Floats) -> Floats:
    """Values of another table of people in the order of the first, NaN where somebody is not in it."""
    places = dict(zip(other.people.hashes.tolist(), values.tolist(), strict=True))
    return np.array([places.get(one, np.nan) for one in judged.people.hashes.tolist()])

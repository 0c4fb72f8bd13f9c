"""Two recommenders that teams already have, folded in for a newcomer: explicit ALS and EASE.

Both are learned from the table of logged answers X less the mean of each action, (users, actions), with a zero where
nothing was logged (mask W):

    ALS    X ~ P V^T on the logged cells, ridge on both sides; a newcomer's p is ridge least squares on own answers
    EASE   B = argmin |X - X B|^2 + ridge |B|^2 with a zero diagonal: B = I - G^-1 / diag(G^-1), G = X^T X + ridge I

A newcomer's table has the mean of own answers in each cell met. Neither says anything new of an action once met (ALS
blurs the answer, EASE is blind to it), so both are also played with the person's own mean answer wherever there is one.
The ridge is the one of a grid with which a hidden fifth of the logged answers is predicted best.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from newcomer.arrays import Bools, Floats, Ints
from newcomer.linear.state import State
from newcomer.logs import Logs
from newcomer.model import Model
from newcomer.policies.contract import Contract
from newcomer.policies.questions import Ids, Question, Rewards
from newcomer.worlds.world import stream

FACTORS, SWEEPS, HIDDEN, PRIOR = 18, 10, 0.2, 5.0  # PRIOR: answers that pull an action's mean to the mean of all
RIDGES = {"ALS": (3.0, 10.0, 30.0), "EASE": (30.0, 100.0, 300.0, 1000.0)}
Fold = Callable[[Floats, Bools], Floats]  # centred answers (n, A) and where they are -> what is expected of all cells


@dataclass
class Answers(State):
    """Sums and counts (n, A) of a person's centred answers."""

    total: Floats
    count: Floats


@dataclass(frozen=True, eq=False)
class FoldIn(Contract[Answers]):
    """Greedy by a recommender; with `own`, the person's own mean answer counts wherever there is one."""

    model: Model  # which actions there are
    mean: Floats
    fold: Fold
    own: bool = False

    def begin(self, n: int) -> Answers:
        """Nothing answered."""
        return Answers(np.zeros((n, len(self.mean))), np.zeros((n, len(self.mean))))

    def rank(self, state: Answers, asked: Question) -> Floats:
        """What the recommender expects (m, K)."""
        met = state.count[asked.users] > 0
        answers = state.total[asked.users] / np.maximum(state.count[asked.users], 1.0)
        expected = self.fold(answers, met)
        expected = self.mean + (np.where(met, answers, expected) if self.own else expected)
        return np.take_along_axis(expected, self._places(asked.ids, (len(asked.users), -1)), axis=1)

    def learn(self, state: Answers, told: Rewards) -> None:
        """Add the answers up."""
        places = self._places(told.ids, (-1,))
        np.add.at(state.total, (told.users, places), told.reward - self.mean[places])
        np.add.at(state.count, (told.users, places), 1.0)

    def _places(self, ids: Ids | None, shape: tuple[int, ...]) -> Ints:
        assert ids is not None
        return self.model.codes(ids.ravel().tolist()).reshape(shape)


def recommenders(logs: Logs, model: Model) -> dict[str, FoldIn]:
    """ALS and EASE, each as it is and with a person's own answers where there are any."""
    answers, met = table_of(logs)
    total, count = answers.sum(axis=0), met.sum(axis=0)
    overall = answers.sum() / met.sum()
    mean = (total + PRIOR * overall) / (count + PRIOR)
    centred = np.where(met, answers - mean, 0.0)
    made = {name: best_ridge(name, centred, met) for name in RIDGES}
    return {
        f"{name} fold-in{', own answers' if own else ''}": FoldIn(model, mean, fold, own)
        for name, fold in made.items()
        for own in (False, True)
    }


def table_of(logs: Logs) -> tuple[Floats, Bools]:
    """Mean answers (users, actions) of the logs, zero where there are none, and where there are some."""
    rows, start = [], 0
    for batch in logs.batches():
        assert batch.actions is not None
        user = start + np.repeat(np.arange(len(batch.users)), np.diff(batch.offsets))
        rows.append((user, batch.actions, batch.rewards))
        start += len(batch.users)
    user, action, reward = (np.concatenate(part) for part in zip(*rows, strict=True))
    total, count = np.zeros((start, len(logs.action_ids or ()))), np.zeros((start, len(logs.action_ids or ())))
    np.add.at(total, (user, action), reward)
    np.add.at(count, (user, action), 1.0)
    return total / np.maximum(count, 1.0), count > 0


def best_ridge(name: str, centred: Floats, met: Bools) -> Fold:
    """The recommender of this name with the ridge that predicts a hidden part of the answers best."""
    hidden = met & (stream(0, "hidden answers").random(met.shape) < HIDDEN)
    shown = met & ~hidden
    seen, make = np.where(shown, centred, 0.0), {"ALS": als, "EASE": ease}[name]

    def error(ridge: float) -> float:
        return float(((make(seen, shown, ridge)(seen, shown) - centred)[hidden] ** 2).mean())

    return make(centred, met, min(RIDGES[name], key=error))


def als(centred: Floats, met: Bools, ridge: float) -> Fold:
    """Explicit alternating least squares."""
    items = 0.1 * stream(0, "als").standard_normal((centred.shape[1], FACTORS))
    for _ in range(SWEEPS):
        users = fold_in(items, centred, met, ridge)
        items = fold_in(users, np.ascontiguousarray(centred.T), np.ascontiguousarray(met.T), ridge)
    return lambda answers, where: np.asarray(fold_in(items, answers, where, ridge) @ items.T)


def fold_in(factors: Floats, answers: Floats, where: Bools, ridge: float) -> Floats:
    """Ridge least squares (n, k) of each row of answers (n, A) on the factors (A, k) of its cells."""
    count, rank = factors.shape
    squares = (factors[:, :, None] * factors[:, None, :]).reshape(count, rank * rank)
    systems = (where.astype(np.float64) @ squares).reshape(-1, rank, rank) + ridge * np.eye(rank)
    return np.asarray(np.linalg.solve(systems, (answers @ factors)[:, :, None])[:, :, 0])


def ease(centred: Floats, met: Bools, ridge: float) -> Fold:
    """The linear autoencoder with a zero diagonal, in closed form."""
    inverse = np.linalg.inv(centred.T @ centred + ridge * np.eye(centred.shape[1]))
    weights = -inverse / np.diag(inverse)
    np.fill_diagonal(weights, 0.0)
    return lambda answers, where: np.asarray(answers @ weights)

"""People: any complete table of real ratings as a world, every person a row and every question a column.

Some people are in the logs, with a few answers each; the others are newcomers whom no log knows. Each round offers a
newcomer a few questions, and the reward is the answer that the person really gave. Because the table is complete, the
answer to every question on offer is known, so that policies meet the same people and the same offers, and regret is
exact: the best answer on offer less the chosen one's.

Two things make it different from a simulation. Nothing is Gaussian, linear or of low rank unless people are. And what a
person thinks of a question beyond everything it has in common with other questions is there too.

A table answers the same question with the same number every time, and people do not: in studies of re-rating two
answers of a person to one question are half a star to most of a star apart. So where questions come again
(`repeat=True`) results should be seen at several values of `retest`, the share of a person's residual that is drawn
afresh at each meeting. The residual of an answer x_a is its distance from what the person's other answers say,

    x_a - E[x_a | the others] = (P (x - mu))_a / P_aa,      P = Sigma^-1,

with mean mu and covariance Sigma of the complete rows of the people in the logs. With share q an answer becomes x_a -
residual + sqrt(1 - q) residual + sqrt(q) fresh, where `fresh` is the residual of a person of the logs drawn at random:
as much variance as before, a share q of it new each time. Regret is counted from the part that stays.

A table of two values (`liked` makes one: answers of at least 4, say) keeps them: with probability q an answer is drawn
afresh, with the probability that E[x_a | the others] gives to the larger value. What stays is the expected answer.

People differ in this, too: a share `steady` of them answer as they did, whatever `retest` says of the others.

`limit` is as much as anybody could know: mean and covariance of the complete rows of the people in the logs (of what
stays of them), as a model.

People who do not exist, for demonstrations and tests where no table of real people is at hand.

They have what real people were found to have (docs/explanation/people.md): actions that are liked more and less by
everybody, a few preferences along shared directions, a per-action effect of their own, and noise that differs between
actions. A share of the residual, the `retest` of the world, is drawn afresh at each meeting.

Own rows: people whose logged rows are the world. In each round a newcomer is offered some of the rows that this very
person has, each row once, and the reward is the one that was logged.

No simulator stands behind it: whatever is chosen, what came of it is known. It needs histories of at least `choices`
rows a round; people with fewer do not come.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.errors import LogsError, NewcomerError
from newcomer.worlds.world import Episode, world_stream

if TYPE_CHECKING:
    from newcomer.logs import Logs
    from newcomer.model import Model


SHRINK = 0.05  # of the covariances between questions, so that Sigma can be inverted whatever the number of people
FIRM = 1e-3  # noise variance of the limit where answers do not change, in units of the residual variance


@dataclass(frozen=True, eq=False)
class People:
    """A complete table of ratings (people, questions) as a world.

    Parameters
    ---------- table : answers, one row a person, no number missing; `People.read` takes a file and leaves out who did
    not answer everything. questions : names of the columns, which are the ids of the actions. held_out : share of the
    people who are in no log and come as newcomers. choices : questions on offer in a round. repeat : whether a question
    may come again in a later round; without it a round deals questions that were not on offer before. retest : share of
    a person's residual that is drawn afresh at each meeting. steady : share of the people who always answer as they
    did. seed : splits the people.
    """

    table: Floats
    questions: tuple[str, ...]
    held_out: float = 0.3
    choices: int = 10
    repeat: bool = True
    retest: float = 0.0
    seed: int = 0
    steady: float = 0.0

    def __post_init__(self) -> None:
        given = np.asarray(self.table, dtype=np.float64)
        _require(
            given.ndim == 2 and min(given.shape) >= 2,
            f"a table of {given.shape}",
            "people in rows, questions in columns",
        )
        _require(bool(np.isfinite(given).all()), "answers are missing", "People.read leaves out incomplete people")
        _require(
            given.shape[1] == len(self.questions), f"{len(self.questions)} names", f"name {given.shape[1]} questions"
        )
        _require(len(set(self.questions)) == len(self.questions), "two questions of one name", "name each differently")
        _require(0 < self.held_out < 1, f"held_out={self.held_out}", "choose a share between 0 and 1")
        _require(0 <= self.retest <= 1, f"retest={self.retest}", "choose a share between 0 and 1")
        _require(0 <= self.steady <= 1, f"steady={self.steady}", "choose a share between 0 and 1")
        _require(1 <= self.choices <= given.shape[1], f"choices={self.choices}", f"at most {given.shape[1]}")
        # One-hot features of logs are in the order of the ids, and so are those of episodes.
        order = sorted(range(len(self.questions)), key=lambda column: self.questions[column])
        object.__setattr__(self, "questions", tuple(self.questions[column] for column in order))
        object.__setattr__(self, "table", np.ascontiguousarray(given[:, order]))
        _require(len(self.logged) >= 2 and len(self.newcomers) >= 1, f"{len(given)} people", "more people")

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        scale: tuple[int, int] | None = None,
        columns: Sequence[str] | None = None,
        **settings: Any,
    ) -> People:
        """The world of a CSV file with a row a person.

        `columns` names the questions; without it they are all columns of numbers or, with `scale` (1, 5), those whose
        answers are the whole numbers from 1 to 5 and use each of them. People who left one of these questions open are
        left out. `settings` are those of the class.
        """
        import polars as pl

        try:
            frame = pl.read_csv(path, infer_schema_length=None)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise LogsError(
                "the table cannot be read", where=str(path), todo="pass a CSV file with a row a person"
            ) from error
        return cls.from_frame(frame, scale=scale, columns=columns, **settings)

    @classmethod
    def from_frame(
        cls, frame: Any, *, scale: tuple[int, int] | None = None, columns: Sequence[str] | None = None, **settings: Any
    ) -> People:
        """The same from a Polars frame."""
        numeric = [name for name, kind in frame.schema.items() if kind.is_numeric()]
        wanted = list(columns) if columns is not None else [name for name in numeric if _uses(frame[name], scale)]
        missing = [name for name in wanted if name not in numeric]
        _require(not missing, f"column '{missing[0] if missing else ''}'", "name columns of numbers")
        _require(len(wanted) >= 2, f"{len(wanted)} questions", "name the columns, or another scale")
        complete = frame.select(wanted).drop_nulls()
        return cls(complete.to_numpy().astype(np.float64), tuple(wanted), **settings)

    @classmethod
    def young(cls, path: str | Path | None = None, **settings: Any) -> People:
        """The Young People Survey: 134 questions answered from 1 to 5 by 705 people who left none of them open.

        It is looked for at `path`, or in the folder NEWCOMER_DATA that holds `young-people/`.
        """
        return cls._found("the Young People Survey", path, "young-people/responses.csv", scale=(1, 5), **settings)

    @classmethod
    def bfi(cls, path: str | Path | None = None, **settings: Any) -> People:
        """Twenty-five questions on personality, answered from 1 to 6 by the 2,436 people who left none of them open.

        It is looked for at `path`, or in the folder NEWCOMER_DATA that holds `bfi/`.
        """
        return cls._found("the table bfi", path, "bfi/answers.csv", **settings)

    @classmethod
    def _found(cls, what: str, path: str | Path | None, inside: str, **settings: Any) -> People:
        """The world of a file that is at `path`, or `inside` it, or inside NEWCOMER_DATA."""
        named = Path(path if path is not None else os.environ.get("NEWCOMER_DATA") or ".")
        for place in (named / inside, named / Path(inside).name, named):
            if place.is_file():
                return cls.read(place, **settings)
        todo = f"set NEWCOMER_DATA to the folder that holds {inside}"
        raise LogsError(f"{what} was not found", where=str(named), todo=todo)

    def liked(self, least: float) -> People:
        """The same people with answers of 0 and 1: whether an answer was at least `least`."""
        return replace(self, table=(self.table >= least).astype(np.float64))

    def some(self, questions: int, seed: int) -> People:
        """The same people with some of the questions, drawn at random."""
        _require(2 <= questions <= self.dim, f"{questions} questions", f"at least 2, at most {self.dim}")
        drawn = np.sort(world_stream(seed, "questions").permutation(self.dim)[:questions])
        return replace(self, table=self.table[:, drawn], questions=tuple(self.questions[place] for place in drawn))

    @property
    def dim(self) -> int:
        """One direction for each question."""
        return len(self.questions)

    @cached_property
    def _order(self) -> Ints:
        return world_stream(self.seed, "people").permutation(len(self.table)).astype(np.int64)

    @property
    def logged(self) -> Ints:
        """Rows of the people who are in the logs."""
        return self._order[round(self.held_out * len(self._order)) :]

    @property
    def newcomers(self) -> Ints:
        """Rows of the people who are in no log."""
        return self._order[: round(self.held_out * len(self._order))]

    def logs(self, users: int | None = None, steps: int = 20, seed: int = 0) -> Logs:
        """`steps` answers of each of the people in the logs (or of the first `users`), drawn at random, each at most
        once.
        """
        from newcomer.logs import Logs

        count = len(self.logged) if users is None else users
        _require(1 <= count <= len(self.logged), f"users={users}", f"there are {len(self.logged)} people in the logs")
        _require(1 <= steps <= self.dim, f"steps={steps}", f"a person has {self.dim} answers")
        asked = np.stack(
            [world_stream(seed, "answers", person).permutation(self.dim)[:steps] for person in range(count)]
        )
        unasked = self.dim - len(np.unique(asked))
        _require(not unasked, f"{unasked} questions that nobody in the logs was asked", "more users, or more steps")
        person = np.repeat(self.logged[:count], steps)
        return Logs.from_arrays(
            user=person, action=np.array(self.questions)[asked.ravel()], reward=self.table[person, asked.ravel()]
        )

    def episode(self, rng: np.random.Generator, horizon: int) -> Episode:
        """One person who is in no log, for `horizon` rounds."""
        _require(horizon >= 1, f"horizon={horizon}", "at least one round")
        offered, means, rewards = self.answers(rng, horizon)
        return Episode(np.eye(self.dim)[offered], means, rewards, ids=np.array(self.questions)[offered])

    def answers(self, rng: np.random.Generator, horizon: int) -> tuple[Ints, Floats, Floats]:
        """The same without features: questions on offer, what stays of the answers, and the answers, (T, K) each."""
        person, offered = int(rng.choice(self.newcomers)), self._offers(rng, horizon)
        means = self._stable_answers(person)[offered]
        if self.is_steady(person):
            return offered, means, means.copy()
        if self.two is None:
            return offered, means, means + self._fresh(rng, offered)
        low, high = self.two
        afresh = np.where(rng.random(offered.shape) < self._chances(person)[offered], high, low)
        redrawn = rng.random(offered.shape) < self.retest
        return offered, means, np.where(redrawn, afresh, self.table[person][offered])

    @cached_property
    def two(self) -> tuple[float, float] | None:
        """The two values of the table, if there are two."""
        values = np.unique(self.table)
        return (float(values[0]), float(values[1])) if len(values) == 2 else None

    def is_steady(self, person: int) -> bool:
        """Whether a person always answers as in the table."""
        return bool(self.steady > 0 and world_stream(self.seed, "steady", person).random() < self.steady)

    def _offers(self, rng: np.random.Generator, horizon: int) -> Ints:
        """Questions (T, K) on offer in each round."""
        if self.repeat:
            return np.stack([rng.permutation(self.dim)[: self.choices] for _ in range(horizon)]).astype(np.int64)
        most = self.dim // self.choices
        _require(horizon <= most, f"horizon={horizon}", f"at most {most} rounds, or repeat=True")
        return rng.permutation(self.dim)[: horizon * self.choices].reshape(horizon, self.choices).astype(np.int64)

    def _stable_answers(self, person: int) -> Floats:
        """What stays of a person's answers (A,)."""
        answers = self.table[person]
        if self.is_steady(person):
            return np.array(answers)
        if self.two is not None:
            low, high = self.two
            return np.asarray(
                (1.0 - self.retest) * answers + self.retest * (low + (high - low) * self._chances(person))
            )
        return np.asarray(answers - (1.0 - np.sqrt(1.0 - self.retest)) * self._residuals(answers))

    def _fresh(self, rng: np.random.Generator, offered: Ints) -> Floats:
        """What is drawn afresh at each meeting (T, K)."""
        if not self.retest:
            return np.zeros(offered.shape)
        others = rng.choice(self.logged, size=offered.shape)
        theirs = self._residuals(self.table[others.ravel()])[np.arange(others.size), offered.ravel()]
        return np.asarray(np.sqrt(self.retest) * theirs.reshape(offered.shape))

    def _chances(self, person: int) -> Floats:
        """The probability (A,) of the larger of two values, by what a person's other answers say."""
        low, high = self.two or (0.0, 1.0)
        said = self.table[person] - self._residuals(self.table[person])
        return np.asarray(np.clip((said - low) / (high - low), 0.0, 1.0))

    def _residuals(self, answers: Floats) -> Floats:
        """Distance of answers (..., A) from what the same person's other answers say."""
        mean, _, precision = self._moments
        residuals: Floats = np.asarray((answers - mean) @ precision / np.diag(precision), dtype=np.float64)
        return residuals

    @cached_property
    def _moments(self) -> tuple[Floats, Floats, Floats]:
        """Mean, covariance and precision of the complete rows of the people in the logs."""
        rows = self.table[self.logged]
        covariance = _shrunk(np.cov(rows.T))
        return np.asarray(rows.mean(axis=0)), covariance, np.linalg.inv(covariance).astype(np.float64)

    def limit(self) -> Model:
        """What the complete rows of the people in the logs say, as a model: serve it by `PriorUCB(model, width=0,
        level=0)`.
        """
        from newcomer.model import Model

        mean, covariance, precision = self._moments
        residual = 1.0 / np.diag(precision)
        if self.retest and (self.steady or self.two):
            # What stays is not linear in the answers: its moments are those of the people in the logs.
            kept = np.stack([self._stable_answers(int(person)) for person in self.logged])
            noise = np.maximum(np.diag(covariance) - kept.var(axis=0, ddof=1), FIRM * residual)
            covariance = _shrunk(np.cov(kept.T))
        else:
            # What stays of answers is linear in them: x - (1 - sqrt(1 - retest)) residual, see `_stable_answers`.
            stays = np.eye(self.dim) - (1.0 - np.sqrt(1.0 - self.retest)) * residual[:, None] * precision
            covariance, noise = stays @ covariance @ stays.T, np.maximum(self.retest, FIRM) * residual
        values, vectors = np.linalg.eigh(covariance)
        basis = np.ascontiguousarray(vectors[:, ::-1])
        lengths = np.sqrt(np.maximum(values[::-1], 0.0))
        return Model(
            basis=basis,
            spectrum=values[::-1].copy(),
            mean=mean,
            factor=basis * lengths,
            noise_variance=float(noise.mean()),
            estimator="truth",
            action_ids=self.questions,
            residual_variance=noise,
            persistence=0.0,
        )


def _shrunk(covariance: Floats) -> Floats:
    """A covariance with its off-diagonal entries a little smaller."""
    variances = np.maximum(np.diag(covariance), 1e-9)
    return np.asarray((1 - SHRINK) * covariance + SHRINK * np.diag(variances))


def _uses(column: Any, scale: tuple[int, int] | None) -> bool:
    """Whether a column holds answers on this scale and uses all of it."""
    if scale is None:
        return True
    return set(column.drop_nulls().unique().to_list()) == set(range(scale[0], scale[1] + 1))


def _require(holds: bool, where: str, todo: str) -> None:
    if not holds:
        raise NewcomerError("these people cannot be played with", where=where, todo=todo)


LEVEL, LIKED = 3.0, 0.5  # what the average action is worth, and how much actions differ in that
STRENGTHS = (0.8, 0.6, 0.5)  # standard deviations of what each shared direction adds to a reward
OWN = (0.4, 1.2)  # least and largest standard deviation of the residual of an action


@dataclass(frozen=True, eq=False)
class MadeUp:
    """A simulated world of people, and the truth about them: directions (A, k)."""

    world: People
    directions: Floats

    @classmethod
    def draw(cls, people: int = 4000, actions: int = 60, *, seed: int = 0, retest: float = 0.5) -> MadeUp:
        """Draw people and what they think of actions named `film 00`, `film 01`, ...

        >>> MadeUp.draw(50, 12).world.table.shape
        (50, 12)
        """
        rng = world_stream(seed, "made-up people")
        liked = LEVEL + LIKED * rng.standard_normal(actions)
        directions = rng.standard_normal((actions, len(STRENGTHS))) * STRENGTHS
        deviations = rng.uniform(*OWN, size=actions)
        preferences = rng.standard_normal((people, len(STRENGTHS))) @ directions.T
        table = liked + preferences + deviations * rng.standard_normal((people, actions))
        names = tuple(f"film {number:02d}" for number in range(actions))
        return cls(People(table, names, held_out=0.1, retest=retest, seed=seed), directions)


@dataclass(frozen=True, eq=False)
class OwnRows:
    """Newcomers who choose among their own rows: `user`, `action` and `reward` are (rows,).

    `actions` are the ids that a model knows, in its order: features are one-hot. Rows of other actions are left out.
    """

    user: Ints
    action: Ints
    reward: Floats
    actions: tuple[int | str, ...]
    choices: int = 5

    @property
    def dim(self) -> int:
        """One direction for each action."""
        return len(self.actions)

    @cached_property
    def _people(self) -> list[tuple[Ints, Floats]]:
        """Places of actions, and rewards, of each person."""
        place = {one: number for number, one in enumerate(self.actions)}
        codes = np.array([place.get(one, -1) for one in self.action.tolist()], dtype=np.int64)
        known = np.flatnonzero(codes >= 0)
        order = known[np.argsort(self.user[known], kind="stable")]
        cuts = np.flatnonzero(np.diff(self.user[order])) + 1
        return list(zip(np.split(codes[order], cuts), np.split(self.reward[order], cuts), strict=True))

    def episode(self, rng: np.random.Generator, horizon: int) -> Episode:
        """One person with enough rows for `horizon` rounds."""
        able = [one for one in self._people if len(one[0]) >= horizon * self.choices]
        if not able:
            raise NewcomerError(
                "nobody has so many rows", where=f"{horizon} rounds of {self.choices}", todo="play fewer rounds"
            )
        codes, reward = able[int(rng.integers(len(able)))]
        dealt = rng.permutation(len(codes))[: horizon * self.choices].reshape(horizon, self.choices)
        features = np.zeros((*dealt.shape, self.dim))
        np.put_along_axis(features, codes[dealt][..., None], 1.0, axis=2)
        return Episode(features, reward[dealt], reward[dealt], ids=np.array(self.actions)[codes[dealt]])

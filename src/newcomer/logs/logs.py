"""Logs: rows of users, read and checked once, then handed out as batches of whole histories.

A log is rows (user, step, action or features, reward). `read_logs` takes a row of a file this way:

    Reader.of         files found, and how each is written                                files.py
    resolve           which column plays which part: a LogLayout                             schema.py
    catalogue_of      the actions and their features: Items                               reader.py, items.py
    Reader.rows       a chunk of the file, its columns typed                              reader.py, text_columns.py
    extract           ids, rewards, features checked; the action's position: Rows         schema.py, columns.py
    collect           rows held in memory, or spilled to hash buckets on disk             memory_store.py, disk_store.py
    arrange           grouped by user and sorted by step: Histories                       histories.py
    totals_of         counted and hashed: LogTotals, and the Summary of them              summary.py

and `Logs.batches` cuts the histories into batches of whole users. Features of actions are looked up in the items table
batch by batch and never stored per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from newcomer.arrays import Floats
from newcomer.encoding import Column
from newcomer.errors import LogsError
from newcomer.evidence import Summary
from newcomer.logs import workers as engines
from newcomer.logs.advice import (
    SAMPLE,
    arm_advice,
    candidate_advice,
    intercept_advice,
    reward_advice,
    short_history_advice,
)
from newcomer.logs.arms import histories_of_random_arm, judges_by_arms
from newcomer.logs.attributes import UserTable, read_user_attributes
from newcomer.logs.batch import Batch
from newcomer.logs.columns import Epoch, Place
from newcomer.logs.disk_store import DiskStore, Piece
from newcomer.logs.faults import Faults, fault_mentioning
from newcomer.logs.feature_columns import feature_array_columns, feature_column_size_notes
from newcomer.logs.files import refuse_twin_columns_of_log_file
from newcomer.logs.frames import (
    frame_column_names,
    frame_from_arrays,
    frame_temporal_names,
    frame_to_polars,
    frame_with_lists,
    held_frame,
    is_frame,
    unequal_frame_error,
)
from newcomer.logs.histories import Histories
from newcomer.logs.items import Items, item_spellings_note
from newcomer.logs.memory_store import (
    Clip,
    Held,
    Keep,
    Source,
    keep_memory_store_parts,
    memory_store_of_some_users,
    store_rows_in_memory,
)
from newcomer.logs.read_options import FeatureChoice, check_read_options, clip_read_option, feature_names_read_option
from newcomer.logs.reader import reader_catalogue, reader_inspects_frame, reader_rows_without_gaps
from newcomer.logs.schema import (
    LOOKS_LIKE_TIME,
    LogLayout,
    Missing,
    Renames,
    extract_by_schema,
    find_schema_time,
    resolve_schema,
    schema_time_names,
)
from newcomer.logs.summary import LogTotals, RewardHistogram, summary_totals
from newcomer.logs.text_columns import Dates, text_spellings_note
from newcomer.logs.workers import Engine
from newcomer.one_hot import Catalogue, OneHot, one_hot_is_wide
from newcomer.records import Shown
from newcomer.run_settings import Checkpoint
from newcomer.transforms import Transform
from newcomer.validate import validate_instance, validate_whole

BATCH_BYTES = 64 << 20  # of the features of a batch
DERIVED = ("_table", "advice", "action_ids", "_random_users")  # cached properties


class Logs(Shown):
    """Users' histories, checked and in time order. Make one with `read_logs`, `from_arrays` or `from_frame`.

    `dim` is the number of features d, the constant included; `intercept` whether there is one. `feature_names` are the
    columns that features come from, without the constant (None if they have no names), as `column=level` for text,
    whose schemas are `feature_levels`. `arms` are the names in a column `arm`, sorted; `tidy_ids` whether ids were
    tidied; `ordered` whether the order of a user's rows in time is known. `summary` has the logs in a few numbers.
    Everything else about logs is computed by `newcomer.logs.reduce.reduce`. Logs are equal if a fit would read the
    same from both.
    """

    def __init__(
        self,
        source: Source,
        total: LogTotals,
        items: Items | None,
        *,
        intercept: bool = False,
        ignored_items: bool = False,
        row_names: tuple[str, ...] | None = None,
        levels: tuple[Column, ...] = (),
        arms: tuple[str, ...] = (),
        notes: Sequence[str] = (),
        tidy_ids: bool = False,
        reward_transform: Transform | None = None,
        ordered: bool = True,
    ) -> None:
        validate_instance(
            total, LogTotals, "total", todo="make logs with read_logs, from_arrays or from_frame", kind=LogsError
        )
        self._source, self._items, self._ignored_items = source, items, ignored_items
        self.engine: Engine | None = None
        self.checkpoint: Checkpoint | None = None
        self._notes = [*notes, *(items.notes if items is not None else ())]
        self.intercept, self.total, self.arms, self.tidy_ids = intercept, total, arms, tidy_ids
        self.reward_transform = reward_transform
        self.ordered = ordered and total.ties < total.rows
        self.people: UserTable | None = None  # attributes of users, where there are any (`with_users`)
        self.dim = (items.dim if items is not None and self.by_action else total.dim) + intercept
        self.feature_names = items.feature_names if items is not None and self.by_action else row_names
        if items is not None and items.matrix is not None and not self.by_action and row_names is not None:
            own = items.feature_names or tuple(f"item feature {i}" for i in range(items.dim))
            self.feature_names = (*own, *row_names)
        self.feature_levels = levels
        self.summary: Summary = self._summed(total)

    @classmethod
    def from_arrays(
        cls,
        *,
        user: ArrayLike,
        reward: ArrayLike,
        features: ArrayLike | None = None,
        action: ArrayLike | None = None,
        items: Any = None,
        step: ArrayLike | None = None,
        propensity: ArrayLike | None = None,
        candidates: Any = None,
        arm: ArrayLike | None = None,
        users: Any = None,
        attributes: Any = None,
        intercept: bool = False,
        clip: Clip = None,
        epoch: Epoch | None = None,
        missing: Missing = "error",
        tidy_ids: bool = False,
        dates: Dates | None = None,
        reward_transform: Transform | None = None,
    ) -> Logs:
        """Logs from arrays with one entry per row; rows of a user in time order, or `step` to sort them by.

        The arrays are copied, so later changes to them have no effect.

        Parameters
        ----------
        user
            Ids (rows,), integers or text.
        features
            Features of the chosen actions, (rows, d); or, beside a table as items, the names of its columns to use.
        action, items
            Instead of features: ids (rows,) of actions, and their features as an array (items, d) whose row i is
            action i, a table or a file. Without items every distinct action is its own direction (one-hot). Beside
            features, the ids are kept and the features stay those of the rows.
        step
            Integers, unique within a user, or times (ties keep the order of rows).
        propensity, candidates, arm
            What else was logged: the probability of the chosen action, the ids on offer (a list for each row) and the
            arm of the experiment.
        users, attributes
            Attributes of users, a table with a column `user`, and the names of its columns to use, as in `read_logs`.
        clip, epoch, missing, tidy_ids, dates, reward_transform
            As in `read_logs`.

        >>> logs = Logs.from_arrays(user=["ann", "ben", "ann"], action=[3, 5, 5], reward=[1.0, 0.0, 0.5])
        >>> logs.summary.users, logs.summary.too_short, logs.dim, logs.action_ids
        (2, 1, 2, (3, 5))
        """
        options = check_read_options(
            intercept=intercept,
            epoch=epoch,
            missing=missing,
            tidy_ids=tidy_ids,
            dates=dates,
            reward_transform=reward_transform,
        )
        given = {"user": user, "reward": reward, "action": action, "step": step, "propensity": propensity, "arm": arm}
        frame = frame_from_arrays({name: values for name, values in given.items() if values is not None})
        if candidates is not None:
            frame = frame_with_lists(frame, "candidates", candidates)
        names = feature_names_read_option(features)
        gaps = options.missing == "drop"
        matrix = None if features is None or names is not None else feature_array_columns(features, gaps=gaps)
        if names is not None and items is None:
            todo = "pass features of shape (rows, d), or items= with these columns"
            raise LogsError("features= names columns and there is no table", where="features", todo=todo)
        for name in ("user", "reward"):
            if given[name] is None:
                raise LogsError(f"{name} is None", where=name, todo="pass one value per row")
        if matrix is not None and len(matrix) != len(frame):
            raise unequal_frame_error({"user": len(frame), "features": len(matrix)})
        if matrix is None and action is None:
            raise LogsError("neither features nor actions", todo="pass features= or action=")
        layout = LogLayout(
            step=None if step is None else "step",
            action=None if action is None else "action",
            propensity=None if propensity is None else "propensity",
            candidates=None if candidates is None or action is None else "candidates",
            arm=None if arm is None else "arm",
            epoch=epoch,
        )
        if users is None and is_frame(attributes):
            users, attributes = attributes, None
        return cls._from_frame(
            frame,
            options.on(layout),
            items=items,
            intercept=intercept,
            clip=clip,
            features=matrix,
            chosen=names,
            ordered=True,
        ).with_users(users, attributes)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        items: Any = None,
        features: str | Sequence[str] | None = None,
        columns: Renames | None = None,
        users: Any = None,
        attributes: Sequence[str] | None = None,
        intercept: bool = False,
        clip: Clip = None,
        epoch: Epoch | None = None,
        missing: Missing = "error",
        tidy_ids: bool = False,
        dates: Dates | None = None,
        reward_transform: Transform | None = None,
    ) -> Logs:
        """Logs from a Polars or pandas frame, or any table that exports Arrow; arguments as in `read_logs`.

        A lazy frame is collected; a reader of record batches is read once, to its end.

        >>> frame = pl.DataFrame({"uid": [1, 1, 2, 2], "action": ["a", "b", "b", "a"], "reward": [1, 0, 1, 1]})
        >>> Logs.from_frame(frame, columns={"user": "uid"})
        Logs(2 users, 4 rows, 2 features)
        """
        options = check_read_options(
            intercept=intercept,
            epoch=epoch,
            missing=missing,
            tidy_ids=tidy_ids,
            dates=dates,
            reward_transform=reward_transform,
        )
        table, chosen = held_frame(frame), FeatureChoice.of(features, items, columns)
        names = frame_column_names(table)
        refuse_twin_columns_of_log_file(names)
        with chosen.resolving():
            layout = options.on(resolve_schema(names, chosen.columns, epoch=epoch))
        maybe = [
            name for name in (*schema_time_names(names), *frame_temporal_names(table)) if name not in layout.names()
        ]
        rows = frame_to_polars(table, list(dict.fromkeys([*layout.names(), *maybe])))
        if layout.step is None:
            layout = find_schema_time(
                layout, rows.columns, [rows.schema], lambda asked: [rows.select(asked)], chosen.columns
            )
        return cls._from_frame(
            rows,
            layout,
            items=items,
            intercept=intercept,
            clip=clip,
            chosen=chosen.of_items,
            beside=chosen.beside,
        ).with_users(users, attributes)

    @classmethod
    def _from_frame(
        cls,
        frame: pl.DataFrame,
        layout: LogLayout,
        *,
        items: Any,
        intercept: bool,
        clip: Clip,
        features: NDArray[np.floating] | None = None,
        chosen: Sequence[str] | None = None,
        beside: bool = False,
        ordered: bool = False,
    ) -> Logs:
        """Logs from one frame, held in memory; `features` (rows, d), if given, stand beside it."""
        limits = clip_read_option(clip, layout.reward_transform)
        if not len(frame):
            raise LogsError("no rows", todo="pass logs with at least one row")
        layout = reader_inspects_frame(frame, layout, spare_action=features is not None)
        faults = Faults()
        place = Place(faults=faults)
        if layout.missing == "drop":
            frame, features, layout, place = reader_rows_without_gaps(frame, features, layout, place)
        in_rows = features is not None or layout.features is not None
        named = frame.drop_nulls(layout.action) if layout.action is not None else frame
        catalogue = reader_catalogue(
            items, layout, lambda: layout.action_ids(named, Place()), chosen, in_rows=in_rows, beside=beside
        )
        rows = extract_by_schema(frame, layout, catalogue, place, features=features)
        try:
            faults.refuse()
        except LogsError as error:
            times = [note for note in layout.notes if LOOKS_LIKE_TIME in note]
            raise fault_mentioning(error, [*times, *item_spellings_note(catalogue)]) from error
        source, total = store_rows_in_memory([rows], catalogue, memory=rows.nbytes, rows=len(rows), clip=limits)
        users = [] if layout.tidy_ids else text_spellings_note(rows.users, "user")
        return cls(
            source,
            total,
            catalogue,
            intercept=intercept,
            ignored_items=in_rows and items is not None and not beside,
            row_names=layout.feature_names,
            levels=layout.levels,
            arms=layout.arms,
            notes=(*layout.notes, *users),
            tidy_ids=layout.tidy_ids,
            reward_transform=layout.reward_transform,
            ordered=ordered or layout.step is not None,
        )

    @cached_property
    def advice(self) -> list[str]:
        """What was decided in reading, and what might be done better, in plain sentences.

        Features are looked at in the first batch only; rows are searched where some rewards are far from all others.
        """
        far = reward_advice(self.summary, self._source.parts, self.action_ids or ())
        far += candidate_advice(self.total)
        said = [*self._notes, *far, *short_history_advice(self.summary)]
        if self.judges is not self:
            said.append(arm_advice(self.summary.users, None if self.judges is None else self.judges.summary.users))
        if self._ignored_items:
            said.append(
                "The logs bring their own features, so items= was not used; columns={'features': None} uses it."
            )
        if not self.one_hot:
            sample = next(self.batches(rows=SAMPLE)).features
            said += [] if self.intercept else intercept_advice(self.summary, sample)
            if not self.by_action and self.feature_names:
                said += feature_column_size_notes(sample[:, : len(self.feature_names)], self.feature_names)
        return said

    @cached_property
    def action_ids(self) -> tuple[int | str, ...] | None:
        """Ids of the actions, position i being action i of `Batch.actions`; None for logs that name no actions.

        These are the items, or the one-hot directions, or, where rows bring features, the actions that occur.
        """
        return None if self._items is None else tuple(self._items.ids.to_list())

    @property
    def item_names(self) -> tuple[str, ...] | None:
        """Names of the items, if the items table has a column `name`."""
        return None if self._items is None else self._items.names

    @property
    def item_features(self) -> Floats | None:
        """Features (items, d) of the items table as they are used, with the constant if there is one; else None."""
        return None if not self.by_action or isinstance(self._table, OneHot) else self._table

    @property
    def table(self) -> Catalogue | None:
        """Features (A, d) of the actions that rows name, as they are used; None where rows bring their own."""
        return self._table if self.by_action else None

    @property
    def direction_names(self) -> tuple[str, ...]:
        """What to call each of the d features: its column, the action whose it is if one-hot, or its number."""
        own = self.item_names or tuple(str(one) for one in self.action_ids or ())
        names = self.feature_names or (self.one_hot and own)
        named = names or tuple(f"feature {i}" for i in range(self.dim - self.intercept))
        return (*named, *(["the constant"] if self.intercept else []))

    @property
    def one_hot(self) -> bool:
        """Whether features are one-hot of the actions."""
        return self._items is not None and self.by_action and self._items.matrix is None

    @property
    def wide(self) -> bool:
        """Whether features are one-hot of so many actions that nothing of d x d entries is formed."""
        return self.one_hot and one_hot_is_wide(len(self.action_ids or ()))

    @property
    def by_action(self) -> bool:
        """Whether features are those of the action that a row names, in place of the row's own."""
        return self._items is not None and not self._items.in_rows

    def batches(self, rows: int | None = None) -> Iterator[Batch]:
        """Batches of whole users in a fixed order, each of about `rows` rows (default: 64 MB of features).

        >>> logs = Logs.from_arrays(user=[1, 1, 2, 3], features=np.eye(4), reward=[1, 0, 1, 0])
        >>> [batch.users.tolist() for batch in logs.batches(rows=2)]
        [[1], [2, 3]]
        """
        target = self._target(rows)
        for part in self._source.parts():
            for first, last in part.cuts(target):
                yield self._batch(part.slice(first, last))

    def _target(self, rows: int | None) -> int:
        """Rows of a batch, as asked for or by the size of its features."""
        width = 1 if self.wide else self.dim  # features that are never written out take no room
        size = max(1, BATCH_BYTES // (8 * width)) if rows is None else rows
        return validate_whole(size, "rows of a batch", todo="ask for at least one", kind=LogsError)

    def on(self, engine: Engine) -> Logs:
        """The same logs, passed over by the workers of an engine; what is in memory is written to disk for them.

        They are the engine's as long as it is open; the logs themselves stay as they are. Logs that are too small for
        workers to pay are this process's still: how small depends on the logs alone, and so do the numbers.
        """
        if self.summary.rows < engines.ENOUGH:
            return self
        store = self._source
        if not isinstance(store, DiskStore):
            store = DiskStore.holding(self._source.parts(), engine.room(), self._source.limits)
        engine.visible(store.folder)
        return self._replace(_source=store, engine=engine)

    def holding(self, part: Histories) -> Logs:
        """Logs of some of these users, their histories held in memory and passed over by this process."""
        total = summary_totals(part, self._items) + LogTotals(rewards=RewardHistogram().seeing(part.rewards))
        source, told = Held(part, self._source.limits), self._summed(total, arms=())
        return self._replace(_source=source, engine=None, total=total, summary=told)

    def some(self, keep: Keep) -> Logs:
        """The logs of the users for whose hashes (n,) `keep` is true, with the catalogue and the engine of all.

        >>> logs = Logs.from_arrays(user=[1, 1, 2, 3], features=np.eye(4), reward=[1, 0, 1, 0])
        >>> logs.some(lambda hashes: np.arange(len(hashes)) > 0)
        Logs(2 users, 2 rows, 4 features)
        """
        source, total = memory_store_of_some_users(self._source, keep, self._items, self.engine)
        return self._replace(_source=source, total=total, summary=self._summed(total), checkpoint=None)

    @property
    def judges(self) -> Logs | None:
        """The logs of the users by whom these are judged: themselves, or, where rows have the arms of an experiment,
        the users who were served at random (`newcomer.logs.arms`); None where nobody was.

        >>> logs = Logs.from_arrays(user=[1, 1, 2, 2], action=[7, 8, 8, 8], reward=[1, 0, 1, 0],
        ...                         arm=["random", "random", "treated", "treated"])
        >>> logs.judges
        Logs(1 users, 2 rows, 2 features)
        """
        who = judges_by_arms(self.arms)
        if who != "random":
            return self if who == "all" else None
        return self._random_users

    @cached_property
    def _random_users(self) -> Logs | None:
        """The users of the random arm; apart from `judges`, since logs that kept themselves would never be let go."""
        source, total = keep_memory_store_parts(
            self._source, partial(histories_of_random_arm, arms=self.arms), self._items, self.engine
        )
        if not total.users:
            return None
        engine = self.engine if total.rows >= engines.ENOUGH else None
        named = {"arms": (), "engine": engine, "checkpoint": None}
        return self._replace(_source=source, total=total, summary=self._summed(total, arms=()), **named)

    def with_users(self, users: Any, attributes: Sequence[str] | None = None) -> Logs:
        """The same logs with attributes of their users: a file or a table with a column `user`, one row a user.

        `attributes` names the columns to use, by default all that can be. Without `users` these logs as they are.

        >>> logs = Logs.from_arrays(user=[1, 1, 2, 2], features=np.eye(4), reward=[1, 0, 1, 0])
        >>> logs.with_users(pl.DataFrame({"user": [1, 2], "age": [20, 40]})).people.columns[0].name
        'age'
        """
        if users is None:
            if attributes is not None:
                todo = "pass users=, a file or a table with a column user"
                raise LogsError("attributes are chosen and there is no table of users", where="attributes=", todo=todo)
            return self
        met = [(part.hashes, part.users.dtype) for part in self._source.parts()]
        hashes, kind = np.concatenate([one for one, _ in met]), met[0][1]
        people = read_user_attributes(users, hashes, kind, attributes=attributes, tidy=self.tidy_ids)
        other = self._replace(people=people, _notes=[*self._notes, *people.notes])
        other.summary = other._summed(other.total)
        return other

    def with_checkpoint(self, checkpoint: Checkpoint) -> Logs:
        """The same logs, with a checkpoint that keeps the results of their passes."""
        return self._replace(checkpoint=checkpoint)

    def _replace(self, **changes: Any) -> Logs:
        """These logs with some attributes changed; what is derived from them is made anew.

        `copy.copy` would do what is done for another process (`__getstate__`), and lose the engine.
        """
        other = object.__new__(type(self))
        other.__dict__.update({name: value for name, value in self.__dict__.items() if name not in DERIVED} | changes)
        return other

    def _summed(self, total: LogTotals, arms: tuple[str, ...] | None = None) -> Summary:
        """The summary of the totals of these logs, or of some of their users."""
        found = total.summary(
            dim=self.dim,
            intercept=self.intercept,
            limits=self._source.limits,
            arms=self.arms if arms is None else arms,
            transform=self.reward_transform,
        )
        if self.people is None:
            return found
        both = (int(found.fingerprint, 16) + self.people.fingerprint) % 2**64
        return replace(found, fingerprint=f"{both:016x}")

    def tasks(self, rows: int | None) -> tuple[list[tuple[Piece, ...]], list[int]]:
        """A pass in tasks for workers, and the rows of each; only of logs that are on an engine."""
        assert isinstance(self._source, DiskStore)
        return self._source.tasks(self._target(rows), self.dim, self.summary.rows)

    def piece(self, piece: Piece) -> Batch:
        """The batch of a piece of a task."""
        assert isinstance(self._source, DiskStore)
        return self._batch(self._source.part(piece.part).slice(piece.first, piece.last))

    def __getstate__(self) -> dict[str, Any]:
        # Workers make what is derived anew, and have no workers of their own.
        kept = {name: value for name, value in self.__dict__.items() if name not in DERIVED}
        return kept | {"engine": None, "checkpoint": None}

    def _batch(self, part: Histories) -> Batch:
        """Histories as computations see them: features in float64 and with the constant, if there is one."""
        return Batch(
            users=part.users.to_numpy(writable=True),  # integers, or an object array of str
            hashes=part.hashes,
            offsets=part.offsets,
            rewards=part.rewards,
            reward_transform=self.reward_transform,
            row_features=None if part.features is None else self._with_constant(part.features),
            table=self._table if part.features is None else None,
            actions=None if part.actions is None else part.actions.astype(np.int64),
            propensities=part.propensities,
            candidates=part.candidates,
            arms=None if part.arms is None else part.arms.astype(np.int64),
            attributes=None if self.people is None else self.people.of(part.hashes),
            attribute_columns=() if self.people is None else self.people.columns,
        )

    @cached_property
    def _table(self) -> Catalogue:
        """Features (items, d) of the catalogue, made once for all batches; one-hot ones are not written out."""
        assert self._items is not None
        features = self._items.features
        return (
            replace(features, constant=self.intercept)
            if isinstance(features, OneHot)
            else self._with_constant(features)
        )

    def _with_constant(self, features: NDArray[np.floating]) -> Floats:
        """Features (n, d), the last of them 1 if the logs were read with an intercept."""
        if not self.intercept:
            return features.astype(np.float64, copy=False)
        return np.column_stack([features, np.ones(len(features))]).astype(np.float64, copy=False)

    def close(self) -> None:
        """Remove temporary files; done by itself when the logs are no longer used."""
        self._source.close()

    def __repr__(self) -> str:
        s = self.summary
        return f"Logs({s.users:,} users, {s.rows:,} rows, {s.dim} features)"

    def facts(self) -> dict[str, Any]:
        """The logs in a few numbers and words."""
        s, named = self.summary, self.feature_names or self.action_ids or ()
        content: dict[str, Any] = {"users": s.users, "rows": s.rows, "dim": s.dim, "users of one row": s.too_short}
        content |= {"features" if self.feature_names else "actions": named} if named else {}
        content |= {"mean reward": s.mean_reward, "deviation of rewards": s.reward_deviation}
        return content | {f"advice {i}": said for i, said in enumerate(self.advice, start=1)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Logs) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def _identity(self) -> tuple[object, ...]:
        """What a fit would read, by its fingerprint, and what it would call it."""
        named = self.intercept, self.action_ids, self.feature_names
        return self.summary.fingerprint, self.dim, *named, self.reward_transform

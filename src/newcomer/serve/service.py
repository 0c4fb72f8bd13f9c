"""The service without HTTP: a store, the generation of models that decides, and users' states in memory."""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TypeVar

import numpy as np

from newcomer.errors import StoreError
from newcomer.model import Model
from newcomer.serve import arms, models, tables
from newcomer.serve.arms import Shares
from newcomer.serve.fold import States
from newcomer.serve.limits import Limits
from newcomer.serve.metrics import Metrics
from newcomer.serve.models import Serving
from newcomer.serve.recent import Recent
from newcomer.serve.shapes import Refused
from newcomer.serve.store import Store, Tx, Work

Result = TypeVar("Result")
POOL_USERS = 2_000  # whose states tell of repeatability, at most
FEWEST = 20  # users before anything is pooled


@dataclass(frozen=True)
class Config:
    """How a service is run. `wait` and `keep` are seconds; None: no default reward, and everything is kept.

    Shares of arms that are None are those of the store, or, of a new one, 5% random, 5% control and no incumbent.
    """

    policy: str = "PriorUCB"
    random: float | None = None
    control: float | None = None
    incumbent: float | None = None
    wait: float | None = None
    default: float | None = None
    keep: float | None = None
    limits: Limits = field(default_factory=Limits)

    @property
    def answers(self) -> float:
        """How long answers are kept for requests that come again."""
        return max(self.wait or 0.0, tables.DAY)


class Outdated(Exception):
    """Another generation decides than the one that is loaded."""

    def __init__(self, generation: int, model: str) -> None:
        self.generation, self.model = generation, model


class Service:
    """See the module. `open` before, `close` after."""

    def __init__(self, store: Store, config: Config, model: Model | None = None) -> None:
        arms.check_arm_shares(*_shares(config, arms.DEFAULT))
        self.store, self.config, self.model = store, config, model
        self.states, self.metrics, self.recent = States(), Metrics(), Recent()
        self.rng = np.random.default_rng()
        self.ready, self.started = False, time.time()
        self.loaded: Serving | None = None
        self.key = b""
        self._now: tuple[int, str, Shares] | None = None  # what decides now, where nobody else could change it
        self.counted: tuple[float, tables.Counts] | None = None  # what a slow count found, and until when it is told
        self.tasks: list[asyncio.Task[None]] = []  # what runs beside requests
        self._attributes: dict[str, dict[str, str]] = {}  # by model: names and kinds, which never change
        self.removals: list[tuple[str, str]] = []  # how often somebody was removed, when this process last looked
        self._loading = asyncio.Lock()

    @cached_property
    def key_id(self) -> str:
        """What is stored of the key by which a user's arm was drawn."""
        return hashlib.sha256(self.key).hexdigest()[:12]

    async def open(self) -> None:
        """Open the store; a model that it does not know yet is promoted. Then `background.prepare` makes it ready."""
        self.store.on_loss = self._forget
        await self.store.open()
        data = None if self.model is None else self.model.to_bytes()

        async def first(tx: Tx) -> bytes:
            await tx.changes()  # one process at a time
            if self.model is not None and data is not None and await tables.model_file_row(tx, self.model.id) is None:
                await tables.keep_model_row(tx, self.model.id, data, models.facts_of_model(self.model))
                await tables.promote_model_row(tx, self.model.id)
            if await tables.generation_row(tx) is None:
                raise StoreError("this store has no model yet", where=self.store.name, todo="name one")
            now = await tables.shares_row(tx)
            wanted = _shares(self.config, arms.DEFAULT if now is None else now[1:])
            arms.check_arm_shares(*wanted)
            if now is None or now[1:] != wanted:
                await tables.set_shares_row(tx, *wanted)
            return await tables.key_row(tx)

        self.key = await self.store.transact(first)

    async def close(self) -> None:
        """Stop what runs beside, finish the store's work."""
        self.ready = False
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.store.close()

    async def transact(self, work: Work[Result]) -> Result:
        """Work on the store; where it needs a generation that is not loaded yet, that is loaded first."""
        for _ in range(5):
            try:
                return await self.store.transact(work)
            except Outdated as wanted:
                await self._load(wanted)
        raise Refused(503, "changing_models", "models are being promoted faster than they load", retry=1)

    async def current(self, tx: Tx) -> tuple[Serving, Shares]:
        """The generation that decides now, and the shares of new users."""
        now = self._now
        if now is None:
            generation, model, *shares = await tables.current_row(tx)
            now = (generation, model, Shares(*shares))
            if self.store.alone:
                tx.later(partial(setattr, self, "_now", now))
        if self.loaded is None or self.loaded.generation != now[0]:
            raise Outdated(*now[:2])
        return self.loaded, now[2]

    async def promote(self, tx: Tx, model: str) -> None:
        """Have a model decide from the next generation on."""
        self._now = None
        await tables.promote_model_row(tx, model)

    async def set_shares(self, tx: Tx, random: float, control: float, incumbent: float) -> None:
        """Shares for users who are new from now on."""
        self._now = None
        await tables.set_shares_row(tx, random, control, incumbent)

    def _forget(self) -> None:
        """A commit was lost: what was read before it may not be true."""
        self._now = None
        self.states.clear()

    async def serving(self, tx: Tx) -> Serving:
        """The generation that decides now."""
        return (await self.current(tx))[0]

    async def _load(self, wanted: Outdated) -> None:
        """Load a model of the store, in a thread, while others are served."""
        async with self._loading:
            if self.loaded is not None and self.loaded.generation >= wanted.generation:
                return
            if self.loaded is not None and self.loaded.model.id == wanted.model:
                self.loaded = Serving(wanted.generation, self.loaded.model, self.loaded.policy, self.loaded.control)
                return

            async def file(tx: Tx) -> bytes | None:
                return await tables.model_file_row(tx, wanted.model)

            data = await self.store.transact(file)
            if data is None:
                raise Refused(503, "no_model", "the store lacks the model that decides", retry=60)
            model = await asyncio.to_thread(models.load_stored_model, data)
            self.loaded = await asyncio.to_thread(Serving.of, wanted.generation, model, self.config.policy)

    async def attributes_elsewhere(self, tx: Tx, serving: Serving) -> dict[str, set[str]]:
        """Attributes that other models of the store know, with their kinds."""
        found: dict[str, set[str]] = {}
        for model in await tables.model_id_rows(tx):
            if model not in self._attributes:
                self._attributes[model] = await _attribute_kinds(tx, model)
            for name, kind in self._attributes[model].items() if model != serving.model.id else ():
                found.setdefault(name, set()).add(kind)
        return found

    async def shares(self, tx: Tx) -> Shares:
        """The shares for new users."""
        return (await self.current(tx))[1]

    async def pool_repeatability(self) -> int | None:
        """What the users in memory say of how much comes again, as the next version, if they say something new."""
        serving = self.loaded
        if serving is None or serving.shares is None:
            return None
        known = [one.state for one in self.states.known.values() if one.identity == serving.identity][-POOL_USERS:]
        if len(known) < FEWEST:
            return None
        told = serving.policy.repeatability(type(known[0]).concat(known)).to_json()  # type: ignore[attr-defined]

        async def keep(tx: Tx) -> int | None:
            last = await tables.repeatability_row(tx)
            if last is not None and np.allclose(last[1]["weights"], told["weights"], rtol=0, atol=1e-3):
                return None
            return await tables.keep_repeatability_row(tx, serving.model.id, serving.name, told)

        return await self.store.transact(keep) if told["repeats"] else None


async def _attribute_kinds(tx: Tx, model: str) -> dict[str, str]:
    """Attributes of a model of the store, by its facts; stores of before have none, and are asked for the file."""
    told = (await tables.model_facts_row(tx, model)).get("attributes")
    data = await tables.model_file_row(tx, model) if told is None else None
    return models.model_attribute_kinds(models.load_stored_model(data)) if data is not None else dict(told or {})


def _shares(config: Config, otherwise: tuple[float, float, float]) -> tuple[float, float, float]:
    """The shares of random, control and incumbent that were asked for, or else these."""
    asked = (config.random, config.control, config.incumbent)
    random, control, incumbent = (o if a is None else a for a, o in zip(asked, otherwise, strict=True))
    return float(random), float(control), float(incumbent)

"""A world drawn from a fitted model: newcomers who are exactly what the model says users are.

The latent coordinates z of a newcomer are drawn from the prior, per-action effects e and noise by the residual
variance:

    reward = phi^T (m + L z) + o + e + noise.

Candidates are drawn from a menu of rows that were logged. It shows what the policies would do if the fit were true,
and says nothing of whether it is: real users deviate, and what held-out users gain counts for more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.gain.deals import PerUser, gather_dealt_users
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs
from newcomer.model import Model
from newcomer.policies.actions import KnownActions
from newcomer.policies.repeatability import SHARES, starting_repeatability
from newcomer.transforms import sigmoid, untransform_rewards
from newcomer.users import UserSample
from newcomer.worlds.world import Episode

MENU = 500  # rows that candidates are drawn from


@dataclass(frozen=True, eq=False)
class FittedWorld:
    """Newcomers of a model; `menu` are places of actions in its catalogue (M,), or feature rows (M, d)."""

    model: Model
    menu: Any
    choices: int = 10

    @property
    def dim(self) -> int:
        """Number of features d."""
        return self.model.dim

    @property
    def share(self) -> float:
        """Repeatability: the model's, or its prior expectation for users without history."""
        if self.model.persistence is not None:
            return float(self.model.persistence)
        return float((starting_repeatability(self.model) * SHARES).sum())

    @cached_property
    def _known(self) -> KnownActions:
        return KnownActions(self.model)

    def episode(self, rng: np.random.Generator, horizon: int) -> Episode:
        """One newcomer."""
        pool = len(self.menu)
        size = min(self.choices, pool)
        drawn = np.stack([rng.permutation(pool)[:size] for _ in range(horizon)])
        z = rng.standard_normal(self._known.factor.shape[1])
        if self.menu.ndim == 2:
            features, ids = self.menu[drawn], None
            means = features @ (self.model.mean + self._known.factor @ z)
            variance = np.full(drawn.shape, self.model.noise_variance)
        else:
            codes = self.menu[drawn]
            ids = np.array(self.model.action_ids)[codes]
            features = self.model.catalogue.rows(codes)
            variance = self._known.variance[codes]
            own = rng.standard_normal(len(self.model.catalogue))[codes] * np.sqrt(self.share * variance)
            means = self._known.population_mean[codes] + self._known.loadings[codes] @ z + own
        if self.model.outcome == "binary":
            return self._clicks(rng, features, ids, drawn, np.asarray(z))
        left = 1.0 - self.share if self.menu.ndim == 1 else 1.0
        noise = rng.standard_normal(drawn.shape) * np.sqrt(left * variance)
        scale = self.model.reward_transform
        return Episode(features, untransform_rewards(means, scale), untransform_rewards(means + noise, scale), ids=ids)

    def _clicks(self, rng: np.random.Generator, features: Floats, ids: Any, drawn: Ints, z: Floats) -> Episode:
        """The same where rewards are clicks: each action has a rate of its own, Beta with intraclass correlation s."""
        if ids is None:
            odds, share = features @ (self.model.mean + self._known.factor @ z), 0.0
        else:
            codes, share = self.menu[drawn], self.share
            odds = (self._known.population_mean + self._known.loadings @ z)[codes]
        rates = sigmoid(odds)
        if share > 0:
            firm = (1.0 - share) / share
            every = sigmoid((self._known.population_mean + self._known.loadings @ z)[:-1])
            rates = rng.beta(np.maximum(every * firm, 1e-12), np.maximum((1.0 - every) * firm, 1e-12))[codes]
        return Episode(features, rates, (rng.random(rates.shape) < rates).astype(np.float64), ids=ids)


def fitted_world_menu(logs: Logs, *, named: bool, seed: int) -> Any:
    """Rows of some users, drawn by hash: distinct actions, or features."""
    share = min(1.0, 4.0 * MENU / logs.summary.rows)
    found = gather_dealt_users(logs, partial(_rows, named=named, share=share, seed=seed)).values
    return np.unique(found[:, 0].astype(np.int64)) if named else found[:MENU]


def _rows(batch: Batch, *, named: bool, share: float, seed: int) -> PerUser:
    """The actions (n, 1) or the features (n, d) of a share of the rows, each with a hash of its own."""
    rows = np.arange(len(batch.rewards))
    who = np.repeat(np.arange(len(batch.users)), batch.lengths)
    place = (rows - batch.offsets[who]).astype(np.uint64)
    sample, keys = UserSample("menu", share, seed), batch.hashes[who] + place
    drawn, hashes = np.flatnonzero(sample(keys)), sample.hashes(keys)
    if not named:
        return PerUser(hashes[drawn], batch.take(drawn))
    assert batch.actions is not None
    return PerUser(hashes[drawn], batch.actions[drawn, None].astype(np.float64))

"""What PriorUCB and PriorTS believe of a user: the prior, what rewards add to it, and whether it fits this user.

The model says that a reward is phi^T (m + L z) + o + e + noise with z ~ N(0, I_k): the population mean, the user's
latent coordinates z along shared directions, the per-action effect e (policies/action_memory.py), and noise. After a
newcomer's rewards z has a Gaussian posterior, a k x k system (linear/ridge.py), and each action met has its own.
Only k numbers about the user have to be learned, and one about each action that comes again. The model's own error
about an action, large where few rows stand behind it (`Model.uncertainty`), is for one user a part of e: it is the same
whenever the action comes, and the user's own rewards find it out. Policies do not explore for it.

That is as good as the prior is right for this user, so every first meeting also feeds a test (`OutlierTest` of
policies/exits.py) of whether it is. An outlier user, who contradicts it at `level`, is served from then on, and with
all rewards that are remembered, in all d dimensions with beta ~ N(m, L L^T + tau^2 I), where tau^2 is the one of a few
sizes around |L|^2 / d (the population's spread, in any direction) that is likeliest for this user. Where features are
one-hot that is a larger per-action effect, and no system of d dimensions is built. Under the prior, with errors as
different from user to user as those of held-out users (`Model.error_scales`), this happens to a share of at most
`level` of users, ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import log
from typing import Any

import numpy as np

from newcomer.array_loops import HUGE, plain
from newcomer.arrays import Bools, Floats, Ints
from newcomer.errors import PolicyError
from newcomer.linear import ridge
from newcomer.linear.ridge import Ridge
from newcomer.linear.state import GROWS, LATER, State
from newcomer.model import Model
from newcomer.policies import action_memory, attributes, prior_loops, repeatability
from newcomer.policies.action_memory import ActionMemory
from newcomer.policies.actions import CandidateView, Described, KnownActions
from newcomer.policies.base import the_policy_model
from newcomer.policies.calls import Query, Rewards, call_rows_each_once
from newcomer.policies.exits import SHARES as SIZE_WEIGHTS
from newcomer.policies.exits import SIZES, OutlierState, OutlierTest, likeliest_exit_size
from newcomer.policies.memory_loops import Predicted, Recalled
from newcomer.policies.protocol import Learner
from newcomer.policies.repeatability import SHARES, Repeatability
from newcomer.validate import validate_share


@dataclass
class PriorState(State):
    """What is known of n users: latent coordinates, the actions they met, and the evidence that the prior is wrong.

    `full` has systems of d dimensions for outlier users; its triangles are (n, 0) until there are any.
    `known`, packed triangles, is what attributes have added to the precision of z; they shift its prior mean by
    `memory.shift`. The attributes themselves are not kept.
    """

    small: Ridge
    full: Ridge = field(metadata=GROWS)
    memory: ActionMemory
    outlier: OutlierState = field(metadata={"saved_as": "doubt"})
    in_subspace: Bools = field(metadata={"saved_as": "inside"})  # (n,), whether the prior is still believed
    known: Floats = field(default_factory=lambda: np.zeros((0, 0)), metadata=LATER)  # (n, p) by attributes, or (n, 0)

    def __post_init__(self) -> None:
        if len(self.known) != len(self.in_subspace):
            self.known = np.zeros((len(self.in_subspace), 0))

    def untouched(self) -> Bools:
        """Of each row (n,) whether its users have had no reward."""
        return self.memory.untouched() & self.small.untouched()

    def check(self) -> None:
        """Refuse parts that do not fit together."""
        super().check()
        self.refuse_unless(self.small.complete and self.in_subspace.ndim == 1 and self.in_subspace.dtype == np.bool_)
        self.check_values()

    def check_values(self) -> None:
        """Refuse entries that are not there, and outlier users without a system."""
        self.memory.check_values()
        built = self.full.complete or self.outlier.pull.shape[1] == 0
        self.refuse_unless(built or bool(self.in_subspace.all()))


@dataclass(frozen=True, eq=False)
class Belief(Learner[PriorState]):
    """What the policies share: the prior, what memory adds to it, and how rewards change both."""

    model: Model
    level: float

    def __post_init__(self) -> None:
        the_policy_model(self.model)
        validate_share(self.level, "level", todo="pass a probability, 0 for never")

    @cached_property
    def known(self) -> KnownActions:
        """What the model knows of each action."""
        return KnownActions(self.model)

    @cached_property
    def starting(self) -> Floats | None:
        """Weights of shares that may repeat, for users who have met nothing twice; None if the model knows."""
        return repeatability.starting_repeatability(self.model) if self.model.persistence is None else None

    @cached_property
    def tested(self) -> bool:
        """Whether outlier users are looked for. The test takes errors for normal; of two values, a rare one is none."""
        return self.level > 0 and not repeatability.repeatability_of_two_values(self.model)

    @cached_property
    def scale(self) -> Floats:
        """The scale (3,) of rewards."""
        return repeatability.repeatability_reward_scale(self.model)

    @cached_property
    def remembers(self) -> bool:
        """Whether there may be per-action effects, be it errors of means; if not, memory serves outliers alone."""
        return self.model.persistence is None or self.model.persistence > 0 or bool(self.model.uncertainty.any())

    @cached_property
    def flat(self) -> bool:
        """Whether outlier users are served without a system of d dimensions: features are one-hot."""
        return self.model.one_hot and not self.model.intercept

    @cached_property
    def axes(self) -> tuple[Floats, Floats]:
        """Orthonormal directions Q (d, k) of the factor L and the variances (k,) along them."""
        left, sizes, _ = np.linalg.svd(self.known.factor, full_matrices=False)
        return np.ascontiguousarray(left), sizes**2

    @cached_property
    def outlier_variance(self) -> float:
        """tau^2 at size one: the spread of the prior per direction, or, for one-hot features, the residual variance."""
        if self.flat:
            return float(self.model.noise_variance)
        power = float(self.axes[1].sum()) or float(self.model.mean @ self.model.mean)
        return (power or self.model.noise_variance) / self.model.dim

    @cached_property
    def outlier_test(self) -> OutlierTest:
        """The test that takes users out of the prior."""
        return OutlierTest(
            self.level, self.outlier_variance, 0 if self.flat else self.model.dim, np.array(self.model.error_scales)
        )

    def state_settings(self) -> dict[str, str | float]:
        """Who is taken for an outlier depends on the level."""
        return {"level": self.level}

    def in_subspace(self, state: PriorState) -> Bools:
        """Whether the prior is still believed, of each user (n,)."""
        return state.in_subspace

    def init(self, n: int) -> PriorState:
        """n users at the prior."""
        dim, rank, share = self.model.dim, self.known.factor.shape[1], self.model.persistence
        if self.starting is not None:
            share = float((self.starting * SHARES).sum())
        return PriorState(
            small=ridge.start_ridge(n, rank),
            full=ridge.start_empty_ridge(n, 0 if self.flat else dim),
            memory=action_memory.start_action_memory(n, rank if self.model.by_ids_alone else dim, float(share or 0.0)),
            outlier=self.outlier_test.start(n),
            in_subspace=np.ones(n, dtype=np.bool_),
        )

    def apply_repeatability(self, state: PriorState, given: Repeatability) -> None:
        """Let users who have met nothing yet start with the repeatability of earlier users."""
        self.start_from(state.memory, given)

    def start_from(self, own: ActionMemory, given: Repeatability) -> None:
        """The same, of the memory alone."""
        grid = tuple(SHARES.tolist()) if self.starting is not None else (float(self.model.persistence or 0.0),)
        if len(given.shares) != len(grid) or not np.allclose(given.shares, grid, rtol=0.0, atol=1e-9):
            what = "this repeatability is of other shares than this policy's"
            knows = f"its model knows the share, {grid[0]:.0%}" if self.starting is None else f"it has {len(grid)}"
            raise PolicyError(what, where=knows, todo="pass what policy.repeatability(state) of such a model gave")
        if self.starting is not None:
            own.log_prior[:] = np.log(np.maximum(given.weights, 1e-300)) - np.log(np.maximum(self.starting, 1e-300))
            action_memory.believe_action_memory(own, np.arange(len(own)), self.starting)

    def pool_repeatability(self, state: PriorState) -> Repeatability:
        """What the repeats of all users together say."""
        return self.pooled(state.memory)

    def pooled(self, own: ActionMemory) -> Repeatability:
        """The same, of the memory alone."""
        if self.starting is None:
            return Repeatability((float(self.model.persistence or 0.0),), (1.0,))
        met = own.repeats > 0
        weights = repeatability.pooled_repeatability(self.starting, own.log_likelihood[met])
        return Repeatability(tuple(SHARES.tolist()), tuple(weights.tolist()), int(met.sum()), int(own.repeats.sum()))

    def apply_attributes(self, state: PriorState, users: Ints, x: Floats) -> None:
        """Let the prior of `users` (m,) be the one given their encoded attributes (m, p), in place of what was known.

        Information adds up in any order, so the posterior is as if attributes had been known from the start.
        """
        away = [] if self.flat else users[~state.in_subspace[users]].tolist()
        earlier = {user: self._full_prior(state, user) for user in away}
        state.memory.shift, state.known = attributes.condition_on_attributes(
            self.model, state.small, state.memory.shift, state.known, users, x
        )
        for user, (old, pull) in earlier.items():
            now, toward = self._full_prior(state, user)
            ridge.inform_ridge(state.full, np.array([user]), (now - old)[None], (toward - pull)[None])

    def _full_prior(self, state: PriorState, user: int) -> tuple[Floats, Floats]:
        """Precision (d, d), and precision times mean (d,), of an outlier's beta - m ~ N(L mu, L C L^T + tau^2 I)."""
        size = self.outlier_variance * SIZES[likeliest_exit_size(state.outlier, user)]
        left, variances = self.axes
        if not state.known.shape[1]:
            return (np.eye(len(left)) - (left * (variances / (variances + size))) @ left.T) / size, np.zeros(len(left))
        rank, factor = self.known.factor.shape[1], self.known.factor
        inner = ridge.symmetric_ridge(state.known[user], rank) + np.eye(rank)  # C^-1
        middle = np.linalg.inv(size * inner + factor.T @ factor)
        precision = (np.eye(len(factor)) - factor @ middle @ factor.T) / size
        return precision, precision @ (factor @ state.memory.shift[user])

    def remembered(self, observed: Rewards, seen: Described) -> Floats:
        """The features (m, d) that memory keeps of actions outside the catalogue; loadings (m, k) where d is large."""
        if self.model.by_ids_alone:
            return np.ascontiguousarray(seen.loadings[:, 0])
        written = observed.features.shape[1] == self.model.dim or bool((seen.keys >= 0).all())
        return observed.features if written else np.tile(self.model.catalogue.average, (len(seen.keys), 1))

    def look_at(self, state: PriorState, query: Query) -> CandidateView:
        """Candidates as this state sees them."""
        # Which actions these are matters only where there are effects or offsets.
        keys = self.remembers or self.known.named
        seen = self.known.describe(query.actions, query.ids, query.codes, keys=keys).rows(len(query.users))
        recalled = action_memory.recall_action_memory(state.memory, query.users, seen.keys, seen.variance, seen.effect)
        return CandidateView(self, state, query, seen, recalled)

    def innovation(self, given: Floats, found: Recalled, own: ActionMemory, users: Ints, *, latent: bool) -> Floats:
        """g - c f of loadings (m, K, k), or of features (m, K, d) as they are.

        Features of the catalogue are the same at all n meetings, so that f = n g; of other actions their sum is in
        memory.
        """
        met = found.entry >= 0
        if not met.any():
            return plain(given)
        with np.errstate(invalid="ignore", over="ignore"):
            new = given * (1.0 - found.weight)[..., None]
        rows, places = np.nonzero(met)
        who, entry = users[rows], found.entry[rows, places]
        for i in np.flatnonzero(own.slots[who, entry] >= 0):
            row, place, user, j = rows[i], places[i], who[i], entry[i]
            known = found.weight[row, place] / own.counts[user, j] * own.rows[user, own.slots[user, j]]
            before = known @ self.known.factor if latent and not self.model.by_ids_alone else known
            new[row, place] = given[min(row, len(given) - 1), place] - before
        return np.ascontiguousarray(new)

    @cached_property
    def _tables(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Population means, loadings, residual variances and uncertainties by place, as compiled loops take them."""
        known = self.known
        return known.population_mean, known.loadings, known.variance, known.uncertainty

    @cached_property
    def _rules(self) -> tuple[tuple[Floats, ...], tuple[Any, ...]]:
        """What `prior_loops.learn` is given of the repeats and of the outlier test; empty where there is none."""
        through = np.zeros((0, 0)) if self.model.by_ids_alone else self.known.factor
        starting = np.zeros(0) if self.starting is None else self.starting
        sizes = np.stack([SIZES, SIZE_WEIGHTS]) if self.tested else np.zeros((2, 0))
        scales = self.outlier_test.scales
        scales = plain(scales) if self.tested and scales.size else np.zeros((2, 0))
        limit = -log(self.level) if self.tested else np.inf
        return (through, starting, SHARES, self.scale), (sizes, scales, limit)

    def choose_codes(self, state: PriorState, users: Ints, codes: Ints, curiosity: float) -> Ints | None:
        """The best (m,) of candidates at these places (1, K) of the catalogue, where users are served by z."""
        if not self.known.named or not (self.flat or state.in_subspace[users].all()):
            return None
        own, small, chosen = state.memory, state.small, np.empty(len(users), dtype=np.int64)
        memory = own.keys, own.counts, own.totals, own.used, own.share, own.extra
        given: tuple[Any, ...] = (*self._tables, *memory, small.factor, small.mean, users, codes, curiosity, chosen)
        return chosen if prior_loops.choose_by_prior_loop(*given) else None

    def learn_codes(self, state: PriorState, users: Ints, codes: Ints, reward: Floats, largest: float) -> bool:
        """The same as `learn`, in one compiled loop; it stops where memory needs room or a user leaves the prior."""
        if not self.known.named or not (self.remembers or self.tested):
            return False
        if not self.flat and (self.tested or not state.in_subspace[users].all()):
            return False
        repeats, test = self._rules
        row, stopped = 0, np.zeros(1, dtype=np.int64)
        observed = state.in_subspace, min(largest, HUGE), users, codes, reward
        while row < len(users):
            own = state.memory
            memory = (*own.entries, own.share, own.extra, own.repeats, own.log_likelihood, own.log_prior)
            systems = (*state.small.parts, state.outlier.wealth)
            given: tuple[Any, ...] = (*self._tables, *memory, *repeats, *systems, *test, *observed, row, stopped)
            row = prior_loops.learn_by_prior_loop(*given)
            if stopped[0] == prior_loops.REFUSED:
                return False
            if stopped[0] == prior_loops.NO_ROOM:
                action_memory.make_action_memory_room(own, users[row : row + 1], codes[row : row + 1])
            elif stopped[0] == prior_loops.OUTLIER:
                self._leave(state, int(users[row - 1]))
            stopped[0] = 0
        return True

    def learn(self, state: PriorState, observed: Rewards) -> None:
        """Every first meeting feeds the test, with what was expected of it; then the systems and the memory learn."""
        for part in call_rows_each_once(observed):
            self._learn(state, part)

    def _learn(self, state: PriorState, observed: Rewards) -> None:
        """The same, with each user at most once."""
        users, own = observed.users, state.memory
        seen = self.known.describe(observed.features[:, None], *observed.columns())
        found = action_memory.recall_action_memory(own, users, seen.keys, seen.variance, seen.effect)
        target = observed.reward - seen.population_mean[:, 0]
        variance = (1.0 - own.share[users]) * seen.variance[:, 0] + found.left[:, 0]
        rows = self.innovation(seen.loadings, found, own, users, latent=True)[:, 0]
        rewards = target - found.level[:, 0]
        if self.tested:
            # Of users who have left, the test keeps what it said then: their prior rests on it.
            first = (found.entry[:, 0] < 0) & state.in_subspace[users]
            self._test(state, observed, rows, rewards, variance, first)
        predicted = self._predicted(state, observed, seen, bool((found.entry >= 0).any()))
        ridge.condition_ridge_posterior(state.small, users, rows, rewards, variance)
        away = ~state.in_subspace[users]
        if away.any() and not self.flat:
            rows = self.innovation(observed.features[:, None], found, own, users, latent=False)[:, 0]
            ridge.condition_ridge_posterior(state.full, users[away], rows[away], rewards[away], variance[away])
        if self.remembers or self.tested:
            keys, features = seen.keys[:, 0], self.remembered(observed, seen)
            again = action_memory.remember_in_action_memory(
                own, users, keys, target, features, predicted, self.scale, self.starting
            )
            self._settle(state, again)
        if self.tested:
            caught = self.outlier_test.caught(state.outlier, users) & state.in_subspace[users]
            for user in users[caught]:
                self._leave(state, int(user))

    def _test(
        self, state: PriorState, observed: Rewards, rows: Floats, rewards: Floats, variance: Floats, first: Bools
    ) -> None:
        """Standardised errors of first meetings, and features outside the prior's directions, go to the test."""
        if not first.any():
            return
        users = observed.users
        expected, unsure = ridge.predict_by_ridge_posterior(state.small, users, rows)
        deviation = np.sqrt(variance + unsure)
        error = (rewards - expected) / deviation
        left, x = self.axes[0], observed.features
        outside = x if self.flat else x - np.einsum("mk,dk->md", np.einsum("md,dk->mk", x, left), left)
        self.outlier_test.look(state.outlier, users[first], outside[first], error[first], deviation[first])

    def _predicted(self, state: PriorState, observed: Rewards, seen: Described, again: bool) -> Predicted:
        """What was expected of the rewards; the personal part only where an action came `again`."""
        users = observed.users
        personal, unsure = np.zeros((2, len(users)))
        if again and self.starting is not None:
            personal, unsure = ridge.predict_by_ridge_posterior(state.small, users, seen.loadings[:, 0])
            away = ~state.in_subspace[users]
            if away.any() and not self.flat:
                personal[away], unsure[away] = ridge.predict_by_ridge_posterior(
                    state.full, users[away], observed.features[away]
                )
        effect = seen.effect[:, 0] + state.memory.extra[users]
        return Predicted(plain(seen.population_mean[:, 0]), personal, unsure, plain(seen.variance[:, 0]), effect)

    def _settle(self, state: PriorState, users: Ints) -> None:
        """Users who met an action again say how much repeats; what they learned gets the new weight."""
        own, starting = state.memory, self.starting
        if starting is None or not len(users):
            return
        before = own.share[users].copy()
        action_memory.believe_action_memory(own, users, starting)
        for user, share in zip(users.tolist(), before.tolist(), strict=True):
            self._reweigh(state, user, (share, float(own.extra[user])), latent=True, least=2.0)
            if not state.in_subspace[user] and not self.flat:
                self._reweigh(state, user, (share, 0.0), latent=False, least=2.0)

    def _reweigh(
        self, state: PriorState, user: int, before: tuple[float, float] | None, *, latent: bool, least: float
    ) -> None:
        """Give the meetings of a user the weight that they now have, in the system of z or in that of features."""
        known = self.known
        table = known.loadings if latent else known.features if known.named else np.zeros((0, self.model.dim))
        action_memory.reweigh_action_memory(
            state.memory,
            user,
            state.small if latent else state.full,
            table=table,
            # Features that are in the right coordinates already need not be taken there.
            through=known.factor if latent and not self.model.by_ids_alone else np.zeros((0, 0)),
            variance=known.variance,
            effect=known.uncertainty,
            before=before,
            least=least,
        )

    def _leave(self, state: PriorState, user: int) -> None:
        """Take a user out of the prior: larger effects where features are one-hot, else a system of d dimensions."""
        own, full, dim = state.memory, state.full, self.model.dim
        state.in_subspace[user] = False
        if self.flat:
            own.extra[user] = self.outlier_variance * SIZES[likeliest_exit_size(state.outlier, user)]
            self._reweigh(state, user, (float(own.share[user]), 0.0), latent=True, least=1.0)
            return
        if not full.complete:
            fresh = ridge.start_ridge(len(state.in_subspace), dim)
            full.gram, full.factor, full.carry, full.guard = fresh.gram, fresh.factor, fresh.carry, fresh.guard
        precision, pull = self._full_prior(state, user)
        full.gram[user], full.carry[user], full.moment[user] = ridge.pack_ridge(precision), 0.0, pull
        self._reweigh(state, user, None, latent=False, least=1.0)

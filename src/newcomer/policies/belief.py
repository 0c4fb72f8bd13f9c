"""What PriorUCB and PriorTS believe of a user: the prior, what rewards and memory add to it, and whether it fits.

The model says that a reward is phi^T (m + L z) + o + e + noise with z ~ N(0, I_k): a common part, taste along shared
directions, what this person thinks of this very action, and noise (policies/action_memory.py). After a newcomer's
rewards z has a Gaussian posterior, a k x k system, and each action met has its own. Nothing has to be learnt that the
population already shows, and only k numbers about the user, and one about each action that comes again. The model's own
error about an action, large where few rows stand behind it (`Model.uncertainty`), is for one user a part of e: it comes
again whenever the action does, and the user's own rewards find it out. Policies do not explore for it.

That is as good as the prior is right for this user, so every first meeting also feeds a test (`Stranger` of
policies/exits.py) of whether it is. A user who contradicts it, at `level`, is served from then on, and with all rewards
that are remembered, in all d dimensions with beta ~ N(m, L L^T + tau^2 I), where tau^2 is the one of a few sizes around
|L|^2 / d (the population's spread, in any direction) that is likeliest for this user. Where features are one-hot that
is a memory which trusts each action's own rewards more, and no system of d dimensions is built. Under the prior, with
errors as different from person to person as those of people held out of the fit (`Model.error_scales`), this happens to
a share of at most `level` of users, ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from newcomer import validate
from newcomer.array_loops import plain
from newcomer.arrays import Bools, Floats, Ints
from newcomer.errors import PolicyError
from newcomer.linear import ridge, scoring_loops
from newcomer.linear.ridge import Ridge, packed_size
from newcomer.linear.scoring_loops import Ellipsoid
from newcomer.linear.state import GROWS, LATER, State
from newcomer.model import Model
from newcomer.policies import action_memory, attributes, calls, repeatability
from newcomer.policies.action_memory import ActionMemory
from newcomer.policies.actions import Described, KnownActions
from newcomer.policies.base import the_model
from newcomer.policies.calls import Generators, Query, Rewards, each_once
from newcomer.policies.exits import SIZES, OutlierState, OutlierTest, likeliest
from newcomer.policies.memory_loops import Foreseen, Recalled
from newcomer.policies.repeatability import SHARES, Repeatability


@dataclass
class PriorState(State):
    """What is known of n users: taste (small), the actions they met, and the evidence that the prior is wrong for them.

    `full` has systems of d dimensions for those who turned out to be strangers; its triangles are (n, 0) until then.
    `known`, packed triangles, is what attributes have added to the precision of taste; they shift its prior mean by
    `memory.shift`. The attributes themselves are not kept.
    """

    small: Ridge
    full: Ridge = field(metadata=GROWS)
    memory: ActionMemory
    doubt: OutlierState
    inside: Bools  # (n,), whether the prior is still believed
    known: Floats = field(default_factory=lambda: np.zeros((0, 0)), metadata=LATER)  # (n, p) by attributes, or (n, 0)

    def __post_init__(self) -> None:
        if len(self.known) != len(self.inside):
            self.known = np.zeros((len(self.inside), 0))

    def __len__(self) -> int:
        return len(self.inside)

    def check(self) -> None:
        """Refuse parts that do not fit together."""
        super().check()
        self.refuse_unless(self.small.complete and self.inside.ndim == 1 and self.inside.dtype == np.bool_)
        built = self.full.complete or self.doubt.pull.shape[1] == 0
        self.refuse_unless(built or bool(self.inside.all()))


@dataclass(frozen=True, eq=False)
class Belief:
    """What the policies share: the prior, what memory adds to it, and how rewards change both."""

    model: Model
    level: float

    def __post_init__(self) -> None:
        the_model(self.model)
        validate.share(self.level, "level", todo="pass a probability, 0 for never")

    @cached_property
    def known(self) -> KnownActions:
        """What the model knows of each action."""
        return KnownActions(self.model)

    @cached_property
    def starting(self) -> Floats | None:
        """Weights of shares that may last, for users who have met nothing twice; None if the model knows."""
        return repeatability.starting_weights(self.model) if self.model.persistence is None else None

    @cached_property
    def tested(self) -> bool:
        """Whether strangers are looked for. The test takes errors for normal; of two values, a rare one is none."""
        return self.level > 0 and not repeatability.two_valued(self.model)

    @cached_property
    def scale(self) -> Floats:
        """The scale (3,) of rewards."""
        return repeatability.reward_scale(self.model)

    @cached_property
    def remembers(self) -> bool:
        """Whether anything may last, be it the error of an action's mean; if not, memory serves strangers alone."""
        return self.model.persistence is None or self.model.persistence > 0 or bool(self.model.uncertainty.any())

    @cached_property
    def flat(self) -> bool:
        """Whether strangers are served without a system of d dimensions: features are one-hot."""
        return self.model.one_hot and not self.model.intercept

    @cached_property
    def axes(self) -> tuple[Floats, Floats]:
        """Orthonormal directions Q (d, k) of the factor L and the variances (k,) along them."""
        left, sizes, _ = np.linalg.svd(self.known.factor, full_matrices=False)
        return np.ascontiguousarray(left), sizes**2

    @cached_property
    def _unsure(self) -> Floats:
        """Uncertainty (A + 1,), or (2,), of each action, and of actions outside the catalogue: see `KnownActions`."""
        known = self.known
        return np.append(known.uncertainty, 0.0 if known.named else known.uncertainty[0])

    @cached_property
    def stray(self) -> float:
        """tau^2 at size one: the spread of the prior per direction, or, for one-hot features, the residual variance."""
        if self.flat:
            return float(self.model.noise_variance)
        power = float(self.axes[1].sum()) or float(self.model.mean @ self.model.mean)
        return (power or self.model.noise_variance) / self.model.dim

    @cached_property
    def stranger(self) -> OutlierTest:
        """The test that takes users out of the prior."""
        return OutlierTest(
            self.level, self.stray, 0 if self.flat else self.model.dim, np.array(self.model.error_scales)
        )

    def start(self, n: int) -> PriorState:
        """n users of whom nothing is known but where they come from."""
        dim, rank, lasts = self.model.dim, self.known.factor.shape[1], self.model.persistence
        if self.starting is not None:
            lasts = float((self.starting * SHARES).sum())
        return PriorState(
            small=ridge.start(n, rank),
            full=ridge.start_empty(n, 0 if self.flat else dim),
            memory=action_memory.start(n, rank if self.model.by_ids_alone else dim, float(lasts or 0.0)),
            doubt=self.stranger.start(n),
            inside=np.ones(n, dtype=np.bool_),
        )

    def begin_from(self, own: ActionMemory, given: Repeatability) -> None:
        """Let users who have met nothing yet begin with what earlier users told."""
        grid = tuple(SHARES.tolist()) if self.starting is not None else (float(self.model.persistence or 0.0),)
        if len(given.shares) != len(grid) or not np.allclose(given.shares, grid, rtol=0.0, atol=1e-9):
            what = "this repeatability is of other shares than this policy's"
            knows = f"its model knows the share, {grid[0]:.0%}" if self.starting is None else f"it has {len(grid)}"
            raise PolicyError(what, where=knows, todo="pass what policy.repeatability(state) of such a model gave")
        if self.starting is not None:
            own.heard[:] = np.log(np.maximum(given.weights, 1e-300)) - np.log(np.maximum(self.starting, 1e-300))
            action_memory.believe(own, np.arange(len(own)), self.starting)

    def pooled(self, own: ActionMemory) -> Repeatability:
        """What the repeats of all users together say."""
        if self.starting is None:
            return Repeatability((float(self.model.persistence or 0.0),), (1.0,))
        met = own.repeats > 0
        weights = repeatability.pooled(self.starting, own.told[met])
        return Repeatability(tuple(SHARES.tolist()), tuple(weights.tolist()), int(met.sum()), int(own.repeats.sum()))

    def know(self, state: PriorState, users: Ints, x: Floats) -> None:
        """Let the prior of `users` (m,) be the one given their encoded attributes (m, p), in place of what was known.

        Information adds up in any order, so the posterior is as if attributes had been known from the start.
        """
        rank, prior = self.known.factor.shape[1], self.model.attribute_prior
        mean, covariance = prior.given(x)
        precision = np.linalg.inv(covariance)
        shift, added = attributes.widened(state.memory.shift, rank), attributes.widened(state.known, packed_size(rank))
        before = ridge.symmetric(added[users], rank) + np.eye(rank)
        moment = np.einsum("nij,nj->ni", precision, mean) - np.einsum("nij,nj->ni", before, shift[users])
        ridge.inform(state.small, users, precision - before, moment)
        away = [] if self.flat else users[~state.inside[users]].tolist()
        earlier = {user: self._full_prior(state, user) for user in away}
        shift[users], added[users] = mean, ridge.pack(precision - np.eye(rank))
        state.memory.shift, state.known = shift, added
        for user, (old, pull) in earlier.items():
            now, toward = self._full_prior(state, user)
            ridge.inform(state.full, np.array([user]), (now - old)[None], (toward - pull)[None])

    def _full_prior(self, state: PriorState, user: int) -> tuple[Floats, Floats]:
        """Precision (d, d), and precision times mean (d,), of beta - m of a stranger: N(L mu, L C L^T + tau^2 I)."""
        size = self.stray * SIZES[likeliest(state.doubt, user)]
        left, variances = self.axes
        if not state.known.shape[1]:
            return (np.eye(len(left)) - (left * (variances / (variances + size))) @ left.T) / size, np.zeros(len(left))
        rank, factor = self.known.factor.shape[1], self.known.factor
        inner = ridge.symmetric(state.known[user], rank) + np.eye(rank)  # C^-1
        middle = np.linalg.inv(size * inner + factor.T @ factor)
        precision = (np.eye(len(factor)) - factor @ middle @ factor.T) / size
        return precision, precision @ (factor @ state.memory.shift[user])

    def remembered(self, told: Rewards, seen: Described) -> Floats:
        """The features (m, d) that memory keeps of actions outside the catalogue; in the coordinates of taste (m, k)
        where features are too many to be kept."""
        return np.ascontiguousarray(seen.low[:, 0]) if self.model.by_ids_alone else told.features

    def describe(self, actions: Floats, ids: calls.Ids | None) -> Described:
        """Candidates in the terms of the prior; who they are matters where something lasts or has an offset."""
        return self.known.describe(actions, ids, keys=self.remembers or self.known.named)

    def look_at(self, state: PriorState, asked: Query) -> CandidateView:
        """Candidates as this state sees them."""
        seen = self.describe(asked.actions, asked.ids).rows(len(asked.users))
        recalled = action_memory.recall(state.memory, asked.users, seen.keys, seen.variance, seen.lasting)
        return CandidateView(self, state, asked, seen, recalled)

    def what_is_new(self, given: Floats, found: Recalled, own: ActionMemory, users: Ints, *, taste: bool) -> Floats:
        """g - c f of (m, K, k) features in the coordinates of taste, or of (m, K, d) features as they are.

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
            before = known @ self.known.factor if taste and not self.model.by_ids_alone else known
            new[row, place] = given[min(row, len(given) - 1), place] - before
        return np.ascontiguousarray(new)

    def learn(self, state: PriorState, told: Rewards) -> None:
        """Every first meeting feeds the test, with what was expected of it; then the systems and the memory learn."""
        for part in each_once(told):
            self._learn(state, part)

    def _learn(self, state: PriorState, told: Rewards) -> None:
        """The same, with each user at most once."""
        users, own = told.users, state.memory
        ids = None if told.ids is None else told.ids[:, None]
        seen = self.known.describe(told.features[:, None], ids)
        found = action_memory.recall(own, users, seen.keys, seen.variance, seen.lasting)
        target = told.reward - seen.common[:, 0]
        spread = (1.0 - own.share[users]) * seen.variance[:, 0] + found.left[:, 0]
        low = self.what_is_new(seen.low, found, own, users, taste=True)
        rewards, root = target - found.level[:, 0], np.sqrt(spread)
        if self.tested:
            self._doubt(state, told, low[:, 0], rewards, spread, found.entry[:, 0] < 0)
        foreseen = self._foreseen(state, told, seen, bool((found.entry >= 0).any()))
        ridge.learn(state.small, np.ascontiguousarray(low[:, 0] / root[:, None]), rewards / root, users)
        away = ~state.inside[users]
        if away.any() and not self.flat:
            high = self.what_is_new(told.features[:, None], found, own, users, taste=False)
            x = np.ascontiguousarray((high[:, 0] / root[:, None])[away])
            ridge.learn(state.full, x, (rewards / root)[away], users[away])
        if self.remembers or self.tested:
            keys, features = seen.keys[:, 0], self.remembered(told, seen)
            again = action_memory.remember(own, users, keys, target, features, foreseen, self.scale, self.starting)
            self._settle(state, again)
        if self.tested:
            caught = self.stranger.caught(state.doubt, users) & state.inside[users]
            for user in users[caught]:
                self._leave(state, int(user))

    def _doubt(
        self, state: PriorState, told: Rewards, low: Floats, rewards: Floats, spread: Floats, first: Bools
    ) -> None:
        """Standardised errors of first meetings, and features outside the prior's directions, go to the test."""
        if not first.any():
            return
        users, length = told.users, np.empty(len(told.users))
        scoring_loops.lengths(state.small.factor, users, np.ascontiguousarray(low), length)
        deviation = np.sqrt(spread + length**2)
        error = (rewards - np.einsum("mk,mk->m", low, state.small.mean[users])) / deviation
        left, x = self.axes[0], told.features
        outside = x if self.flat else x - np.einsum("mk,dk->md", np.einsum("md,dk->mk", x, left), left)
        self.stranger.look(state.doubt, users[first], outside[first], error[first], deviation[first])

    def _foreseen(self, state: PriorState, told: Rewards, seen: Described, again: bool) -> Foreseen:
        """What was known of the rewards before they came; of taste only where an action came `again` and may tell."""
        users = told.users
        taste, unsure = np.zeros((2, len(users)))
        if again and self.starting is not None:
            taste, unsure = _said(state.small, users, seen.low[:, 0])
            away = ~state.inside[users]
            if away.any() and not self.flat:
                taste[away], unsure[away] = _said(state.full, users[away], told.features[away])
        lasting = seen.lasting[:, 0] + state.memory.more[users]
        return Foreseen(plain(seen.common[:, 0]), taste, unsure, plain(seen.variance[:, 0]), lasting)

    def _settle(self, state: PriorState, users: Ints) -> None:
        """Users who met an action again have told something of what lasts; what they learned gets the new weight."""
        own, starting = state.memory, self.starting
        if starting is None or not len(users):
            return
        before = own.share[users].copy()
        action_memory.believe(own, users, starting)
        for user, share in zip(users.tolist(), before.tolist(), strict=True):
            self._reweigh(state, user, (share, float(own.more[user])), taste=True, least=2.0)
            if not state.inside[user] and not self.flat:
                self._reweigh(state, user, (share, 0.0), taste=False, least=2.0)

    def _reweigh(
        self, state: PriorState, user: int, before: tuple[float, float] | None, *, taste: bool, least: float
    ) -> None:
        """Give the meetings of a user the weight that they now have, in the system of taste or in that of features."""
        known = self.known
        table = known.low if taste else known.features if known.named else np.zeros((0, self.model.dim))
        action_memory.reweigh(
            state.memory,
            user,
            state.small if taste else state.full,
            table=table,
            # Features that are in the right coordinates already need not be taken there.
            through=known.factor if taste and not self.model.by_ids_alone else np.zeros((0, 0)),
            variance=known.variance,
            outside=known.outside,
            lasting=self._unsure,
            before=before,
            least=least,
        )

    def _leave(self, state: PriorState, user: int) -> None:
        """Take a user out of the prior: one-hot features get a larger memory, others a system of d dimensions."""
        own, full, dim = state.memory, state.full, self.model.dim
        state.inside[user] = False
        if self.flat:
            own.more[user] = self.stray * SIZES[likeliest(state.doubt, user)]
            self._reweigh(state, user, (float(own.share[user]), 0.0), taste=True, least=1.0)
            return
        if not full.complete:
            fresh = ridge.start(len(state), dim)
            full.gram, full.factor, full.carry, full.guard = fresh.gram, fresh.factor, fresh.carry, fresh.guard
        precision, pull = self._full_prior(state, user)
        full.gram[user], full.carry[user], full.moment[user] = ridge.pack(precision), 0.0, pull
        self._reweigh(state, user, None, taste=False, least=1.0)


def _said(system: Ridge, users: Ints, rows: Floats) -> tuple[Floats, Floats]:
    """What the users' systems expect (m,) of rows (m, q), and the variance (m,) of that."""
    x, length = np.ascontiguousarray(rows), np.empty(len(users))
    scoring_loops.lengths(system.factor, users, x, length)
    return np.einsum("mq,mq->m", x, system.mean[users]), length**2


@dataclass(frozen=True, eq=False)
class CandidateView:
    """Candidates as a state sees them: what is expected of each without the systems, and the features that are left."""

    belief: Belief
    state: PriorState
    asked: Query
    seen: Described
    recalled: Recalled

    @cached_property
    def low(self) -> Floats:
        """What a meeting would tell that is new, g - c f (m, K, k), in the coordinates of taste."""
        return self.belief.what_is_new(self.seen.low, self.recalled, self.state.memory, self.asked.users, taste=True)

    @cached_property
    def high(self) -> Floats:
        """The same in the coordinates of features (m, K, d), for users who have left the prior."""
        actions = np.broadcast_to(self.asked.actions, (len(self.asked.users), *self.asked.actions.shape[1:]))
        return self.belief.what_is_new(actions, self.recalled, self.state.memory, self.asked.users, taste=False)

    @cached_property
    def outside(self) -> Ints:
        """Rows of users served in d dimensions."""
        left = ~self.state.inside[self.asked.users] if not self.belief.flat else np.zeros(0, dtype=np.bool_)
        return np.flatnonzero(left)

    @cached_property
    def noise(self) -> Floats:
        """Variance (m, K) of one more reward about what taste says of it: noise, and what lasts unknown."""
        fresh = (1.0 - self.state.memory.share[self.asked.users])[:, None] * self.seen.variance
        return np.asarray(fresh + self.recalled.left)

    def expected(self) -> Floats:
        """Expected rewards (m, K)."""
        return self._by_system(scoring_loops.ucb_scores, np.zeros(1))

    def optimistic(self, width: float, memory_width: float) -> Floats:
        """Expected rewards plus so many deviations of taste, and of what lasts (m, K)."""
        scores = self._by_system(scoring_loops.ucb_scores, np.array([width]))
        if memory_width:
            scores = scores + memory_width * np.sqrt(self.recalled.left)
        return scores

    def curious(self, weight: float) -> Floats:
        """Expected rewards plus `weight` deviations of how far one more reward would move them (m, K)."""
        return self._by_system(scoring_loops.curious_scores, np.array([weight]), self.noise)

    def told(self) -> Floats:
        """The share (m,) of the variance of one more reward that is taste, on average over candidates."""
        return np.asarray(self._by_system(scoring_loops.told_shares, np.ones(1), self.noise, level=False).mean(axis=1))

    def _by_system(self, loop: Callable[..., None], widths: Floats, *more: Floats, level: bool = True) -> Floats:
        """A table (m, K) by a loop over the users' systems: of taste or, for who left the prior, the full ones."""
        out, users, state = self.asked.table(), self.asked.users, self.state
        loop(Ellipsoid(state.small.factor, state.small.mean, widths), users, self.low, *more, out)
        if len(self.outside):
            rows = self.outside
            part, high = np.empty((len(rows), out.shape[1])), np.ascontiguousarray(self.high[rows])
            own = [np.ascontiguousarray(one[rows]) for one in more]
            loop(Ellipsoid(state.full.factor, state.full.mean, widths), users[rows], high, *own, part)
            out[rows] = part
        return self._with_levels(out) if level else out

    def drawn(self, rngs: Generators, scales: Floats, memory_scale: float) -> Floats:
        """Rewards (m, K) under one draw of each user's taste and, once for each distinct action, of what lasts.

        `scales` (m,), or (1,) for all alike: draws are so many times as wide as the posterior of taste.
        """
        state, users, rank = self.state, self.asked.users, self.low.shape[2]
        size = self.belief.model.dim if len(self.outside) else rank
        noise = calls.normals(rngs, size)
        drawn = np.empty((len(users), rank))
        system = Ellipsoid(state.small.factor, state.small.mean, scales)
        scoring_loops.samples(system, users, np.ascontiguousarray(noise[:, :rank]), drawn)
        out = np.einsum("mak,mk->ma", self.low, drawn)
        for row in self.outside:
            one, who = np.empty((1, size)), users[row : row + 1]
            own = scales if len(scales) == 1 else scales[row : row + 1]
            system = Ellipsoid(state.full.factor, state.full.mean, own)
            scoring_loops.samples(system, who, np.ascontiguousarray(noise[row : row + 1]), one)
            out[row] = self.high[row] @ one[0]
        if memory_scale and self.belief.remembers:
            own = calls.normals(rngs, out.shape[1])
            keys = self.seen.keys
            first = (keys[:, :, None] == keys[:, None, :]).argmax(axis=2)  # equal actions share their draw
            out += memory_scale * np.sqrt(self.recalled.left) * np.take_along_axis(own, first, axis=1)
        return self._with_levels(out)

    def _with_levels(self, personal: Floats) -> Floats:
        """Rewards (m, K): taste, what everybody thinks and what memory adds; not finite where features are not."""
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(personal + self.seen.common + self.recalled.level)

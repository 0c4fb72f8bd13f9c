"""When does a user leave the shared subspace? Four exits, each of which sets `in_subspace` as rewards come.

Literal: the paper's rule (Algorithm 2 of ProBALL). With U (d x k), V = I + sum phi phi^T, V_U = U^T V U, round t is
played in the subspace while

    Delta tau sqrt(t) + Delta tau' sqrt(k sum_{s<=t} kappa_s^2 / t) <= d,     kappa_s = |U^T sum phi phi^T|_{V_U^-1},

kappa_1 = 0. It is evaluated anew each round, so with tau' > 0 a user may come back. Without tau' it only counts rounds.

Savings: ours; leave once the subspace has cost more than it has saved. Staying in round s saves bonus and risks bias.
With phi_s the action taken, V and V_U as they were before its reward,

    saving_s = alpha_2 |phi_s|_{V^-1} - alpha_1 |U^T phi_s|_{V_U^-1},        cost = R Delta a round,

and a user leaves for good after the first round t with R Delta t > saving_1 + ... + saving_t. Savings are never
negative if alpha_1 <= alpha_2, because |U^T phi|_{V_U^-1} <= |phi|_{V^-1}: a radius of 0 never leaves. Guarantee: let
|phi| <= 1, |beta| <= R, Delta bound the spectral distance of U from the truth, and both ellipsoids hold their targets.
Then |phi^T beta - phi^T U U^T beta| <= R Delta for every action, so a round in the subspace has regret of at most 2
alpha_1 |U^T phi|_{V_U^-1} + 2 R Delta, and t of them, as long as it stays, at most

    2 sum_s alpha_1 |U^T phi_s|_{V_U^-1} + 2 R Delta t  <=  2 sum_s alpha_2 |phi_s|_{V^-1},

which is LinUCB's own bound on these actions, and what follows is LinUCB with nothing forgotten: regret is at most
LinUCB's bound, 2 alpha_2 sqrt(2 d T log(1 + T / d)), plus one round, for every T and without a tau to tune. The literal
rule has no such bound before t = d^2. The small ellipsoid holds as it is if actions lie in the span of U; if not, their
bias needs R Delta kappa on top of alpha_1 (proball.py), which we do not charge. With practical widths or a plug-in R
there is no guarantee. R Delta is the worst case over actions, and the plug-in R lies three standard deviations out, so
the exit is cautious: with unit features in d = 20, k = 2 and T = 200 it was never taken at R Delta = 1.2, after 75
rounds on average at 1.9, and after the first at 2.9. |phi|_{V^-1} needs the full system from the first round on, so
this exit costs LinUCB's memory, and more than its time.

Containment: the paper's picture of ProBALL, of which its rule is a proxy; leave for good once a ball around the
estimate in the subspace, which holds what the logs allow, contains all of LinUCB's ellipsoid, so that the logs add
nothing. With beta_1 = U V_U^-1 U^T b the ball is that of the lemma on beta_1: in the span of U the estimate is within
alpha_1 + R Delta kappa in the norm of V_U, and out of it beta has length R Delta at most, hence

    rho^2 = (alpha_1 + R Delta kappa)^2 / lambda_min(V_U) + (R Delta)^2,

and a user leaves if the largest |beta - beta_1| over |beta - beta_2|_V <= alpha_2 is at most rho
(`farthest_before_exit`, exactly). A radius of 0 never leaves: some point of the ellipsoid is alpha_2 /
sqrt(lambda_min(V)) away or more, and lambda_min(V) <= lambda_min(V_U). No bound on regret comes with it. (In the plane
the smallest ball around the offline set of LOCAL-UCB can be computed, and paper/figures/geometry.py draws that one.)

Outlier: does this user belong to the population? An anytime-valid test on the residuals of the prior. Under the prior
the standardised one-step errors u_t = (r_t - prediction) / deviation of a newcomer are independent N(0, 1), however
actions were chosen from the past. The alternative: beta has a further part delta ~ N(0, tau^2 I) outside the directions
of the prior. Predicting with it gives u_t ~ N(eta_t, 1 + v_t), and the running product of density ratios

    prod_t N(u_t; eta_t, 1 + v_t) / N(u_t; 0, 1)

is a martingale of mean one under the prior whatever eta_t and v_t are made of, as long as it is the past; so is its
average over several tau, with any weights. Users of the population differ in how large their errors are (the model
has measured how much, on held-out users: em/variance_components.py), so a newcomer of the population
has u_t ~ N(0, s) with a scale s drawn from weights p(s), and what the average is divided by is not 1 but

    sum_s p(s) max_{s' <= s} prod_t N(u_t; 0, s') / N(u_t; 0, 1).

Without the maximum, this is the ratio of two mixtures, which has mean one under the lower one; the maximum can only
make it smaller, and sees to it that nobody is an outlier for errors that are *smaller* than those of others. A small
delta takes hundreds of rewards to detect and a large one a few, so small tau have the larger weights. By Ville's
inequality it ever exceeds 1 / level with probability at most `level`: looking after every reward costs nothing. eta_t
and v_t come from the posterior of delta with a *diagonal* precision, d numbers a user, not d x d: that costs power,
never validity.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import sqrt

import numpy as np

from newcomer.arrays import Bools, Floats, Ints
from newcomer.linear import learning_loops, ridge, scoring_loops
from newcomer.linear.state import State
from newcomer.policies import exit_loops, two_systems
from newcomer.policies.calls import Rewards, call_rows_each_once
from newcomer.policies.exit_loops import Lean
from newcomer.policies.two_systems import TwoSystems

NEVER = 2**62  # in the place of a number of rewards
# The tau^2 that the outlier test tries, in units of the prior's variance per coordinate, and their weights: those
# that are slowest to detect weigh most.
SIZES: Floats = 4.0 ** np.arange(-3.0, 3.0)
SHARES: Floats = 0.5 ** np.arange(1.0, len(SIZES) + 1.0)
SHARES /= SHARES.sum()


@dataclass
class Ledger(State):
    """What ProBALL's exits remember of n users; `cross` is (n, 0, 0) unless the literal exit needs it."""

    cross: Floats  # (n, k, d), C = U^T sum phi phi^T
    kappa: Floats  # (n,), |C| in the norm of V_U^-1, for the coming round
    squares: Floats  # (n,), the sum of kappa^2 over rounds
    saved: Floats  # (n,), the sum of savings

    def check(self) -> None:
        """Refuse arrays that do not fit together."""
        super().check()
        self.refuse_unless(self.cross.ndim == 3 and all(a.ndim == 1 for a in (self.kappa, self.squares, self.saved)))
        self.refuse_unless(all(array.dtype == np.float64 for _, array, _ in self.arrays()))


def _ledger(n: int, rank: int, dim: int) -> Ledger:
    """An empty ledger; rank and dim are 0 where C is not needed."""
    return Ledger(np.zeros((n, rank, dim)), np.zeros(n), np.zeros(n), np.zeros(n))


@dataclass(frozen=True, eq=False)
class Literal:
    """The paper's rule; `pull` is Delta tau and `bend` Delta tau', each zero if its tau is, for a basis U^T (k, d)."""

    pull: float
    bend: float
    basis: Floats

    def settings(self) -> dict[str, str | float]:
        """What a state under this exit depends on."""
        return {"exit": "literal", "radius * tau": self.pull, "radius * tau_prime": self.bend}

    @cached_property
    def patience(self) -> int:
        """Rewards after which a user leaves if the rule only counts: the first c with pull sqrt(c + 1) > d.

        With tau' the rule does not only count, and without tau nobody leaves: NEVER.
        """
        dim = self.basis.shape[1]
        if self.pull == 0 or self.bend > 0:
            return NEVER
        count = int(min(dim / self.pull, 2.0**30) ** 2)
        while count > 0 and self.pull * sqrt(count) > dim:  # rounding may have put the quotient a little off
            count -= 1
        while count < 2**60 and self.pull * sqrt(count + 1) <= dim:
            count += 1
        return count

    def start(self, n: int) -> tuple[TwoSystems, Ledger]:
        """n newcomers, who are outside from the start if the rule says so of round 1."""
        (rank, dim), in_subspace = self.basis.shape, not self.pull > self.basis.shape[1]
        systems = two_systems.start_two_systems(n, dim, rank, built=not in_subspace, in_subspace=in_subspace)
        return systems, _ledger(n, *((rank, dim) if self.bend > 0 else (0, 0)))

    def learn(self, systems: TwoSystems, ledger: Ledger, observed: Rewards) -> None:
        """Take rewards into the systems and ask the rule anew."""
        begin, count = 0, len(observed.users)
        while self.patience != NEVER and not systems.full.factor.size:  # as long as nobody has left
            begin = two_systems.learn_ordinary_in_two_systems(systems, self.basis, self.patience, *observed[:3], begin)
            if begin == count:
                return
            self._learn(systems, ledger, observed.rows(np.array([begin])))
            begin += 1
        for part in call_rows_each_once(observed.rows(np.arange(begin, count)) if begin else observed):
            self._learn(systems, ledger, part)

    def learn_plain(self, systems: TwoSystems, ledger: Ledger, users: Ints, features: Floats, reward: Floats) -> bool:
        """`learn` for rewards that nobody has looked at yet.

        False says that the long way must be gone, and that nothing has changed.
        """
        if self.patience == NEVER or systems.full.factor.size:
            return False
        begin = two_systems.learn_ordinary_in_two_systems(systems, self.basis, self.patience, features, reward, users)
        if 0 <= begin < len(users):
            self.learn(systems, ledger, Rewards(features[begin:], reward[begin:], users[begin:]))
        return begin != learning_loops.REFUSED

    def _learn(self, systems: TwoSystems, ledger: Ledger, observed: Rewards) -> None:
        """The same, with each user at most once; rows are of use to users who may leave."""
        users, small = observed.users, systems.small
        two_systems.learn_two_systems(systems, self.basis, observed, keep=self.pull > 0 or self.bend > 0)
        if self.bend > 0:
            lean = Lean(ledger.cross, ledger.kappa, ledger.squares, self.pull, self.bend)
            exit_loops.ask_exit_rule_loop(
                lean, self.basis, small.factor, small.count, systems.in_subspace, users, observed.features
            )
        else:
            systems.in_subspace[users] &= small.count[users] < self.patience
        for user in users[~(systems.in_subspace[users] | systems.built[users])]:
            two_systems.leave_two_systems(systems, int(user))


@dataclass(frozen=True, eq=False)
class Savings:
    """Leave once the subspace has cost more than it saved; `low` and `high` are alpha_1, alpha_2, `cost` is R Delta."""

    low: float
    high: float
    cost: float
    basis: Floats

    def settings(self) -> dict[str, str | float]:
        """What a state under this exit depends on."""
        return {"exit": "savings", "widths": f"{self.low!r}, {self.high!r}", "reward_bound * radius": self.cost}

    def start(self, n: int) -> tuple[TwoSystems, Ledger]:
        """n newcomers, both systems kept up from the start."""
        rank, dim = self.basis.shape
        return two_systems.start_two_systems(n, dim, rank, built=True), _ledger(n, 0, 0)

    def learn(self, systems: TwoSystems, ledger: Ledger, observed: Rewards) -> None:
        """Add up what users in the subspace save with these actions, learn, and let those go who lose by it."""
        for part in call_rows_each_once(observed):
            users, x = part.users, part.features
            low, saved = np.empty((len(users), len(self.basis))), np.empty((2, len(users)))
            scoring_loops.project_to_score(self.basis, x, low)
            scoring_loops.score_lengths(systems.small.factor, users, low, saved[0])
            scoring_loops.score_lengths(systems.full.factor, users, x, saved[1])
            ledger.saved[users] += systems.in_subspace[users] * (self.high * saved[1] - self.low * saved[0])
            two_systems.learn_two_systems(systems, self.basis, part, keep=False)
            systems.in_subspace[users] &= self.cost * systems.small.count[users] <= ledger.saved[users]

    def learn_plain(self, systems: TwoSystems, ledger: Ledger, users: Ints, features: Floats, reward: Floats) -> bool:
        """There is no shorter way."""
        return False


@dataclass(frozen=True, eq=False)
class Containment:
    """Leave once the ball contains the ellipsoid; `low`, `high` are alpha_1, alpha_2, `bias` is R Delta."""

    low: float
    high: float
    bias: float
    basis: Floats

    def settings(self) -> dict[str, str | float]:
        """What a state under this exit depends on."""
        return {"exit": "containment", "widths": f"{self.low!r}, {self.high!r}", "reward_bound * radius": self.bias}

    def start(self, n: int) -> tuple[TwoSystems, Ledger]:
        """n newcomers, both systems kept up from the start; C is needed for kappa."""
        rank, dim = self.basis.shape
        return two_systems.start_two_systems(n, dim, rank, built=True), _ledger(n, rank, dim)

    def learn(self, systems: TwoSystems, ledger: Ledger, observed: Rewards) -> None:
        """Take rewards into the systems, and compare the ball with the ellipsoid of each user who is still inside."""
        lean = Lean(ledger.cross, ledger.kappa, ledger.squares, 0.0, 0.0)  # a rule that never leaves, for its kappa
        for part in call_rows_each_once(observed):
            users, inside = part.users, systems.in_subspace[part.users]
            two_systems.learn_two_systems(systems, self.basis, part, keep=False)
            small = systems.small
            exit_loops.ask_exit_rule_loop(
                lean, self.basis, small.factor, small.count, systems.in_subspace, users, part.features
            )
            for user, stays in zip(users, inside, strict=True):
                systems.in_subspace[user] = stays and not self.contained(systems, float(ledger.kappa[user]), int(user))

    def learn_plain(self, systems: TwoSystems, ledger: Ledger, users: Ints, features: Floats, reward: Floats) -> bool:
        """There is no shorter way."""
        return False

    def contained(self, systems: TwoSystems, kappa: float, user: int) -> bool:
        """Whether the ball of a user contains the ellipsoid."""
        small, full = systems.small, systems.full
        lean = self.bias * kappa if kappa > 0 else 0.0  # an infinite radius times no lean at all is zero
        inverse = np.linalg.norm(ridge.unpack_ridge(small.factor[user], small.dim), 2) ** 2  # 1 / lambda_min(V_U)
        rho = np.hypot((self.low + lean) * sqrt(inverse), self.bias)
        apart = full.mean[user] - small.mean[user] @ self.basis
        spread = self.high * ridge.unpack_ridge(full.factor[user], full.dim)
        return bool(farthest_before_exit(apart, spread) <= rho)


def farthest_before_exit(centre: Floats, factor: Floats) -> float:
    """The largest |centre + W^T y| over |y| <= 1, for a centre (d,) and W (d, d).

    With s_i the singular values of W and c_i the centre in its right singular vectors, the square is the least lambda +
    sum_i c_i^2 lambda / (lambda - s_i^2) over lambda >= max s_i^2 (the S-lemma). It is convex, and its slope, 1 - sum_i
    c_i^2 s_i^2 / (lambda - s_i^2)^2, is positive from max s_i^2 + |c| max s_i on.

    >>> tuple(farthest_before_exit(np.array([first, 0.0]), np.diag([1.0, 2.0])) for first in (3.0, 0.0))
    (4.0, 2.0)
    """
    _, lengths, turn = np.linalg.svd(factor)
    shares, squares = (turn @ centre) ** 2, lengths**2
    least = float(squares[0])
    most = least + float(np.linalg.norm(centre)) * float(lengths[0])
    floor = 1e-30 * most  # where rounding leaves nothing of a difference
    for _ in range(80 if most > least else 0):
        middle = 0.5 * (least + most)
        rising = (shares * squares / np.maximum(middle - squares, floor) ** 2).sum() < 1.0
        least, most = (least, middle) if rising else (middle, most)
    return sqrt(most + float((shares * most / np.maximum(most - squares, floor)).sum())) if most > 0 else 0.0


@dataclass
class OutlierState(State):
    """Of n users: what residuals say of a part of beta (d,) that the prior does not know."""

    pull: Floats  # (n, d) sum of phi u / deviation
    size: Floats  # (n, d) sum of phi^2 / deviation^2
    wealth: Floats  # (n, g + J) log of the running products, for each of the g `SIZES` and of the J scales of errors

    def check(self) -> None:
        """Refuse arrays that do not fit together."""
        super().check()
        self.refuse_unless(self.pull.ndim == 2 and self.size.shape == self.pull.shape)
        self.refuse_unless(self.wealth.ndim == 2 and len(self.wealth) == len(self.pull))
        self.refuse_unless(self.wealth.shape[1] >= len(SIZES))
        self.refuse_unless(all(array.dtype == np.float64 for _, array, _ in self.arrays()))


@dataclass(frozen=True, eq=False)
class OutlierTest:
    """The test of whether a user belongs to the population; `variance` is tau^2 at size one.

    Where features are one-hot (`dim` 0) a part outside the directions of the prior is a larger residual of each action,
    of which the first meeting is all that the test looks at: eta is 0, and v the size: errors are larger by one factor
    for all actions. (With the same tau^2 for all actions, the test would take it against the user that the variances of
    actions with few rows are not well known.) `scales` (2, J) are those of errors in the population, ascending, and
    their weights, (0,) where all have the scale 1.
    """

    level: float
    variance: float
    dim: int
    scales: Floats = field(default_factory=lambda: np.zeros(0))

    def start(self, n: int) -> OutlierState:
        """n users nothing is known of."""
        size = len(SIZES) + self.scales[0].size if self.scales.size else len(SIZES)
        return OutlierState(np.zeros((n, self.dim)), np.zeros((n, self.dim)), np.zeros((n, size)))

    def look(self, doubt: OutlierState, users: Ints, features: Floats, error: Floats, deviation: Floats) -> None:
        """Take in the errors of one reward for each of `users`: the running products grow by their density ratios.

        `error` (m,) is standardised, `deviation` (m,) what it was divided by, `features` (m, d) the part of phi outside
        the prior's directions; eta and v are those of the module's docstring, for each of the `SIZES`.
        """
        surprise, sizes, scales = error[:, None], np.arange(len(SIZES)), self.scales[:1]
        if scales.size:
            of_scales = len(SIZES) + np.arange(scales.size)
            doubt.wealth[users[:, None], of_scales] += _log_ratio(surprise, scales)
        if self.dim == 0:
            doubt.wealth[users[:, None], sizes] += _log_ratio(surprise, 1.0 + SIZES)
            return
        scaled = features / deviation[:, None]
        spreads = 1.0 / (1.0 / (self.variance * SIZES)[None, :, None] + doubt.size[users][:, None, :])
        eta = np.einsum("md,mgd,md->mg", scaled, spreads, doubt.pull[users])
        spread = 1.0 + np.einsum("md,mgd->mg", scaled**2, spreads)  # 1 + v
        grown = 0.5 * (surprise**2 - (surprise - eta) ** 2 / spread - np.log(spread))
        doubt.wealth[users[:, None], sizes] += grown
        doubt.pull[users] += scaled * surprise
        doubt.size[users] += scaled**2

    def caught(self, doubt: OutlierState, users: Ints) -> Bools:
        """Which of `users` (m,) the test takes for outliers."""
        convinced: Bools = self.evidence(doubt, users) > -np.log(self.level)
        return convinced

    def evidence(self, doubt: OutlierState, users: Ints) -> Floats:
        """Log of the weighted average of the running products (m,), less that over the scales of the population, each
        of which stands for the smaller ones, too.
        """
        wealth = doubt.wealth[users]
        against = _log_average(wealth[:, : len(SIZES)], SHARES)
        if not self.scales.size:
            return against
        return against - _log_average(np.maximum.accumulate(wealth[:, len(SIZES) :], axis=1), self.scales[1])


def _log_ratio(errors: Floats, scale: Floats) -> Floats:
    """Log of N(u; 0, s) / N(u; 0, 1)."""
    return np.asarray(0.5 * (errors**2 * (1.0 - 1.0 / scale) - np.log(scale)))


def _log_average(logs: Floats, weights: Floats) -> Floats:
    """Log of the weighted average of numbers (m, g) whose logs are given."""
    logs, weights = logs[:, weights > 0.0], weights[weights > 0.0]  # else all of a sum may be what has no weight
    top = logs.max(axis=1)
    total: Floats = top + np.log((np.exp(logs - top[:, None]) * weights).sum(axis=1))
    return total


def likeliest_exit_size(doubt: OutlierState, user: int) -> int:
    """Which of `SIZES` is likeliest for a user."""
    return int(np.argmax(doubt.wealth[user, : len(SIZES)] + np.log(SHARES)))

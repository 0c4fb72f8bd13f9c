"""Does this user belong to the population? An anytime-valid test on the residuals of the prior.

Under the prior the standardised one-step errors u_t = (r_t - prediction) / deviation of a newcomer are independent N(0, 1), however
actions were chosen from the past. The alternative: beta has a further part delta ~ N(0, tau^2 I) outside the directions of the
prior. Predicting with it gives u_t ~ N(eta_t, 1 + v_t), and the running product of density ratios

    prod_t N(u_t; eta_t, 1 + v_t) / N(u_t; 0, 1)

is a martingale of mean one under the prior whatever eta_t and v_t are made of, as long as it is the past; so is its average over several tau,
with any weights. A small delta takes hundreds of rewards to tell and a large one a few, so small tau have the larger weights.
By Ville's inequality it ever exceeds 1 / level with probability at most `level`: looking after every reward costs nothing. eta_t and v_t come
from the posterior of delta with a *diagonal* precision, d numbers a user, not d x d: that costs power, never validity.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from newcomer.linear.state import State
from newcomer.policies.base import Floats, Ints

SIZES = 4.0 ** np.arange(-3, 3)  # tau^2 tried, in units of the prior's variance per coordinate ...
SHARES = 0.5 ** np.arange(1, len(SIZES) + 1)  # ... and their weights: the slowest to tell weigh most
SHARES /= SHARES.sum()


@dataclass
class Suspicion(State):
    """Of n users: what residuals say of a part of beta (d,) that the prior does not know."""

    pull: Floats  # (n, d) sum of phi u / deviation
    size: Floats  # (n, d) sum of phi^2 / deviation^2
    wealth: Floats  # (n, g) log of the running products

    def check(self) -> None:
        """Refuse arrays that do not fit together."""
        super().check()
        self.refuse_unless(self.pull.ndim == 2 and self.size.shape == self.pull.shape)
        self.refuse_unless(self.wealth.shape == (len(self.pull), len(SIZES)))
        self.refuse_unless(all(part.dtype == np.float64 for part in vars(self).values()))


def start(n: int, dim: int) -> Suspicion:
    """n users nothing is known of."""
    return Suspicion(np.zeros((n, dim)), np.zeros((n, dim)), np.zeros((n, len(SIZES))))


def learn(state: Suspicion, users: Ints, features: Floats, error: Floats, deviation: Floats, variance: float) -> None:
    """Take standardised errors (m,) with their deviations (m,) and the features (m, d) outside the prior's directions.

    Each user occurs once; `variance` is tau^2 at size one, in the units of the deviations.
    """
    scaled = features / deviation[:, None]
    precision = 1.0 / (variance * SIZES)[None, :, None] + state.size[users][:, None, :]
    mean = np.einsum("md,mgd,md->mg", scaled, 1.0 / precision, state.pull[users])
    spread = 1.0 + np.einsum("md,mgd->mg", scaled**2, 1.0 / precision)
    surprise = error[:, None]
    state.wealth[users] += 0.5 * (surprise**2 - (surprise - mean) ** 2 / spread - np.log(spread))
    state.pull[users] += scaled * surprise
    state.size[users] += scaled**2


def evidence(state: Suspicion, users: Ints) -> Floats:
    """Log of the weighted average of the running products (m,): evidence against the prior."""
    wealth = state.wealth[users]
    top = wealth.max(axis=1)
    total: Floats = top + np.log((np.exp(wealth - top[:, None]) * SHARES).sum(axis=1))
    return total


def likeliest(state: Suspicion, user: int) -> int:
    """Which of `SIZES` is likeliest for a user."""
    return int(np.argmax(state.wealth[user] + np.log(SHARES)))

"""What the paper's theorems promise, as numbers: regret of LinUCB, ProBALL-UCB, LOCAL-UCB, and the radius behind them.

All are rates: constants and logarithms that the theorems hide are 1 here. `quality` stands for 1 / (lambda_A^3
lambda_theta), how badly the logs cover actions and preferences; 1 is perfect. docs/paper/theory.md has the theorem
kappa_t <= sqrt(t), by which the sum of kappa^2 in ProBALL's bound can be left to its worst case.
"""

from __future__ import annotations

from math import log, sqrt


def online_regret(dim: int, horizon: int, *, bound: float = 1.0) -> float:
    """Reg_on = R d sqrt(T), LinUCB's.

    >>> online_regret(50, 400)
    1000.0
    """
    return bound * dim * sqrt(horizon)


def hybrid_regret(
    dim: int,
    rank: int,
    offline: int,
    horizon: int,
    *,
    bound: float = 1.0,
    quality: float = 1.0,
    squares: float | None = None,
) -> float:
    """Reg_hyb = R k sqrt(T) (1 + quality (sqrt(d T / (k N)) + sqrt(d / N mean kappa^2))), the theorem on ProBALL-UCB.

    `squares` is the mean of kappa_t^2 over the rounds in the subspace; None takes (T - 1) / 2, which it cannot exceed
    since kappa_t^2 <= t - 1.

    >>> hybrid_regret(50, 2, 10**12, 400)  # doctest: +ELLIPSIS
    40.0...
    """
    mean = (horizon - 1) / 2 if squares is None else squares
    away = sqrt(dim * horizon / (rank * offline)) + sqrt(dim * mean / offline)
    return bound * rank * sqrt(horizon) * (1 + quality * away)


def proball_regret(
    dim: int, rank: int, offline: int, horizon: int, *, bound: float = 1.0, quality: float = 1.0
) -> float:
    """min(Reg_on, Reg_hyb)."""
    hybrid = hybrid_regret(dim, rank, offline, horizon, bound=bound, quality=quality)
    return min(online_regret(dim, horizon, bound=bound), hybrid)


def minimax_regret(
    dim: int, rank: int, offline: int, horizon: int, *, bound: float = 1.0, quality: float = 1.0
) -> float:
    """R min(d sqrt T, k sqrt T (1 + quality sqrt(d T / (k N)))): what the paper claims for LOCAL-UCB and, with 1s, of
    the lower bound.

    >>> minimax_regret(10, 2, 500, 100)
    40.0
    """
    hybrid = hybrid_regret(dim, rank, offline, horizon, bound=bound, quality=quality, squares=0.0)
    return min(online_regret(dim, horizon, bound=bound), hybrid)


def local_regret(dim: int, rank: int, offline: int, horizon: int, *, bound: float = 1.0, quality: float = 1.0) -> float:
    """R min(d sqrt T, k sqrt T (1 + quality sqrt(k d T / N))): what is proven of LOCAL-UCB in docs/paper/theory.md.

    The same rate in N, T and d as `minimax_regret`, whose second term is k times smaller.

    >>> local_regret(10, 2, 2000, 100)
    40.0
    """
    hybrid = bound * rank * sqrt(horizon) * (1 + quality * sqrt(rank * dim * horizon / offline))
    return min(online_regret(dim, horizon, bound=bound), hybrid)


def radius_rate(dim: int, rank: int, offline: int, *, quality: float = 1.0, delta: float = 0.05) -> float:
    """Delta_off as it falls with N: quality sqrt(k d log(d / delta) / N), the end of the theorem on the radius."""
    return quality * sqrt(rank * dim * log(dim / delta) / offline)


def elliptical_potential(dim: int, horizon: int, *, ridge: float = 1.0) -> float:
    """2 d log(1 + T / (d mu)), which sum_t min(|phi_t|^2_{V_t^-1}, 1) cannot exceed for |phi| <= 1.

    Lemma 11 of Abbasi-Yadkori, Pal and Szepesvari (2011), who have it for mu >= 1 without the minimum; the paper
    prints O(sqrt d). In the subspace, dim is k.
    """
    return 2 * dim * log(1 + horizon / (dim * ridge))


def earliest_exit(dim: int, rank: int, radius: float, *, tau: float = 1.0, tau_prime: float = 0.0) -> float:
    """A number of rounds t before which ProBALL's literal rule keeps everybody in the subspace.

    Delta sqrt(t) (tau + tau' sqrt(k / 2)) <= d is enough, because sum_{s <= t} kappa_s^2 / t <= t / 2.

    >>> earliest_exit(50, 2, 1.0)
    2500.0
    """
    pull = radius * (tau + tau_prime * sqrt(rank / 2))
    return (dim / pull) ** 2 if pull > 0 else float("inf")

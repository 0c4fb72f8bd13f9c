"""Hashes, buckets and folds of users: the one place that splits users.

Everything that divides users (held-out folds, halves for the calibrated radius, sign flips for the rank, the order in
which the martingale bound meets them) follows from a 64-bit hash of the user id and nothing else. So a split does not
change with the order of files, the size of batches or the number of machines, and sums that are kept by bucket of
users give any of these splits without reading the logs again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from newcomer.arrays import Bools, Floats, Hashes, Ints

FOLDS = 5
FEW = 2000  # users below which every fold is held out in turn: one fifth of fewer would say too little

Purpose = Literal["fit", "checks", "judge", "learning curve", "recommenders", "menu", "best actions"]
# What users are drawn for, by the number that enters the hash with the seed. Two purposes have no seed and a fixed salt
# of their own. Other numbers would draw other users: those of fits and evaluations that were made already.
PURPOSES: dict[Purpose, int] = {"judge": 7, "learning curve": 3, "recommenders": 4, "menu": 5, "best actions": 6}
SALTS: dict[Purpose, int] = {"fit": 0x5A3D_1E57, "checks": 0x0C4E_C45A_11CE}


class Split(NamedTuple):
    """Which of the B buckets are fitted to, and on which the fit is judged, (B,) each."""

    fitted: Bools
    judged: Bools


def mix_user_hashes(values: Hashes) -> Hashes:
    """SplitMix64's finaliser (Steele, Lea and Flood 2014): a fixed bijection that scatters 64-bit integers.

    >>> mix_user_hashes(np.array([1], dtype=np.uint64)).tolist()
    [10451216379200822465]
    """
    with np.errstate(over="ignore"):
        z = values + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def user_bucket_count(dim: int) -> int:
    """How many buckets sums are kept in at dimension d: fewer where their d x d matrices are large. A power of two.

    >>> user_bucket_count(50), user_bucket_count(1000)
    (64, 16)
    """
    return 64 if dim <= 256 else 32 if dim <= 512 else 16


def user_buckets(hashes: Hashes, buckets: int) -> Ints:
    """The bucket (n,) of each user; hashes are mixed once more, so that buckets say nothing about their other uses.

    >>> user_buckets(np.arange(4, dtype=np.uint64), 16).tolist()
    [15, 1, 14, 13]
    """
    return (mix_user_hashes(hashes) & np.uint64(buckets - 1)).astype(np.int64)


def reshuffled_users(hashes: Hashes, seed: int, purpose: int = 0) -> Hashes:
    """Other hashes of the same users, for a seed and a purpose: what is split by them is split anew.

    Who is held out of a fit must not be those whom the fit would hold out itself.

    >>> reshuffled_users(np.arange(2, dtype=np.uint64), seed=1).tolist()
    [6301985355436268297, 8112600223918159332]
    """
    salt = mix_user_hashes(
        np.array([seed % 2**64], dtype=np.uint64) ^ mix_user_hashes(np.array([purpose + 1], dtype=np.uint64))
    )
    return mix_user_hashes(hashes ^ salt)


def user_lots(hashes: Hashes) -> Floats:
    """A number from 0 to 1 (n,) for each user, uniform over users.

    >>> user_lots(np.array([2**63], dtype=np.uint64)).tolist()
    [0.5]
    """
    return np.asarray((hashes >> np.uint64(11)).astype(np.float64) / 2.0**53)


def user_group_bounds(buckets: int) -> Ints:
    """First bucket of each group, and the end: runs of 1, 1, 2, 4, ... buckets, each as large as all before it.

    >>> user_group_bounds(16).tolist()
    [0, 1, 2, 4, 8, 16]
    """
    return np.array([0, *(2**i for i in range(buckets.bit_length()))], dtype=np.int64)


def user_bucket_signs(buckets: int) -> Floats:
    """Every pattern of signs (B - 1, B) with as many minuses as pluses in a Hadamard matrix (Sylvester's).

    Any two rows agree in half of the buckets, and with the row of pluses they form a group under multiplication: as
    flips of sign they give a valid randomisation test, as splits in halves they overlap as little as halves can.

    >>> user_bucket_signs(4).tolist()
    [[1.0, -1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0], [1.0, -1.0, -1.0, 1.0]]
    """
    place = np.arange(buckets)
    signs: Floats = 1.0 - 2.0 * (np.bitwise_count(place[1:, None] & place) % 2)
    return signs


def dealt_user_buckets(buckets: int, parts: int) -> list[Bools]:
    """The buckets, dealt out to `parts` parts in turn: a mask (B,) for each part.

    >>> [part.tolist() for part in dealt_user_buckets(4, 2)]
    [[True, False, True, False], [False, True, False, True]]
    """
    return [np.arange(buckets) % parts == part for part in range(parts)]


def user_folds(users: Ints, *, every: bool = False) -> list[Split]:
    """One held-out fifth of the buckets, or every fifth in turn where users, counted by bucket (B,), are few, or
    `every` is asked for.

    >>> len(user_folds(np.full(64, 10))), len(user_folds(np.full(64, 1000)))
    (5, 1)
    """
    held_out = dealt_user_buckets(len(users), FOLDS)
    kept = held_out if every or users.sum() < FEW else held_out[:1]
    return [Split(~fold, fold) for fold in kept if users[fold].sum() and users[~fold].sum()]


@dataclass(frozen=True)
class UserSample:
    """A share of the users, drawn by hash for a purpose: called with hashes (n,), it says who is in it, (n,).

    Samples of two purposes, or of two seeds, say nothing about one another, and none says anything about buckets. Of
    one purpose and seed a smaller sample is within a larger one.

    >>> UserSample("fit", 0.5)(np.arange(10_000, dtype=np.uint64)).sum().item()
    4894
    """

    purpose: Purpose
    share: float = 1.0
    seed: int = 0

    def __call__(self, hashes: Hashes) -> Bools:
        return np.asarray(user_lots(self.hashes(hashes)) < self.share)

    def hashes(self, hashes: Hashes) -> Hashes:
        """The hashes (n,) that the draw is made by."""
        salt = SALTS.get(self.purpose)
        if salt is None:
            return reshuffled_users(hashes, self.seed, PURPOSES[self.purpose])
        return mix_user_hashes(hashes ^ np.uint64(salt))


def hold_out_users(users: int, share: float, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Positions of users to learn from, and of a random `share` of them to keep apart.

    >>> [len(part) for part in hold_out_users(10, 0.3, np.random.default_rng(0))]
    [7, 3]
    """
    order = rng.permutation(users)
    count = round(share * users)
    return order[count:], order[:count]

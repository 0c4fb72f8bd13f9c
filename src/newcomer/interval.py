"""An average over users and the interval around it: the one way in which every estimate of a gain is given.

Differences are paired: the same users choose among the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.records import Shown

LEVEL = 0.95
FEWEST = 30  # users with whom an average is worth giving
FEW = 500  # users below whom the fits that judge them differ enough to count
HUGE = 1e5  # numbers from which three figures are shown


@dataclass(frozen=True)
class Interval(Shown):
    """An average over users, its standard error, and the interval that has the true average in 19 of 20 cases."""

    value: float
    error: float
    low: float
    high: float
    people: int

    @classmethod
    def of(cls, values: Floats, folds: Ints | None = None) -> Interval:
        """The average of one number a user, NaN for users who have none; Student's t.

        Where fewer than `FEW` users were judged, by the fits of several `folds` (n,), the error counts chance in who
        was fitted to, too (`_fitted`).

        >>> Interval.of(np.array([1.0, 3.0, np.nan])).value
        2.0
        """
        there = np.isfinite(values)
        known = values[there]
        if len(known) < 2:
            value = float(known[0]) if len(known) else float("nan")
            return cls(value, float("inf"), float("-inf"), float("inf"), len(known))
        variance = float(known.var(ddof=1))
        spread = variance if folds is None or len(known) >= FEW else _fitted(known, folds[there], variance)
        return cls.around(float(known.mean()), float(np.sqrt(spread / len(known))), len(known))

    @classmethod
    def around(cls, value: float, error: float, people: int, *, freedom: float | None = None) -> Interval:
        """The interval of an estimate with a standard error over so many users; degrees of freedom, if not n - 1."""
        half = _quantile(people - 1 if freedom is None else freedom) * error
        return cls(value, error, value - half, value + half, people)

    def crossed(self, fits: int) -> Interval:
        """The same where several fits judged each other's users: the error is sqrt(2) times as large.

        Every pair of users counts twice, i helping to choose for j and j for i. Where there is nothing to choose by,
        the average varies twice as much as one of independent users; where there is much, this is too wide.

        >>> round(Interval.around(0.0, 1.0, 100).crossed(5).error, 3), Interval.around(0.0, 1.0, 100).crossed(1).error
        (1.414, 1.0)
        """
        return self if fits < 2 else Interval.around(self.value, float(np.sqrt(2.0)) * self.error, self.people)

    def again(self, people: int) -> tuple[float, float]:
        """Where the average of another group of `people` like these falls in 19 of 20 cases."""
        half = _quantile(self.people - 1) * self.error * float(np.sqrt(1.0 + self.people / people))
        return self.value - half, self.value + half

    @property
    def clear(self) -> bool:
        """Whether the whole interval is above zero, with users enough to say so."""
        return self.low > 0 and self.people >= FEWEST


def ratio_interval(above: Floats, below: Floats) -> Interval:
    """sum(above) / sum(below) over users (n,), with the error of a ratio whose parts both vary from user to user.

    >>> ratio_interval(np.array([1.0, 2.0, 3.0]), np.ones(3)).value
    2.0
    """
    people, total = len(above), float(below.sum())
    if people < 2 or total == 0:
        return Interval(float("nan"), float("inf"), float("-inf"), float("inf"), people)
    value = float(above.sum()) / total
    spread = above - value * below
    error = float(np.sqrt(people / (people - 1) * (spread**2).sum()) / total)
    return Interval.around(value, error, people)


def interval_in_words(interval: Interval) -> str:
    """A value and its interval in words.

    >>> interval_in_words(Interval.around(0.25, 0.05, 1000))
    '+0.250 (+0.152 to +0.348)'
    """
    if interval.error == 0:
        return f"{interval.value:+.2f} for every user" if interval.value else "no difference"
    digits = max(2, int(np.ceil(-np.log10(max(interval.error, 1e-12)))) + 1) if np.isfinite(interval.error) else 2
    form = f"+.{min(digits, 6)}f" if abs(interval.value) < HUGE else "+.3g"
    value, low, high = (f"{number:{form}}" for number in (interval.value, interval.low, interval.high))
    return f"{value} ({low} to {high})"


def _fitted(values: Floats, folds: Ints, variance: float) -> float:
    """The variance to put in place of that of single users, where K fits judge a part of them each.

    Every user helps to fit what the others are judged by, so that the parts are not independent: the correction of
    Nadeau and Bengio (2003) for a split adds users judged over users fitted to, 1 / (K - 1), to one. Where the parts
    differ by more than that, fits differ: then it is the mean square between parts, sum_f n_f (mean_f - mean)^2 / (K -
    1). It is for what fits to logs like these are worth; for one fit as it is the users alone count.

    >>> _fitted(np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 1, 0, 1]), 5 / 3)
    3.3333333333333335
    """
    counts = np.bincount(folds)
    parts = counts[counts > 0]
    if len(parts) < 2:
        return variance
    means = np.bincount(folds, weights=values)[counts > 0] / parts
    between = float((parts * (means - values.mean()) ** 2).sum()) / (len(parts) - 1)
    return max(variance * len(parts) / (len(parts) - 1), between)


def _quantile(freedom: float) -> float:
    """The quantile of Student's t beyond which the interval ends."""
    from scipy.special import stdtrit

    return float(stdtrit(max(freedom, 1.0), (1 + LEVEL) / 2))

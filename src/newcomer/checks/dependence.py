"""Dependence: do actions, contexts, lengths or positions know something of the user's taste that they must not know?

Each question is a test of `newcomer.checks.chance` on sums over halves of histories (`newcomer.checks.crowd`), with an
effect in a unit that means something:

forward    do earlier rewards predict later actions? A logger that learns does this. x of the first half against what
           the second half showed. Unit: sd by which what is shown moves towards a taste that is one sd away from the
           average; of many candidates, a choice with log-odds of 1 for each sd of taste moves it by 1, of two by 0.4
backward   do later rewards predict the first action, which nobody could have chosen by rewards? Only a logger, or a
           user, who knew the taste can do this. Same unit
contexts   does what the first half showed predict what the second half shows, beyond what drawing without replacement
           forces? Unit: share of the variance of what is shown, along the direction where it is largest, that belongs
           to the user
lengths    do the first rewards predict how long the history is? Unit: log length per standard deviation of taste
drift      do rewards change with the position? Unit: sd of rewards, from the first to the last row
"""

from __future__ import annotations

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.checks.chance import Chance, cross_test, flip_test, several
from newcomer.checks.crowd import View
from newcomer.checks.drafts import BINS, Draft, Limits, in_bins, leading_pair
from newcomer.checks.gathering import LENGTHS
from newcomer.checks.remedies import ADAPTIVE, CHOSEN, DRIFT_ADVICE, FINE, LENGTH_ADVICE, MORE, SHOWN_ADVICE
from newcomer.verdicts import Finding, Picture, Verdict

CONTEXTS = 12  # coordinates of what is shown that are looked at
LEAST_TASTE = 0.1  # of the sd of residuals: tastes smaller than this are no unit to measure in
SHORTEST = 0.1  # share of users who may be too short for the rows by which lengths are told

LOGGING = Limits(0.1, 0.3)
SHOWN = Limits(0.1, 0.7)
LENGTH = Limits(0.1, 0.5)
DRIFT = Limits(0.1, 0.5)
SHIFT = "standard deviations of what is shown per standard deviation of taste"


def taste_size(view: View, *, level: bool = True) -> float:
    """The sd of what users' tastes do to rewards, level and leading directions together, at least a tenth of the rest.

    From products of the two halves, whose noise is independent: E[x1 . x2] = n1 n2 E|(level, b)|^2.
    """
    first, second = view.sums(view.paid(level=level))
    before, after = view.sizes
    found = float((first * second).sum()) / max(float((before * after).sum()), 1.0)
    return float(np.sqrt(max(found, LEAST_TASTE**2 * view.crowd.spread)))


def forward(view: View, unit: float, seed: int) -> Draft | None:
    """Adaptive logging: x of the first half of histories in time, against what the second half showed."""
    rewards, shown = view.sums(view.paid(level=True))[0], view.sums(view.due[:, : view.leading])[1]
    before, after = view.sizes
    found = cross_test(rewards, shown, view.crowd.window, _product(before, after), seed=seed, matched=view.leading)
    picture = _crossed(view, found, rewards / before[:, None], shown / after[:, None], "rewards of the first half")
    what = "Earlier rewards of a user predict later actions by {effect} {unit}"
    return _logging("adaptive logging", found, unit, what, ADAPTIVE, picture)


def backward(view: View, unit: float, seed: int) -> Draft | None:
    """Logging by taste: the first action of histories in time, against x of the second half."""
    starts, after = view.crowd.offsets[:-1], view.sizes[1]
    shown, rewards = view.z[starts][:, : view.leading], view.sums(view.paid(level=True))[1]
    found = cross_test(
        rewards, shown, view.crowd.window, _product(after, after * 0 + 1), seed=seed, matched=view.leading
    )
    picture = _crossed(view, found, rewards / after[:, None], shown, "rewards of the second half")
    what = "Later rewards of a user predict the first action, before any reward was known, by {effect} {unit}"
    return _logging("taste-dependent logging", found, unit, what, CHOSEN, picture)


def _logging(
    name: str, found: Chance | None, unit: float, what: str, advice: dict[Verdict, str], picture: Picture | None
) -> Draft | None:
    if found is None or unit <= 0:
        return None
    return Draft(name, found, 1.0 / unit, SHIFT, LOGGING, what, advice, picture)


def contexts(view: View, seed: int) -> Draft | None:
    """Dependent contexts: what one half showed against what the other shows, rows shuffled."""
    before, after = view.sizes
    first, second = view.sums(view.z[:, :CONTEXTS])[0], view.sums(view.due[:, :CONTEXTS])[1]
    matched = first.shape[1]
    found = cross_test(
        first, second, view.crowd.window, _product(before, after), seed=seed, matched=matched, norm="spectral"
    )
    if found is None:
        return None
    what = "Of the variance of what is shown, {effect} is the user's own"
    picture = _crossed(view, found, first / before[:, None], second / after[:, None], "shown in one half")
    return Draft("contexts", found, 1.0, "of the variance", SHOWN, what, SHOWN_ADVICE, picture)


def lengths(view: View, unit: float, seed: int) -> Draft | Finding:
    """Lengths that depend on taste: x of the first rows against the logarithm of the length."""
    crowd, window = view.crowd, view.crowd.window
    rows = max(2, int(np.quantile(window, SHORTEST, method="lower"))) if len(window) else 2
    able = np.flatnonzero(window >= rows)
    spots = (crowd.offsets[:-1][able][:, None] + np.arange(rows)).ravel()
    paid = view.paid(level=True)
    first = paid[spots].reshape(len(able), rows, paid.shape[1]).sum(axis=1)
    size = np.log(np.minimum(crowd.length[able], LENGTHS))[:, None]
    weights = np.full(len(able), float(rows))
    found = (
        cross_test(first, size, np.zeros(len(able), np.int64), weights, seed=seed)
        if len(able) and np.ptp(size)
        else None
    )
    if found is None or unit <= 0:
        same = "All histories have the same length." if len(able) else "No history is long enough to tell."
        return Finding("history length", "fine" if len(able) else "unknowable", same, FINE if len(able) else MORE)
    left, _ = leading_pair(found.matrix)
    labels = {"x_label": f"rewards of the first {rows} rows", "y_label": "rows of the history"}
    picture = in_bins(first @ left / rows, np.exp(size[:, 0]), title="Does the length depend on taste?", **labels)
    what = f"The rewards of the first {rows} rows predict the length of the history by {{effect}} {{unit}}"
    unit_name = "log length per standard deviation of taste"
    return Draft("history length", found, 1.0 / unit, unit_name, LENGTH, what, LENGTH_ADVICE, picture)


def drift(view: View, seed: int) -> Draft | None:
    """Drift: the slope of residuals, and of residuals times coordinates, over the positions of a history.

    Turning a history around turns the sign of its slope, so that flips of sign are permutations within users.
    """
    crowd = view.crowd
    inside = np.arange(len(view.order)) - np.repeat(crowd.offsets[:-1], crowd.window)
    place = inside / np.repeat(crowd.window - 1, crowd.window) - 0.5
    paid = view.residual[:, None] * np.column_stack([np.ones(len(place)), view.z])
    slopes = np.add.reduceat(place[:, None] * paid, crowd.offsets[:-1], axis=0) if len(crowd) else paid
    found = flip_test(slopes, float((place**2).sum()), seed=seed) if len(crowd) else None
    deviation = float(crowd.reward.std()) if len(crowd) else 0.0
    if found is None or deviation <= 0:
        return None
    picture = _by_position(place, paid @ (found.matrix / np.linalg.norm(found.matrix)) / deviation)
    what = "From the first to the last row of a history rewards of the same actions change by {effect} {unit}"
    return Draft("drift", found, 1.0 / deviation, "sd of rewards", DRIFT, what, DRIFT_ADVICE, picture)


def _by_position(place: Floats, value: Floats) -> Picture:
    """Mean of values at ten positions of a history, and two standard errors."""
    which = np.minimum(((place + 0.5) * BINS).astype(np.int64), BINS - 1)
    counts = np.maximum(np.bincount(which, minlength=BINS), 1)
    means = np.bincount(which, weights=value, minlength=BINS) / counts
    squares = np.bincount(which, weights=value**2, minlength=BINS) / counts
    errors = 2.0 * np.sqrt(np.maximum(squares - means**2, 0.0) / counts)
    at, seen = (np.arange(BINS) + 0.5) / BINS, np.bincount(which, minlength=BINS) > 0
    at, means, errors = at[seen], means[seen], errors[seen]
    return Picture(
        title="Do rewards drift?",
        x_label="position in the history",
        y_label="residual reward along the drift, in sd",
        x=tuple(at.tolist()),
        y=tuple(means.tolist()),
        low=tuple((means - errors).tolist()),
        high=tuple((means + errors).tolist()),
        band="two standard errors",
    )


def _crossed(view: View, found: Chance | None, x: Floats, y: Floats, label: str) -> Picture | None:
    """What is shown against what it should not depend on, along the pair of directions where it does most."""
    if found is None:
        return None
    left, right = leading_pair(found.matrix)
    many = several(view.crowd.window)
    title = f"Does what is shown depend on the {label}?" if "rewards" in label else "Do the halves show the same?"
    return in_bins(x[many] @ left, y[many] @ right, title=title, x_label=label, y_label="what is shown, in sd")


def _product(before: Ints, after: Ints) -> Floats:
    return np.asarray(before * after, dtype=np.float64)

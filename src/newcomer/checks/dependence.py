"""Dependence: do actions, contexts, lengths or positions depend on the user's preferences, which they must not?

Each question is a test of `checks/permutation_tests.py` on sums over halves of histories (`checks/residuals.py`), with
an effect in a unit that means something:

forward    do earlier rewards predict later actions? A logger that learns does this. x of the first half against what
           the second half showed. Unit: sd by which what is shown moves towards a preference that is one sd away from
           the average; of many candidates, a choice with log-odds of 1 for each sd moves it by 1, of two by 0.4
backward   do later rewards predict the first action, which nobody could have chosen by rewards? Only a logger, or a
           user, who knew the preferences can do this. Same unit
contexts   does what the first half showed predict what the second half shows, beyond what drawing without replacement
           forces? Unit: share of the variance of what is shown, along the direction where it is largest, that belongs
           to the user
lengths    do the first rewards predict how long the history is? Unit: log length per standard deviation of preference
drift      do rewards change with the position? Unit: sd of rewards, from the first to the last row

Self-selection: did users log what they like? Then the mean of an action is that of those who like it.

If what a user logs is drawn with probability increasing in the user's own reward, rows of one half of a history tell
what the other half has: a user whose rewards for some actions are high has logged more actions like them (x against y),
and rewards rise with how many such actions were logged (y against x). Both products, over halves of shuffled histories,
have mean zero where exposure knows nothing of the user's rewards, also if popular actions are good ones: exposure that
follows the population's mean is harmless. `newcomer.checks.dependence.adaptive_logging_dependence` asks the same in
time, along directions of rewards. Where self-selection is strong these fail, because rewards that are all high show no
preferences. But then users who like the same things log the same things: directions of exposure show it. So there are
two sets of directions,

    the leading eigenvectors of   sum_u sum_{h != i} w_h w_i f_h f_i^T   within halves,     w = e   and   w = 1,

with f the features of rows, each less its mean and over its deviation, and e the residuals. No product crosses the
halves, so that permuting second halves among users changes no direction, and the test stays exact.

What a user likes about one action alone, beyond everything shared, leaves no such trace, and no test of logs can find
it: `single_action_dependence` says so, first of all that is unknowable, and how much it would do.

Do attributes of users tell which actions were logged?

If they do, actions were chosen by what was known of users: new users were shown other things than old ones, say. The
rewards of an action are then those of the users who were shown it, which confounds a fit that does not know the
attribute. A fit that has the attribute in its model compares users who are alike. So the finding points it out and is
no fault, and the tests of adaptive logging, contexts and self-selection use what is left of each half after a
regression on attributes (`HalvedRows.beyond_attributes`).

The test regresses what each user was shown (the mean of features over the user's rows, along at most `COORDINATES`
random directions) on encoded attributes; attributes are permuted among users for its p-value.
"""

from __future__ import annotations

import operator
from functools import partial

import numpy as np
from scipy.sparse import csr_array

from newcomer.arrays import Floats, Ints
from newcomer.checks.permutation_tests import (
    ADAPTIVE,
    BINS,
    CHOSEN,
    DRIFT_ADVICE,
    FINE,
    LENGTH_ADVICE,
    LIKED,
    MORE,
    SHOWN_ADVICE,
    Draft,
    Limits,
    PermutationTest,
    binned_permutation_means,
    cross_permutation_test,
    leading_permutation_directions,
    paired_permutation_test,
    sign_flip_permutation_test,
    users_with_permutation_peers,
)
from newcomer.checks.residuals import (
    LEADING,
    LENGTHS,
    RANDOM,
    AgreementOfHalves,
    HalvedRows,
    ResidualSample,
)
from newcomer.findings import ATTRIBUTES, LOGGING, Finding, Picture, Verdict
from newcomer.gain.deals import PerUser, gather_dealt_users
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs
from newcomer.logs.reduce import CODED, reduce
from newcomer.users import mix_user_hashes, reshuffled_users, user_lots

CONTEXTS = 12  # coordinates of what is shown that are looked at
LEAST_PREFERENCE = 0.1  # of the sd of residuals: preferences smaller than this are no unit to measure in
SHORTEST = 0.1  # share of users who may be too short for the rows by which lengths are told

ADAPTIVE_LOGGING, LOGGED_BY_PREFERENCE, SELF_SELECTION, CONTEXTS_SHOWN = LOGGING
OF_USERS = (
    " If these features describe users and not actions, read them as attributes of users instead:"
    " users='people.csv' (--users people.csv)."
)
BALANCED_LEVEL = 0.05  # p-value up to which what is shown is looked at for its sign
UNMET = 20.0  # users of one kind expected to meet an action, from which none is no accident
MANY = 2_000  # actions beyond which this is not looked at
SHIFTED = Limits(0.1, 0.3)
SHOWN = Limits(0.1, 0.7)
LENGTH = Limits(0.1, 0.5)
DRIFT = Limits(0.1, 0.5)
SHIFT = "standard deviations (per standard deviation of preference)"


def dependence_unit(view: HalvedRows, *, level: bool = True) -> float:
    """The sd of what users' preferences do to rewards, level and leading directions together.

    At least a tenth of the sd of residuals.

    From products of the two halves, whose noise is independent: E[x1 . x2] = n1 n2 E|(level, b)|^2.
    """
    first, second = view.sums(view.paid(level=level))
    before, after = view.sizes
    found = float((first * second).sum()) / max(float((before * after).sum()), 1.0)
    return float(np.sqrt(max(found, LEAST_PREFERENCE**2 * view.sample.spread)))


def adaptive_logging_dependence(view: HalvedRows, unit: float, seed: int) -> Draft | None:
    """Adaptive logging: x of the first half of histories in time, against what the second half showed."""
    before, after = view.sizes
    rewards = view.beyond_attributes(view.sums(view.paid(level=True))[0], before)
    shown = view.beyond_attributes(view.sums(view.due[:, : view.leading])[1], after)
    found = cross_permutation_test(
        rewards, shown, view.sample.window, _product(before, after), seed=seed, matched=view.leading
    )
    picture = _crossed(view, found, rewards / before[:, None], shown / after[:, None], "rewards of the first half")
    what = "Shown actions shift by {effect} {unit} towards the preferences in the user's earlier rewards"
    return _logging(ADAPTIVE_LOGGING, found, unit, what, ADAPTIVE, picture)


def logging_preference_dependence(view: HalvedRows, unit: float, seed: int) -> Draft | None:
    """Logging by preference: the first action of histories in time, against x of the second half."""
    starts, after = view.sample.offsets[:-1], view.sizes[1]
    shown = view.beyond_attributes(view.z[starts][:, : view.leading], after * 0 + 1)
    rewards = view.beyond_attributes(view.sums(view.paid(level=True))[1], after)
    found = cross_permutation_test(
        rewards, shown, view.sample.window, _product(after, after * 0 + 1), seed=seed, matched=view.leading
    )
    picture = _crossed(view, found, rewards / after[:, None], shown, "rewards of the second half")
    what = "The first action, chosen before any reward was known, is shifted by {effect} {unit} towards the preferences"
    what += " in the user's later rewards"
    return _logging(LOGGED_BY_PREFERENCE, found, unit, what, CHOSEN, picture)


def _logging(
    name: str,
    found: PermutationTest | None,
    unit: float,
    what: str,
    advice: dict[Verdict, str],
    picture: Picture | None,
) -> Draft | None:
    if found is None or unit <= 0:
        return None
    return Draft(name, found, 1.0 / unit, SHIFT, SHIFTED, what, advice, picture, in_time=True)


def _balanced(matrix: Floats) -> bool:
    """Whether what one half showed makes the same less likely in the other, by the covariances (q, q) of the two."""
    values = np.linalg.eigvalsh(0.5 * (matrix + matrix.T))
    return bool(values[-1] < 0.5 * -values[0])


def context_dependence(view: HalvedRows, seed: int) -> Draft | Finding | None:
    """Dependent contexts: what one half showed against what the other shows, rows shuffled."""
    before, after = view.sizes
    first = view.beyond_attributes(view.sums(view.z[:, :CONTEXTS])[0], before)
    second = view.beyond_attributes(view.sums(view.due[:, :CONTEXTS])[1], after)
    matched = first.shape[1]
    found = cross_permutation_test(
        first, second, view.sample.window, _product(before, after), seed=seed, matched=matched, norm="spectral"
    )
    if found is None:
        return None
    if found.p_value <= BALANCED_LEVEL and _balanced(found.matrix):
        what = "What users met in one half of their rows is missing from the other, as where everybody meets the same"
        return Finding(
            CONTEXTS_SHOWN, "fine", f"{what} set of actions: no kind of action belongs to a kind of user.", FINE
        )
    what = "A share of {effect} of the variance of what is shown depends on the user"
    what += ", beyond attributes" if view.sample.attributes.shape[1] else ""
    picture = _crossed(view, found, first / before[:, None], second / after[:, None], "shown in one half")
    advice = (
        SHOWN_ADVICE if len(view.sample.actions) else {kind: text + OF_USERS for kind, text in SHOWN_ADVICE.items()}
    )
    return Draft(CONTEXTS_SHOWN, found, 1.0, "of the variance", SHOWN, what, advice, picture)


def length_dependence(view: HalvedRows, unit: float, seed: int) -> Draft | Finding:
    """Lengths that depend on preferences: x of the first rows against the logarithm of the length."""
    sample, window = view.sample, view.sample.window
    rows = max(2, int(np.quantile(window, SHORTEST, method="lower"))) if len(window) else 2
    able = np.flatnonzero(window >= rows)
    spots = (sample.offsets[:-1][able][:, None] + np.arange(rows)).ravel()
    paid = view.paid(level=True)
    first = paid[spots].reshape(len(able), rows, paid.shape[1]).sum(axis=1)
    size = np.log(np.minimum(sample.length[able], LENGTHS))[:, None]
    weights = np.full(len(able), float(rows))
    found = (
        cross_permutation_test(first, size, np.zeros(len(able), np.int64), weights, seed=seed)
        if len(able) and np.ptp(size)
        else None
    )
    if found is None or unit <= 0:
        same = "All histories have the same length." if len(able) else "No history is long enough to tell."
        return Finding("history length", "fine" if len(able) else "unknowable", same, FINE if len(able) else MORE)
    left, _ = leading_permutation_directions(found.matrix)
    labels = {"x_label": f"rewards of the first {rows} rows", "y_label": "rows of the history"}
    picture = binned_permutation_means(
        first @ left / rows, np.exp(size[:, 0]), title="Does the length depend on preferences?", **labels
    )
    what = f"The rewards of the first {rows} rows predict the length of the history by {{effect}} {{unit}}"
    unit_name = "(logarithm, per standard deviation of preference)"
    return Draft("history length", found, 1.0 / unit, unit_name, LENGTH, what, LENGTH_ADVICE, picture, in_time=True)


def drift_dependence(view: HalvedRows, seed: int) -> Draft | None:
    """Drift: the slope of residuals, and of residuals times coordinates, over the positions of a history.

    Turning a history around turns the sign of its slope, so that flips of sign are permutations within users.
    """
    sample = view.sample
    inside = np.arange(len(view.order)) - np.repeat(sample.offsets[:-1], sample.window)
    place = inside / np.repeat(sample.window - 1, sample.window) - 0.5
    paid = view.residual[:, None] * np.column_stack([np.ones(len(place)), view.z])
    slopes = np.add.reduceat(place[:, None] * paid, sample.offsets[:-1], axis=0) if len(sample) else paid
    found = sign_flip_permutation_test(slopes, float((place**2).sum()), seed=seed) if len(sample) else None
    deviation = float(sample.reward.std()) if len(sample) else 0.0
    if found is None or deviation <= 0:
        return None
    picture = _by_position(place, paid @ (found.matrix / np.linalg.norm(found.matrix)) / deviation)
    what = "From the first to the last row of a history, rewards of the same actions change by {effect} {unit}"
    return Draft(
        "drift",
        found,
        1.0 / deviation,
        "standard deviations of rewards",
        DRIFT,
        what,
        DRIFT_ADVICE,
        picture,
        in_time=True,
    )


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


def _crossed(view: HalvedRows, found: PermutationTest | None, x: Floats, y: Floats, label: str) -> Picture | None:
    """What is shown against what it should not depend on, along the pair of directions where it does most."""
    if found is None:
        return None
    left, right = leading_permutation_directions(found.matrix)
    many = users_with_permutation_peers(view.sample.window)
    title = f"Does what is shown depend on the {label}?" if "rewards" in label else "Do the halves show the same?"
    return binned_permutation_means(
        x[many] @ left, y[many] @ right, title=title, x_label=label, y_label="what is shown, in sd"
    )


def _product(before: Ints, after: Ints) -> Floats:
    return np.asarray(before * after, dtype=np.float64)


ROUNDS = 8  # of subspace iteration: the matrices are sums of noise mostly, whose eigenvalues are close
# Lower than those of a logger: with users who chose strongly by liking, and lost several times what preferences gain,
# the effect was 0.2 to 0.4 (experiments/self_selection.py), because rewards that are all high tell little.
LIKING = Limits(0.1, 0.2)


def self_selection_dependence(view: HalvedRows, seed: int) -> Draft | None:
    """Whether what a user logged goes with what the user's other rows say that the user likes; `view` is shuffled."""
    sample = view.sample
    views = [
        view.along(leading_dependence_directions(view, weights))
        for weights in (sample.residual, np.ones(len(sample.residual)))
    ]
    before, after = view.sizes
    rewards = [np.hstack(half) for half in zip(*(one.sums(one.paid(level=False)) for one in views), strict=True)]
    rewards = [view.beyond_attributes(half, rows) for half, rows in zip(rewards, view.sizes, strict=True)]
    shown = (
        view.beyond_attributes(np.hstack([one.sums(one.z)[0] for one in views]), before),
        view.beyond_attributes(np.hstack([one.sums(one.due)[1] for one in views]), after),
    )
    x, y = np.hstack([rewards[0], shown[0]]), np.hstack([shown[1], rewards[1]])
    # A direction of both sets is met twice, and so is its preference: means over the sets, and over both products.
    weights = np.asarray(2.0 * len(views) * before * after, np.float64)
    found = paired_permutation_test(x, y, sample.window, weights, seed=seed)
    unit = float(np.sqrt(np.mean([dependence_unit(one, level=False) ** 2 for one in views])))
    if found is None or unit <= 0:
        return None
    what = "Logged actions shift by {effect} {unit} towards the preferences in the user's other rows"
    picture = _picture(rewards[0] / before[:, None], shown[1] / after[:, None])
    return Draft(SELF_SELECTION, found, 1.0 / unit, SHIFT, LIKING, what, LIKED, picture)


def leading_dependence_directions(view: HalvedRows, weights: Floats) -> Floats:
    """Directions (dim, q) in which weighted features of the rows of a half agree most, `LEADING` at most."""
    sample = view.sample
    mean, deviation = sample.usual
    scale = np.where(deviation > 0, 1.0 / np.where(deviation > 0, deviation, 1.0), 0.0)[:, None]
    agreement = AgreementOfHalves(sample, weights, view.order, mean)

    def agreed(basis: Floats) -> Floats:
        return np.asarray(scale * agreement.times(scale * basis))

    size = min(sample.dim, LEADING + RANDOM)
    basis = np.random.default_rng([sample.dim, size]).standard_normal((sample.dim, size))
    for _ in range(ROUNDS):
        basis = np.linalg.qr(agreed(basis))[0]
    inside = basis.T @ agreed(basis)
    vectors = np.linalg.eigh((inside + inside.T) / 2.0)[1]
    return np.asarray(scale * (basis @ vectors[:, ::-1][:, :LEADING]))


def single_action_dependence(
    sample: ResidualSample, deviation: float, learned: str = "rewards", *, random: bool
) -> Finding:
    """Self-selection by what a user likes about one action alone; rewards of the logs have this `deviation`, on the
    scale that is `learned`.

    With odds of being logged that rise by exp(s) an sd, s small and an action that few log, the mean over those who
    logged it is s sd above the mean over everybody: normal rewards tilted by exp(s r / sd).
    """
    total = float(sample.reward.var()) if len(sample) else 0.0
    size = deviation * float(np.sqrt(sample.spread / total)) if total > 0 else 0.0
    made = partial(Finding, "unseen self-selection", effect=size, unit=f"too high a mean of an action, in {learned}")
    scale = "" if learned == "rewards" else f" in {learned}"
    if random:
        what = "Propensities are logged, and agree with how often actions were shown. If they alone drew the actions,"
        what += " users did not choose what was logged."
        return made("fine", what, FINE)
    what = "Logs cannot show whether users logged an action because they like that particular action. If users who"
    what += f" rate an action {size:.2g} higher{scale} log it 2.7 times as often, the mean of a rarely logged action"
    what += f" is too high by about {size:.2g}."
    advice = "Only random actions rule it out: show some to a share of the users, and compare the means."
    return made("unknowable", what, advice)


def _picture(rewards: Floats, shown: Floats) -> Picture | None:
    """What one half showed against what the rewards of the other say, along the direction where they agree most."""
    both = rewards.T @ shown
    along = np.linalg.eigh(both + both.T)[1][:, -1]
    labels = {"x_label": "preference by the rewards of one half", "y_label": "what the other half shows, in sd"}
    return binned_permutation_means(rewards @ along, shown @ along, title="Do users log what they like?", **labels)


NAME = ATTRIBUTES
USERS, COORDINATES, DRAWS = 5_000, 12, 199
FEWEST = 30  # users below whom nothing is tested
ADVICE = (
    "This is harmless if the model has these attributes, because it then compares similar users. "
    "Without them, the logging rule looks like a preference."
)


def attribute_dependence(
    logs: Logs, *, level: float, seed: int, blocked: str = "", advice: str = "Nothing to do."
) -> Finding | None:
    """Whether attributes predict what was shown; None where the logs have no attributes.

    `blocked` says why no test by chance would be right, with what to do about it.
    """
    if logs.people is None:
        return None
    if blocked:
        return Finding(NAME, "unknowable", blocked, advice)
    share = min(1.0, USERS / max(logs.summary.users, 1))
    found = gather_dealt_users(logs, partial(_look, share=share))
    x, shown = np.split(found.values, [logs.people.width], axis=1)
    if len(x) < FEWEST or not x.any():
        return Finding(NAME, "unknowable", "Too few users have attributes for this test.", "Nothing to do.")
    if unmet := _unmet(logs):
        return unmet
    rng = np.random.default_rng(seed)
    explained = _explained(x, shown)
    null = [_explained(x[rng.permutation(len(x))], shown) for _ in range(DRAWS)]
    p_value = (1 + sum(one >= explained for one in null)) / (DRAWS + 1)
    effect = max(explained - float(np.mean(null)), 0.0)
    if p_value > level:
        what = f"Attributes of users do not tell which actions were logged (p = {p_value:.2g})."
        return Finding(NAME, "fine", what, "Nothing to do.", effect, "share of what is shown", p_value)
    what = f"Attributes of users explain {effect:.1%} of which actions were logged (p = {p_value:.2g}). {ADVICE}"
    todo = "Keep the attributes that decided what users were shown in the model."
    return Finding(NAME, "fine", what, todo, effect, "share of what is shown", p_value)


def _unmet(logs: Logs) -> Finding | None:
    """Actions that users of one kind never met, though chance would have shown them often; None if there are none."""
    assert logs.people is not None
    ids = logs.action_ids or ()
    if not 2 <= len(ids) <= MANY:
        return None
    found = reduce(logs, partial(_met_by_kind, actions=len(ids)), operator.add, rows=CODED if logs.by_action else None)
    met, users = found[:, :-1], found[:, -1:]  # (2, A, p) users of a kind who met an action, (2, 1, p) users of it
    share = met.sum(axis=0, keepdims=True) / np.maximum(users.sum(axis=0, keepdims=True), 1.0)
    missing = (met == 0) & (users * share >= UNMET)
    if not missing.any():
        return None
    columns = [name for column in logs.people.columns for name in column.names]
    names = ", ".join(columns[i] for i in np.flatnonzero(missing.any(axis=(0, 1)))[:3])
    actions = np.flatnonzero(missing.any(axis=(0, 2)))
    shown = ", ".join(str(ids[i]) for i in actions[:3]) + ", ..." * (len(actions) > 3)
    what = f"Users of one kind (told by {names}) never met {len(actions):,} of {len(ids):,} actions that others met"
    what += f" ({shown}). These logs cannot tell what they would give for them: the best for everybody may be the best"
    what += " for others."
    advice = "Show every action to a few users of each kind, or offer each kind only what it was shown."
    return Finding(NAME, "doubtful", what, advice, len(actions) / len(ids), "of the actions")


def _met_by_kind(batch: Batch, *, actions: int) -> Floats:
    """Users (2, A + 1, p) who met each action, and all, whose encoded attribute is at most the average, or above it."""
    assert batch.attributes is not None and batch.actions is not None
    n, user = len(batch.users), np.repeat(np.arange(len(batch.users)), batch.lengths)
    pairs = np.unique(batch.actions * n + user)
    places = np.append(pairs // n, np.full(n, actions)), np.append(pairs % n, np.arange(n))
    met = csr_array((np.ones(len(places[0])), places), shape=(actions + 1, n))
    return np.stack([met @ side.astype(np.float64) for side in (batch.attributes <= 0.0, batch.attributes > 0.0)])


def _look(batch: Batch, *, share: float) -> PerUser:
    """Attributes, zero where missing, and what was shown, of some users: the map of a pass."""
    assert batch.attributes is not None
    some = np.flatnonzero(user_lots(reshuffled_users(batch.hashes, 0, 9)) < share)
    shown = np.zeros((len(some), COORDINATES))
    for place, user in enumerate(some.tolist()):
        rows = np.arange(batch.offsets[user], batch.offsets[user + 1])
        shown[place] = _coordinates(batch, rows).mean(axis=0)
    return PerUser(batch.hashes[some], np.concatenate([np.nan_to_num(batch.attributes[some]), shown], axis=1))


def _coordinates(batch: Batch, rows: Ints) -> Floats:
    """Rows along random directions (rows, q), the same for all batches; of actions, signs by a hash of the action."""
    if batch.coded is not None and batch.actions is not None:
        codes = batch.actions[rows].astype(np.uint64)
        bits = mix_user_hashes(codes)[:, None] >> np.arange(COORDINATES, dtype=np.uint64)
        return np.asarray((bits & np.uint64(1)).astype(np.float64) * 2.0 - 1.0)
    directions = np.random.default_rng(0).normal(size=(batch.dim, COORDINATES))
    return np.asarray(batch.take(rows) @ directions)


def _explained(x: Floats, shown: Floats) -> float:
    """The share of the variance of what is shown (n, q) that attributes (n, p) explain, by least squares."""
    centred = shown - shown.mean(axis=0)
    design = x - x.mean(axis=0)
    fitted = design @ np.linalg.lstsq(design, centred, rcond=1e-9)[0]
    return float((fitted**2).sum() / max(float((centred**2).sum()), 1e-300))

"""Do attributes of users tell which actions were logged?

Where they do, whoever logged has treated users by what was known of them: new users were shown other things than old
ones, say. Rewards of the actions are then those of the users who were shown them. That confounds a fit that does not
know the attribute. One that has it in the model compares users who are alike, so it is pointed out and no fault.

The test regresses what each user was shown (the mean of features over the user's rows, along at most `COORDINATES`
random directions) on encoded attributes; attributes are permuted among users for its p-value.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from newcomer.arrays import Floats, Ints
from newcomer.findings import Finding
from newcomer.gain.per_user import PerUser, gather
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs
from newcomer.users import lots, mix, reshuffled

NAME = "attributes and logging"
USERS, COORDINATES, DRAWS = 5_000, 12, 199
FEWEST = 30  # users below whom nothing is tested
ADVICE = (
    "That is no fault as long as the attribute is in the model, which then compares users who are alike; "
    "left out, it would be taken for a taste."
)


def attributes_and_logging(logs: Logs, *, level: float, seed: int) -> Finding | None:
    """Whether attributes predict what was shown; None where the logs have no attributes."""
    if logs.people is None:
        return None
    share = min(1.0, USERS / max(logs.summary.users, 1))
    found = gather(logs, partial(_look, share=share))
    x, shown = np.split(found.values, [logs.people.width], axis=1)
    if len(x) < FEWEST or not x.any():
        return Finding(NAME, "unknowable", "There are too few users with attributes to tell.", "Nothing to do.")
    rng = np.random.default_rng(seed)
    explained = _explained(x, shown)
    null = [_explained(x[rng.permutation(len(x))], shown) for _ in range(DRAWS)]
    p_value = (1 + sum(one >= explained for one in null)) / (DRAWS + 1)
    effect = max(explained - float(np.mean(null)), 0.0)
    if p_value > level:
        what = f"Attributes of users do not tell which actions were logged (p = {p_value:.2g})."
        return Finding(NAME, "fine", what, "Nothing to do.", effect, "share of what is shown", p_value)
    what = f"Attributes of users explain {effect:.1%} of which actions were logged (p = {p_value:.2g}). {ADVICE}"
    todo = "Keep in the model the attributes by which users were treated."
    return Finding(NAME, "fine", what, todo, effect, "share of what is shown", p_value)


def _look(batch: Batch, *, share: float) -> PerUser:
    """Attributes, zero where missing, and what was shown, of some users: the map of a pass."""
    assert batch.attributes is not None
    some = np.flatnonzero(lots(reshuffled(batch.hashes, 0, 9)) < share)
    shown = np.zeros((len(some), COORDINATES))
    for place, user in enumerate(some.tolist()):
        rows = np.arange(batch.offsets[user], batch.offsets[user + 1])
        shown[place] = _coordinates(batch, rows).mean(axis=0)
    return PerUser(batch.hashes[some], np.concatenate([np.nan_to_num(batch.attributes[some]), shown], axis=1))


def _coordinates(batch: Batch, rows: Ints) -> Floats:
    """Rows along random directions (rows, q), the same for all batches; of actions, signs by a hash of the action."""
    if batch.coded is not None and batch.actions is not None:
        codes = batch.actions[rows].astype(np.uint64)
        bits = mix(codes)[:, None] >> np.arange(COORDINATES, dtype=np.uint64)
        return np.asarray((bits & np.uint64(1)).astype(np.float64) * 2.0 - 1.0)
    directions = np.random.default_rng(0).normal(size=(batch.dim, COORDINATES))
    return np.asarray(batch.take(rows) @ directions)


def _explained(x: Floats, shown: Floats) -> float:
    """The share of the variance of what is shown (n, q) that attributes (n, p) explain, by least squares."""
    centred = shown - shown.mean(axis=0)
    design = x - x.mean(axis=0)
    fitted = design @ np.linalg.lstsq(design, centred, rcond=1e-9)[0]
    return float((fitted**2).sum() / max(float((centred**2).sum()), 1e-300))

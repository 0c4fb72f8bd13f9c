"""What was on offer when a row was logged, and whether propensities can be used: they need candidates that fit them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from newcomer.arrays import Bools, Floats, Ints
from newcomer.gain.settings import GAINS
from newcomer.interval import ratio_interval
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs

NO_PROPENSITIES = "No propensities are logged, so no policy is valued by them."


class Offer(NamedTuple):
    """Candidates of some rows: ids (m, K) or (K,), which of them there are (m, K) or None, and the logged one (m,)."""

    ids: Any
    mask: Bools | None
    chosen: Ints
    size: Ints


@dataclass(frozen=True, eq=False)
class Menu:
    """The candidates of any row, from the logs or from the catalogue."""

    names: Any

    def of(self, batch: Batch, rows: Ints) -> Offer:
        """The offer of some rows."""
        assert batch.actions is not None
        listed, actions = getattr(batch, "candidates", None), batch.actions[rows]
        if listed is None:
            return Offer(self.names, None, actions, np.full(len(rows), len(self.names)))
        lengths = np.diff(listed.offsets)[rows]
        if not lengths.any():
            return Offer(self.names, None, actions, np.full(len(rows), len(self.names)))
        whole = lengths == 0  # no list: the whole catalogue
        lengths = np.where(whole, len(self.names), lengths)
        column = np.arange(lengths.max())
        there = column < lengths[:, None]
        places = np.where(there & ~whole[:, None], listed.offsets[rows][:, None] + column, 0)
        codes = np.where(there, np.where(whole[:, None], column, listed.actions[places]), -1)
        chosen = (codes == actions[:, None]).argmax(axis=1)
        # An id that was shown and never chosen is unknown to the model: it counts, and no policy of ours takes it.
        return Offer(self.names[np.maximum(codes, 0)], codes >= 0, chosen, lengths)


def why_no_propensities(logs: Logs, has_propensities: bool, has_candidates: bool, named: bool) -> str:
    """Why off-policy values cannot be had, in one sentence; empty if they can."""
    actions = len(logs.action_ids or ())
    if not has_propensities:
        return NO_PROPENSITIES
    if not named:
        return "There are propensities, but the logs do not say what was on offer and what its features are."
    if not has_candidates and actions > GAINS.catalogue:
        return (
            f"There are propensities, but no column of candidates, and {actions:,} actions are too many to suppose "
            "that all of them were on offer."
        )
    return ""


def inconsistent_propensities(rows: Floats, inverse: Floats, offered: Floats) -> str:
    """Why propensities cannot be right, if 1 / p does not average to the number of candidates.

    Sums over the rows of each user (n,): how many rows, 1 / p, and candidates.
    """
    off = ratio_interval(inverse - offered, rows)
    average = [float(one.sum() / rows.sum()) for one in (inverse, offered)]
    if abs(off.value) <= 1e-6 * average[1] + GAINS.sure * (off.error if np.isfinite(off.error) else 0.0):
        return ""
    return (
        f"The propensities do not fit the candidates: 1 / propensity averages {average[0]:.3g}, and {average[1]:.3g} "
        "actions were on offer. Some were never shown, or the propensities are not those of the logged actions."
    )

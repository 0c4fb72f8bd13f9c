"""One pass of EM against one pass of SOLD over the same logs, in the same run.

N = 5000 users, H = 50 steps, d = 200, rank 18. A pass reads every row once: SOLD's adds up its moments (`moments_of`),
EM's takes expectations under the current prior and adds up the gradient of the likelihood (`expect`). The additive
start of EM (`dense_pairs_of`) and whole fits stand beside them.
"""

from __future__ import annotations

import operator
from functools import partial

import numpy as np
import polars as pl

import newcomer as nc
from benchmarks.measure import alternate, page
from newcomer.em.likelihood import Task, likelihood_sums, merge_likelihood_sums
from newcomer.em.pairs import dense_pairs_of, start_from_pairs
from newcomer.logs.reduce import reduce
from newcomer.sold.moments import merge_moments as add_moments
from newcomer.sold.moments import moments_of
from newcomer.sold.second_moment import second_moment_batch_rows
from newcomer.worlds import Synthetic

USERS, STEPS, DIM, RANK = 5000, 50, 200, 18


def main() -> None:
    """Measure and write the page."""
    logs = Synthetic(dim=DIM, rank=RANK, seed=1).logs(USERS, STEPS, seed=1)
    pairs = reduce(logs, dense_pairs_of, operator.add)
    everybody = np.ones(len(pairs.users), dtype=np.bool_)
    task = Task(start_from_pairs(pairs.take(everybody), RANK), everybody, ~everybody)
    seconds = alternate(
        {
            "SOLD pass": lambda: reduce(
                logs, partial(moments_of, ridge=1.0), add_moments, rows=second_moment_batch_rows(DIM)
            ),
            "EM pass": lambda: reduce(logs, partial(likelihood_sums, tasks=(task,)), merge_likelihood_sums),
            "start of EM (all pairs)": lambda: reduce(logs, dense_pairs_of, operator.add),
        }
    )
    seconds |= alternate(
        {
            "SOLD fit": lambda: nc.fit(logs, rank=RANK, estimator="sold", ridge=1.0, null=False),
            "EM fit, rank given": lambda: nc.fit(logs, rank=RANK, null=False, calibrate=False),
        },
        repeats=1,
    )
    base = seconds["SOLD pass"]
    table = pl.DataFrame([{"what": name, "seconds": s, "to SOLD pass": s / base} for name, s in seconds.items()])
    ratio = seconds["EM pass"] / base
    verdict = "holds" if ratio <= 10 else "does not hold"
    text = f"{__doc__}\n\nTarget: an EM pass takes at most 10 SOLD passes. Measured: {ratio:.2g}, {verdict}."
    page("prior", "Passes of EM and SOLD", text, {"": table})

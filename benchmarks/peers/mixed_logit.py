"""A mixed logit with attributes for newcomers of a choice experiment: python mixed_logit.py FOLDER ATTRIBUTES.

It runs in the environment of xlogit and needs nothing of newcomer. FOLDER holds `logged.parquet` (user, task, chosen,
then the levels x0, x1, .. of a plan, one reference level of each group left out, then the attributes a0, a1, ..) and
`asked.parquet`, the same of newcomers with `deal` and `place` (of the task in the deal's order). All coefficients of
levels are normal; attributes (if ATTRIBUTES is 1) shift their means, as products with fixed coefficients. A newcomer's
coefficients are drawn from the fitted distribution and weighted by the likelihood of the known choices; a plan's score
is its mean utility. Draws come in batches, which changes no number and halves the time. `logit-ATTRIBUTES.parquet` gets
deal, known, user, task, alternative, score and the processor seconds of the fit.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
from xlogit import MixedLogit

HALTON, BATCH, MOST, SAMPLE, KNOWN, PLACES = 100, 25, 200, 2000, (0, 2, 5), 5


def design(frame: pl.DataFrame, attributes: bool) -> tuple[np.ndarray, list[str], int]:
    """Levels and, with attributes, their products (rows, p), their names, and how many are levels."""
    levels = [name for name in frame.columns if name[0] == "x" and name[1:].isdigit()]
    known = [name for name in frame.columns if name[0] == "a" and name[1:].isdigit()] if attributes else []
    x = frame.select(levels).to_numpy()
    products = [x * frame[name].to_numpy()[:, None] for name in known]
    names = [*levels, *(f"{level}:{name}" for name in known for level in levels)]
    return np.hstack([x, *products]), names, len(levels)


def fitted(logged: pl.DataFrame, attributes: bool) -> tuple[np.ndarray, np.ndarray, int]:
    """Means of all coefficients (p,), deviations of the normal ones (q,), and q."""
    x, names, count = design(logged, attributes)
    model = MixedLogit()
    task = logged["user"].rank("dense").to_numpy().astype(np.int64) * 100 + logged["task"].to_numpy()
    model.fit(
        X=x,
        y=logged["chosen"].to_numpy(),
        varnames=names,
        alts=logged["alternative"].to_numpy(),
        ids=task,
        panels=logged["user"].to_numpy(),
        randvars=dict.fromkeys(names[:count], "n"),
        n_draws=HALTON,
        batch_size=BATCH,
        maxiter=MOST,
        random_state=0,
        verbose=0,
        skip_std_errs=True,
    )
    found = dict(zip(model.coeff_names, model.coeff_, strict=True))
    means = np.array([found[name] for name in names])
    print("converged" if model.convergence else "not converged", model.total_iter, "iterations", flush=True)
    return means, np.abs([found[f"sd.{name}"] for name in names[:count]]), count


def scores(
    asked: pl.DataFrame, means: np.ndarray, deviations: np.ndarray, count: int, attributes: bool
) -> pl.DataFrame:
    """Mean utilities of the judged plans of every newcomer, for each number of known tasks."""
    normals = np.random.default_rng(0).standard_normal((SAMPLE, count)) * deviations
    found = []
    for (_, _), own in asked.group_by("deal", "user", maintain_order=True):
        x, _, _ = design(own, attributes)
        utility = (x @ means)[:, None] + x[:, :count] @ normals.T
        place, chosen = own["place"].to_numpy(), own["chosen"].to_numpy()
        other = np.arange(len(own)) ^ 1  # the two plans of a task stand beside each other
        log_chance = -np.logaddexp(0.0, utility[other] - utility)  # of this plan against the other of its task
        judged = place >= PLACES
        for known in KNOWN:
            weight = log_chance[(place < known) & (chosen > 0)].sum(axis=0)
            weight = np.exp(weight - weight.max())
            said = utility[judged] @ weight / weight.sum()
            kept = own.filter(pl.Series(judged)).select("deal", "user", "task", "alternative")
            found.append(kept.with_columns(known=known, score=pl.Series(said)))
    return pl.concat(found)


def main(folder: Path, attributes: bool) -> None:
    """Fit, score, write."""
    began = time.process_time()
    estimate = fitted(pl.read_parquet(folder / "logged.parquet"), attributes)
    spent = time.process_time() - began
    rows = scores(pl.read_parquet(folder / "asked.parquet"), *estimate, attributes)
    rows.with_columns(seconds=spent).write_parquet(folder / f"logit-{int(attributes)}.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "1")

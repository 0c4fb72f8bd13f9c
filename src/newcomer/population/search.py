"""The distribution of users: mean, low-rank covariance and noise of reward vectors, from short histories.

    beta_n = m + L z_n,   z_n ~ N(0, I_k),   r = phi^T beta_n + noise of variance s2.

Moments over all pairs of rows (`pairs`) give a start; climbing the marginal likelihood (`expectation`, `ascent`) refines it; a few passes
over the logs in all. A basis alone leaves most of the value on the table: it is the mean and the spread along each direction that
serve a newcomer, and with many directions and short histories they must be shrunk. Shrinkage is a Gaussian prior of the entries of W = [m, L]:

* of L with one precision a. Since |L|^2 is the trace of the covariance this is a nuclear norm: weak directions shrink to nothing;
* of m with precision d / |m|^2, where |m|^2 is estimated without bias by the product of the means of two halves of the users.

The precision a and the rank are those with which *users who were not fitted* are predicted best: five folds of users by a hash of their
ids where there are few, one held-out fifth where there are many. The rank is the smallest whose predictive likelihood is within
one (paired) standard error of the best.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from newcomer.errors import LogsError
from newcomer.logs import Logs
from newcomer.logs.batch import Batch
from newcomer.logs.engine import reduce
from newcomer.population.all_pairs import Pairs, pairs_of, start_from
from newcomer.population.climb import Climber, Gram
from newcomer.population.likelihood import Comparison, Prior, Sums, Task, compare, expect, merge

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Partial = TypeVar("Partial")

MOST = (8, 24)  # directions tried when the rank is open: few, then many if few are not enough
FOLDS = 5
FEW = 2000  # users below which every fold is held out in turn
COARSE, FINER = 4.0, 2.0  # steps of the search for the precision
TINY = 1e-300
ROUGH, FINE = 0.5, 0.01  # gain in log-likelihood at which climbing ends: while choosing, and at last ...
ROUGHLY, FINELY = 1e-3, 1e-4  # ... or this much per parameter: sampling leaves half a unit of each open
LONGEST = 60  # passes of one climb
CODED = 1 << 21  # rows of a batch where features are in a catalogue
NOISELESS = 1e-8  # share of the mean squared reward below which noise counts as none
DEAD = 1e-3  # a direction that explains less than this share of the first's is dead


@dataclass(frozen=True)
class Progress:
    """What is told after a pass: how many there were, at which stage, and log-likelihood per row (fitted, held out)."""

    passes: int
    stage: str
    likelihood: float
    held_out: float


@dataclass
class Passes:
    """Reads the logs as often as needed, and says so."""

    logs: Logs
    progress: Callable[[int, int], None] | None = None
    listen: Callable[[Progress], None] | None = None
    count: int = 0

    def run(self, map: Callable[[Batch], Partial], merge: Callable[[Partial, Partial], Partial]) -> Partial:
        """One pass."""
        self.count += 1
        # Rows that name actions take no room for features.
        rows = CODED if self.logs.by_action else None
        return reduce(self.logs, map, merge, rows=rows, progress=self.progress)

    def climb(self, climbers: list[Climber], splits: list[Split], *, stage: str, tolerance: float, each: float) -> None:
        """Passes until no climber gains more than `tolerance` in log-likelihood, or more than `each` per parameter."""
        for _ in range(LONGEST):
            tasks = tuple(Task(c.trial, s.fitted, s.judged) for c, s in zip(climbers, splits, strict=True))
            found: tuple[Sums, ...] = self.run(partial(expect, tasks=tasks), merge)
            for climber, sums in zip(climbers, found, strict=True):
                climber.tell(sums)
            self._tell(stage, [c.sums for c in climbers if c.sums])
            if all(climber.gain < max(tolerance, each * climber.trial.weights.size) for climber in climbers):
                break

    def _tell(self, stage: str, sums: list[Sums]) -> None:
        if self.listen is not None:
            total = sum(s.likelihood for s in sums) / max(sum(s.rows for s in sums), 1)
            judged = sum(s.judged_likelihood for s in sums) / max(sum(s.judged_rows for s in sums), 1)
            self.listen(Progress(self.count, stage, total, judged))


@dataclass(frozen=True)
class Split:
    """Buckets (B,) to fit to, and buckets to judge on."""

    fitted: Bools
    judged: Bools


@dataclass(frozen=True)
class Estimate:
    """A prior, its penalty (k + 1,), the additive sums it began with, and why it was chosen."""

    prior: Prior
    penalty: Floats
    pairs: Pairs
    likelihood: float
    passes: int
    evidence: dict[str, Any] = field(default_factory=dict)


def estimate_prior(
    logs: Logs,
    *,
    rank: int | Literal["auto"] = "auto",
    progress: Callable[[int, int], None] | None = None,
    listen: Callable[[Progress], None] | None = None,
) -> Estimate:
    """Estimate the distribution of reward vectors; `rank` directions, or as many as held-out users call for.

    `progress` is called with (rows done, rows in all) within a pass, `listen` after each.
    """
    passes = Passes(logs, progress, listen)
    pairs = passes.run(pairs_of, operator.add)
    if not pairs.squares.sum() > 0:
        raise LogsError("all rewards are zero", todo="log rewards that tell good from bad")
    search = Search(passes, pairs, splits_of(pairs))
    if rank == "auto":
        found, why = search.rank(min(logs.dim, max(1, int(pairs.users.sum()) // 20)))
    else:
        found = search.precision(search.begin(int(rank)), "choosing shrinkage")
        why = {"tried": [found.trail]}
    return search.finish(found, why)


@dataclass(frozen=True)
class Found:
    """A precision, the priors fitted with it (one a split), and the precisions tried with their held-out likelihood per user."""

    precision: float
    priors: list[Prior]
    score: float
    trail: list[tuple[float, float]]


@dataclass
class Search:
    """Chooses the precision and the rank on held-out users."""

    passes: Passes
    pairs: Pairs
    splits: list[Split]
    _grams: dict[bytes, Gram] = field(default_factory=dict)
    _precisions: dict[bytes, float] = field(default_factory=dict)

    def rank(self, most: int) -> tuple[Found, dict[str, Any]]:
        """As many directions as held-out users call for, at most `most`; more are tried where the first few all matter."""
        trails = []
        for tried in MOST:
            found = self.precision(self.begin(min(tried, most)), "choosing the rank")
            trails.append(found.trail)
            comparison = self.truncations(found)
            chosen = smallest_good(comparison)
            if chosen < tried or tried >= most:
                break
        if chosen < len(comparison.sums) - 1:
            found = self.precision(self.begin(chosen), "choosing shrinkage")
            trails.append(found.trail)
        return found, {"tried": trails, "ranks": rank_facts(comparison, chosen)}

    def begin(self, rank: int) -> Found:
        """The moments of each split, at a precision well above what the lengths of their directions suggest."""
        priors = [start_from(self.pairs.take(split.fitted), rank) for split in self.splits]
        size = np.mean([np.vdot(prior.factor, prior.factor) for prior in priors])
        precision = COARSE**2 * self.pairs.cross.shape[1] * max(rank, 1) / max(float(size), TINY)
        return Found(precision, priors, -np.inf, [])

    def precision(self, start: Found, stage: str) -> Found:
        """From simple to rich: less precision while held-out users are predicted better (or else more), then finer."""
        best = self._fit(start.precision, start.priors, stage, [])
        if start.priors[0].factor.shape[1] == 0:
            return best
        down = self._walk(best, 1 / COARSE, start.priors, stage)
        best = self._walk(best, COARSE, start.priors, stage, down.trail) if down.precision == best.precision else down
        for factor in (FINER, 1 / FINER):
            finer = self._fit(best.precision * factor, self._revived(best, start.priors), stage, best.trail)
            if self._better(finer, best):
                return finer
            best = replace(best, trail=finer.trail)
        return best

    def _walk(
        self,
        best: Found,
        factor: float,
        starts: list[Prior],
        stage: str,
        trail: list[tuple[float, float]] | None = None,
    ) -> Found:
        best = replace(best, trail=trail or best.trail)
        while True:
            last = self._fit(best.precision * factor, self._revived(best, starts), stage, best.trail)
            if not self._better(last, best):
                return replace(best, trail=last.trail)
            best = last

    def _better(self, found: Found, than: Found) -> bool:
        judged = sum(int(self.pairs.users[split.judged].sum()) for split in self.splits)
        return (found.score - than.score) * judged > ROUGH

    def _revived(self, found: Found, starts: list[Prior]) -> list[Prior]:
        """Directions that shrank to nothing cannot return by themselves: give them a little of the start's back."""
        return [
            revived(p, start, self._gram(s).matrix)
            for p, start, s in zip(found.priors, starts, self.splits, strict=True)
        ]

    def truncations(self, found: Found) -> Comparison:
        """Held-out likelihoods of the leading 0, 1, 2, ... directions of a fit, in one pass."""
        ranks = range(found.priors[0].factor.shape[1] + 1)
        rivals = tuple(
            tuple(
                truncated(prior, self._gram(split).matrix, float(self.pairs.rows[split.fitted].sum()), rank)
                for rank in ranks
            )
            for prior, split in zip(found.priors, self.splits, strict=True)
        )
        judged = tuple(split.judged for split in self.splits)
        comparison: Comparison = self.passes.run(partial(compare, rivals=rivals, judged=judged), operator.add)
        return comparison

    def finish(self, found: Found, why: dict[str, Any]) -> Estimate:
        """Fit everybody with what was chosen."""
        everybody = Split(
            np.ones(len(self.pairs.users), dtype=np.bool_), np.zeros(len(self.pairs.users), dtype=np.bool_)
        )
        climber = self._climber(everybody, found.precision, found.priors[0])
        self.passes.climb([climber], [everybody], stage="fitting everybody", tolerance=FINE, each=FINELY)
        assert climber.best is not None and climber.sums is not None
        why |= {"precision": found.precision, "mean_precision": float(climber.penalty[0])}
        prior = principal(climber.best)
        return Estimate(prior, climber.penalty, self.pairs, climber.sums.likelihood, self.passes.count, why)

    def _fit(self, precision: float, priors: list[Prior], stage: str, trail: list[tuple[float, float]]) -> Found:
        climbers = [self._climber(s, precision, p) for s, p in zip(self.splits, priors, strict=True)]
        self.passes.climb(climbers, self.splits, stage=stage, tolerance=ROUGH, each=ROUGHLY)
        sums = [c.sums for c in climbers if c.sums is not None]
        score = sum(s.judged_likelihood for s in sums) / max(sum(s.judged_users for s in sums), 1)
        fitted = [c.best for c in climbers if c.best is not None]
        return Found(precision, fitted, score, [*trail, (precision, score)])

    def _climber(self, split: Split, precision: float, prior: Prior) -> Climber:
        penalty = np.full(prior.factor.shape[1] + 1, precision)
        penalty[0] = self._mean_precision(split)
        return Climber(prior, self._gram(split), penalty, noise_floor(self.pairs))

    def _gram(self, split: Split) -> Gram:
        """Of the users fitted to; computed once for each split."""
        key = split.fitted.tobytes()
        if key not in self._grams:
            self._grams[key] = Gram(self.pairs.gram[split.fitted].sum(axis=0))
        return self._grams[key]

    def _mean_precision(self, split: Split) -> float:
        key = split.fitted.tobytes()
        if key not in self._precisions:
            self._precisions[key] = mean_precision(self.pairs, split.fitted)
        return self._precisions[key]


def splits_of(pairs: Pairs) -> list[Split]:
    """One held-out fifth of the buckets, or every fifth in turn where users are few."""
    bucket = np.arange(len(pairs.users)) % FOLDS
    folds = range(FOLDS) if pairs.users.sum() < FEW else range(1)
    return [Split(bucket != fold, bucket == fold) for fold in folds]


def noise_floor(pairs: Pairs) -> float:
    """The least noise variance that is told apart from none."""
    return NOISELESS * float(pairs.squares.sum()) / float(pairs.rows.sum())


def mean_precision(pairs: Pairs, buckets: Bools) -> float:
    """d / |m|^2, with |m|^2 the product of the means of two halves of the users, at least a hundredth of the plain one."""
    order = np.cumsum(buckets) % 2 == 1
    halves = [
        start_from(pairs.take(buckets & side), 0).mean for side in (order, ~order) if pairs.users[buckets & side].sum()
    ]
    plain = start_from(pairs.take(buckets), 0).mean
    square = float(halves[0] @ halves[-1])
    return len(plain) / max(square, 0.01 * float(plain @ plain), 1e-300)


def truncated(prior: Prior, gram: Floats, rows: float, rank: int) -> Prior:
    """The `rank` directions along which rewards differ most between users; what the others explained becomes noise."""
    values, vectors = _axes(prior.factor, gram / rows)
    rest = float(values[rank:].sum())
    return Prior(prior.mean, prior.factor @ vectors[:, :rank], prior.noise + rest)


def revived(prior: Prior, start: Prior, gram: Floats) -> Prior:
    """Dead directions replaced by a tenth of the start's along its axes beyond the living ones."""
    values, vectors = _axes(prior.factor, gram)
    living = int((values > DEAD * values[0]).sum()) if len(values) else 0
    alive = prior.factor @ vectors[:, :living]
    image = gram @ alive
    beyond = start.factor - alive @ np.linalg.solve(image.T @ alive, image.T @ start.factor) if living else start.factor
    fresh = 0.1 * beyond @ _axes(beyond, gram)[1][:, : len(values) - living]
    return Prior(prior.mean, np.column_stack([alive, fresh]), prior.noise)


def _axes(factor: Floats, gram: Floats) -> tuple[Floats, Floats]:
    """Variance of rewards along the principal axes of a prior in the metric of the features, largest first, and the rotation."""
    values, vectors = np.linalg.eigh(factor.T @ gram @ factor)
    return np.maximum(values[::-1], 0.0), vectors[:, ::-1]


def principal(prior: Prior) -> Prior:
    """The same prior with orthogonal columns in the factor, longest first."""
    left, lengths, _ = np.linalg.svd(prior.factor, full_matrices=False)
    return Prior(prior.mean, left * lengths, prior.noise)


def smallest_good(comparison: Comparison) -> int:
    """The smallest rank whose held-out likelihood is within one standard error of the best, or as good as equal to it."""
    deficits, errors = comparison.deficits()
    return int(np.flatnonzero(deficits <= np.maximum(errors, ROUGH / comparison.users))[0])


def rank_facts(comparison: Comparison, chosen: int) -> dict[str, Any]:
    """The comparison of ranks as plain numbers."""
    deficits, errors = comparison.deficits()
    return {"chosen": chosen, "deficits": deficits.tolist(), "errors": errors.tolist(), "users": comparison.users}

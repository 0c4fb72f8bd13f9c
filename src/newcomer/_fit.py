"""fit(): from logs to a model, with the reasons for every choice kept in `model.evidence`.

The way of the numbers: one pass adds up SOLD's moments (`newcomer.sold`); from them come the coverage, the spectrum of
the second moment, the test of its rank, and what the paper's radii need, whatever the estimator. Then the estimator
finds the distribution of users and the basis: EM (`newcomer.em`) by further passes, SOLD from the moments.
One Model is put together from all of it. Last, people who were kept out of the fits that chose it say what it is worth
to newcomers, as PriorUCB would serve them (`newcomer.gain`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal
from warnings import warn

import numpy as np

from newcomer import __version__, validate
from newcomer._outcome import as_clicks, check_outcome, fit_binary, tries_binary
from newcomer._warm_start import SavedMoments, WarmStart, earlier_fit, provenance, ridge_of
from newcomer.arrays import Bools, Hashes, Ints
from newcomer.checks.quick import quick_check
from newcomer.em.fit import FittedPopulation, blend, estimate_population, fit_apart, refit_population
from newcomer.em.full_covariance import with_weak_directions
from newcomer.em.passes import CODED, Passes, Progress
from newcomer.em.variance_components import error_scales
from newcomer.errors import FitWarning, LogsError, ModelError
from newcomer.evidence import Evidence, OutcomeFacts, Outlook, RankChoice, RidgeChoice
from newcomer.gain import best_actions, heldout_gain, outcomes
from newcomer.gain.deals import usual_length
from newcomer.gain.heldout_gain import Apart
from newcomer.logs.batch import Batch
from newcomer.logs.checkpoint import Checkpoint
from newcomer.logs.logs import BATCH_BYTES, Logs
from newcomer.logs.read import read_logs
from newcomer.logs.reduce import reduce
from newcomer.logs.workers import WorkerPool
from newcomer.model import Model
from newcomer.population import Estimate, Population
from newcomer.sold.dense import DenseSold, check_coverage
from newcomer.sold.moments import merge, moments_of, share_near_square
from newcomer.sold.sparse import SparseSold
from newcomer.users import bucket_count, bucket_of, folds

ESTIMATORS = ("em", "sold", "sold-pinv")
SURE = 0.1  # standard error of the persistence up to which the logs are taken to have told it
NEAR_SQUARE = 0.01  # share of users with nearly square halves from which pseudo-inverses are warned of
HUGE = 1e100  # a ridge beyond this leaves nothing of any number beside it


def fit(
    logs: Logs | Any,
    *,
    rank: int | Literal["auto"] = "auto",
    estimator: str = "em",
    outcome: Literal["auto", "gaussian", "binary"] = "auto",
    ridge: float | None = None,
    literal: bool = False,
    uncovered: Literal["restrict", "error"] = "restrict",
    null: bool = True,
    calibrate: bool = True,
    check: bool = False,
    persistence: float | None = None,
    start: Model | SavedMoments | str | PathLike[str] | None = None,
    add: bool = False,
    moments: str | PathLike[str] | None = None,
    workers: int | None = None,
    journal: str | PathLike[str] | None = None,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
    listen: Callable[[Progress], None] | None = None,
) -> Model:
    """Learn what users have in common.

    Parameters
    ----------
    logs : logs, or whatever `read_logs` takes as it is: a path, a pattern, a frame. Reading them first shows what was
        decided on the way (`logs.advice`), and has settings.
    rank : dimension of the shared subspace, or "auto": as held-out users call for (em), or leading eigenvalues above a
        null of sign flips (sold).
    estimator : "em" (the distribution of users, `newcomer.em.fit`), "sold" (the paper's, with a ridge)
        or "sold-pinv" (its pseudo-inverse version, which warns where half a history has about d rows: there it fails).
    outcome : "gaussian", or "binary": rewards of 0 and 1 through a logistic link (`newcomer.em.binary`). "auto": where
        rewards are 0 and 1 both are fitted, and the Gaussian stays unless held-out users clearly call for the other.
    ridge : mu of SOLD; None takes the mean squared norm of the features, so that the scale of features does not matter.
    literal : SOLD exactly as the paper has it. By default the moment is symmetrised last, lengths are kept apart, and
        one-hot features are corrected pair by pair: without bias for odd, ragged and rating-like histories too.
    uncovered : what to do about directions that no logged action reaches: leave them out, or raise. null : keep the
    null spectrum as evidence (needed for rank "auto" of sold). persistence : the share of what is left of a reward,
    beyond common part and shared directions, that stays when the same person meets the same
        action again. None: told by users who did, where the logs have enough of them, and else by each newcomer's own
        repeats.
    calibrate : measure how sure the basis is by fitting parts of the users apart: the radius of kind "calibrated".
    check : make every check that needs no fit as well, in one more pass, and keep what it finds in `evidence.checks`.
    start : what an earlier fit left. For em a model: the climb starts there, with its rank and its shrinkage, and the
        logs are the old ones and the new. With `add` they are the new ones alone, and the answer is approximate, which
        `model.parameters` says. For sold a file of moments (or what `newcomer._warm_start.SavedMoments.load` reads of
        it): the logs are the new ones, and the answer is that of all.
    moments : where to keep the moments, for a later `start`. Of few users they tell about single ones.
    workers : processes that pass over the logs, a core each; None or 1: this one alone. Logs that are already on an
        engine (`Logs.on`, `read_logs(engine=)`) are passed over by it. The numbers do not depend on it but for
        rounding, and not even so on the number of workers beyond one.
    journal : a folder in which the results of passes are kept until the fit is done; one that was interrupted leaves
        it. With `resume`, passes that it holds are not made again: the answer is the same. Other logs are refused.
    progress : called with (rows done, rows in all) again and again within each pass over the logs.
    listen : called after each pass of em with how many there were, at which stage, and the log-likelihood a row; and
        whether it was one over a sample of the users, who choose where there are many.

    >>> from newcomer.worlds import Synthetic
    >>> model = fit(Synthetic.learnable(dim=20, seed=1).logs(2000, 10, seed=1))
    >>> model.rank, model.dim
    (2, 20)
    """
    logs = logs if isinstance(logs, Logs) else read_logs(logs)
    for name, value in (
        ("literal", literal),
        ("null", null),
        ("calibrate", calibrate),
        ("check", check),
        ("resume", resume),
        ("add", add),
    ):
        validate.flag(value, name, kind=ModelError)
    for name, listener in (("progress", progress), ("listen", listen)):
        validate.callback(listener, name, kind=ModelError)
    begun, past = earlier_fit(start, logs, estimator, add=add)
    if past is not None:
        ridge = ridge_of(past, ridge, estimator)
    _check(logs, rank, estimator, None if past else ridge, uncovered, null, persistence)
    check_outcome(outcome, logs, estimator)
    with ExitStack() as stack:
        if workers is not None and validate.whole(workers, "workers", kind=ModelError) > 1 and logs.engine is None:
            logs = logs.on(stack.enter_context(WorkerPool(workers)))
        wanted: dict[str, Any] = {
            "rank": rank if rank == "auto" else int(rank),
            "estimator": estimator,
            "outcome": outcome,
            "ridge": None if ridge is None else float(ridge),
            "literal": literal,
            "uncovered": uncovered,
            "null": null,
            "calibrate": calibrate,
            "persistence": None if persistence is None else float(persistence),
        }
        checks = quick_check(logs, progress=progress) if check else None
        if resume and journal is None:
            raise ModelError("there is nothing to resume from", todo="name the folder, journal=")
        if journal is not None:
            asked = {name: value for name, value in wanted.items() if (name, value) != ("outcome", "auto")}
            identity = {"fingerprint": logs.summary.fingerprint, "version": __version__, **asked}
            identity |= {"start": begun.name if begun else f"{past.total.fingerprint:x}" if past else None}
            kept = validate.location(journal, "journal", kind=ModelError)
            logs = logs.noted(stack.enter_context(_kept(kept, identity, resume=resume)))
        keep = None if moments is None else Path(moments)
        found = _fitted(logs, **wanted, begun=begun, past=past, keep=keep, progress=progress, listen=listen)
        model = found.model
        return model if checks is None else replace(model, evidence=replace(model.evidence, checks=checks))


@dataclass(frozen=True)
class Fitting:
    """A model, and `apart` the fits with its settings to a part of the users, each with the buckets of the others."""

    model: Model
    apart: Apart = ()


def fit_apart_too(
    logs: Logs,
    *,
    rank: int | Literal["auto"] = "auto",
    estimator: str = "em",
    calibrate: bool,
    null: bool = False,
    measure: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Fitting:
    """What `fit` does by default, with the fits to a part of the users; without `measure` no gain is measured.

    EM leaves such fits behind when it chooses its shrinkage; SOLD, which holds nobody out, is fitted again to them.
    """
    null = null or (estimator != "em" and rank == "auto")
    _check(logs, rank, estimator, None, "restrict", null, None)
    one = partial(
        _fitted,
        rank=rank,
        estimator=estimator,
        ridge=None,
        literal=False,
        uncovered="restrict",
        null=null,
        persistence=None,
        begun=None,
        past=None,
        keep=None,
        progress=progress,
        listen=None,
    )
    found = one(logs, calibrate=calibrate, measure=measure)
    if estimator == "em" or not measure:
        return found
    splits = folds(reduce(logs, _by_bucket, operator.add))
    apart = [(one(logs.some(Among(split.fitted)), calibrate=False).model, split.judged) for split in splits]
    passes = Passes(logs, progress)
    outlook = _outlook(passes, passes, apart, found.model)
    return Fitting(replace(found.model, evidence=replace(found.model.evidence, outlook=outlook)), tuple(apart))


def _by_bucket(batch: Batch) -> Ints:
    """Users in each bucket (B,)."""
    count = bucket_count(batch.dim)
    return np.bincount(bucket_of(batch.hashes, count), minlength=count)


@dataclass(frozen=True)
class Among:
    """Says of hashes whether their users are in some buckets (B,)."""

    buckets: Bools

    def __call__(self, hashes: Hashes) -> Bools:
        return self.buckets[bucket_of(hashes, len(self.buckets))]


@contextmanager
def _kept(folder: Path, identity: dict[str, Any], *, resume: bool) -> Iterator[Checkpoint]:
    """A journal that is left behind where resuming would help: by what interrupts a fit, or ends a pass of it."""
    try:
        book = Checkpoint(folder, identity, resume=resume)
    except OSError as error:
        what = f"passes cannot be kept here: {error.strerror}"
        raise ModelError(what, where=str(folder), todo="name another folder, journal=") from error
    try:
        yield book
    except Exception:
        if not book.broken:
            book.remove()
        raise
    book.remove()


def _fitted(
    logs: Logs,
    *,
    rank: int | Literal["auto"],
    estimator: str,
    ridge: float | None,
    literal: bool,
    uncovered: str,
    null: bool,
    calibrate: bool,
    persistence: float | None,
    begun: WarmStart | None,
    past: SavedMoments | None,
    keep: Path | None,
    progress: Callable[[int, int], None] | None,
    listen: Callable[[Progress], None] | None,
    measure: bool = True,
    outcome: str = "auto",
) -> Fitting:
    """What `fit` returns, once everything it was asked has been checked, and the fits beside it."""
    # Moments of SOLD are needed whatever the estimator: for coverage, the spectrum, and the paper's radii.
    mu, why = _ridge(logs, estimator, ridge) if past is None else (past.ridge, "that of the moments added to")
    summary = logs.summary if past is None else past.summary(logs)
    offline = (_wide if logs.wide else _narrow)(
        logs, mu, rank=rank, estimator=estimator, literal=literal, null=null, past=past, keep=keep, progress=progress
    )
    if mu is None and isinstance(offline, DenseSold) and (share := share_near_square(offline.moments)) >= NEAR_SQUARE:
        why += _near_square(share, logs.dim)
    if uncovered == "error":
        check_coverage(offline.facts(0), logs)
    # The estimator: the distribution of users, and a basis of the subspace they share.
    passes, people = Passes(logs, progress, listen), None
    if estimator == "em":
        found, people = _by_em(passes, rank, begun, calibrate=calibrate, persistence=persistence)
    else:
        found = offline.estimate(calibrate=calibrate)
    chosen = found.basis.shape[1]
    model = Model(
        basis=found.basis,
        spectrum=offline.spectrum,
        mean=found.population.mean,
        factor=found.population.factor,
        noise_variance=found.population.noise_variance,
        estimator=estimator,
        parameters={"rank": rank, "ridge": mu, "literal": literal, "uncovered": uncovered, **provenance(begun, past)},
        evidence=Evidence(
            logs=summary,
            ridge=RidgeChoice(mu, why),
            rank=RankChoice(_choice(rank, begun), chosen, *offline.tests),
            coverage=offline.facts(chosen),
            radius=offline.radius(chosen) if chosen else None,
            calibrated=found.calibrated,
            population=found.facts,
        ),
        fingerprint=summary.fingerprint,
        action_ids=logs.action_ids,
        intercept=logs.intercept,
        action_features=logs.item_features,
        action_names=logs.item_names,
        one_hot=logs.one_hot,
        feature_names=logs.feature_names,
        residual_variance=np.zeros(0) if found.population.by_action is None else found.population.by_action,
        offsets=np.zeros(0) if found.population.offsets is None else found.population.offsets,
        uncertainty=np.zeros(0) if found.population.uncertainty is None else found.population.uncertainty,
        error_scales=np.zeros(0) if found.error_scales is None else found.error_scales,
        persistence=_persistence(found, persistence),
        reward_step=logs.summary.reward_step,
        tidy_ids=logs.tidy_ids,
        reward_transform=logs.reward_transform,
    )
    if people is None or found.facts is None:
        return Fitting(model)
    apart = [(_with(model, one), judged) for one, judged in people.held_out]
    link = None
    if tries_binary(outcome, logs, estimator, begun):
        model, apart, link = _linked(passes, people, begun, outcome, model, apart)
    outlook = _outlook(passes, people.judges, apart, model) if measure else None
    facts = replace(people.counted(passes), outlook=outlook)
    return Fitting(replace(model, evidence=replace(model.evidence, population=facts, outcome=link)), tuple(apart))


def _linked(
    passes: Passes, people: FittedPopulation, begun: WarmStart | None, outcome: str, model: Model, apart: list[Any]
) -> tuple[Model, list[Any], OutcomeFacts]:
    """The model and the fits apart by the link that is asked for, or that held-out users call for, and why."""
    found = fit_binary(passes, people, begun)
    clicks = [(as_clicks(model, one), judged) for one, judged in found.held_out]
    if outcome == "binary" or begun is not None:
        why = OutcomeFacts("binary", "given" if outcome == "binary" else "kept")
    else:
        logs = people.judges.logs
        length = round(logs.summary.rows / max(logs.summary.users, 1))
        why = outcomes.compare(people.judges.run, apart, clicks, people=logs.summary.users, length=length)
    if why.chosen == "gaussian":
        return model, apart, why
    return as_clicks(model, found.population), clicks, why


def _with(model: Model, other: Population) -> Model:
    """The model with another population in place of its own: a fit to a part of its users."""
    return replace(
        model,
        basis=other.leading(model.rank),
        mean=other.mean,
        factor=other.factor,
        noise_variance=other.noise_variance,
        residual_variance=np.zeros(0) if other.by_action is None else other.by_action,
        offsets=np.zeros(0) if other.offsets is None else other.offsets,
        uncertainty=np.zeros(0) if other.uncertainty is None else other.uncertainty,
    )


def _outlook(passes: Passes, chosen: Passes, apart: Apart, model: Model) -> Outlook | None:
    """What people kept out of fits would have gained: everybody alike, by a pass over all; each by own rows."""
    if not apart:
        return None
    seen = best_actions.look(passes.run, passes.logs, apart)
    told = best_actions.told(seen, passes.logs, model)
    people, length = chosen.logs.summary.users, usual_length(seen.lengths)
    return heldout_gain.measure(chosen.run, apart, people=people, length=length, everybody=told)


def _narrow(
    logs: Logs,
    ridge: float | None,
    *,
    rank: int | Literal["auto"],
    estimator: str,
    literal: bool,
    null: bool,
    past: SavedMoments | None,
    keep: Path | None,
    progress: Callable[[int, int], None] | None,
) -> DenseSold:
    """SOLD's half, from its one pass."""
    add_up = partial(moments_of, ridge=ridge, one_hot=logs.one_hot and not logs.intercept)
    moments = reduce(logs, add_up, merge, rows=_batch_rows(logs.dim), progress=progress)
    if past is not None:
        moments = merge(past.moments, moments)
    if keep is not None:
        together = logs.total if past is None else past.total + logs.total
        replace(SavedMoments.of(logs, moments), total=together).save(keep)
    return DenseSold.of(logs, moments, rank=rank, literal=literal, null=null)


def _wide(
    logs: Logs,
    ridge: float | None,
    *,
    rank: int | Literal["auto"],
    estimator: str,
    literal: bool,
    null: bool,
    past: SavedMoments | None,
    keep: Path | None,
    progress: Callable[[int, int], None] | None,
) -> SparseSold:
    """SOLD's half where one-hot actions are many: by a few passes, and no d x d matrix."""
    if logs.intercept:
        todo = "leave it out: the mean of one-hot features has the level of every action already"
        raise LogsError(f"a constant beside {logs.dim - 1:,} one-hot actions", where="intercept", todo=todo)
    if past is not None or keep is not None:
        what = f"the moments of {logs.dim:,} one-hot actions are not kept: they would be d x d"
        raise ModelError(what, todo="fit all logs together, or start em from a model")
    run = partial(reduce, logs, rows=CODED, progress=progress)
    return SparseSold.of(logs, run, ridge, rank=rank, estimator=estimator, literal=literal, null=null)


def _near_square(share: float, dim: int) -> str:
    """Warn that pseudo-inverses fail on these logs; the same in a few words, for the evidence."""
    users = f"{share:.0%} of the users have halves of about {dim} rows, as many as there are features"
    warn(
        f"sold-pinv is not to be trusted here: {users}, and a pseudo-inverse of such a half multiplies the noise; use "
        "estimator='sold'",
        FitWarning,
        stacklevel=4,
    )
    return f"; not to be trusted: {users}"


def _choice(rank: int | str, begun: WarmStart | None) -> str:
    """How the rank came about; a refit keeps that of the model it starts from."""
    return "given" if rank != "auto" else "kept" if begun is not None else "auto"


def _persistence(found: Estimate, given: float | None) -> float | None:
    """The share of the residual that lasts: as given, as repeats of the logs tell it, or None where they cannot.

    SOLD has one variance for all actions and knows nothing of what lasts: 0, unless it is given.
    """
    if given is not None or found.facts is None:
        return given or 0.0
    told = found.facts.persistence
    return told.estimate if told and told.standard_error <= SURE else None


def _by_em(
    passes: Passes,
    rank: int | Literal["auto"],
    begun: WarmStart | None,
    *,
    calibrate: bool,
    persistence: float | None,
) -> tuple[Estimate, FittedPopulation]:
    """The population of highest penalised likelihood; its basis spans the leading directions of E[beta beta^T].

    A rank that was asked for is that of the factor and of the basis. Else held-out users choose the rank of the factor,
    and the basis has one direction more where the mean lies outside the span of the factor.
    """
    if begun is None:
        fitted = estimate_population(passes, rank=rank, persistence=persistence, calibrate=calibrate)
    else:
        fitted = refit_population(
            passes, begun.population, precision=begun.precision, persistence=persistence, calibrate=calibrate
        )
        apart = fit_apart(fitted.chosen, fitted.parts.begin, begun.population.rank, begun.precision)
        fitted = replace(fitted, held_out=apart)
    if begun is not None and begun.users:
        share = fitted.facts.users / (fitted.facts.users + begun.users)
        mixed = [(blend(begun.population, one, share), judged) for one, judged in fitted.held_out]
        population = blend(begun.population, fitted.population, share)
        fitted = replace(fitted, population=population, held_out=tuple(mixed))
    pairs, clear = fitted.pairs, fitted.population
    if rank == "auto":
        fitted = with_weak_directions(fitted)
    population = fitted.population
    rows = float(pairs.rows.sum())
    gram = pairs.gram.sum(axis=0) / rows
    if not clear.rank:  # weak directions may have been found together where none is clear by itself
        clear = population.truncated(gram, fitted.facts.directions, fitted.begin.table)
    chosen = clear.basis_rank(gram, rows) if rank == "auto" else rank
    basis = clear.leading(chosen)
    draws = fitted.draws(chosen) if chosen and calibrate else None
    scales = error_scales(fitted.judges.run, fitted.held_out)
    return Estimate(basis, population, draws, fitted.counted(passes), scales), fitted


def check_fit(logs: Logs, rank: Any, estimator: Any) -> None:
    """Refuse a rank or an estimator that makes no sense, in one sentence; what the logs lack is for `fit` to say."""
    validate.one_of(estimator, "estimator", ESTIMATORS, kind=ModelError)
    number = isinstance(rank, int | np.integer) and not isinstance(rank, bool) and 1 <= rank <= logs.dim
    if not number and not (isinstance(rank, str) and rank == "auto"):
        todo = f"pass 'auto' or a number from 1 to {logs.dim}, the dimension"
        raise ModelError(f"rank is {validate.shown(rank)}", todo=todo)


def _check(
    logs: Logs,
    rank: int | str,
    estimator: str,
    ridge: float | None,
    uncovered: str,
    null: bool,
    persistence: float | None,
) -> None:
    """Refuse what cannot be fitted, in one sentence, before the logs are read."""
    check_fit(logs, rank, estimator)
    if ridge is not None:
        validate.positive(ridge, "ridge", todo="or pass estimator='sold-pinv' for none", kind=ModelError)
        if ridge > HUGE:
            raise ModelError(f"ridge is {ridge:g}, beside which nothing logged would count", todo="pass a smaller one")
    if ridge is not None and estimator == "sold-pinv":
        raise ModelError("the pseudo-inverse version has no ridge", todo="drop ridge= or use estimator='sold'")
    if persistence is not None:
        todo = "pass a share from 0 to less than 1, or None"
        validate.share(persistence, "persistence", todo=todo, kind=ModelError)
    if rank == "auto" and not null and estimator != "em":
        raise ModelError("rank 'auto' is found with the null", todo="leave null=True, or pass a number as rank=")
    validate.one_of(uncovered, "uncovered", ("restrict", "error"), kind=ModelError)
    needed = 2 if rank == "auto" else max(2, int(rank))
    if logs.summary.usable < needed:
        raise LogsError(
            f"{logs.summary.usable:,} of {logs.summary.users:,} users have two rows or more, and a fit needs {needed}",
            todo="log more users, with several rows each" + ("" if rank == "auto" else ", or lower the rank"),
        )


def _batch_rows(dim: int) -> int:
    """Rows of a batch: enough that adding up its d x d sums costs little beside computing them."""
    return max(BATCH_BYTES // (8 * dim), 16 * dim)


def _ridge(logs: Logs, estimator: str, ridge: float | None) -> tuple[float | None, str]:
    """The ridge of the half estimates, None for the pseudo-inverse, and where it came from."""
    if estimator == "sold-pinv":
        return None, "pseudo-inverse: no ridge"
    if ridge is not None:
        return float(ridge), "given"
    norm = logs.summary.mean_squared_norm
    if norm == 0:
        raise LogsError("all features are zero", todo="log features that tell actions apart")
    return norm, "mean squared norm of the features"

"""fit(): from logs to a model, with the reasons for every choice kept in `model.evidence`.

The way of the numbers: one pass adds up SOLD's moments (`newcomer.sold`); from them come the coverage, the spectrum of
the second moment, the test of its rank, and what the paper's radii need, whatever the estimator. Then the estimator
finds the distribution of users and the basis: EM (`newcomer.em`) by further passes, SOLD from the moments. One Model is
put together from all of it. Last, users who were held out of the fits that chose it say what it is worth to newcomers,
as PriorUCB would serve them (`newcomer.gain`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np

from newcomer._warm_start import (
    SavedMoments,
    WarmStart,
    check_warm_start,
    ridge_for_warm_start,
    warm_start_of_earlier_fit,
    warm_start_provenance,
)
from newcomer.arrays import Bools, Floats, Hashes, Ints
from newcomer.checks.quick import quick_check
from newcomer.em.attributes import AttributeEffects, AttributeFit, fit_attributes
from newcomer.em.fit import (
    FittedPopulation,
    blend_fitted_populations,
    estimate_population,
    fit_populations_apart,
    refit_population,
)
from newcomer.em.full_covariance import KnownMeans, full_covariance_given_attributes, with_full_covariance
from newcomer.em.joint import ROUNDS, join_attributes
from newcomer.em.optimizer import Earlier
from newcomer.em.passes import Passes, Progress
from newcomer.em.variance_components import error_variance_scales
from newcomer.encoding import Column
from newcomer.errors import FitWarning, LogsError, ModelError, warn_caller
from newcomer.evidence import Evidence, HeldoutGain, JointFit, OutcomeFacts, RankChoice, RidgeChoice
from newcomer.gain import best_actions, heldout_gain
from newcomer.gain.deals import deal_lengths, usual_deal_length
from newcomer.gain.heldout_gain import Apart
from newcomer.logs.arms import RANDOM
from newcomer.logs.batch import Batch
from newcomer.logs.logs import Logs
from newcomer.logs.read import read_logs, read_logs_if_path
from newcomer.logs.reduce import reduce
from newcomer.model import Model
from newcomer.outcome import (
    as_binary_outcome,
    check_outcome,
    compare_outcomes,
    fit_binary_outcome,
    tries_binary_outcome,
)
from newcomer.population import Estimate, Population
from newcomer.run_settings import Run
from newcomer.sold import second_moment
from newcomer.sold.coverage import check_coverage
from newcomer.sold.second_moment import SoldSettings
from newcomer.users import user_bucket_count, user_buckets, user_folds
from newcomer.validate import show_invalid_value, validate_flag, validate_one_of, validate_positive, validate_share

PASSES = "0.1.0"  # what checkpoints hold: newcomer's version when that last changed; others are not resumed
ESTIMATORS = ("em", "sold", "sold-pinv")
SURE = 0.1  # standard error of the persistence up to which the logs are taken to have told it
SMALLEST = 1e-75  # rewards whose fourth powers are still numbers
HUGE = 1e100  # a ridge beyond this leaves nothing of any number beside it
LEVELS = 3000.0, 300.0  # deviations: a mean beyond as many hides what users differ in; with features of rows, sooner


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
    run: Run | None = None,
    moments: str | PathLike[str] | None = None,
    workers: int | None = None,
    journal: str | PathLike[str] | None = None,
    resume: bool = False,
    progress: Callable[[int, int], None] | None = None,
    listen: Callable[[Progress], None] | None = None,
) -> Model:
    """Learn what users have in common: the distribution of users, or the paper's subspace.

    Parameters
    ----------
    logs : logs, or what `read_logs` takes without options: a path, a pattern, a frame. Read them first to see what was
        decided on the way (`logs.advice`).
    rank : dimension of the shared subspace. "auto": chosen by held-out users (em), or by the leading eigenvalues above
        a null of sign flips (sold).
    estimator : "em" (the distribution of users, `newcomer.em.fit`), "sold" (the paper's, with a ridge)
        or "sold-pinv" (with a pseudo-inverse, which warns where half a history has about d rows: there it fails).
    outcome : "gaussian", or "binary": rewards of 0 and 1 through a logistic link (`newcomer.em.binary`). "auto": if
        rewards are 0 and 1 both are fitted, and the Gaussian is kept unless held-out users clearly prefer the other.
    ridge : mu of SOLD; None takes the mean squared norm of the features, so that the scale of features does not matter.
    literal : SOLD exactly as the paper has it. By default the moment is symmetrised last, lengths are kept apart, and
        one-hot features are corrected pair by pair: without bias for odd, ragged and rating-like histories too.
    uncovered : what to do about directions that no logged action reaches: "restrict" leaves them out, "error" raises.
    null : keep the null spectrum as evidence (needed for rank "auto" of sold).
    persistence : repeatability, the share of the residual variance that comes again when the same user meets the same
        action again. None: estimated from repeats in the logs if there are enough, else from each new user's own.
    calibrate : estimate the error of the basis from fits to parts of the users: the radius of kind "calibrated".
    check : also run every check that needs no fit, in one more pass, and keep the findings in `evidence.checks`.
    start : an earlier fit. For em a model: the fit starts there, with its rank and its shrinkage, and the logs are the
        old ones and the new. With `add` they are the new ones alone, and the answer is approximate, as
        `model.parameters` says. For sold a file of moments (or what `newcomer._warm_start.SavedMoments.load` reads of
        it): the logs are the new ones, and the answer is that of all.
    run : how to run it (`nc.Run`): workers, a checkpoint to resume from, where moments are kept, callbacks for
        progress. The keywords moments, workers, journal (now checkpoint), resume, progress and listen do the same,
        and warn.

    >>> from newcomer.worlds import Synthetic
    >>> model = fit(Synthetic.learnable(dim=20, seed=1).logs(2000, 10, seed=1))
    >>> model.rank, model.dim
    (2, 20)
    """
    before: dict[str, Any] = {"moments": moments, "workers": workers, "journal": journal, "resume": resume}
    run = Run.asked(run, who="fit", progress=progress, listen=listen, **before)
    logs = logs if isinstance(logs, Logs) else read_logs(logs)
    flags = {"literal": literal, "null": null, "calibrate": calibrate, "check": check, "add": add}
    for name, value in flags.items():
        validate_flag(value, name, kind=ModelError)
    begun, past = warm_start_of_earlier_fit(start, logs, estimator, add=add)
    ridge = ridge if past is None else ridge_for_warm_start(past, ridge, estimator)
    settings = FitSettings(rank, estimator, ridge, literal, uncovered, null, calibrate, persistence, outcome)
    settings = settings.checked(logs, ridge_given=past is None)
    if isinstance(start, Model) and start.attributes and logs.people is None:
        what = (
            "the model to start from has attributes of users and these logs have none, so that the new model has none"
        )
        warn_caller(f"{what}; read the logs with users=", FitWarning)
    with ExitStack() as stack:
        logs = stack.enter_context(read_logs_if_path(logs, run.workers, kind=ModelError))
        checks = quick_check(logs, progress=run.progress) if check else None
        # Checkpoints of before there were links say nothing of them.
        asked = {name: value for name, value in asdict(settings).items() if (name, value) != ("outcome", "auto")}
        identity = {"fingerprint": logs.summary.fingerprint, "version": PASSES, **asked}
        identity |= {"start": begun.name if begun else f"{past.total.fingerprint:x}" if past else None}
        logs = stack.enter_context(run.kept(logs, identity))
        model = _fitted(logs, settings, begun=begun, past=past, run=run).model
        return model if checks is None else replace(model, evidence=replace(model.evidence, checks=checks))


@dataclass(frozen=True)
class FitSettings:
    """What is asked of a fit: the mathematics, as `fit` explains it."""

    rank: int | Literal["auto"] = "auto"
    estimator: str = "em"
    ridge: float | None = None
    literal: bool = False
    uncovered: str = "restrict"
    null: bool = True
    calibrate: bool = True
    persistence: float | None = None
    outcome: str = "auto"

    def checked(self, logs: Logs, *, ridge_given: bool = True) -> FitSettings:
        """The settings in plain types; what cannot be fitted is refused in one sentence, before the logs are read.

        A ridge that is not `ridge_given` is that of moments to add to, and was checked when they were made.
        """
        check_fit(logs, self.rank, self.estimator)
        check_outcome(self.outcome, logs, self.estimator)
        ridge, todo = self.ridge if ridge_given else None, "or pass estimator='sold-pinv' for none"
        if ridge is not None:
            validate_positive(ridge, "ridge", todo=todo, kind=ModelError)
            if ridge > HUGE:
                what = f"ridge is {ridge:g}, beside which nothing logged would count"
                raise ModelError(what, todo="pass a smaller one")
        if ridge is not None and self.estimator == "sold-pinv":
            raise ModelError("the pseudo-inverse version has no ridge", todo="drop ridge= or use estimator='sold'")
        if self.persistence is not None:
            todo = "pass a share from 0 to less than 1, or None"
            validate_share(self.persistence, "persistence", todo=todo, kind=ModelError)
        if self.rank == "auto" and not self.null and self.estimator != "em":
            raise ModelError("rank 'auto' is found with the null", todo="leave null=True, or pass a number as rank=")
        validate_one_of(self.uncovered, "uncovered", ("restrict", "error"), kind=ModelError)
        needed = 2 if self.rank == "auto" else max(2, int(self.rank))
        usable, users = logs.summary.usable, logs.summary.users
        if usable < needed:
            what = f"{usable:,} of {users:,} users have two rows or more, and a fit needs {needed} such users"
            more = "" if self.rank == "auto" else ", or lower the rank"
            raise LogsError(what, todo=f"log more users, with several rows each{more}")
        _refuse_far_level(logs)
        return replace(
            self,
            rank="auto" if self.rank == "auto" else int(self.rank),
            ridge=None if self.ridge is None else float(self.ridge),
            persistence=None if self.persistence is None else float(self.persistence),
        )


def _refuse_far_level(logs: Logs) -> None:
    """Refuse rewards whose mean is so large beside what they differ by that it is lost; equal ones are legal."""
    mean, deviation = logs.summary.mean_reward, logs.summary.reward_deviation
    if 0.0 < logs.summary.max_reward < SMALLEST:
        what = f"the largest reward is {logs.summary.max_reward:.3g}, too small for its square to be a number"
        raise LogsError(what, todo="multiply every reward by the same large number")
    if not 0.0 < LEVELS[0 if logs.by_action else 1] * deviation < abs(mean):
        return
    what = f"lie around {mean:.12g} and differ by {deviation:.2g} (standard deviation): too little, so far from zero,"
    what += f" to learn from{'' if logs.by_action else ' with features of rows'}"
    if logs.reward_transform is not None:
        todo = "fit without reward_transform, which brings them together"
        raise LogsError(f"logarithms of rewards {what}", todo=todo)
    step = 10.0 ** np.floor(np.log10(10.0 * deviation))
    shift = f"{abs(step * round(mean / step)):.15g}"
    todo = f"subtract {shift} from every reward" if mean > 0 else f"add {shift} to every reward"
    raise LogsError(f"rewards {what}", todo=todo)


def check_fit(logs: Logs, rank: Any, estimator: Any) -> None:
    """Refuse a rank or an estimator that makes no sense, in one sentence; what the logs lack is for `fit` to say."""
    validate_one_of(estimator, "estimator", ESTIMATORS, kind=ModelError)
    number = isinstance(rank, int | np.integer) and not isinstance(rank, bool) and 1 <= rank <= logs.dim
    if not number and not (isinstance(rank, str) and rank == "auto"):
        todo = f"pass 'auto' or a number from 1 to {logs.dim}, the dimension"
        raise ModelError(f"rank is {show_invalid_value(rank)}", todo=todo)


@dataclass(frozen=True)
class Fitting:
    """A model, and `apart` the fits with its settings to a part of the users, each with the buckets of the others."""

    model: Model
    apart: Apart = ()


def fit_and_fit_parts(
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
    settings = FitSettings(rank=rank, estimator=estimator, null=null, calibrate=calibrate).checked(logs)
    run = Run(progress=progress)
    found = _fitted(logs, settings, run=run, measure=measure)
    if estimator == "em" or not measure:
        return found
    splits, plain = user_folds(reduce(logs, _by_bucket, operator.add)), replace(settings, calibrate=False)
    apart = [(_fitted(logs.some(Among(one.fitted)), plain, run=run).model, one.judged) for one in splits]
    passes = Passes(logs, progress)
    gain = _heldout_gain(passes, passes, apart, found.model)
    return Fitting(replace(found.model, evidence=replace(found.model.evidence, heldout_gain=gain)), tuple(apart))


def _by_bucket(batch: Batch) -> Ints:
    """Users in each bucket (B,)."""
    count = user_bucket_count(batch.dim)
    return np.bincount(user_buckets(batch.hashes, count), minlength=count)


@dataclass(frozen=True)
class Among:
    """Says of hashes whether their users are in some buckets (B,)."""

    buckets: Bools

    def __call__(self, hashes: Hashes) -> Bools:
        return self.buckets[user_buckets(hashes, len(self.buckets))]


def _fitted(
    logs: Logs,
    settings: FitSettings,
    *,
    run: Run,
    begun: WarmStart | None = None,
    past: SavedMoments | None = None,
    measure: bool = True,
    outcome: str = "auto",
) -> Fitting:
    """What `fit` returns, once everything it was asked has been checked, and the fits beside it."""
    unbiased = _for_moments(logs, settings)
    ridge, why = (
        (past.ridge, "that of the moments added to")
        if past
        else second_moment.second_moment_ridge(unbiased, settings.estimator, settings.ridge)
    )
    summary = logs.summary if past is None else past.summary(unbiased)
    moment = _second_moment(unbiased, settings, ridge, past, run)
    why += second_moment.warn_of_second_moment(moment, ridge, logs.dim, stacklevel=3)
    if settings.uncovered == "error":
        check_coverage(moment.facts(0), unbiased)
    # The estimator: the distribution of users, and a basis of the subspace they share.
    passes, people = Passes(logs, run.progress, run.listen), None
    if settings.estimator == "em":
        found, people = fit_by_em(passes, settings, begun)
    else:
        found = moment.estimate(calibrate=settings.calibrate)
    rank = found.basis.shape[1]
    given: dict[str, Any] = {"rank": settings.rank, "ridge": ridge, "literal": settings.literal}
    model = Model(
        basis=found.basis,
        spectrum=moment.spectrum,
        **_population_of(found.population),
        estimator=settings.estimator,
        parameters={**given, "uncovered": settings.uncovered, **warm_start_provenance(begun, past)},
        evidence=Evidence(
            logs=summary,
            ridge=RidgeChoice(ridge, why),
            rank=RankChoice(_choice(settings.rank, begun), rank, *moment.tests),
            coverage=moment.facts(rank),
            radius=moment.radius(rank) if rank else None,
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
        feature_levels=logs.feature_levels,
        error_scales=_or_none(found.error_scales),
        persistence=_persistence(found, settings.persistence),
        reward_step=logs.summary.reward_step,
        tidy_ids=logs.tidy_ids,
        reward_transform=logs.reward_transform,
    )
    if people is None or found.facts is None:
        return Fitting(model)
    plain = Fitting(model, [(_with(model, one), judged) for one, judged in people.held_out])
    fitted, link = plain, None
    if logs.people is not None:
        fitted = fit_with_attributes(passes, people, plain, begun=begun)
    if tries_binary_outcome(settings.outcome, logs, settings.estimator, begun):
        fitted, link = _linked(passes, people, begun, settings.outcome, plain, fitted)
    model, apart = fitted.model, fitted.apart
    gain = _heldout_gain(passes, people.chosen, apart, model) if measure else None
    facts = replace(people.counted(passes), heldout_gain=gain)
    return Fitting(replace(model, evidence=replace(model.evidence, population=facts, outcome=link)), tuple(apart))


def _linked(
    passes: Passes,
    people: FittedPopulation,
    begun: WarmStart | None,
    outcome: str,
    plain: Fitting,
    gaussian: Fitting,
) -> tuple[Fitting, OutcomeFacts]:
    """The fits by the link that is asked for, or that held-out users call for, and why; `plain` knows no attributes."""
    found = fit_binary_outcome(passes, people, begun)
    binary = Fitting(
        as_binary_outcome(plain.model, found.population),
        [(as_binary_outcome(plain.model, one), judged) for one, judged in found.held_out],
    )
    if passes.logs.people is not None:
        binary = fit_with_attributes(
            passes, replace(people, population=found.population, held_out=found.held_out), binary
        )
    if outcome == "binary" or begun is not None:
        return binary, OutcomeFacts("binary", "given" if outcome == "binary" else "kept")
    logs = people.judges.logs
    length = round(logs.summary.rows / max(logs.summary.users, 1))
    why = compare_outcomes(people.judges.run, gaussian.apart, binary.apart, people=logs.summary.users, length=length)
    return gaussian if why.chosen == "gaussian" else binary, why


def _second_moment(
    logs: Logs, settings: FitSettings, ridge: float | None, past: SavedMoments | None, run: Run
) -> second_moment.SecondMoment:
    """SOLD's half, which every estimator needs: coverage, the spectrum, the test of the rank, the paper's radii."""
    check_warm_start(logs, past, run.moments)
    asked = SoldSettings(
        settings.rank, ridge, settings.literal, settings.null, spectrum_only=settings.estimator == "em"
    )
    keep = None if run.moments is None else SavedMoments.keeper(logs, past, Path(run.moments))
    before = None if past is None else past.moments
    return second_moment.find_second_moment(logs, asked, before=before, keep=keep, progress=run.progress)


def _population_of(found: Population) -> dict[str, Any]:
    """What a model keeps of a population, by the names that it has there."""
    return {
        "mean": found.mean,
        "factor": found.factor,
        "noise_variance": found.noise_variance,
        "residual_variance": _or_none(found.by_action),
        "offsets": _or_none(found.offsets),
        "uncertainty": _or_none(found.uncertainty),
    }


def _or_none(values: Floats | None) -> Floats:
    """Numbers, or none (0,) of them."""
    return np.zeros(0) if values is None else values


def _with(model: Model, other: Population) -> Model:
    """The model with another population in place of its own: a fit to a part of its users."""
    return replace(model, basis=other.leading(model.rank), **_population_of(other))


def fit_with_attributes(
    passes: Passes,
    people: FittedPopulation,
    fitted: Fitting,
    *,
    begun: WarmStart | None = None,
    rounds: int = ROUNDS,
) -> Fitting:
    """The models with what attributes of users say, where held-out users are predicted better with them.

    Except for clicks, the populations are found again together with the effects, in so many rounds.
    """
    clicks, joined = fitted.model.outcome == "binary", list[JointFit]()

    def join(effects: AttributeEffects) -> list[Population]:
        populations, facts = _joined(passes, people, effects, begun, rounds)
        joined.append(facts)
        return populations

    together = None if clicks or not rounds else join
    found, others, gains = fit_attributes(passes, people.population, people.held_out, clicks=clicks, join=together)
    facts = replace(fitted.model.evidence, attributes=gains, joint=joined[0] if joined else None)
    model = replace(fitted.model, evidence=facts)
    if found is None or passes.logs.people is None:
        return Fitting(model, fitted.apart)
    columns = tuple(one for one, gain in zip(passes.logs.people.columns, gains, strict=True) if gain.kept)
    both = zip(fitted.apart, others, strict=True)
    return Fitting(
        _knowing(model, found, columns), [(_knowing(one, fit, columns), judged) for (one, judged), fit in both]
    )


def _joined(
    passes: Passes, people: FittedPopulation, effects: AttributeEffects, begun: WarmStart | None, rounds: int
) -> tuple[list[Population], JointFit]:
    """The populations of a fit, found again together with the effects of attributes, by the same steps as before them:
    an earlier fit is added, and weak directions are found where they were.
    """
    count = passes.count
    found = join_attributes(passes, people.before or people, effects, rounds=rounds)
    populations = list(found.populations)
    if begun is not None and begun.users:
        share, earlier = _share_of_new(people, begun), begun.given or begun.population
        populations = [blend_fitted_populations(earlier, one, share) for one in populations]
    if people.facts.weak is not None and people.facts.weak.kept:
        fits = [(one, task.fitted) for one, task in zip(populations, found.tasks, strict=True)]
        known = KnownMeans(tuple(task.total for task in found.tasks), effects.prior, effects.entries)
        populations = full_covariance_given_attributes(passes, fits, known)
    return populations, replace(found.facts, passes=passes.count - count)


def _knowing(model: Model, found: AttributeFit | None, columns: tuple[Column, ...]) -> Model:
    """The model with the attributes that stay, and with the covariance over users that they widen."""
    if found is None:
        return model
    rank = model.rank if model.factor.shape[1] else min(found.factor.shape[1], model.dim)
    population = replace(found.population, factor=found.factor)
    return replace(
        model,
        **_population_of(population),
        basis=model.basis if rank == model.rank else population.leading(rank),
        attributes=columns,
        attribute_effects=found.prior.effects,
        attribute_covariance=found.prior.covariance,
    )


def _for_moments(logs: Logs, settings: FitSettings) -> Logs:
    """The logs whose moments SOLD's half takes: where rows have arms, of the users who were served at random.

    What a policy chose depends on earlier rewards, which the moments must not. EM may learn from all rows; where too
    few were served at random, its spectrum and its radii are of all rows too.
    """
    found, needed = logs.judges, 2 if settings.rank == "auto" else max(2, int(settings.rank))
    if found is not None and found.summary.usable >= needed:
        return found
    if settings.estimator == "em":
        return logs
    usable = 0 if found is None else found.summary.usable
    what = f"{usable:,} of {logs.summary.users:,} users were served at random and have two rows or more"
    todo = f"sold needs {needed} of them: serve more users at random, or use estimator='em'"
    raise LogsError(what, todo=todo)


def _heldout_gain(passes: Passes, few: Passes, apart: Apart, model: Model) -> HeldoutGain | None:
    """What held-out users would have gained: everybody alike, and each by own rows, told by one pass over all.

    `few` are passes over a sample of the users, or all: they tell how long a usual history is. Users outside a sample
    were fitted by none of the models `apart`, so that they judge them too. Where rows have arms, users of the random
    arm judge.
    """
    judges, arm = passes.logs.judges, ""
    if not apart or judges is None:
        return None
    if judges is not passes.logs:
        passes = few = Passes(judges, passes.progress)
        arm = RANDOM
    length = usual_deal_length(few.run(deal_lengths, operator.add))
    each = heldout_gain.GainPass.of(apart, people=passes.logs.summary.users, length=length)
    if each is None:
        return None
    alike = best_actions.best_actions_pass(passes.logs, apart), best_actions.join_best_action_sums
    seen, found = passes.run_both(alike, (each.map, heldout_gain.join_heldout_gains))
    gain = each.gain(found, best_actions.best_actions_told(seen, passes.logs, model, len(apart)))
    return gain if gain is None or not arm else replace(gain, arm=arm)


def _choice(rank: int | str, begun: WarmStart | None) -> str:
    """How the rank came about; a refit keeps that of the model it starts from."""
    return "given" if rank != "auto" else "kept" if begun is not None else "auto"


def _persistence(found: Estimate, given: float | None) -> float | None:
    """The persistence: as given, as repeats of the logs estimate it, or None where they cannot.

    SOLD has one variance for all actions and knows nothing of repeats: 0, unless it is given.
    """
    if given is not None or found.facts is None:
        return given or 0.0
    told = found.facts.persistence
    return told.estimate if told and told.standard_error <= SURE else None


def _share_of_new(fitted: FittedPopulation, begun: WarmStart) -> float:
    """The share of the users of a fit among these and those of the model that it is added to."""
    return fitted.facts.users / (fitted.facts.users + begun.users)


def fit_by_em(passes: Passes, settings: FitSettings, begun: WarmStart | None) -> tuple[Estimate, FittedPopulation]:
    """The population of highest penalised likelihood; its basis spans the leading directions of E[beta beta^T].

    A rank that was asked for is that of the factor and of the basis. Else held-out users choose the rank of the factor,
    and the basis has one direction more where the mean lies outside the span of the factor.
    """
    rank, calibrate, persistence = settings.rank, settings.calibrate, settings.persistence
    if begun is None:
        fitted = estimate_population(passes, rank=rank, persistence=persistence, calibrate=calibrate)
    else:
        one_hot = begun.users and passes.logs.one_hot and passes.logs.people is None
        earlier = Earlier.of(begun.population, begun.users) if one_hot else None
        fitted = refit_population(
            passes,
            begun.population,
            precision=begun.precision,
            persistence=persistence,
            calibrate=calibrate,
            earlier=earlier,
        )
        apart = fit_populations_apart(fitted.chosen, fitted.parts.origin, begun.population, begun.precision)
        fitted = replace(fitted, held_out=apart)
    fitted = replace(fitted, before=fitted)
    if begun is not None and begun.users and fitted.origin.earlier is None:
        share = _share_of_new(fitted, begun)
        mixed = [(blend_fitted_populations(begun.population, one, share), judged) for one, judged in fitted.held_out]
        population = blend_fitted_populations(begun.population, fitted.population, share)
        fitted = replace(fitted, population=population, held_out=tuple(mixed))
    pairs, clear = fitted.pairs, fitted.population
    if rank == "auto":
        fitted = with_full_covariance(fitted)
    population = fitted.population
    rows = float(pairs.rows.sum())
    gram = pairs.gram.sum(axis=0) / rows
    if not clear.rank:  # weak directions may have been found together where none is clear by itself
        clear = population.truncated(gram, fitted.facts.directions, fitted.origin.table)
    chosen = clear.basis_rank(gram, rows) if rank == "auto" else rank
    basis = clear.leading(chosen)
    draws = fitted.draws(chosen) if chosen and calibrate else None
    scales = error_variance_scales(fitted.judges.run, fitted.held_out)
    return Estimate(basis, population, draws, fitted.counted(passes), scales), fitted

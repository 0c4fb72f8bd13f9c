"""Evidence: why a model is as it is, and what its radii follow from. Plain records that become JSON and come back.

Every stage of a fit leaves its reasons here: what the logs were, which ridge, why this rank, how well actions cover
the features, what the radii need, and how the distribution of users was chosen. Nothing here learns: the records are
read by attribute (`model.evidence.rank.chosen`), and a part that a fit did not produce is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from functools import cache
from typing import Any, Self, get_args, get_type_hints

from newcomer.errors import ModelError
from newcomer.findings import Findings as Checked
from newcomer.interval import FEWEST, Interval, interval_in_words
from newcomer.radius import Draws, Ingredients
from newcomer.records import Shown

LIMITS = "clip='auto' (--clip auto) limits what they do"
HEAVY_TAILS = 0.1  # share of the sum of squared rewards in their tails that is called heavy; normal ones have 0.00002
CERTAIN = 3.1  # standard errors from which something is shared, whether or not it is of use: level 1 / 1000
NAMED = 6  # features of a group that are named in a sentence
RENAMED = {"prior": "population", "noise": "noise_variance", "outlook": "heldout_gain"}  # names in files
FILED = {"heldout_gain": "outlook"}  # the name under which files keep it
GONE = {"Forecast": ("interactions", "mean_value", "early_value")}  # in files of before, and shown nowhere


@dataclass(frozen=True)
class Summary(Shown):
    """Logs in a few numbers; `logs.summary` is one.

    `usable` users have at least two rows (what can be split in halves), `too_short` have one; `ties` counts the rows
    that share user and timestamp with another row; `max_reward` is the largest |reward|. The `fingerprint` depends on
    every value and on the order within a user, and on no other order.

    What a few rewards cannot change: `median_reward`, and `robust_deviation`, 1.48 times the median distance from it.
    `far_rewards` lie more than 20 such deviations away, beyond a gap; `tail_share` of the sum of squares is due to
    rewards beyond 5.
    `reward_step` is the least distance of two different rewards where there are few (1 for clicks and stars), else 0.
    `clip` are the limits that rewards were brought within, `clipped` counts those that were outside. (A model of before
    these were counted says 0.) `least_reward` is the lowest. With a `reward_transform` all of this is of transformed
    rewards.
    """

    users: int
    rows: int
    dim: int
    usable: int
    too_short: int
    ties: int
    fingerprint: str
    mean_squared_norm: float
    mean_reward: float
    reward_deviation: float
    max_reward: float
    median_reward: float = 0.0
    robust_deviation: float = 0.0
    far_rewards: int = 0
    tail_share: float = 0.0
    clip: tuple[float, float] | None = None
    clipped: int = 0
    reward_step: float = 0.0
    least_reward: float | None = None
    reward_transform: str | None = None

    @property
    def learned(self) -> str:
        """What is learned, in words: the scale of every mean, deviation and variance of rewards here."""
        return "rewards" if self.reward_transform is None else "log(1 + reward)"

    @property
    def remedy(self) -> str:
        """What helps against rewards far outside all others and against heavy tails, as an option."""
        if self.reward_transform is None and self.least_reward is not None and self.least_reward >= 0:
            option = "reward_transform='log1p' (--reward-transform log1p)"
            return f"{option} learns their logarithm, which suits counts and money"
        return LIMITS

    @property
    def remedies(self) -> str:
        """What to do about them, first of all with rewards far outside all others that are mistakes."""
        rows = "the row if it is a mistake" if self.far_rewards == 1 else "the rows if they are mistakes"
        return f"remove {rows}; otherwise {self.remedy}" if self.far_rewards else self.remedy

    @property
    def hiding(self) -> str:
        """What of the rewards may hide how users differ, in words; empty if nothing does."""
        if self.far_rewards:
            return f"{self.far_rewards:,} reward{'s' * (self.far_rewards > 1)} far outside all others"
        return "the heavy tails of the rewards" if self.tail_share > HEAVY_TAILS else ""


@dataclass(frozen=True)
class RidgeChoice:
    """The ridge mu of SOLD's half estimates (None: pseudo-inverse), and where it came from."""

    value: float | None
    why: str


@dataclass(frozen=True)
class RankTest:
    """The spectrum of a moment against sign flips (`newcomer.sold.rank_test`): `rank` eigenvalues stand out.

    `level` is the probability of a false direction where none is shared; `threshold` what each of the leading
    eigenvalues `spectrum` had to exceed; `null_low` to `null_high` holds 95% of what flips give at the same position.
    """

    rank: int
    level: float
    spectrum: tuple[float, ...]
    null_low: tuple[float, ...]
    null_high: tuple[float, ...]
    threshold: tuple[float, ...]


@dataclass(frozen=True)
class RankChoice:
    """The rank of the basis, whether it was "given", "auto" or "kept", and the tests of both moments (or None).

    A rank is kept by a refit of em: it is that of the model that the fit started from, plus at most one for the mean.
    """

    chosen: str
    rank: int
    moment: RankTest | None = None
    covariance: RankTest | None = None


@dataclass(frozen=True)
class CoverageFacts:
    """Assumption 2 of the paper: lambda_A, and the plug-in lambda_k(S) / R^2 for lambda_theta; what was not reached.

    With one-hot features |beta| <= R does not hold, and lambda_theta may exceed 1.

    `uncovered` counts directions that are left out, `uncovered_features` are the positions of features that lie in
    them. By reason, with names (`newcomer.sold.coverage`): `never` seen; `collinear`, for features that always move
    together; seen in `one_half` of the histories only. (Older models, which did not count them apart, have 0.)

    `bounded` counts the one-hot actions whose diagonal entry in SOLD's moment the rank would complete to more than the
    mean square of their rewards, which it cannot exceed, and `bounded_actions` names ten of them
    (`newcomer.sold.correction`): data do not separate what is shared from such an action's own variance.

    `dealt` says that everybody met the same actions in the same order, so that rows were dealt to SOLD's halves by lot.
    """

    lambda_A: float
    lambda_theta: float
    uncovered: int
    uncovered_features: tuple[int, ...]
    never: int = 0
    never_features: tuple[str, ...] = ()
    collinear: int = 0
    collinear_groups: tuple[tuple[str, ...], ...] = ()
    one_half: int = 0
    one_half_features: tuple[str, ...] = ()
    correction: str = ""  # how the moment of many one-hot actions was corrected; else as SOLD always does
    bounded: int = 0
    bounded_actions: tuple[str, ...] = ()
    dealt: bool = False

    def reasons(self) -> list[str]:
        """What was left out and why, as parts of a sentence.

        >>> CoverageFacts(0.1, 0.5, 1, (), collinear=1, collinear_groups=(("red", "blue", "the constant"),)).reasons()
        ['1 direction that no action can reach, as features always move together (red, blue, the constant)']
        """
        said = []
        if self.never:
            said.append(f"{_directions(self.never)} never seen{_in_brackets(self.never_features)}")
        if self.collinear:
            groups = [_in_brackets(group) for group in self.collinear_groups]
            said.append(
                f"{_directions(self.collinear)} that no action can reach, as features always move together"
                f"{','.join(groups[:3])}{', ...' * (len(groups) > 3)}"
            )
        if self.one_half:
            where = _in_brackets(self.one_half_features)
            said.append(f"{_directions(self.one_half)} seen in one half of the histories only{where}")
        if self.uncovered and not said:
            said.append(f"{_directions(self.uncovered)} never seen")
        return said

    def bounds(self) -> str:
        """Which completed entries are at their bound, in words; nothing if there are none.

        >>> CoverageFacts(0.1, 0.5, 0, (), bounded=2, bounded_actions=("tea", "rum")).bounds()
        "SOLD's moment is cut at the mean squared reward for 2 actions (tea, rum): too few pairs tell what they share"
        """
        if not self.bounded:
            return ""
        actions = f"{self.bounded:,} action{'s' * (self.bounded != 1)}{_in_brackets(self.bounded_actions)}"
        return f"SOLD's moment is cut at the mean squared reward for {actions}: too few pairs tell what they share"


@dataclass(frozen=True)
class RankComparison:
    """Ranks 0, 1, 2, ... on held-out `users`: the gain per user that each lacks to the best, and its standard error.

    `certainty` that anything is shared: standard errors by which users' other actions tell of each reward, the linear
    part of the gain of the best rank above zero. (Older models have 0.)
    """

    chosen: int
    deficits: tuple[float, ...]
    errors: tuple[float, ...]
    users: int
    certainty: float = 0.0

    @property
    def too_weak(self) -> str:
        """That something is shared for certain and of no use yet, in words; empty if that is not so.

        >>> RankComparison(0, (0.0, 0.1), (0.0, 0.1), 900, certainty=4.2).too_weak[:61]
        'users certainly share preferences (4.2 standard errors), but '
        """
        if self.chosen or self.certainty < CERTAIN:
            return ""
        sure = f"users certainly share preferences ({self.certainty:.1f} standard errors)"
        return f"{sure}, but too weakly to use: held-out users are predicted no better than by the population mean"


@dataclass(frozen=True)
class Forecast:
    """What a newcomer may expect of a population (`newcomer.em.variance_components` says how it is computed).

    Rewards vary by three variances: `common` to all users, `personal` along shared directions, `noise_variance`. Of
    the personal variance `level` moves all candidates of a user alike and changes no choice; the rest are preferences.
    (Older models, which did not separate them, have None.)
    """

    common: float
    personal: float
    noise_variance: float
    level: float | None = None

    def shares(self, persistence: float | None) -> tuple[tuple[str, float], ...]:
        """The parts of the variance of rewards, each with its name, as shares of their sum.

        `persistence` is the share of the residual that is this user and this very action; where it is not known, that
        and noise are one part.

        >>> Forecast(1.0, 2.0, 1.0, level=1.5).shares(0.2)[1:3]
        (('user level', 0.375), ('preferences', 0.125))
        """
        total = self.common + self.personal + self.noise_variance
        own = 0.0 if persistence is None else persistence * self.noise_variance
        if self.level is None:
            differ: tuple[tuple[str, float], ...] = ((DIFFER, self.personal),)
        else:
            differ = (LEVEL, self.level), (PREFERENCES, max(self.personal - self.level, 0.0))
        left = (EITHER, self.noise_variance) if persistence is None else (NOISE, self.noise_variance - own)
        very = () if persistence is None else ((VERY, own),)
        parts = ((COMMON, self.common), *differ, *very, left)
        return tuple((name, value / total if total > 0 else 0.0) for name, value in parts)

    def parts(self, persistence: float | None = 0.0, learned: str = "rewards") -> str:
        """What the variance of rewards, or of what is `learned` of them, is made of, in plain words.

        >>> print(Forecast(0.5, 0.2, 0.3, level=0.2).parts().split(", ")[2])
        0% preferences (change the order)
        """
        shares = self.shares(persistence)
        each = [
            f"{whole}% {name}{_in_short(name)}"
            for whole, (name, _) in zip(evidence_percents(shares), shares, strict=True)
        ]
        return f"Variance of {learned}: {', '.join(each)}."


COMMON, LEVEL, PREFERENCES = "population mean", "user level", "preferences"
DIFFER = "differences between users, in level or preferences"  # of models that do not separate them
VERY, NOISE = "per-action effect", "noise"
EITHER = "noise or per-action effect (too few repeats to separate them)"
MEANING = {LEVEL: "moves all candidates alike", PREFERENCES: "change the order"}


def evidence_percents(shares: Sequence[tuple[str, float]]) -> list[int]:
    """Whole percents that add up to 100 where the shares add up to 1: the largest remainders are rounded up.

    >>> evidence_percents((("a", 0.335), ("b", 0.335), ("c", 0.33)))
    [34, 33, 33]
    """
    exact = [100.0 * share for _, share in shares]
    found = [int(value) for value in exact]
    order = sorted(range(len(exact)), key=lambda i: found[i] - exact[i])
    for i in order[: max(round(sum(exact)) - sum(found), 0)]:
        found[i] += 1
    return found


def _in_short(name: str) -> str:
    return f" ({MEANING[name]})" if name in MEANING else ""


@dataclass(frozen=True)
class GainStep:
    """What `interactions` with a held-out user are worth in one choice by PriorUCB (`newcomer.gain.heldout_gain`).

    `gain` over the choice of the population mean, averaged over `people`, with its standard `error` and its 95%
    interval from `low` to `high`; `shared` of it by shared directions alone, `lasting` by memory of the very action
    (None: too few actions came again to tell). `mean` is the reward by the population mean, `chance` that of a random
    candidate, which is what was logged. `reward` of PriorUCB, and its gain `over_arms`, each action by itself (None
    where logs name no actions), and `over_logged`. (In a model of before PriorUCB was measured these are None, and
    the gain is that of a greedy choice, its interval one for another group of as many users.)
    """

    interactions: int
    people: int
    gain: float
    low: float
    high: float
    shared: float
    lasting: float | None
    mean: float
    chance: float
    error: float = 0.0
    reward: Interval | None = None
    over_arms: Interval | None = None
    over_logged: Interval | None = None

    @property
    def over_mean(self) -> Interval:
        """The gain over the population mean."""
        error = self.error or (self.high - self.low) / 4.0  # a model that does not tell has the interval
        return Interval(self.gain, error, self.low, self.high, self.people)

    @property
    def clear(self) -> bool:
        """Whether the gain is clear of zero."""
        return self.over_mean.clear


@dataclass(frozen=True)
class BestAction:
    """An action that is among the best by the population mean: what it pays on average, and the 95% interval.

    The interval is that of the best of many (`newcomer.gain.best_actions`): an action does not get there by luck alone.
    """

    action: int | str
    name: str
    rows: int
    users: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Everybody:
    """What it is worth to serve everybody the best by the population mean, which knows no user.

    `reward` of it and its `gain` over what was logged, `logged` on average; `by` "propensities" (doubly robust, carried
    by so many `effective` rows), or by "own rows", a choice among `choices` of each user's own. All on users who
    were held out of the fit. `best` are the best actions of `actions` that were logged, which are `alike` if they do
    not differ beyond chance; `why` says why propensities could not be used. `scale` says what the rewards of `best`
    are: a "mean"; "typical" where the fit learned a logarithm, taken back; "heavy tails" where a few large rewards
    decide a mean, and its interval says little. (Older models have "mean".)
    """

    by: str
    reward: Interval
    logged: float
    gain: Interval
    choices: int = 0
    effective: float | None = None
    best: tuple[BestAction, ...] = ()
    actions: int = 0
    alike: bool = False
    why: str = ""
    scale: str = "mean"


@dataclass(frozen=True)
class HeldoutGain:
    """What held-out users would have gained, choosing among `choices` of their own logged rows.

    `rows` are those of a usual history (0 in a model of before they were counted). `arm` names the arm of an experiment
    whose users judge, where logs have arms: what was logged is then what this arm showed.
    """

    choices: int
    steps: tuple[GainStep, ...]
    rows: int = 0
    everybody: Everybody | None = None
    arm: str = ""


@dataclass(frozen=True)
class PersistenceFacts:
    """What repeats say of the share of the residual that comes again
    (`newcomer.em.variance_components.persistent_variance_share`).

    `repeats` are the meetings of a user and an action beyond the first, `ratio` the mean of their squared deviations
    from the mean of user and action, in units of the residual variance: it estimates 1 - share.
    """

    repeats: float
    ratio: float
    estimate: float
    standard_error: float


@dataclass(frozen=True)
class SampleFacts:
    """The users by whom everything was chosen where there are many, and the `passes` over their rows alone."""

    users: int
    rows: int
    passes: int


@dataclass(frozen=True)
class WeakDirections:
    """What held-out users say of weak directions (`newcomer.em.full_covariance`).

    `kept` directions in all are in the factor, 0 if they were tried and dropped; `without` and `gain` are the held-out
    gains per user of the fit without and with them, `error` the standard error of the difference.
    """

    kept: int
    without: float
    gain: float
    error: float


@dataclass(frozen=True)
class PopulationFacts:
    """How EM found the distribution of users: `passes` over the logs, `directions` k, `likelihood` per row.

    `tried` lists, search by search, the precisions of the factor that were tried, each with its held-out
    log-likelihood per user; `precision` and `mean_precision` are those of the fit to everybody; `ranks` is None where
    the rank was given. `sample` is None where users are few, and all of them chose; with `by_all`, all chose although
    there was a sample, since they showed more than it did. (A model of before passes of the calibration and of the
    held-out gain were counted has fewer.)
    """

    passes: int
    likelihood: float
    directions: int
    users: int
    rows: int
    forecast: Forecast
    tried: tuple[tuple[tuple[float, float], ...], ...]
    precision: float
    mean_precision: float
    ranks: RankComparison | None = None
    persistence: PersistenceFacts | None = None
    heldout_gain: HeldoutGain | None = None
    sample: SampleFacts | None = None
    weak: WeakDirections | None = None
    by_all: bool = False

    @property
    def outlook(self) -> HeldoutGain | None:
        """`heldout_gain`, by its name of before."""
        return self.heldout_gain


@dataclass(frozen=True)
class AttributeGain(Shown):
    """An attribute of users, tried: the `gain` in log-likelihood a held-out user beyond the attributes taken before it,
    by how many standard errors that is `certain`, whether it is `kept`, and the share of what users differ by that it
    explains.
    """

    name: str
    gain: float
    certain: float
    kept: bool
    explains: float = 0.0

    @property
    def sentence(self) -> str:
        """The same in words."""
        if not self.kept:
            return f"{self.name} is left out: held-out users are not predicted better with it."
        return f"{self.name} is used: it explains {self.explains:.1%} of what users differ by."


@dataclass(frozen=True)
class JointFit(Shown):
    """How m, L and the variances were found together with the effects of attributes: in `rounds`, by `passes` over the
    logs, with a `gain` in penalised log-likelihood a user over effects given the fit without attributes.
    """

    rounds: int
    passes: int
    gain: float

    @property
    def sentence(self) -> str:
        """The same in words.

        >>> print(JointFit(3, 16, 0.0123).sentence)
        Attributes and the distribution of users were fitted together: 3 rounds, 16 passes, 0.0123 nats a user gained.
        """
        how = f"{self.rounds} rounds, {self.passes} passes, {self.gain:.3g} nats a user gained"
        return f"Attributes and the distribution of users were fitted together: {how}."


@dataclass(frozen=True)
class OutcomeFacts:
    """Why rewards of 0 and 1 are taken for normal ("gaussian") or go through log-odds ("binary").

    `how`: "given", "kept" from the model that a refit starts from, or "auto": held-out users compared both
    (`newcomer.outcome`). `log_score` a reward and `gain` a choice are those of the binary model less the other's.
    """

    chosen: str
    how: str
    log_score: Interval | None = None
    gain: Interval | None = None

    @property
    def sentence(self) -> str:
        """Which, and why.

        >>> score, gain = Interval.around(0.01, 0.001, 900), Interval.around(0.002, 0.004, 900)
        >>> print(OutcomeFacts("binary", "auto", score, gain).sentence.split(":")[0])
        Rewards are 0 and 1, and go through log-odds (binary)
        """
        taken = "go through log-odds (binary)" if self.chosen == "binary" else "are taken as they are (gaussian)"
        first = f"Rewards are 0 and 1, and {taken}"
        if self.how != "auto":
            return f"{first}: {'as asked' if self.how == 'given' else 'as in the model that this one starts from'}."
        if self.log_score is None or self.gain is None or self.log_score.people < FEWEST:
            return f"{first}: held-out users are too few to compare it with the other link."
        score, gain = interval_in_words(self.log_score), interval_in_words(self.gain)
        return f"{first}: on held-out users the binary link scores {score} nats a reward and gains {gain} a choice."


@dataclass(frozen=True)
class Evidence(Shown):
    """Everything a model keeps of its reasons; a model made by hand has none of it."""

    logs: Summary | None = None
    ridge: RidgeChoice | None = None
    rank: RankChoice | None = None
    coverage: CoverageFacts | None = None
    radius: Ingredients | None = None
    calibrated: Draws | None = None
    population: PopulationFacts | None = None
    checks: Checked | None = None  # of the logs, where the fit was asked for them
    outcome: OutcomeFacts | None = None  # of 0/1 rewards
    attributes: tuple[AttributeGain, ...] = ()  # of users, that were tried
    joint: JointFit | None = None  # where attributes stay, and rewards are not clicks
    heldout_gain: HeldoutGain | None = None  # of SOLD, where `evaluate` has measured it; that of EM is in `population`

    @property
    def measured(self) -> HeldoutGain | None:
        """What held-out users would have gained."""
        return self.population.heldout_gain if self.population is not None else self.heldout_gain

    @property
    def outlook(self) -> HeldoutGain | None:
        """`heldout_gain`, by its name of before."""
        return self.heldout_gain

    def to_json(self) -> dict[str, Any]:
        """Plain values for the model file; parts that are None are left out.

        >>> Evidence(ridge=RidgeChoice(2.0, "given")).to_json()
        {'ridge': {'value': 2.0, 'why': 'given'}}
        """
        parts = {FILED.get(name, name): part for name, part in asdict(self).items() if part is not None and part != ()}
        if "population" in parts:
            parts["population"] = {FILED.get(name, name): value for name, value in parts["population"].items()}
        if "radius" in parts:  # what older files do not know of stays unsaid, so that their models keep their ids
            parts["radius"] = {name: value for name, value in parts["radius"].items() if value is not None}
        if "calibrated" in parts and not parts["calibrated"]["leading"]:
            parts["calibrated"] = {n: v for n, v in parts["calibrated"].items() if n not in ("leading", "dim")}
        return parts

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`, of what JSON made of it; names that changed since format 1 are understood.

        >>> Evidence.from_json({"ridge": {"value": 2.0, "why": "given"}}).ridge.value
        2.0
        """
        try:
            found: Self = _record(cls, values)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise ModelError(f"the evidence of the model is not understood ({error})", todo="fit it again") from error
        return found


def _directions(count: int) -> str:
    return f"{count:,} direction{'s' * (count != 1)}"


def _in_brackets(names: tuple[str, ...]) -> str:
    """Names in brackets, not too many; nothing if there are none."""
    return f" ({', '.join([*names[:NAMED], *(['...'] if len(names) > NAMED else [])])})" if names else ""


_hints = cache(get_type_hints)


def _record(kind: Any, values: Mapping[str, Any]) -> Any:
    """A record of this dataclass from plain values: mappings become the records that its fields name, lists tuples."""
    hints = _hints(kind)
    parts = {}
    for name, value in values.items():
        if name in GONE.get(kind.__name__, ()):
            continue
        now = RENAMED.get(name, name)
        inner = [kind for kind in (hints[now], *get_args(hints[now])) if is_dataclass(kind)]
        parts[now] = _inside(inner[0], value) if inner else _tuples(value)
    return kind(**parts)


def _inside(kind: Any, value: Any) -> Any:
    """A record, or several, or None."""
    if isinstance(value, list | tuple):
        return tuple(_record(kind, one) for one in value)
    return None if value is None else _record(kind, value)


def _tuples(value: Any) -> Any:
    """Lists, and lists in them, as tuples, so that what was read equals what was written."""
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value

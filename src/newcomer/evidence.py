"""Evidence: why a model is as it is, and what its radii follow from. Plain records that become JSON and come back.

Every stage of a fit leaves its reasons here: what the logs were, which ridge, why this rank, how well actions cover
the features, what the radii need, and how the distribution of users was chosen. Nothing here learns: the records are
read by attribute (`model.evidence.rank.chosen`), and a part that a fit did not produce is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from functools import cache
from typing import Any, Self, get_args, get_type_hints

from newcomer.errors import ModelError
from newcomer.radius import Draws, Ingredients
from newcomer.records import Shown
from newcomer.verdicts import Findings as Checked

LOOK = 20  # interactions after which the gain over the population mean is told
LIMITS = "clip='auto' (--clip auto) limits what they do"
HEAVY_TAILS = 0.1  # share of the sum of squared rewards in their tails that is called heavy; normal ones have 0.00002
NAMED = 6  # features of a group that are named in a sentence
RENAMED = {"prior": "population", "noise": "noise_variance"}  # names in files of format 1


@dataclass(frozen=True)
class Summary(Shown):
    """Logs in a few numbers; `logs.summary` is one.

    `usable` users have at least two rows (what can be split in halves), `too_short` have one; `ties` counts the rows
    that share user and timestamp with another row; `max_reward` is the largest |reward|. The `fingerprint` depends on
    every value and on the order within a user, and on no other order.

    What a few rewards cannot change: `median_reward`, and `robust_deviation`, 1.48 times the median distance from it.
    `far_rewards` lie more than 20 such deviations away; `tail_share` of the sum of squares is due to rewards beyond 5.
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
    def remedy(self) -> str:
        """What helps against rewards far outside all others and against heavy tails, as an option."""
        if self.reward_transform is None and self.least_reward is not None and self.least_reward >= 0:
            return "reward_transform='log1p' (--reward-transform log1p) suits counts, money and seconds"
        return LIMITS

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
    """The spectrum of a moment against sign flips (`newcomer.sold.rank`): `rank` eigenvalues stand out.

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

    `uncovered` counts directions that are left out, `uncovered_features` are the positions of features that lie in
    them. By reason, with names (`newcomer.sold.unreached`): `never` seen; `collinear`, for features that always move
    together; seen in `one_half` of the histories only. (A model of before these were told apart says 0.)
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


@dataclass(frozen=True)
class RankComparison:
    """Ranks 0, 1, 2, ... on held-out `users`: the log-likelihood per user each lacks to the best, and its error."""

    chosen: int
    deficits: tuple[float, ...]
    errors: tuple[float, ...]
    users: int


@dataclass(frozen=True)
class Forecast:
    """What a newcomer may expect of a population (`newcomer.population.forecast` says how it is computed).

    Rewards vary by three variances: `common` to all users, `personal` along shared directions, `noise_variance`.
    `interactions` until a newcomer's gain is within 10% of a known user's; `mean_value`, `early_value`: gain of the
    population mean, and after 20 interactions, as shares of a known user's.
    """

    common: float
    personal: float
    noise_variance: float
    interactions: int
    mean_value: float
    early_value: float

    def parts(self) -> str:
        """What the variance of rewards is made of, in plain words.

        >>> Forecast(0.5, 0.0, 0.5, 0, 1.0, 1.0).parts()
        'Of the variance of rewards 50% is common to all users, 0% taste along shared directions, 50% the rest.'
        """
        each = (self.common, self.personal, self.noise_variance)
        common, personal, noise = (round(100 * part / sum(each)) if sum(each) else 0 for part in each)
        first = f"Of the variance of rewards {common}% is common to all users"
        return f"{first}, {personal}% taste along shared directions, {noise}% the rest."


@dataclass(frozen=True)
class OutlookStep:
    """What `interactions` with a held-out person were worth in one choice (`newcomer.population.outlook`).

    `gain` over the choice of the population's mean, averaged over `people`, within `low` and `high` for another group
    of as many; `shared` of it by shared directions alone, `lasting` by memory of the very action (None: too few actions
    came again to tell). `mean` is the reward by the population's mean, `chance` that of a random candidate.
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

    @property
    def clear(self) -> bool:
        """Whether the gain is clear of zero, also for another group of as many people."""
        return self.low > 0


@dataclass(frozen=True)
class Outlook:
    """What held-out people would have gained, choosing among `choices` of their own logged rows."""

    choices: int
    steps: tuple[OutlookStep, ...]

    def sentences(self, hiding: str = "", remedy: str = LIMITS) -> list[str]:
        """The outlook in plain words; nobody is promised anything that people did not show.

        >>> step = OutlookStep(5, 400, 0.2, 0.1, 0.3, 0.2, None, 3.5, 3.0)
        >>> Outlook(10, (step,)).sentences()[1]
        'After 5 interactions: +0.2 (0.1 to 0.3) over the population mean, which gets 3.5 where chance gets 3.'
        """
        first = f"Measured on people kept out of the fit, who choose among {self.choices} of their own logged actions."
        told = [first]
        for step in self.steps:
            after = f"After {step.interactions} interactions: {step.gain:+.2g} ({step.low:.2g} to {step.high:.2g})"
            beside = f"which gets {step.mean:.3g} where chance gets {step.chance:.3g}"
            told.append(f"{after} over the population mean, {beside}.")
        return [*told, *self._memory(), self.verdict(hiding, remedy)]

    def _memory(self) -> list[str]:
        """What comes from memory of the very action."""
        last = self.steps[-1]
        if last.lasting is None:
            return ["That is by shared directions; what memory of single actions is worth, these logs cannot tell."]
        return [
            f"Of the last, {last.shared:+.2g} is by shared directions and {last.lasting:+.2g} by memory of actions."
        ]

    def verdict(self, hiding: str = "", remedy: str = LIMITS) -> str:
        """Whether it is worth the trouble."""
        clear = [step for step in self.steps if step.clear]
        if clear:
            return f"Worth it from about {clear[0].interactions} interactions on."
        if hiding:
            return f"Whether it helps cannot be told, for {hiding} may hide it: {remedy}."
        if any(step.high > 0 for step in self.steps) and any(step.gain > 0 for step in self.steps):
            return "Not clear of chance; where actions do not come again, the population mean is as good."
        return "Do not bother: serve everybody the population mean."


@dataclass(frozen=True)
class PersistenceFacts:
    """What repeats say of the share of the residual that lasts (`newcomer.population.persistence.share_of`).

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
class PopulationFacts:
    """How EM found the distribution of users: `passes` over the logs, `directions` k, `likelihood` per row.

    `tried` lists, search by search, the precisions of the factor that were tried, each with its held-out
    log-likelihood per user; `precision` and `mean_precision` are those of the fit to everybody; `ranks` is None where
    the rank was given. `sample` is None where everything was chosen by all users. (A model of before passes of the
    calibration and of the outlook were counted has fewer.)
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
    outlook: Outlook | None = None
    sample: SampleFacts | None = None


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

    def to_json(self) -> dict[str, Any]:
        """Plain values for the model file; parts that are None are left out.

        >>> Evidence(ridge=RidgeChoice(2.0, "given")).to_json()
        {'ridge': {'value': 2.0, 'why': 'given'}}
        """
        parts = {name: part for name, part in asdict(self).items() if part is not None}
        if "radius" in parts:  # what older files do not know of stays unsaid, so that their models keep their ids
            parts["radius"] = {name: value for name, value in parts["radius"].items() if value is not None}
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

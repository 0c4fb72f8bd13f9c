"""What goes over the wire: the JSON of every request and answer, as typed records that msgspec checks and describes.

A refusal is an answer too: `Refused` carries the HTTP status, a code for programs, one sentence for people, and the
place in the request that it is about.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

Text = Annotated[str, Meta(min_length=1, max_length=256)]
Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Id = Whole | Text
Number = Annotated[float, Meta(ge=-1e100, le=1e100)]
Attribute = bool | Whole | Number | Annotated[str, Meta(max_length=256)] | None
Arm = Literal["treated", "control", "incumbent", "random"]
Status = Literal["pending", "default", "rewarded", "void"]


class Asking(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A request; names that are not known are refused, so that a misspelt option is never passed over."""


class Decide(Asking):
    """Which action for this user? Candidates by id, by features, or, without either, the whole catalogue."""

    user: Id
    candidates: list[Id] | None = None
    exclude: list[Id] | None = None
    features: list[list[Number]] | None = None
    features_f32: str | None = None  # base64 of little-endian float32, `rows` rows
    rows: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    attributes: dict[Text, Attribute] | None = None
    top: Annotated[int, Meta(ge=1, le=100)] = 1
    baseline: Id | list[Id] | None = None
    shown: bool = True
    explain: bool = False
    request: Text | None = None


class Reward(Asking):
    """What a decision brought. Rewards that add up carry the id of their `event`."""

    decision: Text
    reward: Number
    event: Text | None = None
    correct: bool = False
    request: Text | None = None


class Observe(Asking):
    """What the service did not decide: an answer at onboarding, an import."""

    user: Id
    reward: Number
    action: Id | None = None
    features: list[Number] | None = None
    event: Text | None = None
    request: Text | None = None


class Merge(Asking):
    """The user whose history moves to the user of the address; its id becomes another name for that user."""

    from_: Id = msgspec.field(name="from")


class Shares(Asking):
    """Shares of new users in each arm; the rest is treated."""

    random: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.05
    control: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.05
    incumbent: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0


class Several(Asking):
    """A batch: `items`, each a request of its own."""


class RawItems(Asking):
    """A batch whose items are decoded one by one."""

    items: list[msgspec.Raw]


class Mixed(Struct):
    """A batch of which some items are refused: each is a request, or why it is none."""

    items: list[Any]


class DecideBatch(Several):
    """Several decisions, answered in order."""

    items: list[Decide]


class RewardBatch(Several):
    """Several rewards, answered in order."""

    items: list[Reward]


class ObserveBatch(Several):
    """Several observations, answered in order."""

    items: list[Observe]


class Slot(Struct):
    """One place of a slate: P(action | earlier slots) is its propensity."""

    decision: str
    action: int | str | None
    index: int
    propensity: float | None


class Explanation(Struct):
    """What is expected of an action, how unsure that is, and what exploring it is worth; null where unknown."""

    action: int | str | None
    index: int
    expected: float
    sd: float | None
    bonus: float | None


class Decision(Struct, omit_defaults=True):
    """What to show, with what probability it was chosen, and by which model."""

    decision: str
    action: int | str | None
    index: int
    propensity: float | None
    arm: Arm
    model: str
    slots: list[Slot] | UnsetType = UNSET
    explain: list[Explanation] | UnsetType = UNSET


class Recorded(Struct):
    """What became of a reward."""

    decision: str
    status: Literal["recorded", "repeated", "corrected"]


class Observed(Struct):
    """What became of an observation."""

    observation: str
    status: Literal["recorded", "repeated"]


class DecisionState(Struct):
    """A decision and what is known of it by now."""

    decision: str
    user: str
    action: int | str | None
    status: Status
    reward: float | None
    shown: bool
    arm: str
    propensity: float | None
    model: str
    at: float
    slate: str | None = None
    slot: int = 0


class UserBelief(Struct):
    """What is believed of a user, in words and in numbers."""

    user: str
    words: str
    arm: str | None
    arm_probability: float | None
    outcomes: int
    model: str
    in_subspace: bool
    repeatability: int | None
    attributes: dict[str, Any]
    best: list[Explanation]
    mixed: bool = False


class Erased(Struct):
    """What was removed. Downloaded exports and back-ups are not the service's to mend; `erasures` counts up."""

    user: str
    events: int
    erasures: int


class Merged(Struct):
    """The user that both ids mean from now on."""

    user: str
    outcomes: int
    mixed: bool


class ModelEntry(Struct):
    """A model in the store."""

    id: str
    status: Literal["serving", "staged", "retired"]
    staged: float
    generation: int | None
    facts: dict[str, Any]


class Models(Struct):
    """The model that decides, and the others that may be promoted."""

    serving: str
    generation: int
    models: list[ModelEntry]


class ArmShares(Struct):
    """The shares that new users are given now."""

    version: int
    random: float
    control: float
    incumbent: float
    treated: float


class Speed(Struct):
    """Decides of this process: a second now, by second of the last minute, and the time they take in milliseconds."""

    per_second: float
    last_minute: list[int]
    p50: float | None
    p99: float | None


class Served(Struct):
    """The share of the last decisions of this process that an action has."""

    action: int | str | None
    share: float
    name: str | None = None  # of the action, where the model has names


class RecentError(Struct):
    """A refusal of this process, and how often it came in a row."""

    at: float
    route: str
    status: int
    code: str
    count: int


class Report(Struct):
    """The service at a glance."""

    ready: bool
    model: str
    generation: int
    policy: str
    store: str
    users: int
    events: int
    arms: dict[str, int]
    started: float
    version: str
    now: float
    shares: ArmShares
    speed: Speed
    served: list[Served]
    errors: list[RecentError]
    models: list[ModelEntry]


class ArmMean(Struct):
    """The mean reward per user of an arm; the interval, valid at any time, is null while there are too few users."""

    arm: Arm
    users: int
    mean: float
    low: float | None
    high: float | None


class ArmLift(Struct):
    """How much more a decision brings to treated users than to those of the arm `against`, which has `users`."""

    against: Arm
    users: int
    difference: float
    low: float | None
    high: float | None


class Interaction(Struct):
    """Means and lifts at the n-th interaction of users."""

    interaction: int
    arms: list[ArmMean]
    lift: list[ArmLift]


class ArmCount(Struct):
    """Users of an arm beside those that its shares let expect, their interactions, and those that have a reward."""

    arm: Arm
    users: int
    expected: float
    interactions: int
    rewarded: int


class SampleRatio(Struct):
    """Whether arms have the users that they should (p-value valid at any time), and a sentence where they have not."""

    p_value: float
    warning: str | None
    arms: list[ArmCount]


class Lift(Struct):
    """What deciding is worth, over the `first` interactions of users; intervals may be watched as they come.

    `tuned` is the number of effective users at which they are tightest; `behind` counts changes not counted yet.
    """

    words: list[str]
    arms: list[ArmMean]
    lift: list[ArmLift]
    by_interaction: list[Interaction]
    sample_ratio: SampleRatio
    first: int
    confidence: float
    tuned: float
    behind: int


class Problem(Struct):
    """Why a request was refused."""

    code: str
    message: str
    where: str = ""


class Failure(Struct):
    """The answer to a refused request, which changed nothing."""

    error: Problem


class Refused(Exception):
    """A request that is not carried out."""

    def __init__(self, status: int, code: str, message: str, where: str = "", retry: int | None = None) -> None:
        self.status, self.code, self.message, self.where, self.retry = status, code, message, where, retry
        super().__init__(message)

    @property
    def problem(self) -> Problem:
        """Why."""
        return Problem(self.code, self.message, self.where)

    def body(self) -> bytes:
        """The answer's JSON."""
        return msgspec.json.encode(Failure(self.problem))


def user_text_of_shape(user: int | str, where: str = "user") -> str:
    """The id of a user as text: 7 and "7" are the same user."""
    text = str(user)
    if not text or len(text.encode("utf-8", "surrogatepass")) > 256 or "\0" in text:
        raise Refused(422, "bad_id", "an id has 1 to 256 bytes and no NUL character", where)
    return text

"""The pieces of work that figures are made of: plain records, each with a key.

The key says everything that the result depends on.

* `Fit` is a model from a world's logs;
* `Play` is some newcomers served by one policy;
* `Table` is any other computation: the `run` of the figure whose id it names, with plain arguments.

ProBALL stays in the subspace while Delta tau sqrt(t) <= d (tau' = 0), a rule that never looks at rewards. A play
therefore depends on Delta and tau only through the first round outside the subspace. The job says which Delta and tau
were meant (`ExitRule`); its key has that round in their place, so that settings which leave in the same round share
one run. A policy's random numbers are named after its algorithm, not after tau: settings are compared on the same
draws.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

FORMAT = 1  # of the results; a change makes all earlier ones stale
SLOW = "LOCAL-UCB"  # the policy whose plays take minutes
Scalar = str | int | float | None


@dataclass(frozen=True)
class Fit:
    """A model of `users` histories of `steps` steps.

    A `rank` of 0 lets the fit choose, `ridge` None as well; `calibrate` asks for a calibrated radius.
    """

    world: str
    users: int
    steps: int
    estimator: str
    rank: int
    ridge: float | None = None
    seed: int = 1
    calibrate: bool = False


@dataclass(frozen=True)
class ExitRule:
    """ProBALL's rule: stay in the subspace of R^`dim` while `radius` `tau` sqrt(t) <= `dim`."""

    radius: float
    tau: float
    dim: int

    def first_outside(self, rounds: int) -> int:
        """The first round outside the subspace, `rounds` + 1 if there is none in this horizon.

        The rule is asked round by round, in the arithmetic of the policy itself.

        >>> ExitRule(radius=54.0, tau=0.1, dim=50).first_outside(rounds=200)
        86
        """
        pace = self.radius * self.tau
        return 1 + sum(pace * math.sqrt(t) <= self.dim for t in range(1, rounds + 1))


@dataclass(frozen=True)
class Play:
    """`trials` newcomers served by one policy for `rounds` rounds.

    `exit` is ProBALL's rule for leaving the subspace (None: the policy's default); `truth` gives ProBALL the true
    basis in place of the fitted one; `latent` shows every action through the true basis.
    """

    world: str
    policy: str
    rounds: int
    trials: int
    fit: Fit | None = None
    exit: ExitRule | None = None
    truth: bool = False
    latent: bool = False
    seed: int = 0

    @property
    def left_at(self) -> int | None:
        """The first round outside the subspace, `rounds` + 1 if it is not left; None without a rule."""
        return None if self.exit is None else self.exit.first_outside(self.rounds)


@dataclass(frozen=True)
class Table:
    """The computation of a figure, `run`, with these arguments."""

    figure: str
    arguments: tuple[tuple[str, Scalar], ...]


Job = Fit | Play | Table


def key(job: Job, identity: str) -> str:
    """The content hash of a job; `identity` names version, scale and data."""
    parts = _parts(job)
    if isinstance(job, Play):
        parts["exit"] = job.left_at
    return hashlib.sha256(f"{FORMAT} {identity} {json.dumps(parts, sort_keys=True)}".encode()).hexdigest()[:24]


def to_text(job: Job) -> str:
    """The job as JSON."""
    return json.dumps(_parts(job), sort_keys=True)


def from_text(text: str) -> Job:
    """The inverse of `to_text`.

    >>> from_text(to_text(Table("geometry", (("seed", 1),))))
    Table(figure='geometry', arguments=(('seed', 1),))
    """
    parts: dict[str, Any] = json.loads(text)
    kind = parts.pop("kind")
    if kind == "Fit":
        return Fit(**parts)
    if kind == "Table":
        return Table(parts["figure"], tuple((name, value) for name, value in parts["arguments"]))
    records = {"fit": Fit, "exit": ExitRule}
    return Play(**parts | {name: parts[name] and record(**parts[name]) for name, record in records.items()})


def _parts(job: Job) -> dict[str, Any]:
    return {"kind": type(job).__name__, **asdict(job)}


def kind_of(job: Job) -> str:
    """A text that jobs share if they take about as long: everything but the seed, a play's model and its exit.

    >>> kind_of(Table("privacy", (("dim", 40), ("seed", 1)))) == kind_of(Table("privacy", (("dim", 40), ("seed", 2))))
    True
    """
    parts = {name: value for name, value in _parts(job).items() if name not in ("seed", "fit", "exit", "truth")}
    if isinstance(job, Table):
        parts["arguments"] = [pair for pair in job.arguments if pair[0] != "seed"]
    return json.dumps(parts, sort_keys=True)


def in_order(jobs: Iterable[Job]) -> list[Job]:
    """The jobs in the order in which they should be begun.

    What takes minutes comes first, so that no worker is left alone with a long job at the end; then one job of each
    kind, after which the time that the others will take is known.
    """
    seen: set[str] = set()

    def place(job: Job) -> tuple[bool, bool]:
        kind = kind_of(job)
        again = kind in seen
        seen.add(kind)
        return not _slow(job), again

    return sorted(jobs, key=place)


def _slow(job: Job) -> bool:
    if isinstance(job, Fit):  # fits of whole real histories, and fits of parts
        return (job.estimator == "em" and not job.steps) or job.calibrate
    return isinstance(job, Play) and job.policy == SLOW

"""Verdicts: what a check of logs found, as plain records that are shown, compared, saved with a model and drawn.

A `Finding` answers one question about the logs. Where the answer is a test, its verdict needs both: a p-value that
survives Holm's step-down over all tests of the check (Holm 1979), so that clean logs are called anything but fine with
probability at most `level`, and an effect that is large enough to matter, since with a million rows everything is
significant. A fault that needs no test (constant rewards, say) counts directly. The verdict of the whole is the worst
of those on the logs; what logs cannot show is listed as unknowable, and makes nothing better or worse.

A `Decision` is what all evidence comes to: what everybody should get, and whether and when to personalise. One function
makes it for all commands (`newcomer.gain.verdict.decide_verdict`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from newcomer.errors import NewcomerError, error_name_hint
from newcomer.records import Shown

if TYPE_CHECKING:
    import polars as pl

Verdict = Literal["fine", "doubtful", "broken", "unknowable"]
WORST_FIRST: tuple[Verdict, ...] = ("broken", "doubtful", "fine", "unknowable")
SHARED, SPELLING, ARMS = "shared preferences", "spelling", "arms"  # names of findings that a decision asks for
ATTRIBUTES = "attributes and logging"  # whether what is known of users tells what they were shown
LIFT = "reward a decision, treated over control"  # the unit of what an experiment's arms say
LOGGING = ("adaptive logging", "preference-dependent logging", "self-selection", "contexts")
GAIN = (SHARED, "enough users")  # findings on what is to be gained: little of it makes no log doubtful
# Names that findings had before; models that were saved with these, and programs that ask for them, are understood.
RENAMED = {"shared taste": SHARED, "taste-dependent logging": LOGGING[1]}


@dataclass(frozen=True)
class Picture(Shown):
    """The small table behind a finding: points (x, y), each within `low` and `high` where these are given.

    `labels` name the points where x counts nothing; `kind` is how to draw them, "line" or "bars". `band` says in words
    what lies between low and high (what chance alone gives, or how sure y is).
    """

    title: str
    x_label: str
    y_label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()
    kind: str = "line"
    band: str = ""


@dataclass(frozen=True)
class Finding(Shown):
    """The answer to one question about logs.

    `name` is its short name, the same in every check. `what` says in a sentence what was found, `advice` what to do
    about it. `effect` is how large it is, in `unit`, None where there is nothing to measure. `p_value` is that of the
    test alone, None where there was none; `adjusted` is Holm's, which the verdict follows. `doubtful` and `broken` are
    the effects from which the verdict is that.
    """

    name: str
    verdict: str
    what: str
    advice: str
    effect: float | None = None
    unit: str = ""
    p_value: float | None = None
    adjusted: float | None = None
    doubtful: float | None = None
    broken: float | None = None
    picture: Picture | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", RENAMED.get(self.name, self.name))

    @property
    def sentence(self) -> str:
        """The finding in one line."""
        return f"{self.name}: {self.verdict}. {self.what}"


Answer = Literal["yes", "with care", "best for all", "not yet", "no"]
Known = Literal["yes", "not clear", "no", "unknown"]


@dataclass(frozen=True)
class Decision(Shown):
    """What the evidence comes to, in a word and in sentences.

    `answer`: "yes", personalise; "with care", the same from doubtful logs; "best for all", serve everybody the best and
    do not personalise; "not yet", the logs do not tell; "no", they promise nothing, or there is nothing to gain. `logs`
    is the verdict on these alone, `everybody` whether serving everybody the best gains over what was logged, `personal`
    whether personalising adds to it, from `start` interactions on; `steps` say it for each number of interactions.
    `sentences` are the answer, what everybody should get, what personalising adds, and what to do.
    """

    answer: Answer
    logs: str
    everybody: Known
    personal: Known
    start: int | None
    steps: tuple[tuple[int, Known], ...]
    sentences: tuple[str, str, str, str]

    def facts(self) -> dict[str, Any]:
        """The answer and its sentences."""
        return {"answer": self.answer, **{str(i): said for i, said in enumerate(self.sentences, start=1)}}


@dataclass(frozen=True)
class Findings(Shown):
    """Everything a check found, in the order of the report.

    `users` and `rows` are those of the logs, `tested` how many users took part in the tests (a sample by hash where
    there are many), `level` the probability with which clean logs may be called anything but fine. `decision` is what
    the findings and the held-out gain of a fit come to, where there was one.

    >>> found = Findings((Finding("drift", "fine", "Rewards do not drift.", "Nothing to do."),), level=0.05)
    >>> found.verdict, found["drift"].what
    ('fine', 'Rewards do not drift.')
    """

    findings: tuple[Finding, ...]
    level: float = 0.05
    users: int = 0
    rows: int = 0
    tested: int = 0
    decision: Decision | None = None

    @property
    def verdict(self) -> Verdict:
        """The worst verdict on the logs; "unknowable" only where nothing at all could be tested.

        That there is little to gain (`GAIN`) is for the decision to say, and makes no log doubtful.
        """
        found = {
            finding.verdict for finding in self.findings if finding.verdict == "broken" or finding.name not in GAIN
        }
        return next((one for one in WORST_FIRST if one in found), "unknowable")

    @property
    def sentences(self) -> list[str]:
        """The verdict in a sentence, then what stands behind it, worst first."""
        wrong = [one for one in self.findings if one.verdict == self.verdict and one.name not in GAIN]
        wrong = wrong or [one for one in self.findings if one.verdict == self.verdict]
        if self.verdict == "fine":
            return ["No fault was found in these logs."]
        if self.verdict == "unknowable":
            return ["These logs have too few users, or too short histories, for any check."]
        head = {"broken": "Do not trust a model of these logs", "doubtful": "Use these logs with care"}
        return [f"{head[self.verdict]}: {', '.join(one.name for one in wrong)}.", *(one.what for one in wrong)]

    def of(self, verdict: Verdict) -> tuple[Finding, ...]:
        """The findings with this verdict."""
        return tuple(one for one in self.findings if one.verdict == verdict)

    def __getitem__(self, name: str) -> Finding:
        wanted = RENAMED.get(name, name)
        for finding in self.findings:
            if finding.name == wanted:
                return finding
        names = [finding.name for finding in self.findings]
        hint = error_name_hint(str(name), names) or f"; choose from {', '.join(names)}"
        raise NewcomerError(f"there is no finding '{name}'{hint}")

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    @property
    def frame(self) -> pl.DataFrame:
        """A row for each finding, as a Polars frame: everything but the picture."""
        import polars as pl

        names = ("name", "verdict", "effect", "unit", "p_value", "adjusted", "what", "advice")
        kinds = {name: pl.Float64 if name in ("effect", "p_value", "adjusted") else pl.String for name in names}
        return pl.DataFrame([[getattr(one, name) for name in names] for one in self], schema=kinds, orient="row")

    def to_json(self) -> dict[str, Any]:
        """Plain values, the verdict first."""
        return {"verdict": self.verdict, **asdict(self)}

    def __repr__(self) -> str:
        head = f"Findings: {self.verdict} ({self.users:,} users, {self.rows:,} rows, {self.tested:,} tested)"
        wide = max((len(one.name) for one in self), default=0)
        return "\n".join([head, *(f"  {one.verdict:<10} {one.name:<{wide}}  {_measured(one)}" for one in self)])

    def _repr_html_(self) -> str:
        cells = [(one.name, one.verdict, _measured(one), one.what, one.advice) for one in self]
        head = "".join(f"<th>{word}</th>" for word in ("", "verdict", "effect", "what was found", "what to do"))
        rows = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in cells)
        caption = f"Findings: {self.verdict} ({self.users:,} users, {self.rows:,} rows)"
        return f"<table><caption>{escape(caption)}</caption><tr>{head}</tr>{rows}</table>"


def holm_adjusted_findings(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: those at most `level` are rejected with a family-wise error of at most `level`.

    >>> holm_adjusted_findings([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, reached = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        reached = max(reached, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = reached
    return adjusted


def finding_chance(p_value: float) -> str:
    """A p-value in words: three digits are as many as permutations give.

    >>> finding_chance(0.0), finding_chance(0.0132)
    ('p < 0.001', 'p = 0.013')
    """
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.2g}"


def _measured(finding: Finding) -> str:
    """Effect and p-value in a few characters."""
    effect = "" if finding.effect is None else f"{finding.effect:.3g} {finding.unit}".strip()
    sure = "" if finding.p_value is None else finding_chance(finding.p_value)
    return ", ".join(filter(None, [effect, sure])) or finding.what

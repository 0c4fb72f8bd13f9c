"""What a model holds: plain numbers first, for `--json` and for programs, then the same as lines for a screen.

`model_summary_of` asks a model for everything once; `show_model_summary` tells it in the order in which users ask:
which logs, how users differ and why so many directions, how well the logged actions cover the features, how sure that
is, what a newcomer gains. The decision stands last, the same for every command.

The paper's bounds on the error of the subspace, beside the calibrated estimate: what `inspect --bounds` shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from newcomer.charts.terminal import (
    BLOCKS,
    FitToWidth,
    Glyphs,
    terminal_count,
    terminal_facts,
    terminal_glyphs,
    terminal_number,
    terminal_scree,
    terminal_scree_legend,
)
from newcomer.cli.output import output_console, printed_as_options
from newcomer.errors import ModelError

if TYPE_CHECKING:
    from newcomer.evidence import CoverageFacts, Everybody, RidgeChoice, SampleFacts, Summary
    from newcomer.findings import Decision
    from newcomer.findings import Findings as Checked
    from newcomer.model import Model


NAMED = 12  # features whose names are shown


@dataclass(frozen=True)
class RankFindings:
    """Why the rank: `chosen` "auto", "given" or "kept" (by a refit); leading eigenvalues and what each had to exceed.

    There are no thresholds without a test.
    `level`: probability of a false direction where none is shared; `differing`: directions along which users differ.
    """

    chosen: str
    eigenvalues: tuple[float, ...]
    thresholds: tuple[float, ...] = ()
    level: float | None = None
    stand_out: int | None = None
    differing: int | None = None

    @classmethod
    def of(cls, model: Model) -> RankFindings:
        """From the evidence in the model; without a test of the rank only the spectrum is there to show."""
        kept = model.evidence.rank
        assert kept is not None
        test, other = kept.moment, kept.covariance
        if test is None:
            return cls(kept.chosen, tuple(model.spectrum.tolist()))
        differing = None if other is None else other.rank
        return cls(kept.chosen, test.spectrum, test.threshold, test.level, test.rank, differing)


@dataclass(frozen=True)
class ModelSummary:
    """Everything `fit` and `inspect` show."""

    estimator: str
    dim: int
    rank: int
    logs: Summary
    ridge: RidgeChoice
    evidence: RankFindings
    coverage: CoverageFacts
    delta: float
    radius: tuple[RadiusFindings, ...]
    calibrated: float | None
    outlook: tuple[str, ...]
    noise_variance: float
    intercept: bool
    fingerprint: str
    one_hot: bool = False
    passes: int | None = None  # of em over the logs
    sample: SampleFacts | None = None  # the users by whom it was chosen, where there are many
    checks: Checked | None = None
    decision: Decision | None = None
    by_all: bool = False  # whether all users chose, although there was a sample
    too_weak: str = ""  # that something is shared for certain, and of no use yet
    directions: int | None = None  # along which users differ, by em; the rank may count the population mean beside them
    sure: tuple[int, float] | None = None  # leading directions of the basis that are known, and their error
    sure_line: str = ""  # the same in words
    feature_names: tuple[str, ...] = ()  # of features that have names
    attributes: tuple[str, ...] = ()  # of users: which are used, and which are not
    outcome: str = "gaussian"
    link: str = ""  # of 0/1 rewards: why they are taken so

    def to_dict(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return asdict(self)


def model_summary_of(model: Model, *, delta: float = 0.05) -> ModelSummary:
    """Everything there is to say about a model that was fitted from logs."""
    from newcomer.gain.verdict import decide_verdict

    kept = model.evidence
    if kept.logs is None or kept.ridge is None or kept.rank is None or kept.coverage is None:
        raise ModelError("the model keeps no evidence on its logs", todo="fit it from logs with this version")
    directions = None if kept.population is None else kept.population.directions
    return ModelSummary(
        estimator=model.estimator,
        dim=model.dim,
        rank=model.rank,
        logs=kept.logs,
        ridge=kept.ridge,
        evidence=RankFindings.of(model),
        coverage=kept.coverage,
        delta=delta,
        radius=tuple(RadiusFindings.of(model, kind, delta) for kind in _model_radius_kinds(model))
        if model.rank
        else (),
        calibrated=model.radius("calibrated", delta=delta) if model.rank and kept.calibrated else None,
        outlook=_outlook(model),
        noise_variance=model.noise_variance,
        intercept=model.intercept,
        fingerprint=model.fingerprint,
        one_hot=model.one_hot and not model.intercept,
        passes=None if kept.population is None else kept.population.passes,
        sample=None if kept.population is None else kept.population.sample,
        checks=kept.checks,
        decision=decide_verdict(kept) if model.estimator == "em" else None,
        by_all=kept.population is not None and kept.population.by_all,
        too_weak=kept.population.ranks.too_weak if kept.population and kept.population.ranks else "",
        directions=directions,
        sure=kept.calibrated.sure if kept.calibrated and kept.calibrated.leading else None,
        sure_line=kept.calibrated.sentence(directions) if kept.calibrated else "",
        feature_names=model.feature_names or (),
        attributes=tuple(one.sentence for one in kept.attributes),
        outcome=model.outcome,
        link=kept.outcome.sentence if kept.outcome else "",
    )


def _outlook(model: Model) -> tuple[str, ...]:
    """What rewards are made of, and where the gain comes from, which the decision tells; nothing over broken logs."""
    from newcomer.evidence import HEAVY_TAILS
    from newcomer.gain.verdict import verdict_gain_by_parts

    kept = model.evidence
    if kept.checks is not None and kept.checks.verdict == "broken":
        return ("These logs are broken, so they do not tell what users would gain.",)
    if kept.population is None or kept.logs is None:
        return ()
    parts, outlook = kept.population.forecast.parts(model.persistence, kept.logs.learned), kept.population.outlook
    if kept.logs.tail_share > HEAVY_TAILS:
        parts += " A few large rewards make up most of this variance and may hide preferences."
    if outlook is None or not outlook.steps:
        return parts, "There are too few users, or histories are too short, to measure what personalising would gain."
    return parts, verdict_gain_by_parts(outlook)


def show_model_summary(found: ModelSummary, *, saved: object = None) -> None:
    """Print everything on stdout, and where the model went."""
    console = output_console()
    for part in model_summary_parts(found, glyphs=terminal_glyphs(console.encoding)):
        console.print(part)
    if saved:
        console.print(terminal_facts([("Saved", str(saved))]))


def model_summary_parts(found: ModelSummary, *, glyphs: Glyphs = BLOCKS) -> Iterator[RenderableType]:
    """Part by part: facts, the spectrum with its legend, coverage and error, what rewards are made of, the decision."""
    named = [("Features", _model_features_line(found.feature_names))] if found.feature_names else []
    yield terminal_facts(
        [
            ("Logs", model_summary_logs_line(found)),
            *named,
            ("Users", model_summary_rank_line(found)),
            ("By", model_summary_method_line(found)),
        ]
    )
    if found.link:
        yield terminal_facts([("Link", found.link)])
    yield ""
    yield Text("  Spectrum of the users' second moment (includes the population mean)", style="dim")
    values, band = found.evidence.eigenvalues, found.evidence.thresholds
    yield FitToWidth(
        lambda room: terminal_scree(values, band, rank=found.rank, glyphs=glyphs, total=found.dim, columns=room)
    )
    yield FitToWidth(lambda room: terminal_scree_legend(_model_chance_line(found), glyphs, room))
    yield ""
    yield terminal_facts([("Coverage", model_summary_coverage_line(found)), ("Error", _model_error_line(found))])
    if found.attributes:
        yield terminal_facts([("Attributes" if i == 0 else "", said) for i, said in enumerate(found.attributes)])
    if found.checks is not None:
        yield terminal_facts([("Checks", _model_checks_line(found.checks))])
    if found.outlook:
        yield terminal_facts([("Rewards" if i == 0 else "", sentence) for i, sentence in enumerate(found.outlook)])
    if found.decision is not None:
        yield terminal_facts(model_summary_rows(found.decision))


def _model_features_line(names: Sequence[str]) -> str:
    """The names of the features, the first few where there are many.

    >>> _model_features_line(["price", "colour=red"])
    'price, colour=red'
    """
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _model_checks_line(checks: Checked) -> Text:
    """The verdict on the logs, and what stands behind it; `newcomer check` says more."""
    colour = {"fine": "green", "doubtful": "yellow", "broken": "bold red"}.get(checks.verdict, "dim")
    return Text.assemble((checks.verdict, colour), f". {' '.join(map(printed_as_options, checks.sentences))}")


def model_summary_logs_line(found: ModelSummary) -> str:
    """Users, rows and features, and who could not be used."""
    logs = found.logs
    features = (
        f"{terminal_count(found.dim, 'action')} (one-hot)" if found.one_hot else terminal_count(found.dim, "feature")
    )
    plain = [terminal_count(logs.users, "user"), terminal_count(logs.rows, "row"), features]
    short = f"{terminal_count(logs.too_short, 'user')} with a single row left out" if logs.too_short else ""
    ties = f"{terminal_count(logs.ties, 'row')} at equal times, kept in file order" if logs.ties else ""
    scale = "rewards learned as log(1 + reward), gains in the units of the rewards" if logs.reward_transform else ""
    return "; ".join(filter(None, [", ".join(plain), short, ties, scale]))


def model_summary_rank_line(found: ModelSummary) -> str:
    """The rank and why: asked for, chosen by held-out users (em), or by the test against chance (sold)."""
    shared = _subspace(found)
    if found.evidence.chosen == "kept":
        return f"{shared}, kept from the earlier fit{_contrast(found)}"
    if found.evidence.chosen != "auto":
        return f"{shared}, as asked{_contrast(found)}"
    if found.too_weak:
        return f"no usable direction: {found.too_weak}"
    if found.rank == 0:
        hidden = f", but {found.logs.hiding} may hide it" if found.logs.hiding else ""
        return f"no direction stands out from chance (rank 0){hidden}"
    if found.estimator == "em":
        why = ", the number that predicts held-out users best" if found.directions != 0 else ""
        return f"{_subspace(found, why)}{_contrast(found)}"
    return f"{shared}: {'it stands' if found.rank == 1 else 'they stand'} out from chance{_alike(found)}"


def _subspace(found: ModelSummary, why: str = "") -> str:
    """Along how many directions users differ, and the subspace that this gives, with the population mean or without."""
    space = f"rank {found.rank} of {found.dim}"
    if found.estimator != "em" or found.directions is None:
        return f"{terminal_count(found.rank, 'direction')} of {found.dim} (rank {found.rank}){why}"
    if not found.directions:
        hidden = f", which {found.logs.hiding} may hide" if found.logs.hiding else ""
        return f"these logs show no differences in preferences{hidden}; the population mean alone ({space})"
    differ = f"they differ along {terminal_count(found.directions, 'direction')}{why}"
    if found.rank == found.directions:
        return f"{differ} ({space})"
    return f"{differ} (with the population mean, the subspace has {space})"


def _contrast(found: ModelSummary) -> str:
    """What the test against chance says, where it disagrees with the rank."""
    tested = found.evidence.stand_out
    if tested is None or tested == found.rank:
        return ""
    stands = f"{'stand' if tested > 1 else 'stands'} out from chance"
    if found.estimator != "em":
        return f"; {tested or 'none'} {stands}"
    some = f"{tested} eigenvalue{'s' * (tested > 1)}" if tested else "no eigenvalue"
    return f"; in the spectrum below, which includes the population mean, {some} {stands}"


def _alike(found: ModelSummary) -> str:
    """Users who are all alike share a mean and no preferences."""
    hidden = f", which {found.logs.hiding} may hide" if found.logs.hiding else ""
    return f"; they show no differences between users{hidden}" if found.evidence.differing == 0 else ""


def model_summary_method_line(found: ModelSummary) -> str:
    """The estimator, with its ridge if that matters; and who chose, where that was a sample of the users."""
    if found.ridge.value is None:
        return f"{found.estimator} ({found.ridge.why})"
    method = found.estimator
    if method != "em":
        method = f"{method}, ridge {terminal_number(found.ridge.value)} ({found.ridge.why})"
    if found.sample is None:
        return method
    chosen = f"rank, shrinkage, errors and gains estimated on a sample of {found.sample.users:,} users"
    if found.by_all:
        few = f"a sample of {found.sample.users:,} found fewer directions"
        chosen = f"rank, shrinkage, errors and gains estimated on all users ({few})"
    return f"{method}; {chosen}, then all users fitted in {found.passes} passes over all rows"


def _model_chance_line(found: ModelSummary) -> str:
    """How the band of the plot was found: flips of sign by bucket; a level of 1/64 is the largest of 63."""
    return f"largest of {round(1 / found.evidence.level) - 1} draws" if found.evidence.level else ""


def model_summary_coverage_line(found: ModelSummary) -> str:
    """What of the feature space the logged actions reach."""
    bounds = found.coverage.bounds() if found.estimator.startswith("sold") else ""
    cut = f"; {bounds}" if bounds else ""
    if found.coverage.dealt:
        cut = f"{cut}; everybody met them in the same order, so SOLD's halves were dealt by lot"
    if not found.coverage.uncovered:
        return f"logged actions reach every direction{cut}"
    return f"left out: {'; '.join(found.coverage.reasons())}{cut}"


def _model_error_line(found: ModelSummary) -> str:
    """How far the subspace may be from the true one, by the calibrated estimate."""
    if found.rank in (0, found.dim):
        return "none: " + ("there is no subspace" if found.rank == 0 else "the subspace is the whole space")
    if found.calibrated is None:
        return "not calibrated; `newcomer inspect --bounds` shows the paper's bounds"
    within = (
        f"the subspace is within {terminal_number(found.calibrated)} of the true one "
        "(sine of the largest angle: 0 exact, 1 "
        f"unknown), with probability {1 - found.delta:g}"
    )
    return f"{within}; {found.sure_line[:1].lower()}{found.sure_line[1:]}" if found.sure_line else within


STYLES = {
    "yes": "bold green",
    "best for all": "bold green",
    "with care": "bold yellow",
    "not yet": "bold yellow",
    "no": "bold red",
}


def model_summary_lines(decision: Decision) -> list[Text]:
    """The sentences, the answer in its colour."""
    style = STYLES[decision.answer]
    return [Text(printed_as_options(said), style if i == 0 else "") for i, said in enumerate(decision.sentences)]


def model_summary_rows(decision: Decision) -> list[tuple[str, Text]]:
    """The sentences as rows of facts under one heading."""
    return [("Decision" if i == 0 else "", said) for i, said in enumerate(model_summary_lines(decision))]


def model_summary_of_best_actions(found: Everybody) -> Table:
    """The best actions by the population mean."""
    from newcomer.gain.verdict import verdict_name

    shrunk = "estimated, shrunk towards the average"
    table = Table(box=None, pad_edge=False, caption=shrunk, caption_justify="left", caption_style="dim")
    table.add_column("best for everybody")
    pays = "typical reward" if found.scale == "typical" else "estimated mean"
    for head in (pays, "95% interval", "rows", "users"):
        table.add_column(head, justify="right")
    for one in found.best:
        interval = "none" if found.scale == "heavy tails" else f"{one.low:.4g} to {one.high:.4g}"
        table.add_row(Text(verdict_name(one.name)), f"{one.mean:.4g}", interval, f"{one.rows:,}", f"{one.users:,}")
    return table


NARROW = 50  # columns that the table of radii takes


@dataclass(frozen=True)
class RadiusFindings:
    """One kind of radius: the paper's, the sharper form, and the paper's with coverage taken as known (Delta_D = 0).

    Spectral, clipped at 1; `_raw` is not clipped.
    """

    kind: str
    theorem: float
    theorem_raw: float
    identity: float
    identity_raw: float
    simplified: float
    simplified_raw: float

    @classmethod
    def of(cls, model: Model, kind: str, delta: float) -> RadiusFindings:
        """Ask the model."""
        theorem = [model.radius(kind, delta=delta, clip=clip) for clip in (True, False)]
        identity = [model.radius(kind, delta=delta, clip=clip, form="identity") for clip in (True, False)]
        simplified = [model.radius(kind, delta=delta, clip=clip, simplified=True) for clip in (True, False)]
        return cls(kind, *theorem, *identity, *simplified)


def _model_radius_kinds(model: Model) -> tuple[str, ...]:
    """The radii of the paper that a model can tell: where one-hot actions are many, not all, or none."""
    from newcomer.radius import KINDS

    kept = model.evidence.radius
    if kept is None:
        return ()
    return KINDS if kept.walk or kept.martingale else KINDS[:-1]


def model_summary_bounds(found: ModelSummary) -> RenderableType:
    """Every bound, with what it is worth; lambda_A is that of Assumption 2 of the paper."""
    if found.rank in (0, found.dim):
        return "none: " + ("no subspace" if found.rank == 0 else "the whole space")
    outer = Table.grid()
    weakest = f"coverage of the weakest direction (lambda_A) {terminal_number(found.coverage.lambda_A)}"
    ridge = "" if found.ridge.value is None else f", ridge {terminal_number(found.ridge.value)} ({found.ridge.why})"
    outer.add_row(f"sine of the largest angle to the true subspace, at most, with probability {1 - found.delta:g}")
    outer.add_row(f"{weakest}{ridge}")
    if not found.radius:
        outer.add_row("this fit keeps nothing to compute bounds from: --estimator sold does")
        return outer
    outer.add_row(
        FitToWidth(
            lambda room: _model_radius_table(found.radius) if room >= NARROW else _model_radius_lines(found.radius)
        )
    )
    outer.add_row(Text(model_summary_radius_verdict(found.radius), "yellow"))
    return outer


def _model_radius_table(radii: Sequence[RadiusFindings]) -> Table:
    """A row for each kind of radius, a column for each form; a form is shown with its value without clipping."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    table.add_row(*(Text(word, style="dim") for word in ("", "theorem", "sharper form", "coverage known")))
    for radius in radii:
        forms = [
            (radius.theorem, radius.theorem_raw),
            (radius.identity, radius.identity_raw),
            (radius.simplified, radius.simplified_raw),
        ]
        table.add_row(radius.kind, *(_model_radius_shown(*form) for form in forms))
    return table


def _model_radius_lines(radii: Sequence[RadiusFindings]) -> Text:
    """The same for a terminal that has no room for the columns."""
    lines = []
    for one in radii:
        forms = (one.theorem, one.theorem_raw), (one.identity, one.identity_raw), (one.simplified, one.simplified_raw)
        theorem, sharper, known = (_model_radius_shown(*form) for form in forms)
        lines.append(Text.assemble(f"{one.kind} ", theorem, ", sharper form ", sharper, ", coverage known ", known))
    return Text("\n").join(lines)


def _model_radius_shown(value: float, raw: float) -> Text:
    """A radius, or, faintly, the raw bound of one that says nothing."""
    return Text(terminal_number(value)) if value < 1 else Text(terminal_number(raw), style="dim")


def model_summary_radius_verdict(radii: Sequence[RadiusFindings]) -> str:
    """What the bounds are worth, said plainly."""
    best = [min(radius.theorem, radius.identity) for radius in radii]
    if min(best) < 1:
        return "A bound of 1 or more is vacuous."
    return "All vacuous (1 or more): for this many users the theory promises nothing."

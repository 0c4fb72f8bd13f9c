"""`nc.plot`: the chart that belongs to a result, as an Altair chart that notebooks show and `chart.save` writes.

Altair and vl-convert are the extra [report]; they are imported when something is drawn, so that `nc.plot` itself is
always there. Colours are those of every other picture (`newcomer.charts.palette`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from newcomer.charts.palette import BLUE, GREEN, INK, ORANGE, predictor_colours
from newcomer.errors import NewcomerError
from newcomer.evaluation.results import OWN, Evaluation
from newcomer.evidence import GainStep
from newcomer.findings import Finding, Findings, Picture, finding_chance
from newcomer.interval import Interval
from newcomer.model import Model
from newcomer.validate import validate_instance

if TYPE_CHECKING:
    import altair as alt

ROWS = ("policy", "user", "t", "reward", "regret", "in_subspace")  # columns of what `play` returns
LEADING = 20  # eigenvalues that are drawn
NAMED = 8  # lines whose names fit beside their ends
CAP = 3.0  # multiples of the size that matters; a larger effect is drawn here
PALE = "#9AA3AE"
VERDICTS = {"fine": GREEN, "doubtful": "#E69F00", "broken": "#C1272D", "unknowable": PALE}
OVER = {  # what PriorUCB is compared with: part of a step, its name, its colour
    "population_mean": ("the population mean", ORANGE),
    "empirical_arms": ("per-action averages", "#A6761D"),
    "logging": ("what was logged", PALE),
}


def plot(
    result: pl.DataFrame | Model | Findings | Finding | Evaluation, *, title: str = ""
) -> alt.LayerChart | alt.HConcatChart:
    """The chart of a result: in a notebook it is shown, `plot(...).save("chart.png")` writes it. Extra [report].

    Parameters
    ----------
    result : rows of `nc.play` (cumulative regret by round), a model (its spectrum beside chance, and what held-out
        users gained), what `nc.check` found (every finding, or one of them: `found["coverage"]`), or what
        `nc.evaluate` found (gain by number of interactions, beside other predictors).
    title : a heading; by default one that says what is drawn.

    >>> import newcomer as nc
    >>> from newcomer.worlds import Synthetic
    >>> rows = nc.play({"Uniform": nc.Uniform()}, Synthetic(dim=5, seed=0), horizon=10, users=4, seed=0)
    >>> nc.plot(rows).to_dict()["width"]
    520
    """
    validate_instance(title, str, "title", kind=NewcomerError)
    from newcomer.charts.pictures import regret_chart, styled_picture

    if isinstance(result, pl.DataFrame) and set(ROWS) <= set(result.columns):
        few = result["policy"].n_unique() <= NAMED
        chart: Any = regret_chart(result, title=title or "Cumulative regret, by round", labelled=few)
    elif isinstance(result, Model):
        chart = _model(result, title)
    elif isinstance(result, Findings):
        chart = _findings(result, title)
    elif isinstance(result, Finding):
        chart = _finding(result, title)
    elif isinstance(result, Evaluation):
        chart = _evaluation(result, title)
    else:
        given = "a table with other columns" if isinstance(result, pl.DataFrame) else type(result).__name__
        todo = "pass rows of nc.play, a model, or what nc.check or nc.evaluate returned"
        raise NewcomerError(f"plot has no chart for {given}", todo=todo)
    styled: alt.LayerChart | alt.HConcatChart = styled_picture(chart, legend_size=120)
    return styled


def _model(model: Model, title: str) -> Any:
    """Eigenvalues beside what chance gives; where users were held out, what these gained by interactions."""
    import altair as alt

    subtitle = "black: the most that chance gives; square-root scale"
    head = alt.Title(title or "Spectrum of users' second moment", subtitle=subtitle)
    left = _spectrum(model).properties(title=head, width=300, height=240)
    facts = model.evidence.population
    steps = facts.heldout_gain.steps if facts is not None and facts.heldout_gain is not None else ()
    if not steps:
        return left
    frame = _step_rows({"gain": [(step.interactions, _gain(step)) for step in steps]})
    right = _by_interactions(frame, "gain in reward", {"gain": ORANGE}, zero=True)
    below = f"in a choice among {facts.heldout_gain.choices}; band: 95% interval"  # type: ignore[union-attr]
    head = alt.Title("Gain of held-out users over the population mean", subtitle=below)
    right = right.properties(title=head, width=300, height=240)
    return alt.hconcat(left, right, spacing=40).resolve_scale(color="independent")


def _gain(step: GainStep) -> Interval:
    return Interval(step.gain, step.error, step.low, step.high, step.people)


def _spectrum(model: Model) -> Any:
    """A bar for each leading eigenvalue, coloured where it is among the `rank` kept; a tick where chance ends.

    The scale is that of square roots, as in a terminal: how far users reach along a direction.
    """
    import altair as alt

    test = model.evidence.rank.moment if model.evidence.rank is not None else None
    values = list(test.spectrum if test is not None else model.spectrum.tolist())[:LEADING]
    kept = [f"kept (rank {model.rank})" if i < model.rank else "not kept" for i in range(len(values))]
    frame = pl.DataFrame({"number": range(1, len(values) + 1), "eigenvalue": values, "kept": kept})
    ticks = [number for number in range(1, len(values) + 1) if len(values) <= 10 or number == 1 or number % 5 == 0]
    x = alt.X("number:O", title="number of the eigenvalue", axis=alt.Axis(labelAngle=0, values=ticks))
    y = alt.Y("eigenvalue:Q", title="eigenvalue", scale=alt.Scale(type="sqrt"), axis=alt.Axis(tickCount=5))
    shades = alt.Scale(domain=list(dict.fromkeys(kept)), range=[BLUE, PALE] if model.rank else [PALE])
    colour = alt.Color("kept:N", title=None, scale=shades, legend=alt.Legend(orient="top-right"))
    layers = [alt.Chart(frame).mark_bar().encode(x, y, colour)]
    if test is not None:
        limits = frame.with_columns(pl.Series("eigenvalue", list(test.threshold)[: len(values)], dtype=pl.Float64))
        layers.append(alt.Chart(limits).mark_tick(color="black", thickness=2, width=11).encode(x, y))
    return alt.layer(*layers)


def _findings(found: Findings, title: str) -> Any:
    """A line for each finding: its verdict, and its effect in multiples of the effect that makes logs doubtful."""
    import altair as alt

    head = f"Logs: {found.verdict} ({found.users:,} users, {found.rows:,} rows)"
    table = [(one.name, one.verdict, _multiple(one), _measured(one)) for one in found]
    kinds = {"name": pl.String, "verdict": pl.String, "multiple": pl.Float64, "told": pl.String}
    frame = pl.DataFrame(table, schema=kinds, orient="row")
    names = alt.Axis(labelLimit=260, labelPadding=20, domain=False, ticks=False, grid=True)
    y = alt.Y("name:N", sort=None, title=None, axis=names)
    x = alt.X(
        "multiple:Q",
        title=[
            "effect, in multiples of the size that matters",
            f"(dashed: 1; more than {CAP:.0f} are drawn as {CAP:.0f})",
        ],
        scale=alt.Scale(domain=[0, CAP], nice=False),
        axis=alt.Axis(tickCount=4, grid=False),
    )
    shown = [verdict for verdict in VERDICTS if verdict in set(frame["verdict"])]
    scale = alt.Scale(domain=shown, range=[VERDICTS[verdict] for verdict in shown])
    colour = alt.Color("verdict:N", title=None, scale=scale, legend=alt.Legend(orient="top", offset=4))
    bars = alt.Chart(frame.filter(pl.col("multiple").is_not_null())).mark_bar(height=9)
    dots = alt.Chart(frame).mark_circle(size=110, opacity=1)
    words = alt.Chart(frame).mark_text(align="left", fontSize=11, color=INK, limit=440)
    limit = alt.Chart(pl.DataFrame({"multiple": [1.0]})).mark_rule(strokeDash=[4, 3], color=INK).encode(x)
    layers = [bars.encode(x, y, colour), limit, dots.encode(y, colour, x=alt.value(-10))]
    layers += [words.encode(y, x=alt.value(290), text="told:N")]
    return alt.layer(*layers).properties(title=title or head, width=280, height={"step": 22})


def _multiple(finding: Finding) -> float | None:
    """The effect over the one that makes logs doubtful (or broken, where nothing less does); None where none is."""
    matters = finding.doubtful or finding.broken
    return None if finding.effect is None or not matters else min(abs(finding.effect / matters), CAP)


def _measured(finding: Finding) -> str:
    """Effect in its own unit, and p-value."""
    effect = "" if finding.effect is None else f"{finding.effect:.3g} {finding.unit}".strip()
    sure = "" if finding.p_value is None else finding_chance(finding.p_value)
    return ", ".join(filter(None, [effect, sure]))


def _finding(finding: Finding, title: str) -> Any:
    """The picture behind one finding: points with the band that its caption explains."""
    import altair as alt

    picture = finding.picture
    if picture is None or not picture.y:
        raise NewcomerError(f"the finding '{finding.name}' has no chart", todo="finding.what says what was found")
    shade = VERDICTS.get(finding.verdict, BLUE)
    head = alt.Title(title or picture.title, subtitle=f"shaded: {picture.band}" if picture.band and picture.low else "")
    frame = _points(picture)
    across = (
        alt.X("label:N", sort=None, title=picture.x_label, axis=alt.Axis(labelAngle=-35, labelLimit=140))
        if picture.labels
        else alt.X("x:Q", title=picture.x_label, scale=alt.Scale(zero=False))
    )
    up = alt.Y("y:Q", title=picture.y_label, scale=alt.Scale(zero=picture.kind == "bars"))
    bars = picture.kind == "bars" or bool(picture.labels)
    base = alt.Chart(frame)
    layers = [base.mark_bar(color=shade).encode(across, up)] if bars else []
    if picture.low:
        band = base.mark_rule(strokeWidth=3, color=INK) if bars else base.mark_area(color=PALE, opacity=0.35)
        layers.append(band.encode(across, alt.Y("low:Q", title=picture.y_label), alt.Y2("high:Q")))
    if not bars:
        points = alt.OverlayMarkDef(color=shade) if len(frame) <= 40 else False
        layers.append(base.mark_line(point=points, color=shade).encode(across, up))
    return alt.layer(*layers).properties(title=head, width=460, height=260)


def _points(picture: Picture) -> pl.DataFrame:
    """The table behind a picture, thinned to what can be seen."""
    columns: dict[str, Sequence[Any]] = {"x": picture.x, "y": picture.y}
    if picture.low:
        columns |= {"low": picture.low, "high": picture.high}
    if picture.labels:
        columns |= {"label": picture.labels}
    frame = pl.DataFrame(columns, strict=False)
    return frame.gather_every(max(1, -(-len(frame) // 300)))


def _evaluation(found: Evaluation, title: str) -> Any:
    """What PriorUCB gains over three other rules, and the reward of every predictor's choice, by interactions."""
    import altair as alt

    if not found.headline:
        raise NewcomerError(
            "this evaluation could measure nothing that can be drawn", todo="print(evaluation) says why"
        )
    parts = [part for part in OVER if part != "empirical_arms" or found.repeats]
    gains = {OVER[part][0]: [(one.interactions, getattr(one, part)) for one in found.headline] for part in parts}
    known = {name: [step for step in steps if step[1] is not None] for name, steps in gains.items()}
    left = _by_interactions(_step_rows(known), "gain in reward", dict(OVER[part] for part in parts), zero=True)
    head = alt.Title(title or "Gain by PriorUCB over", subtitle=f"{found.judged:,} held-out users; band: 95% interval")
    rewards = _one_line_each(found)
    shades = predictor_colours(rewards)
    lines = _by_interactions(_step_rows(rewards), "reward of the choice", shades, band=("PriorUCB",))
    beside = alt.Title(
        f"Reward of one choice among {found.choices}, by predictor", subtitle="same users and candidates"
    )
    both = (left.properties(title=head, width=300, height=260), lines.properties(title=beside, width=300, height=260))
    return alt.hconcat(*both, spacing=40).resolve_scale(color="independent")


def _one_line_each(found: Evaluation) -> dict[str, list[tuple[int, Interval]]]:
    """Rewards by predictor; those that chose alike at every step are one line with all their names."""
    lines = {"PriorUCB": [(step.interactions, step.reward) for step in found.headline]}
    for step in found.curves:
        if step.predictor not in OWN:
            lines.setdefault(step.predictor, []).append((step.interactions, step.reward))
    twins: dict[tuple[tuple[int, float], ...], list[str]] = {}
    for name, steps in lines.items():
        twins.setdefault(tuple((t, one.value) for t, one in steps), []).append(name)
    return {" = ".join(names): lines[names[0]] for names in twins.values()}


def _step_rows(lines: Mapping[str, Sequence[tuple[int, Interval]]]) -> pl.DataFrame:
    """A row for each line and number of interactions: value and interval."""
    rows = [(name, t, one.value, one.low, one.high) for name, steps in lines.items() for t, one in steps]
    kinds = {"name": pl.String, "interactions": pl.Int64, "value": pl.Float64, "low": pl.Float64, "high": pl.Float64}
    return pl.DataFrame(rows, schema=kinds, orient="row")


def _by_interactions(
    frame: pl.DataFrame,
    y_title: str,
    shades: Mapping[str, str],
    *,
    zero: bool = False,
    band: Sequence[str] | None = None,
) -> Any:
    """Lines with 95% bands (of the names in `band`, or of all) against the number of interactions, evenly spaced."""
    import altair as alt

    x = alt.X("interactions:O", title="interactions with the newcomer", axis=alt.Axis(labelAngle=0))
    scale = alt.Scale(domain=list(shades), range=list(shades.values()))
    one = alt.Legend(orient="bottom", columns=2, offset=4) if len(shades) > 1 else None
    colour = alt.Color("name:N", title=None, scale=scale, legend=one)
    y = alt.Y("value:Q", title=y_title, scale=alt.Scale(zero=zero))
    shaded = frame.filter(pl.col("name").is_in(list(shades if band is None else band)))
    areas = [
        alt.Chart(rows).mark_area(color=shades[str(name)], opacity=0.15).encode(x, alt.Y("low:Q"), alt.Y2("high:Q"))
        for (name,), rows in shaded.group_by("name", maintain_order=True)
    ]
    rule = alt.Chart(pl.DataFrame({"value": [0.0]})).mark_rule(color=INK).encode(alt.Y("value:Q"))
    line = alt.Chart(frame).mark_line(point=True).encode(x, y, colour)
    return alt.layer(*areas, *([rule] if zero else []), line)

"""The sections on what users gain: the best for everybody, what personalising adds, policies, and more users.

The section on attributes of users: what they are worth, before the first interaction and after, and which matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

from newcomer.charts import palette
from newcomer.evaluation.predictors import AttributeStep
from newcomer.evaluation.results import (
    CurveStep,
    Evaluation,
    Interval,
    OffPolicyRow,
    PolicyRow,
    result_meanings,
    results_by_step,
)
from newcomer.evidence import BestAction, Everybody
from newcomer.gain.arm_gains import arm_gain_sentences
from newcomer.gain.verdict import verdict_worth
from newcomer.interval import interval_in_words as in_words
from newcomer.reporting.contents import ReportContents
from newcomer.reporting.markup import (
    Bar,
    Markup,
    SvgLine,
    bar_chart_markup,
    figure_markup,
    folded_markup,
    legend_markup,
    line_chart_markup,
    list_markup,
    markup_tag,
    name_markup,
    table_markup,
)
from newcomer.reporting.sections_logs import logs_section_numbers

OURS = ("posterior", "PriorUCB")  # drawn with intervals
CORE = ("posterior", "PopulationMean")  # by whose span the axis is chosen
LINES = 8  # predictors in one picture
SOME = 10  # a step is drawn if one user in so many has the rows for it
UNKNOWN = "not known"  # an average over fewer than two users
CURVES = (
    ("Reward of the first choice", "reward", "Reward of the candidate that each predictor puts first."),
    ("Pairs in the right order", "concordance", "Share of pairs of candidates in the right order; 0.5 is chance."),
)
DASHED = {"posterior without memory": (6, 3), "ridge": (2, 2)}
STEPS = ("after", "users", "reward", "over the population mean", "over per-action averages", "over a random row")


def users_everybody_section(contents: ReportContents) -> Markup:
    """The best actions by the population mean, by name, and what serving them to everybody would gain."""
    head, found = "What should everybody get?", contents.everybody
    if found is None:
        why = "These logs do not tell." if contents.model is not None else f"That is not known. {contents.why('fit')}"
        return _section("everybody", head, markup_tag("p", why))
    parts = [markup_tag("p", name_markup(verdict_worth(found), 600))]
    parts += (
        _best(found) if found.best else [markup_tag("p", "The logs name no actions: any candidates can be ranked so.")]
    )
    by = f"{found.gain.people:,} users were held out of the fit; 95% intervals."
    if found.by == "propensities":
        by = f"By propensities, from {found.effective or 0:,.0f} effective rows of held-out users."
    reason = found.why if found.by != "propensities" else ""
    parts += [markup_tag("p", f"{by} {reason}".strip(), given={"class": "small"})]
    if contents.broken:
        warning = "These logs are broken, and this was measured on them."
        return _section(
            "everybody",
            head,
            markup_tag("p", markup_tag("b", warning)),
            folded_markup("The numbers, which promise nothing", *parts),
        )
    return _section("everybody", head, *parts)


def _best(found: Everybody) -> list[Markup]:
    """The best actions: the estimated mean of each, beside what was logged."""
    rows = [
        [name_markup(one.name, 80), f"{one.mean:.4g}", _within(one, found.scale), f"{one.rows:,}", f"{one.users:,}"]
        for one in found.best
    ]
    caption = f"The best of {found.actions:,} actions by the population mean"
    pays = "typical reward" if found.scale == "typical" else "estimated mean"
    heads = ["action", pays, "95% interval", "rows", "users"]
    alike = "They do not differ beyond chance. " if found.alike else ""
    note = f"{alike}Means are estimated, shrunk towards the average; intervals allow for picking the best of many."
    if found.scale == "typical":
        note = f"{alike}A typical reward is the mean of log(1 + reward), taken back. {note.removeprefix(alike)}"
    if found.scale == "heavy tails":
        note = f"{alike}A few large rewards decide these means, so that no interval is given."
    return [table_markup(caption, heads, rows), markup_tag("p", note, given={"class": "small"})]


def _within(one: BestAction, scale: str) -> str:
    return "not given" if scale == "heavy tails" else f"{one.low:.4g} to {one.high:.4g}"


def user_sections(contents: ReportContents) -> list[Markup]:
    """All sections on the evaluation; one sentence where there is none.

    Over broken logs numbers are folded away, and no sentence says that they are good.
    """
    found = contents.evaluation
    decided = len(found.decision.sentences) if found and found.decision else 0  # they stand at the top of the page
    if found is None or found.look is None:
        why = found.sentences()[decided] if found else contents.why("evaluate")
        arms = _arms(found) if found else []
        return [
            _section("people", "What personalising adds", markup_tag("p", f"That could not be measured. {why}"), *arms)
        ]
    gained, compared, learned = _curves(found), _policies(found), _learning(found)
    if contents.broken:
        why = "These logs are broken, and so is what was measured on held-out users of them."
        inside = folded_markup("The numbers, which promise nothing", *gained, *compared, *learned)
        return [_section("people", "What personalising adds", markup_tag("p", markup_tag("b", why)), inside)]
    said = list_markup([name_markup(said, 600) for said in found.sentences()[decided:]])
    more = [_section("learning", "Would more users help?", *learned)] if learned else []
    return [
        _section("people", "What personalising adds", *gained, said),
        _section("policies", "Policies side by side", *compared),
        *more,
    ]


def _section(name: str, title: str, *parts: Markup) -> Markup:
    return markup_tag("section", markup_tag("h2", title), *parts, given={"id": name})


def _curves(found: Evaluation) -> list[Markup]:
    """The gain after so many interactions, and every predictor beside."""
    every = results_by_step(found.curves)
    by_step = _by_many(every)
    drawn = markup_tag("div", *(_curve(by_step, *what) for what in CURVES), given={"class": "pair"})
    rows = []
    for step in found.curves:
        cells = [_plain(one) for one in (step.reward, step.concordance, step.squared_error)]
        rows.append(
            [step.predictor, str(step.interactions), f"{step.people:,}", *cells, _user_section_gain(step.saved)]
        )
    heads = ["predictor", "interactions", "users", "reward", "right order", "squared error", "error saved"]
    few = f"Fewer than one user in {SOME} has the rows for the longest steps, which are in the tables alone."
    left_out = [markup_tag("p", few, given={"class": "small"})] if len(by_step) < len(every) else []
    table_below = logs_section_numbers("All numbers", "Predictors after so many interactions", heads, rows)
    return [_gain(found), drawn, *left_out, table_below]


def _by_many(by_step: Mapping[int, list[CurveStep]]) -> dict[int, list[CurveStep]]:
    """The steps that are drawn: those that a tenth of the users or more have the rows for; the others would stretch
    the axis by a few long histories, and stand in the table.
    """
    most = max((one.people for rows in by_step.values() for one in rows), default=0)
    return {step: rows for step, rows in by_step.items() if max(one.people for one in rows) * SOME >= most}


def _gain(found: Evaluation) -> Markup:
    """Reward over the three others, after each number of interactions."""
    named_arms = found.repeats
    heads = [head for head in STEPS if named_arms or "per-action" not in head]
    rows = []
    for step in found.headline:
        over = [step.population_mean, *([step.empirical_arms] if named_arms else []), step.logging]
        cells = [str(step.interactions), f"{step.people:,}", f"{step.reward.value:.4g}"]
        rows.append([*cells, *("" if one is None else _user_section_gain(one) for one in over)])
    return table_markup(f"One choice among {found.choices} by PriorUCB, with 95% intervals", heads, rows)


def _curve(by_step: Mapping[int, list[CurveStep]], title: str, part: str, caption: str) -> Markup:
    """One measure of all predictors against the number of interactions."""
    steps = list(by_step)
    names = list(dict.fromkeys(one.predictor for rows in by_step.values() for one in rows))[:LINES]
    colours = palette.predictor_colours(names)
    lines = []
    for name in names:
        own = [(i, one) for i, step in enumerate(steps) for one in by_step[step] if one.predictor == name]
        at = [(float(i), getattr(one, part)) for i, one in own]
        x, y = [place for place, _ in at], [value.value for _, value in at]
        band = [(value.low, value.high) for _, value in at] if name in OURS else []
        low, high = ([one[side] for one in band] for side in (0, 1))
        lines.append(SvgLine(name, x, y, colours[name], low, high, DASHED.get(name, ())))
    lines, twins = _user_section_lines_apart(lines)
    drawn, far = user_section_lines_near(lines)
    last = "; ".join(f"{line.name} {line.y[-1]:.3g}" for line in lines if line.y)
    ticks = [(float(i), str(step)) for i, step in enumerate(steps)]
    picture = line_chart_markup(
        title,
        f"At the last step: {last}.",
        drawn,
        x_label="interactions with the newcomer",
        y_label=title,
        x_ticks=ticks,
    )
    if twins:
        caption = f"{caption} {'; '.join(f'{name} is the same as {other}' for name, other in twins)}."
    if far:
        away = ", ".join(f"{line.name} ({line.y[0]:.3g} to {line.y[-1]:.3g})" for line in far)
        caption = f"{caption} Too far away to be drawn on this scale, from the first to the last step: {away}."
    return figure_markup(
        picture, caption, beside=[legend_markup([(line.name, line.colour, line.dashes) for line in drawn])]
    )


def _user_section_lines_apart(lines: Sequence[SvgLine]) -> tuple[list[SvgLine], list[tuple[str, str]]]:
    """The lines that differ from those before them, and (name, the name of the same line) of the others.

    >>> lines = [SvgLine(name, [0], [y], "") for name, y in (("a", 3.0), ("b", 2.0), ("c", 3.0))]
    >>> [line.name for line in _user_section_lines_apart(lines)[0]], _user_section_lines_apart(lines)[1]
    (['a', 'b'], [('c', 'a')])
    """
    found: dict[tuple[float, ...], SvgLine] = {}
    twins = []
    for line in lines:
        first = found.setdefault((*line.x, *line.y), line)
        if first is not line:
            twins.append((line.name, first.name))
    return list(found.values()), twins


def user_section_lines_near(lines: Sequence[SvgLine]) -> tuple[list[SvgLine], list[SvgLine]]:
    """The lines that are drawn, and those that would stretch the axis until the gain could not be seen.

    What matters is our own predictor with its interval, and the population mean: no other line may stand further from
    these than half of what they are apart.

    >>> heights = {"posterior": 3.0, "PopulationMean": 2.0, "ridge": 0.5}
    >>> lines = [SvgLine(name, [0], [y], "") for name, y in heights.items()]
    >>> [[line.name for line in part] for part in user_section_lines_near(lines)]
    [['posterior', 'PopulationMean'], ['ridge']]
    """
    core = [
        v for line in lines if line.name in CORE for part in (line.y, line.low, line.high) for v in part if isfinite(v)
    ]
    if not core:
        return list(lines), []
    low, high = min(core), max(core)
    room = (high - low) / 2 or abs(high) / 10
    inside = [all(low - room <= v <= high + room for v in line.y if isfinite(v)) for line in lines]
    both = [[line for line, there in zip(lines, inside, strict=True) if there == wanted] for wanted in (True, False)]
    return both[0], both[1]


def _policies(found: Evaluation) -> list[Markup]:
    """Policies from nothing: on users' own rows, by propensities, and in a simulation, called one."""
    parts = _arms(found)
    if found.replay:
        parts += [markup_tag("h3", "On users' own logged rows"), *_compared(found.replay, "Replay among own rows")]
    parts += [markup_tag("h3", "By propensities"), *_weighed(found)]
    if found.simulation:
        warning = "This is a simulation drawn from the fit, not users: it is right if the fit is."
        parts += [markup_tag("h3", "In a simulation"), markup_tag("p", markup_tag("b", warning))]
        parts += _compared(found.simulation, "Simulation, not users")
    names = {row.policy for row in found.replay} | {one.predictor for one in found.curves}
    meanings = [
        markup_tag("div", markup_tag("dt", name), markup_tag("dd", meaning))
        for name, meaning in result_meanings(sorted(names))
    ]
    return [*parts, folded_markup("What the names mean", markup_tag("dl", *meanings))]


def _arms(found: Evaluation) -> list[Markup]:
    """What each arm of the service paid its users, and what treated users got beyond it."""
    if not found.arms:
        return []
    heads = ["arm", "first interactions", "users", "reward a decision", "treated users over it"]
    rows = [
        [
            one.arm,
            str(one.interactions),
            f"{one.people:,}",
            _plain(one.reward),
            _user_section_gain(one.over) if one.over else "",
        ]
        for one in found.arms
    ]
    said = [markup_tag("p", one) for one in arm_gain_sentences(found.arms)]
    return [
        markup_tag("h3", "By arms of the service"),
        *said,
        logs_section_numbers("All numbers", "Rewards by arm", heads, rows),
    ]


def _compared(rows: Sequence[PolicyRow], title: str) -> list[Markup]:
    """A dot and an interval for each policy, over the population mean, after the most rounds that there are."""
    rounds = max(row.rounds for row in rows)
    last = sorted((row for row in rows if row.rounds == rounds), key=lambda row: -row.over_mean.value)
    colours = palette.palette_colours([row.policy for row in last])
    bars = [_dot(row.policy, row.over_mean, colours[row.policy]) for row in last]
    said = "; ".join(f"{row.policy} {_user_section_gain(row.over_mean)}" for row in last)
    label = "reward per round over the population mean"
    caption = f"{title}: {rounds} rounds from nothing, {last[0].people:,} users, 95% intervals."
    cells = [
        [row.policy, str(row.rounds), f"{row.people:,}", _plain(row.reward), _user_section_gain(row.over_mean)]
        for row in rows
    ]
    heads = ["policy", "rounds", "users", "reward per round", "over the population mean"]
    return [
        figure_markup(bar_chart_markup(title, said, bars, x_label=label), caption),
        logs_section_numbers("All numbers", title, heads, cells),
    ]


def _weighed(found: Evaluation) -> list[Markup]:
    """Values by inverse propensities, or why there are none."""
    said = [markup_tag("p", found.why_no_off_policy)] if found.why_no_off_policy else []
    if not found.off_policy:
        return said or [markup_tag("p", "No propensities are logged.")]
    heads = ["policy", "after", "doubly robust", "self-normalised", "over what was logged", "effective rows"]
    rows = [_off_policy(row) for row in found.off_policy]
    return [table_markup("Value of one decision, by propensities", heads, rows), *said]


def _off_policy(row: OffPolicyRow) -> list[str]:
    cells = [row.policy, str(row.interactions), _plain(row.doubly_robust), _plain(row.self_normalised)]
    return [*cells, _user_section_gain(row.over_logging), f"{row.effective:,.0f}"]


def _learning(found: Evaluation) -> list[Markup]:
    """Whether more logs would help."""
    steps = found.learning
    if len(steps) < 2:
        return []
    x, y = [float(i) for i in range(len(steps))], [step.gain.value for step in steps]
    line = SvgLine(
        "gain", x, y, palette.policy_colour("PriorUCB"), [s.gain.low for s in steps], [s.gain.high for s in steps]
    )
    ticks = [(float(i), f"{step.users:,}") for i, step in enumerate(steps)]
    said = "; ".join(f"{step.users:,} users {_user_section_gain(step.gain)}" for step in steps)
    title = "Gain by the number of users fitted to"
    label = "gain over the population mean"
    picture = line_chart_markup(title, said, [line], x_label="users", y_label=label, x_ticks=ticks, zero=True)
    after = f"{steps[-1].interactions} interaction{'s' * (steps[-1].interactions != 1)}"
    caption = f"Gain after {after} by the number of users fitted to; shaded: 95% intervals."
    return [figure_markup(picture, caption)]


def _dot(name: str, value: Interval, colour: str) -> Bar:
    text = f"{value.value:+.3g}" if isfinite(value.value) else UNKNOWN
    return Bar(name, value.value, colour, value.low, value.high, told=text)


def _user_section_gain(value: Interval) -> str:
    """A difference and its interval, where there are users enough for one."""
    if not isfinite(value.error):
        return UNKNOWN
    return in_words(value) if value.error else f"{value.value:+.3g}"


def _plain(value: Interval) -> str:
    return f"{value.value:.4g} ({value.low:.4g} to {value.high:.4g})" if isfinite(value.error) else UNKNOWN


TITLE = "What you know before the first interaction"
WITH, WITHOUT = ("with attributes", palette.ORANGE), ("without", palette.BLUE)


def user_attribute_sections(contents: ReportContents) -> list[Markup]:
    """What attributes are worth; nothing where the logs have none."""
    tried = contents.model.evidence.attributes if contents.model else ()
    if not tried:
        return []
    kept = sorted((one for one in tried if one.kept), key=lambda one: -one.explains)
    said = [name_markup(one.sentence, 300) for one in (*kept, *(one for one in tried if not one.kept))]
    parts = [list_markup(said)]
    steps = contents.evaluation.attributes if contents.evaluation else ()
    if steps and contents.broken:
        broken = "These logs are broken: what attributes are worth cannot be estimated from them."
        parts = [markup_tag("p", broken), *parts]
    elif steps:
        parts = [_picture(steps), _numbers(steps), *parts]
    elif not kept:
        parts = [markup_tag("p", "The fit is the one without them."), *parts]
    kept_where = (
        "The model keeps names, levels and averages of these attributes, and no value of any user. To leave one out, "
        "name the others in --attributes."
    )
    small = markup_tag("p", kept_where, given={"class": "small"})
    return [markup_tag("section", markup_tag("h2", TITLE), *parts, small,
                given={"id": "attributes"})]  # fmt: skip


def _numbers(steps: tuple[AttributeStep, ...]) -> Markup:
    """A row for each number of interactions."""
    heads = ["after", "users", "gain with attributes", "gain without", "attributes add", "over regression on them"]
    rows = [
        [str(one.interactions), f"{one.people:,}", in_words(one.gain), in_words(one.without), in_words(one.added),
         "" if one.over_regression is None else in_words(one.over_regression)]
        for one in steps
    ]  # fmt: skip
    return table_markup("Gain over the population mean in one choice, with 95% intervals", heads, rows)


def _picture(steps: tuple[AttributeStep, ...]) -> Markup:
    """Both gains against the number of interactions."""
    lines = []
    for (name, colour), part in ((WITH, "gain"), (WITHOUT, "without")):
        values = [getattr(one, part) for one in steps]
        x, y = [float(i) for i in range(len(steps))], [one.value for one in values]
        lines.append(SvgLine(name, x, y, colour, [one.low for one in values], [one.high for one in values]))
    ticks = [(float(i), str(one.interactions)) for i, one in enumerate(steps)]
    first = f"Before the first interaction {in_words(steps[0].gain)} with attributes."
    drawn = line_chart_markup(
        TITLE, first, lines, x_label="interactions with the newcomer", y_label="gain", x_ticks=ticks
    )
    caption = "Gain over the population mean in one choice, of users held out of the fit."
    return figure_markup(
        drawn, caption, beside=[legend_markup([(line.name, line.colour, line.dashes) for line in lines])]
    )

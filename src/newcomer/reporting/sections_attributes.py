"""The section on attributes of users: what they are worth, before the first interaction and after, and which matter."""

from __future__ import annotations

from newcomer.evaluation.attributes import AttributeStep
from newcomer.interval import shown
from newcomer.reporting.contents import ReportContents
from newcomer.reporting.html import Markup, listed, named, table, tag
from newcomer.reporting.svg import SvgLine, figure, legend, line_chart

TITLE = "What you know before the first interaction"
WITH, WITHOUT = ("with attributes", "#D55E00"), ("without", "#0072B2")


def attribute_sections(dossier: ReportContents) -> list[Markup]:
    """What attributes are worth; nothing where the logs have none."""
    tried = dossier.model.evidence.attributes if dossier.model else ()
    if not tried:
        return []
    kept = sorted((one for one in tried if one.kept), key=lambda one: -one.explains)
    said = [named(one.sentence, 300) for one in (*kept, *(one for one in tried if not one.kept))]
    parts = [listed(said)]
    steps = dossier.evaluation.attributes if dossier.evaluation else ()
    if steps and dossier.broken:
        parts = [tag("p", "These logs are broken: what attributes are worth cannot be told from them."), *parts]
    elif steps:
        parts = [_picture(steps), _numbers(steps), *parts]
    elif not kept:
        parts = [tag("p", "The fit is the one without them."), *parts]
    kept_where = (
        "The model keeps names, levels and averages of these attributes, and no value of any user. To leave one out, "
        "name the others in --attributes."
    )
    return [tag("section", tag("h2", TITLE), *parts, tag("p", kept_where, given={"class": "small"}),
                given={"id": "attributes"})]  # fmt: skip


def _numbers(steps: tuple[AttributeStep, ...]) -> Markup:
    """A row for each number of interactions."""
    heads = ["after", "users", "gain with attributes", "gain without", "attributes add", "over regression on them"]
    rows = [
        [str(one.interactions), f"{one.people:,}", shown(one.gain), shown(one.without), shown(one.added),
         "" if one.over_regression is None else shown(one.over_regression)]
        for one in steps
    ]  # fmt: skip
    return table("Gain over the population mean in one choice, with 95% intervals", heads, rows)


def _picture(steps: tuple[AttributeStep, ...]) -> Markup:
    """Both gains against the number of interactions."""
    lines = []
    for (name, colour), part in ((WITH, "gain"), (WITHOUT, "without")):
        values = [getattr(one, part) for one in steps]
        x, y = [float(i) for i in range(len(steps))], [one.value for one in values]
        lines.append(SvgLine(name, x, y, colour, [one.low for one in values], [one.high for one in values]))
    ticks = [(float(i), str(one.interactions)) for i, one in enumerate(steps)]
    first = f"Before the first interaction {shown(steps[0].gain)} with attributes."
    drawn = line_chart(TITLE, first, lines, x_label="interactions with the newcomer", y_label="gain", x_ticks=ticks)
    caption = "Gain over the population mean in one choice, of users held out of the fit."
    return figure(drawn, caption, beside=[legend([(line.name, line.colour, line.dashes) for line in lines])])

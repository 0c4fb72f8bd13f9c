"""The sections on the logs: what they are, and whether they can be trusted.

Every finding of `check` has its effect, the size that matters, and a picture: a p-value alone says how sure an effect
is, and not whether it is large enough to care about.
"""

from __future__ import annotations

from dataclasses import replace

from newcomer.charts.palette import BLUE, GREY
from newcomer.findings import Finding, Findings, Picture, Verdict, finding_chance
from newcomer.reporting.contents import ColumnsSeen, ReportContents, contents_as_sentence
from newcomer.reporting.markup import (
    Bar,
    Markup,
    SvgLine,
    bar_chart_markup,
    figure_markup,
    folded_markup,
    line_chart_markup,
    list_markup,
    markup_tag,
    name_markup,
    table_markup,
)

POINTS, BARS = 200, 24  # of a picture that are drawn


def logs_data_section(contents: ReportContents) -> Markup:
    """What was logged."""
    s = contents.summary
    columns = {"propensities": contents.seen.propensities, "candidates": contents.seen.candidates}
    beside = [word for word, there in columns.items() if there]
    beside += [f"arms ({', '.join(name_markup(arm, 20) for arm in contents.arms[:6])})"] if contents.arms else []
    facts = [
        (
            "Users",
            f"{s.users:,}" + (f"; {s.too_short:,} have a single row and show no preferences" if s.too_short else ""),
        ),
        ("Rows", f"{s.rows:,}, {s.rows / s.users:.3g} a user on average"),
        ("Actions", "not named; rows bring features" if contents.actions is None else f"{contents.actions:,}"),
        ("Features", f"{s.dim:,}"),
        (
            "Rewards" if s.reward_transform is None else "Log(1 + reward)",
            f"mean {s.mean_reward:.4g}, deviation {s.reward_deviation:.4g}",
        ),
        ("Also logged", ", ".join(beside) or "neither propensities nor candidates"),
    ]
    shown = [markup_tag("div", markup_tag("dt", name), markup_tag("dd", text)) for name, text in facts]
    notes = [list_markup([name_markup(note, 400) for note in contents.advice])] if contents.advice else []
    parts = [markup_tag("h2", "What was logged"), markup_tag("dl", *shown), *notes, _lengths(contents.seen)]
    return markup_tag("section", *parts, given={"id": "data"})


def _lengths(seen: ColumnsSeen) -> Markup:
    """How long histories are."""
    last = max((i for i, count in enumerate(seen.lengths.tolist()) if count), default=0)
    bars = [
        Bar(f"{2**i:,}" if i == 0 else f"{2**i:,} to {2 ** (i + 1) - 1:,}", float(count), BLUE, told=f"{count:,}")
        for i, count in enumerate(seen.lengths.tolist()[: last + 1])
    ]
    said = "; ".join(f"{bar.name} rows: {bar.told} users" for bar in bars)
    picture = bar_chart_markup("Users by the length of their history", said, bars, x_label="users")
    return folded_markup("How long histories are", figure_markup(picture, "Users by the number of their rows."))


def logs_checks_section(contents: ReportContents) -> Markup:
    """Whether the logs can be trusted: every finding, the worst first."""
    head = markup_tag("h2", "Can these logs be trusted?")
    found = contents.findings
    if found is None:
        return markup_tag(
            "section", head, markup_tag("p", f"That is not known. {contents.why('check')}"), given={"id": "checks"}
        )
    told = [markup_tag("p", " ".join(found.sentences[:1]), " ", _family(found))]
    order = sorted(found, key=lambda one: ("broken", "doubtful", "unknowable", "fine").index(one.verdict))
    wrong = [_finding(one) for one in order if one.verdict in ("broken", "doubtful")]
    hidden = [_finding(one) for one in order if one.verdict == "unknowable"]
    fine = [_finding(one) for one in order if one.verdict == "fine"]
    parts = [*told, *wrong]
    if hidden:
        parts += [folded_markup(f"What these logs cannot show: {_names(found, 'unknowable')}", *hidden)]
    if fine:
        parts += [folded_markup(f"{len(fine)} checks that found nothing wrong: {_names(found, 'fine')}", *fine)]
    return markup_tag("section", head, *parts, given={"id": "checks"})


def _names(found: Findings, verdict: Verdict) -> str:
    return ", ".join(one.name for one in found.of(verdict))


def _family(found: Findings) -> str:
    return (
        f"{len(found)} questions about {found.users:,} users and {found.rows:,} rows, {found.tested:,} users in the "
        f"tests; clean logs are called anything but fine in at most {found.level:.0%} of cases."
    )


def _finding(finding: Finding) -> Markup:
    """A question, its verdict, what was found, what to do, and the picture behind it."""
    chip = markup_tag("span", finding.verdict, given={"class": f"chip {finding.verdict}"})
    measured = [f"Effect: {finding.effect:.3g} {finding.unit}".strip()] if finding.effect is not None else []
    measured += [finding_chance(finding.p_value)] if finding.p_value is not None else []
    measured += [f"{finding_chance(finding.adjusted)} with all tests counted"] if finding.adjusted is not None else []
    parts = [markup_tag("h3", finding.name, " ", chip), markup_tag("p", finding.what)]
    parts += [markup_tag("p", "; ".join(measured) + ".", given={"class": "small"})] if measured else []
    parts += [markup_tag("p", markup_tag("b", "What to do: "), finding.advice)] if finding.verdict != "fine" else []
    if finding.picture is not None and len(finding.picture.y):
        parts += [folded_markup("The picture behind it", _logs_section_picture(finding.picture))]
    return markup_tag("article", *parts)


def _logs_section_picture(picture: Picture) -> Markup:
    """A finding's small table, drawn."""
    keep = slice(None, None, max(1, -(-len(picture.y) // POINTS)))
    x, y = picture.x[keep], picture.y[keep]
    low, high = picture.low[keep], picture.high[keep]
    said = f"{picture.y_label} against {picture.x_label}, from {min(y):.3g} to {max(y):.3g}"
    caption = contents_as_sentence(picture.title) + (
        f" Shaded, or ruled: {picture.band}." if picture.band and low else ""
    )
    if picture.kind == "bars" or picture.labels:
        labels = picture.labels[keep] or tuple(f"{value:.3g}" for value in x)
        bars = [Bar(label, value, BLUE, told=f"{value:.3g}") for label, value in zip(labels, y, strict=True)][:BARS]
        bars = [replace(bar, low=a, high=b) for bar, a, b in zip(bars, low, high, strict=False)] if low else bars
        return figure_markup(bar_chart_markup(picture.title, said, bars, x_label=picture.y_label), caption)
    shaded = [SvgLine("band", x, (), GREY, low, high)] if low else []
    lines = [*shaded, SvgLine(picture.y_label, x, y, BLUE)]
    return figure_markup(
        line_chart_markup(picture.title, said, lines, x_label=picture.x_label, y_label=picture.y_label), caption
    )


def logs_section_numbers(summary: str, caption: str, heads: list[str], rows: list[list[str]]) -> Markup:
    """The numbers behind a picture, shown when asked for."""
    return folded_markup(summary, table_markup(caption, heads, rows))

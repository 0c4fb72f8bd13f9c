"""The sections on what was learned: how many directions and why, what they mean, what rewards are made of, how sure.

What directions mean: the actions at both ends of each, by name.

Rewards differ between users by f_a . z with f_a = L^T phi_a, a row of F (A, k) for each action, and z ~ N(0, I). The
axes are turned so that they stand in the order of what they do: F = U S V^T, and column j of U S says how much the
expected reward of each action changes for a user one deviation along axis j. Axes have no front: the end with the
larger change stands first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from newcomer import evidence
from newcomer.arrays import Floats
from newcomer.charts.palette import BLUE, GREEN, GREY, ORANGE
from newcomer.errors import ModelError
from newcomer.evidence import RankTest, evidence_percents
from newcomer.model import Model
from newcomer.radius import KINDS
from newcomer.reporting.contents import ReportContents
from newcomer.reporting.markup import (
    Bar,
    Markup,
    SvgLine,
    bar_chart_markup,
    figure_markup,
    legend_markup,
    line_chart_markup,
    markup_tag,
    name_markup,
    share_chart_markup,
    table_markup,
)

LEADING = 20  # eigenvalues that are drawn
SHADES = {
    evidence.COMMON: GREEN,
    evidence.LEVEL: "#56B4E9",
    evidence.PREFERENCES: ORANGE,
    evidence.DIFFER: ORANGE,
    evidence.VERY: "#A6761D",
    evidence.NOISE: "#9AA3AE",
    evidence.EITHER: "#9AA3AE",
}
RADII = {
    "calibrated": "by fits to parts of the users",
    "bernstein": "the paper's, from the spread of the sums",
    "martingale": "the paper's, for users who depend on earlier ones",
    "hoeffding": "the paper's, from the range of the rewards alone",
}


def model_sections(contents: ReportContents) -> list[Markup]:
    """All sections on the model; one sentence where there is none."""
    model = contents.model
    if model is None:
        parts = [
            markup_tag("h2", "What users have in common"),
            markup_tag("p", f"Nothing could be learned. {contents.why('fit')}"),
        ]
        return [markup_tag("section", *parts, given={"id": "model"})]
    return [_spectrum(model, broken=contents.broken), _meaning(model), _parts(model), _radii(model)]


def _spectrum(model: Model, *, broken: bool) -> Markup:
    """The eigenvalues beside what chance gives, and the rank."""
    doubt = "These logs are broken: what was learned from them may come from how actions were chosen."
    warned = [markup_tag("p", markup_tag("b", doubt))] if broken else []
    head, test = (
        markup_tag("h2", "What users have in common"),
        model.evidence.rank.moment if model.evidence.rank else None,
    )
    facts = model.evidence.population
    differing = facts.directions if facts else model.factor.shape[1]
    if differing:
        beside = ", the population mean included" if model.rank > differing else ""
        text = (
            f"Users differ along {_directions(differing)}: the fewest with which held-out users are predicted as well "
            f"as with any. The model works in a subspace of {model.rank} of {model.dim:,} dimensions{beside}."
        )
    else:
        text = "No differences in preferences are detectable in these logs"
        hidden = model.evidence.logs.hiding if model.evidence.logs else ""
        text += f"; {hidden} may hide them." if hidden else ": users may differ by less than they show."
        text += " The model knows the population mean alone." if model.rank else ""
    picture = [] if test is None else [_scree(test, model.rank)]
    return markup_tag("section", head, *warned, markup_tag("p", text), *picture, given={"id": "model"})


def _scree(test: RankTest, rank: int) -> Markup:
    """Eigenvalues of SOLD's moment, the band of 95% of sign flips, and how many stand out."""
    count = min(LEADING, len(test.spectrum))
    x = [float(i + 1) for i in range(count)]
    low, high = test.null_low[:count], test.null_high[:count]
    lines = [SvgLine("chance", x, (), GREY, low, high), SvgLine("eigenvalues", x, test.spectrum[:count], BLUE)]
    title = "Spectrum of the second moment (population mean included), beside chance"
    ticks = [(place, f"{place:.0f}") for place in x if place == 1 or place % (1 if count <= 10 else 5) == 0]
    first = ", ".join(f"{value:.3g}" for value in test.spectrum[: min(5, count)])
    exceed = f"{test.rank} exceed{'s' * (test.rank == 1)} what chance gives"
    said = f"The first eigenvalues are {first}; {exceed}. "
    said += f"The population mean is in this spectrum, and in the {rank} dimension{'s' * (rank != 1)} of the model."
    label = "number of the eigenvalue"
    picture = line_chart_markup(title, said, lines, x_label=label, y_label="eigenvalue", x_ticks=ticks, zero=True)
    names = legend_markup([("eigenvalues of these logs", BLUE, ()), ("95% of what chance gives", GREY, ())])
    return figure_markup(
        picture,
        f"{said} Where nothing is shared, chance (random signs of users) makes one exceed it with probability "
        f"{test.level:.2g}.",
        beside=[names],
    )


def _meaning(model: Model) -> Markup:
    """Which actions are at the ends of each direction."""
    found = model_section_directions(model)
    if not found:
        nothing = markup_tag("p", "There are none to name.")
        return markup_tag("section", markup_tag("h2", "What the directions mean"), nothing, given={"id": "directions"})
    what = "action" if model.action_ids is not None else "feature"
    scale = _scale(model)
    intro = (
        f"Each bar says how much {scale} of one {what} changes for a user who is one standard deviation along the "
        f"direction; it changes by the opposite for a user as far the other way.{_doubling(model)}"
    )
    parts = [_direction(number, one, scale) for number, one in enumerate(found, start=1)]
    both = markup_tag("div", *parts, given={"class": "pair"})
    return markup_tag(
        "section",
        markup_tag("h2", "What the directions mean"),
        markup_tag("p", intro),
        both,
        given={"id": "directions"},
    )


def _scale(model: Model) -> str:
    """What a direction moves: rewards, or what is learned of them."""
    if model.reward_transform is not None:
        return "the expected log(1 + reward)"
    return "the log-odds of a reward of 1" if model.outcome == "binary" else "the expected reward"


def _doubling(model: Model) -> str:
    """What a bar is in the units of rewards, where it is not in them."""
    if model.reward_transform is not None:
        return " A change of +0.69 doubles 1 + reward."
    return " A change of +0.69 doubles the odds." if model.outcome == "binary" else ""


def _direction(number: int, one: Direction, scale: str) -> Markup:
    """Both ends of one direction, in changes of what it moves."""
    ends = [*one.front, *reversed(one.back)]
    bars = [Bar(name, value, ORANGE if value > 0 else BLUE, told=f"{value:+.2g}") for name, value in ends]
    front, back = (", ".join(name_markup(name, 40) for name, _ in end[:3]) for end in (one.front, one.back))
    said = f"One end: {front}. Other end: {back}."
    if one.level:
        said = f"A level: users at one end give higher rewards to nearly everything, most to {front}, least to {back}."
    title = f"Direction {number}"
    picture = bar_chart_markup(title, said, bars, x_label=f"change of {scale}")
    head = markup_tag("h3", f"{title}: {one.share:.0%} of how users differ")
    return markup_tag("article", head, figure_markup(picture, said))


def _parts(model: Model) -> Markup:
    """How much of the variance of rewards is what."""
    head, facts = markup_tag("h2", "What rewards are made of"), model.evidence.population
    if facts is None or facts.forecast.common + facts.forecast.personal + facts.forecast.noise_variance <= 0:
        return markup_tag("section", head, markup_tag("p", "This fit does not tell."), given={"id": "parts"})
    shares = facts.forecast.shares(model.persistence)
    bars = [Bar(name, share, SHADES[name]) for name, share in shares]
    learned = model.evidence.logs.learned if model.evidence.logs else "rewards"
    said = facts.forecast.parts(model.persistence, learned)
    names = legend_markup(
        [(f"{whole}% {bar.name}", bar.colour, ()) for whole, bar in zip(evidence_percents(shares), bars, strict=True)]
    )
    picture = share_chart_markup(f"Parts of the variance of {learned}", said, bars)
    caption = (
        f"{said} A ranking by the population mean serves the first part. A user's level moves all candidates alike and "
        "changes no choice. Personalising can gain preferences, and per-action effects where actions repeat. Noise "
        "cannot be predicted."
    )
    return markup_tag("section", head, figure_markup(picture, caption, beside=[names]), given={"id": "parts"})


def _radii(model: Model) -> Markup:
    """How far the subspace may be from the truth."""
    head = markup_tag("h2", "How sure the directions are")
    if model.rank == 0:
        return markup_tag(
            "section", head, markup_tag("p", "There are no directions to be sure of."), given={"id": "radii"}
        )
    rows = []
    for kind in ("calibrated", *KINDS):
        try:
            found = model.radius(kind)
        except ModelError:
            continue
        if kind == "calibrated" or found < 1:  # a bound of 1 says nothing
            rows.append([kind, f"{found:.3f}", RADII.get(kind, "")])
    if not rows:
        return markup_tag("section", head, markup_tag("p", "These logs are too few to say."), given={"id": "radii"})
    intro = (
        "With 95% confidence the subspace is no further from the true one than this: 0 is exact, 1 says nothing (sine "
        "of the largest angle). Policies use the calibrated radius, by fits to parts of the users; the paper's bounds "
        "hold with fewer assumptions."
    )
    shown = table_markup("Radius of the subspace, by kind", ["kind", "radius", "how"], rows)
    facts, draws = model.evidence.population, model.evidence.calibrated
    known = draws.sentence(facts.directions if facts else None) if draws else ""
    unsure = "; one unsure direction makes the radius of all of them large" * known.endswith(" is not")
    each = [markup_tag("p", f"{known}{unsure}.")] if known else []
    return markup_tag("section", head, markup_tag("p", intro), shown, *each, given={"id": "radii"})


def _directions(count: int) -> str:
    return f"{count} direction{'s' * (count != 1)}"


ENDS, DIRECTIONS = 5, 6  # actions at each end that are named; directions that are
LEVEL = 0.05  # share of the squares of a direction that may go the other way in a level


@dataclass(frozen=True)
class Direction:
    """One axis: its `share` of what users differ in, and (name, change of the expected reward) at both ends.

    `level` says that nearly all changes have one sign: users at one end give higher rewards to everything.
    """

    share: float
    front: tuple[tuple[str, float], ...]
    back: tuple[tuple[str, float], ...]
    level: bool


def model_section_directions(model: Model) -> tuple[Direction, ...]:
    """The directions along which users differ, those first that do most; none where nothing is shared.

    >>> factor = np.array([[1.0], [-2.0], [0.5]])
    >>> names = {"action_ids": ("a", "b", "c"), "one_hot": True}
    >>> (one,) = model_section_directions(Model(np.eye(3, 1), np.ones(3), np.zeros(3), factor, 1.0, **names))
    >>> [(name, round(change, 3)) for name, change in (one.front[0], one.back[0])]
    [('b', 2.0), ('a', -1.0)]
    """
    names, low = _loadings(model)
    if not low.size or not np.any(low):
        return ()
    left, sizes, _ = np.linalg.svd(low, full_matrices=False)
    shares = sizes**2 / (sizes**2).sum()
    axes = [(share, left[:, j] * sizes[j]) for j, share in enumerate(shares[:DIRECTIONS]) if share > 1e-6]
    return tuple(_ends_of(names, float(share), column) for share, column in axes)


def _loadings(model: Model) -> tuple[Sequence[str], Floats]:
    """Names and f (A, k) of the actions of the catalogue; of the features where there is none."""
    ids = model.action_names or model.action_ids
    facts = model.evidence.population
    factor = model.factor[:, : facts.directions] if facts else model.factor  # without weak directions
    if ids is not None and model.one_hot:
        return [*map(str, ids)], factor[:-1] + factor[-1] if model.intercept else factor
    if ids is not None and model.action_features is not None:
        return [*map(str, ids)], np.asarray(model.action_features @ factor)
    plain = factor[: model.dim - model.intercept]
    return model.feature_names or [f"feature {i}" for i in range(len(plain))], plain


def _ends_of(names: Sequence[str], share: float, column: Floats) -> Direction:
    """Both ends of a column, the one with the larger change in front."""
    column = -column if -column.min() > column.max() else column
    order = np.argsort(-column, kind="stable")
    count = min(ENDS, len(order) // 2 or 1)
    ends = [tuple((names[i], float(column[i])) for i in part) for part in (order[:count], order[::-1][:count])]
    return Direction(share, ends[0], ends[1] if len(order) > 1 else (), _one_sign(column))


def _one_sign(column: Floats) -> bool:
    """Whether nearly all changes have one sign: what goes the other way is less than a twentieth of the squares."""
    return bool((np.minimum(column, 0.0) ** 2).sum() <= LEVEL * (column**2).sum())

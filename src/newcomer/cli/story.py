"""The findings of a fit in the order in which a person asks: which logs, what is shared and why, how covered, how sure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from newcomer.cli.findings import Findings, RadiusFindings
from newcomer.cli.render import BLOCKS, Glyphs, count, facts, glyphs_for, number, scree, scree_legend
from newcomer.cli.screen import result


def tell(found: Findings, *, glyphs: Glyphs = BLOCKS) -> Iterator[RenderableType]:
    """The whole story, part by part."""
    yield facts([("Logs", logs_line(found)), ("Shared", rank_line(found)), ("By", method_line(found))])
    yield ""
    yield scree(found.evidence.eigenvalues, found.evidence.thresholds, rank=found.rank, glyphs=glyphs, total=found.dim)
    yield scree_legend(chance_line(found), glyphs)
    yield ""
    yield facts([("Coverage", coverage_line(found)), ("Error", error_part(found))])
    if found.forecast:
        yield facts([("Outlook" if i == 0 else "", sentence) for i, sentence in enumerate(found.forecast)])


def logs_line(found: Findings) -> str:
    """Users, rows and features, and who could not be used."""
    logs = found.logs
    plain = [count(logs.users, "user"), count(logs.rows, "row"), count(found.dim, "feature")]
    short = f"{count(logs.too_short, 'user')} with a single row left out" if logs.too_short else ""
    ties = f"{count(logs.ties, 'row')} at equal times, kept in file order" if logs.ties else ""
    return "; ".join(filter(None, [", ".join(plain), short, ties]))


def rank_line(found: Findings) -> str:
    """The rank and why."""
    shared = f"{count(found.rank, 'direction')} of {found.dim} (rank {found.rank})"
    if found.evidence.chosen != "auto":
        return f"{shared}, as asked{_contrast(found)}"
    if found.rank == 0:
        return "nothing: no direction stands out from chance (rank 0)"
    if found.estimator == "em":
        return f"{shared}, as many as help to predict held-out users{_contrast(found)}{_alike(found)}"
    return f"{shared}: {'it stands' if found.rank == 1 else 'they stand'} out from chance{_alike(found)}"


def _contrast(found: Findings) -> str:
    """What the test says about a rank that was asked for."""
    tested = found.evidence.stand_out
    if tested is None or tested == found.rank:
        return ""
    return f"; {tested or 'none'} {'stand' if tested > 1 else 'stands'} out from chance"


def _alike(found: Findings) -> str:
    """Users who are all alike share a mean and nothing personal."""
    return "; users do not differ detectably from one another" if found.evidence.differing == 0 else ""


def method_line(found: Findings) -> str:
    """Estimator and ridge."""
    if found.ridge.value is None:
        return f"{found.estimator} ({found.ridge.why})"
    return f"{found.estimator}, ridge {number(found.ridge.value)} ({found.ridge.why})"


def chance_line(found: Findings) -> str:
    """How the band of the plot was found."""
    return f"largest of {round(1 / found.evidence.level) - 1} sign flips" if found.evidence.level else ""


def coverage_line(found: Findings) -> str:
    """How well the logged actions reach the feature space."""
    unseen, weakest = found.coverage.uncovered, f"weakest direction {number(found.coverage.lambda_A)} (lambda_A)"
    if not unseen:
        return f"every direction seen; {weakest}"
    named = ", ".join(str(i) for i in found.coverage.uncovered_features)
    where = f" (mostly features {named})" if named else ""
    return f"{count(unseen, 'direction')} never seen, left out{where}; of the others the {weakest}"


def error_part(found: Findings) -> RenderableType:
    """How far the subspace may be from the true one, kind by kind."""
    if found.rank in (0, found.dim):
        return "none to speak of: " + ("no subspace" if found.rank == 0 else "the whole space")
    outer = Table.grid()
    outer.add_row(f"sine of the largest angle to the truth, at most, with probability {1 - found.delta:g}")
    if found.calibrated is not None:
        outer.add_row(f"calibrated, by fitting parts of the users apart: {number(found.calibrated)}; proved:")
    outer.add_row(radius_table(found.radius))
    outer.add_row(Text(verdict(found.radius), "yellow"))
    return outer


def radius_table(radii: Sequence[RadiusFindings]) -> Table:
    """A row for each kind of radius, a column for each form."""
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
        table.add_row(radius.kind, *(shown(*form) for form in forms))
    return table


def shown(value: float, raw: float) -> Text:
    """A radius, or, faintly, the raw bound of one that says nothing."""
    return Text(number(value)) if value < 1 else Text(number(raw), style="dim")


def verdict(radii: Sequence[RadiusFindings]) -> str:
    """What the bounds are worth, said plainly."""
    best = [min(radius.theorem, radius.identity) for radius in radii]
    if min(best) < 1:
        return "A bound of 1 or more is vacuous."
    return "All vacuous (1 or more): for this many users the theory promises nothing."


def show(found: Findings, *, saved: object = None) -> None:
    """Print the story on stdout, and where the model went."""
    console = result()
    for part in tell(found, glyphs=glyphs_for(console.encoding)):
        console.print(part)
    if saved:
        console.print(facts([("Saved", str(saved))]))

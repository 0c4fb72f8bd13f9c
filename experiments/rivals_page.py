"""The tables of docs/explanation/related-work.md, from experiments/results/rivals*.csv."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from experiments import markdown
from newcomer.paper.studies.people import AGAIN, LIMIT, ONCE, WAVERING

OURS = "PriorUCB"
NEEDS = {
    OURS: "logs",
    "PriorTS": "logs",
    "EmpiricalArms": "logs",
    "PopulationMean": "logs",
    "ALS, own answers": "logs",
    "ebmTS": "noise variance; every person's own estimate",
    "ebmUCB": "the same, and a width",
    "HierTS / AdaTS": "noise variance, task covariance, hyper-prior",
    "MetaTS": "the same",
    "dTS, linear": "noise variance; whole vectors of people",
    "pooled ridge, greedy": "noise variance",
    "pooled ridge, UCB": "noise variance, a width",
    "CLUB": "estimates of all people in all directions; two widths",
    "full covariance, greedy": "noise variance",
    LIMIT: "complete answers of the logged people",
}
NAMES = {"young": "Young People", "bfi": "bfi", "young 0/1": "Young People 0/1", "bfi 0/1": "bfi 0/1"}
OVERVIEW = (
    ("young", 60, WAVERING),
    ("young", 20, WAVERING),
    ("young", 60, ONCE),
    ("bfi", 20, WAVERING),
    ("young 0/1", 60, WAVERING),
    ("bfi 0/1", 20, WAVERING),
)
UNCERTAIN = {"newcomer": "posterior, and used to explore"}
FEW = (0, 1, 2, 5, 10, 20)
PEOPLE = {"movielens": "MovieLens-1M", "young": "Young People"}


def with_tables(page: str, results: Path) -> str:
    """The page with today's tables between its marks; those whose results are not there stay as they are."""
    makers: dict[str, tuple[str, Callable[[pl.DataFrame], str]]] = {
        "rivals": ("rivals.csv", overview),
        "all cases": ("rivals.csv", all_cases),
        "wins": ("rivals.csv", wins),
        "gaps": ("rivals-recommenders.csv", gaps),
        "few ratings": ("rivals-recommenders.csv", few_ratings),
        "recommenders": ("rivals-recommenders.csv", recommenders),
        "taxes": ("rivals-taxes.csv", taxes),
        "transformer": ("rivals-transformer.csv", transformer),
    }
    for mark, (name, make) in makers.items():
        begin, close = f"<!-- {mark}: written by experiments.write_pages -->", f"<!-- end of {mark} -->"
        if begin in page and (results / name).is_file():
            before, rest = page.split(begin, 1)
            told = make(pl.read_csv(results / name, infer_schema_length=None))
            page = f"{before}{begin}\n{told}\n{close}{rest.split(close, 1)[1]}"
    return page


def overview(found: pl.DataFrame) -> str:
    """Method by people: the ratio to PriorUCB's regret with its interval; then wins and losses, needs, cost."""
    head = ["regret / PriorUCB's", *(_title(*one) for one in OVERVIEW)]
    costs = ["", "regret / PriorUCB's, least to most", "clearly better, level, clearly worse"]
    costs += ["needs beside logs", "fit, s", "decision, µs"]
    rows, others = [], []
    for name in found["policy"].unique(maintain_order=True):
        own = found.filter(policy=name)
        better, worse = int((own["high"] < 1).sum()), int((own["low"] > 1).sum())
        count = "" if name == OURS else f"{better}, {len(own) - better - worse}, {worse}"
        large = own.filter(people="young", answers=60)
        cost = ["" if name == LIMIT else f"{large['fit_seconds'].mean():.2g}", f"{large['decision_us'].median():.0f}"]
        shown = f"**{name}**" if name == OURS else name
        rows.append([shown, *(_cell(own, *one) for one in OVERVIEW)])
        others.append([shown, "1" if name == OURS else _range(own), count, NEEDS.get(name, ""), *cost])
    tables = f"{markdown.table(head, rows)}\n\n{markdown.table(costs, others)}"
    return f"{tables}\n\n{found['units'].min()} splits of the people."


def all_cases(found: pl.DataFrame) -> str:
    """Every table and case."""
    names = [name for name in found["policy"].unique(maintain_order=True) if name != OURS]
    rows = []
    for people, answers, case in found.select("people", "answers", "case").unique(maintain_order=True).iter_rows():
        own = found.filter(people=people, answers=answers, case=case)
        ours = f"{own.filter(policy=OURS)['regret'].item():.2f}"
        cells = [_cell(own.filter(policy=name), people, answers, case) for name in names]
        rows.append([f"{NAMES[people]}, {answers} logged, {case}", ours, *cells])
    return markdown.table(["regret / PriorUCB's", "PriorUCB's regret", *names], rows)


def wins(found: pl.DataFrame) -> str:
    """Every case in which somebody is clearly better than PriorUCB, and what chance alone would give."""
    rivals = found.filter(~pl.col("policy").is_in([OURS, LIMIT]))
    better = rivals.filter(pl.col("high") < 1).sort("ratio")
    cases = rivals.select("people", "answers", "case").n_unique()
    told = [
        f"- {line['policy']}: {_title(line['people'], line['answers'], line['case'])},"
        f" {line['ratio']:.3f} ({line['low']:.3f} to {line['high']:.3f})"
        for line in better.iter_rows(named=True)
    ]
    worse = int((rivals["low"] > 1).sum())
    count = (
        f"Of {len(rivals)} comparisons ({rivals['policy'].n_unique()} methods, {cases} cases) {len(better)}"
        f" {'is' if len(better) == 1 else 'are'} clearly better than PriorUCB and {worse} clearly worse. If all were"
        f" level, about {0.025 * len(rivals):.0f} would be clearly better by chance."
    )
    return "\n".join([count, "", *told]) if told else count


def in_readme(results: Path) -> str:
    """How much more the methods with learned priors lose than PriorUCB, all cases."""
    found = pl.read_csv(results / "rivals.csv", infer_schema_length=None)
    named = {"ebmUCB": "ebmUCB", "HierTS / AdaTS": "HierTS", "dTS, linear": "diffusion TS", "CLUB": "CLUB"}
    told = [f"{short} {_range(found.filter(policy=name))}" for name, short in named.items()]
    cases = found.select("people", "answers", "case").n_unique()
    return (
        f"Points lost, divided by ours (below 1 is better), over {cases} settings of two surveys of real people: "
        f"{', '.join(told)}."
    )


def _range(own: pl.DataFrame) -> str:
    """The least and the largest ratio of a method."""
    return f"{own['ratio'].min():.2f} to {own['ratio'].max():.2f}"


def _title(people: str, answers: int, case: str) -> str:
    return f"{NAMES[people]}, {answers} logged, {case}"


def _cell(own: pl.DataFrame, people: str, answers: int, case: str) -> str:
    """A ratio with its interval, bold where the interval does not hold one."""
    line = own.filter(people=people, answers=answers, case=case).row(0, named=True)
    if line["policy"] == OURS:
        return "1"
    text = f"{line['ratio']:.2f} ({line['low']:.2f} to {line['high']:.2f})"
    return f"**{text}**" if line["high"] < 1 or line["low"] > 1 else text


def recommenders(found: pl.DataFrame) -> str:
    """Pairs ranked rightly by known ratings, the choice among ten after five, and when the item mean is beaten."""
    parts = []
    for (people,), own in found.group_by("people", maintain_order=True):
        title = f"{PEOPLE[str(people)]}, {own['newcomers'].max()} newcomers"
        head = [title, *(f"order, {count} known" for count in FEW), "choice after 5, over ours"]
        more = [title, "NDCG@10 after 5", "beats the item mean from", "taking a newcomer in", "uncertainty"]
        rows = [_recommender(lines) for _, lines in own.group_by("method", maintain_order=True)]
        parts.append(markdown.table(head, [row[: len(head)] for row in rows]))
        parts.append(markdown.table(more, [[row[0], *row[len(head) :]] for row in rows]))
    return "\n\n".join(parts)


def gaps(found: pl.DataFrame) -> str:
    """Order and choice among ten over ours, paired, with 95% intervals, for every number of known ratings."""
    parts = []
    for (people,), own in found.group_by("people", maintain_order=True):
        for name, measure in {"order": "order", "choice": "choice among ten", "ndcg": "NDCG@10"}.items():
            rows = []
            for (method,), lines in own.group_by("method", maintain_order=True):
                by = {line["known"]: line for line in lines.iter_rows(named=True)}
                apart = f"{name}_over_ours"
                if method == "newcomer":
                    rows.append([f"**{method}**", *(f"{by[one][name]:.3f}" for one in FEW)])
                    continue
                cells = [_gap(by[one][apart], by[one][f"{apart}_se"]) for one in FEW]
                rows.append([str(method), *cells])
            head = [f"{PEOPLE[str(people)]}, {measure} over ours", *(f"{count} known" for count in FEW)]
            parts.append(markdown.table(head, rows))
    return "\n\n".join(parts)


def few_ratings(found: pl.DataFrame) -> str:
    """From how many known ratings on each method ranks clearly better than item means, by people."""
    parts = []
    for (people,), own in found.group_by("people", maintain_order=True):
        since: dict[str, list[str]] = {}
        for (name,), lines in own.group_by("method", maintain_order=True):
            if name != "item mean":
                by = {line["known"]: line for line in lines.iter_rows(named=True)}
                since.setdefault(_from(by, FEW), []).append(_without_comma(str(name)))
        order = sorted(since, key=lambda one: (one == "never", int(one) if one.isdigit() else 0))
        told = "; ".join(f"{one if one == 'never' else f'from {one}'}: {', '.join(since[one])}" for one in order)
        parts.append(f"- {PEOPLE[str(people)]}: {told}.")
    return "\n".join(parts)


def _without_comma(name: str) -> str:
    """A name for a list: `implicit ALS (confidences)`."""
    head, _, way = name.partition(", ")
    return f"{head} ({way})" if way else head


def _recommender(lines: pl.DataFrame) -> list[str]:
    name = str(lines["method"][0])
    by = {line["known"]: line for line in lines.iter_rows(named=True)}
    five, last = by[5], by[20]
    apart = "" if name == "newcomer" else _gap(five["choice_over_ours"], five["choice_over_ours_se"])
    time = f"{1000 * last['seconds']:.2g} ms" if last["taken"] == "folded in" else f"a fit, {last['seconds']:.2g} s"
    return [
        f"**{name}**" if name == "newcomer" else name,
        *(f"{by[count]['order']:.3f}" for count in FEW),
        apart,
        f"{five['ndcg']:.3f}",
        _from(by, FEW),
        time,
        UNCERTAIN.get(name, "none"),
    ]


def _gap(mean: float, error: float) -> str:
    """A difference with its 95% interval.

    >>> _gap(-0.0001, 0.001)
    '0.000 ± 0.002'
    """
    return f"{round(mean, 3) or 0.0:+.3f} ± {1.96 * error:.3f}".replace("+0.000", "0.000")


def _from(by: dict[int, dict[str, float]], counts: Sequence[int]) -> str:
    """The fewest ratings from which on the order is clearly above the item mean's."""
    clear = [by[one]["order_over_mean"] > 2 * (by[one]["order_over_mean_se"] or 0.0) for one in counts]
    clear = [one and by[count]["order_over_mean"] > 0 for one, count in zip(clear, counts, strict=True)]
    for place, count in enumerate(counts):
        if all(clear[place:]):
            return str(count)
    return "never"


def taxes(found: pl.DataFrame) -> str:
    """The share of judged choices predicted, and the paired difference to ours."""
    counts = found["known"].unique().sort().to_list()
    head = [
        "choices predicted",
        *(f"{count} known" for count in counts),
        *(f"over ours, {one} known" for one in counts),
    ]
    rows = []
    for (name,), own in found.group_by("method", maintain_order=True):
        by = {line["known"]: line for line in own.iter_rows(named=True)}
        told = [markdown.number(by[one]["right"], by[one]["right_se"]) for one in counts]
        apart = [_gap(by[one]["over_ours"], by[one]["over_ours_se"]) for one in counts]
        ours = by[counts[0]]["over_ours_se"] == 0
        rows.append([str(name), *told, *([""] * len(apart) if ours else apart), f"{own['fit_seconds'].mean():.3g}"])
    return markdown.table([*head, "fit, s"], rows)


def transformer(found: pl.DataFrame) -> str:
    """Regret on one split, and the ratio to ours; intervals over newcomers."""
    head = ["regret, Young People", "20 logged, same again", "20, half redrawn", "60, same again", "60, half redrawn"]
    cells = [(answers, case) for answers in (20, 60) for case in (AGAIN, WAVERING)]
    rows = []
    for name in found["method"].unique(maintain_order=True):
        own = [found.filter(method=name, answers=answers, case=case).row(0, named=True) for answers, case in cells]
        told = [f"{one['regret']:.1f} ({one['over_ours']:+.1f} ± {1.96 * one['over_ours_se']:.1f})" for one in own]
        rows.append([name, *told])
    return markdown.table(head, rows)

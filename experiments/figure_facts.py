"""What the verdicts say of the figures, as comparisons with their tables, and the numbers that they quote.

For each figure one function of the folder of results gives `Facts`. Its `words` fill the braces of the verdict's text,
so that no number there is typed; its `claims` are the statements of the text, each of which must be true of the tables
(`tests/paper/test_verdicts.py` asks for all of them): results that are made anew and say something else fail there, and
the text has to change with them. Policies are compared newcomer by newcomer (`experiments.paired`): *ahead*, *behind*,
*better* and *worse* are clear by two standard errors of the difference, and *level* is what is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import polars as pl

from experiments.figure_numbers import RADII_AT, read_table
from experiments.markdown import number, short
from experiments.paired import Ends, Gap, Line
from newcomer.paper.lines import KINDS
from newcomer.paper.scale import BALANCED, FILMS, LEARNABLE, LITERAL, PRINTED, SIMULATIONS

IMPLIED = 48.0  # Delta_off of the remark that M-ProBALL with tau = 0.5 leaves at t = 70: 200 / (0.5 sqrt 70)
REMARKED = 70  # the round of that remark
PAPERS = 0.1  # the least tau of the paper
LINUCB, LINTS, MEAN, PRIOR = Line("LinUCB"), Line("LinTS"), Line("PopulationMean"), Line("PriorUCB")
TRUE = Line("LinUCB, true features")


@dataclass(frozen=True)
class Facts:
    """`words` for the braces of a verdict's text, and its `claims`: what must be true of the tables, by its words."""

    words: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, bool] = field(default_factory=dict)

    def __or__(self, other: Facts) -> Facts:
        return Facts({**self.words, **other.words}, {**self.claims, **other.claims})


def radii(results: Path) -> Facts:
    """Exits at the paper's tau, the martingale radius without B^2, and the order of the three radii."""
    films, simulated = Ends.of(results, "movielens-ucb-regret"), Ends.of(results, "simulation-ablation")
    found = read_table(results / "subspace-error.csv").filter(series="SOLD", users=RADII_AT)
    bare = {row["world"]: row["martingale"] / row["inverse_coverage"] ** 2 for row in found.iter_rows(named=True)}
    cells = [(ends, world) for ends, worlds in ((films, FILMS), (simulated, SIMULATIONS)) for world in worlds]
    panels = [(ends, world, tau) for ends, world in cells for tau in ends.taus(world)]
    claims = {
        "round 1 at the paper's tau": all(
            ends.left(world, line) == 1
            for ends, world in cells
            for line in ends.variants(world, "ProBALL-UCB")
            if line.tau is not None and line.tau >= PAPERS
        ),
        "far larger than 48": all(
            row["martingale"] > 10 * IMPLIED for row in found.iter_rows(named=True) if row["world"] in FILMS
        ),
        "B^2 does not explain it": bare[LITERAL] > 2 * IMPLIED and bare[BALANCED] < IMPLIED / 2,
        "the tighter, the later": all(
            _sorted(ends.left(world, Line(f"{x}-ProBALL-UCB", tau)) for x in "HEM") for ends, world, tau in panels
        ),
        "the tighter, the smaller the regret": all(
            tighter_is_better(ends, world, tau) for ends, world, tau in panels if world != PRINTED
        ),
    }
    return Facts({"bare_literal": short(bare[LITERAL]), "bare_balanced": short(bare[BALANCED])}, claims)


def _sorted(values: Iterator[float]) -> bool:
    found = list(values)
    return found == sorted(found)


def tighter_is_better(ends: Ends, world: str, tau: float, version: str = "ProBALL-UCB") -> bool:
    """Whether each radius is ahead of the next looser one, or leaves in the same round and so is the same."""
    lines = [Line(f"{letter}-{version}", tau) for letter in KINDS]
    return all(
        ends.left(world, tight) == ends.left(world, loose) or ends.ahead(world, tight, loose)
        for loose, tight in pairwise(lines)
    )


def population(results: Path) -> Facts:
    """PopulationMean and PriorUCB beside ProBALL in the subspace."""
    ends = Ends.of(results, "movielens-together")
    kept = {world: ends.kept(world, "ProBALL-UCB") for world in FILMS}
    literal, balanced = (ends.gap(world, kept[world], MEAN) for world in FILMS)
    saved = {world: 1.0 - ends.mean(world, PRIOR) / ends.mean(world, kept[world]) for world in FILMS}
    claims = {"literal: the mean is ahead": literal.more, "balanced: the mean is behind": balanced.less}
    for world in FILMS:
        claims[f"{world}: PriorUCB is far ahead of both"] = all(
            ends.ahead(world, PRIOR, line) and ends.mean(world, PRIOR) < 0.75 * ends.mean(world, line)
            for line in (MEAN, kept[world])
        )
        claims[f"{world}: half or more is taken away"] = saved[world] >= 0.5
    words = {"mean_literal": literal.words, "mean_balanced": balanced.words}
    return Facts(words | {"saved_literal": f"{saved[LITERAL]:.0%}", "saved_balanced": f"{saved[BALANCED]:.0%}"}, claims)


def main(results: Path) -> Facts:
    """The four panels."""
    frame = read_table(results / "main-newcomers.csv").select("panel", "policy", pl.col("^n[0-9]+$"))
    rows = {(int(panel[0]), policy): row for panel, policy, *row in frame.iter_rows()}

    def gap(panel: int, ours: str, other: str) -> Gap:
        return Gap.of(*(pl.Series(rows[panel, name]).to_numpy() for name in (ours, other)))

    far = {panel: sum(rows[panel, "M-ProBALL-UCB"]) < 0.6 * sum(rows[panel, "LinUCB"]) for panel in (1, 2)}
    near = gap(4, "M-ProBALL-UCB", "LinUCB, true features")
    claims = {
        "far below LinUCB": all(gap(p, "M-ProBALL-UCB", "LinUCB").less and far[p] for p in (1, 2)),
        "tighter is better": all(
            not gap(p, f"{tight}-ProBALL-UCB", f"{loose}-ProBALL-UCB").more
            for p in (1, 2)
            for loose, tight in pairwise(KINDS)
        )
        and all(gap(p, "M-ProBALL-UCB", "H-ProBALL-UCB").less for p in (1, 2)),
        "it comes to the true subspace": near.level,
        "with Hoeffding sets it nears LinUCB": all(
            abs(gap(p, "H-ProBALL-UCB", "LinUCB").mean) < 0.05 * sum(rows[p, "LinUCB"]) / 30 for p in (1, 2)
        ),
        "of the samplers it outperforms TS and mmTS": gap(3, "M-ProBALL-UCB", "LinTS").less
        and gap(3, "M-ProBALL-UCB", "mmTS").less,
        "and is level with MixTS and mTS": gap(3, "M-ProBALL-UCB", "MixTS").level
        and gap(3, "M-ProBALL-UCB", "mTS").level,
        "with Hoeffding sets it is behind MixTS and mTS": gap(3, "H-ProBALL-UCB", "MixTS").more
        and gap(3, "H-ProBALL-UCB", "mTS").more,
        "of the optimistic ones all but LinUCB on true features": all(
            gap(2, "M-ProBALL-UCB", name).less for name in ("LinUCB", "mUCB", "mmUCB")
        ),
        "it is behind EmpiricalArms": all(gap(p, "M-ProBALL-UCB", "EmpiricalArms").more for p in (2, 3)),
    }
    words = {"near": near.words, "mixts": gap(3, "M-ProBALL-UCB", "MixTS").signed}
    words["mts"] = gap(3, "M-ProBALL-UCB", "mTS").signed
    words["arms"] = gap(3, "M-ProBALL-UCB", "EmpiricalArms").words
    return Facts(words, claims) | radii(results)


def eigenvalues(results: Path) -> Facts:
    """What the test of the rank answers, the step after the 18th eigenvalue, and the tail."""
    frame = read_table(results / "eigenvalues.csv")
    own = {
        (row["world"], row["series"].split(",")[0], row["position"]): row["eigenvalue"]
        for row in frame.iter_rows(named=True)
    }
    first = {row["world"]: row for row in frame.filter(series="SOLD, from the logs", position=1).iter_rows(named=True)}
    truth, sold = "true second moment of users", "SOLD"
    claims = {
        "18 with balanced factors": first[BALANCED]["rank"] == 18
        and own[BALANCED, sold, 18] > 2 * own[BALANCED, sold, 19],
        "not with literal ones": first[LITERAL]["rank"] < 18 and own[LITERAL, sold, 18] < 1.2 * own[LITERAL, sold, 19],
        "only the first stands out": own[LITERAL, sold, 1] > 3 * own[LITERAL, sold, 2]
        and own[LITERAL, sold, 2] < 1.2 * own[LITERAL, sold, 3],
        "thousands of times smaller": 1000 * own[LITERAL, truth, 18] < own[LITERAL, sold, 19],
        "lifted, with a tail": all(
            own[w, sold, 1] > own[w, truth, 1] and own[w, sold, 19] > own[w, truth, 19] for w in FILMS
        ),
        "no step of the truth before 18": all(
            own[LITERAL, truth, i] < 4 * own[LITERAL, truth, i + 1] for i in range(2, 18)
        ),
    }
    words = {
        f"{name}_{kind}": str(first[world][column])
        for kind, world in (("balanced", BALANCED), ("literal", LITERAL))
        for name, column in (("rank", "rank"), ("differ", "rank_covariance"))
    }
    return Facts(words, claims)


def ablation(results: Path) -> Facts:
    """The simulation at both scales."""
    ends, kept = Ends.of(results, "simulation-ablation"), read_table(results / "kept.csv")
    row = kept.filter(pl.col("t") == pl.col("t").max(), world=PRINTED, policy="ProBALL-UCB").row(0, named=True)
    local = Line("LOCAL-UCB")
    best = ends.gap(LEARNABLE, local, ends.kept(LEARNABLE, "ProBALL-UCB"))
    claims = {
        "never worse at the learnable scale": all(
            ends.no_worse(LEARNABLE, line, LINUCB) for line in ends.variants(LEARNABLE, "ProBALL-UCB")
        ),
        "a subspace at chance can hurt": row["more"] > 2 * row["more_se"],
        "LOCAL-UCB is ahead of the best setting": best.less,
        "LOCAL-UCB is level with LinUCB where it is not known": ends.gap(PRINTED, local, LINUCB).level,
    }
    words = {"kept": number(row["more"], row["more_se"]), "newcomers": str(row["newcomers"]), "local": best.words}
    return Facts(words, claims) | radii(results)


def simulated_ts(results: Path) -> Facts:
    """Thompson samplers in the simulation."""
    ends, told = Ends.of(results, "simulation-ts"), [Line(name) for name in ("mTS", "mmTS", "MixTS")]
    kept, mixts = ends.kept(LEARNABLE, "ProBALL-UCB"), Line("MixTS")
    early = [
        line
        for line in ends.variants(LEARNABLE, "ProBALL-UCB")
        if line.policy[0] == "M" and ends.left(LEARNABLE, line) < 100
    ]
    claims = {
        "well below every sampler": all(
            ends.ahead(LEARNABLE, kept, line) and ends.mean(LEARNABLE, kept) < 0.5 * ends.mean(LEARNABLE, line)
            for line in (LINTS, *told)
        ),
        "MixTS is better where it leaves early": bool(early) and all(ends.ahead(LEARNABLE, mixts, x) for x in early),
        "as printed clusters are ahead of LinUCB and of every ProBALL": all(
            ends.ahead(PRINTED, line, other)
            for line in told
            for other in (LINUCB, *ends.variants(PRINTED, "ProBALL-UCB"))
        ),
        "not clearly of PopulationMean and PriorUCB": all(
            ends.gap(PRINTED, line, other).level for line in told for other in (MEAN, PRIOR)
        ),
    }
    words = {f"{line.policy.lower()}_mean": ends.gap(PRINTED, line, MEAN).signed for line in told}
    return Facts(words, claims)


def together(results: Path) -> Facts:
    """UCB and TS on MovieLens."""
    ends, claims = Ends.of(results, "movielens-together"), {}
    mixts, mmts = Line("MixTS"), Line("mmTS")
    kept = {world: ends.kept(world, "ProBALL-TS") for world in FILMS}
    for world in FILMS:
        claims[f"{world}: ahead of LinUCB and LinTS in the subspace"] = ends.ahead(
            world, ends.kept(world, "ProBALL-UCB"), LINUCB
        ) and ends.ahead(world, kept[world], LINTS)
    against = {world: ends.gap(world, kept[world], mixts) for world in FILMS}
    claims |= {
        "literal: behind MixTS and mmTS": against[LITERAL].more and ends.gap(LITERAL, kept[LITERAL], mmts).more,
        "balanced: level with MixTS, ahead of mmTS": against[BALANCED].level
        and ends.ahead(BALANCED, kept[BALANCED], mmts),
    }
    words = {"mixts_literal": against[LITERAL].words, "mixts_balanced": against[BALANCED].words}
    return Facts(words, claims) | population(results)


def ucb(results: Path) -> Facts:
    """Optimistic algorithms on MovieLens, and the exit of the paper's remark."""
    ends = Ends.of(results, "movielens-ucb-regret")
    lines = [Line("M-ProBALL-UCB", tau) for tau in ends.taus(BALANCED) if tau < PAPERS]
    near = min(lines, key=lambda line: abs(math.log(ends.left(BALANCED, line) / REMARKED)))
    kept = {world: ends.kept(world, "ProBALL-UCB") for world in FILMS}
    gaps = {(world, name): ends.gap(world, kept[world], Line(name)) for world in FILMS for name in ("mUCB", "mmUCB")}
    local = {world: ends.gap(world, Line("LOCAL-UCB"), LINUCB) for world in FILMS}
    claims = {
        "no worse than LinUCB": all(
            ends.no_worse(w, line, LINUCB) for w in FILMS for line in ends.variants(w, "ProBALL-UCB")
        ),
        "outside the subspace it is behind mUCB": all(
            ends.gap(w, Line("M-ProBALL-UCB", tau), Line("mUCB")).more for w in FILMS for tau in (0.5, PAPERS)
        ),
        "balanced: ahead of mUCB, mmUCB behind LinUCB": gaps[BALANCED, "mUCB"].less
        and ends.ahead(BALANCED, LINUCB, Line("mmUCB")),
        "literal: behind mUCB, level with mmUCB": gaps[LITERAL, "mUCB"].more and gaps[LITERAL, "mmUCB"].level,
        "an exit near round 70, and late learning": REMARKED / 2 < ends.left(BALANCED, near) < 2 * REMARKED
        and ends.ahead(BALANCED, kept[BALANCED], near),
        "LOCAL-UCB is level with LinUCB": all(gap.level for gap in local.values()),
    }
    words = {
        "exit_tau": f"{near.tau:g}",
        "exit_round": f"{ends.left(BALANCED, near):.0f}",
        "mucb_balanced": gaps[BALANCED, "mUCB"].words,
        "mucb_literal": gaps[LITERAL, "mUCB"].words,
        "mmucb_literal": gaps[LITERAL, "mmUCB"].words,
    }
    return Facts(words, claims) | radii(results) | population(results)


def ucb_rating(results: Path) -> Facts:
    """Ratings in the subspace beside LinUCB's and mUCB's, and the fall at the exit of the remark."""
    ends, tau = Ends.of(results, "movielens-ucb-rating", "reward"), float(ucb(results).words["exit_tau"])
    left = ends.left(BALANCED, Line("M-ProBALL-UCB", tau))
    own = ends.curves.filter(world=BALANCED, policy="M-ProBALL-UCB", tau=tau)
    before, after = (own.filter(t)["reward"] for t in (pl.col("t") <= left, pl.col("t") >= left + 25))
    falls = {"the rating falls at the exit": before[-1] > after[0]}
    return Facts(claims=falls) | _rated(ends, "ProBALL-UCB", "LinUCB") | _level_with_mucb(ends)


def _rated(ends: Ends, version: str, plain: str) -> Facts:
    """Who is better off in the subspace by regret is so by rating, and no variant is worse than the plain bandit."""
    claims = {f"{w}: rated higher in the subspace": ends.ahead(w, ends.kept(w, version), Line(plain)) for w in FILMS}
    claims |= {
        f"{w}: no variant rated lower": all(ends.no_worse(w, x, Line(plain)) for x in ends.variants(w, version))
        for w in FILMS
    }
    return Facts(claims=claims)


def _level_with_mucb(ends: Ends) -> Facts:
    """By rating ProBALL-UCB in the subspace is level with mUCB in both worlds, and ahead of mmUCB in one."""
    gaps = {(w, p): ends.gap(w, ends.kept(w, "ProBALL-UCB"), Line(p)) for w in FILMS for p in ("mUCB", "mmUCB")}
    claims = {
        "by rating level with mUCB": all(gaps[world, "mUCB"].level for world in FILMS),
        "by rating ahead of mmUCB with balanced factors": gaps[BALANCED, "mmUCB"].more and gaps[LITERAL, "mmUCB"].level,
    }
    words = {
        f"rated_{kind}": gaps[world, "mUCB"].signed for kind, world in (("literal", LITERAL), ("balanced", BALANCED))
    }
    return Facts(words, claims)


def ts(results: Path) -> Facts:
    """Samplers on MovieLens."""
    ends, both = Ends.of(results, "movielens-ts-regret"), Ends.of(results, "movielens-together")
    variants = [(w, line) for w in FILMS for line in ends.variants(w, "ProBALL-TS")]
    claims = {
        "no variant is worse than LinTS": all(ends.no_worse(w, line, LINTS) for w, line in variants),
        "in the subspace it is ahead of LinTS": all(ends.ahead(w, ends.kept(w, "ProBALL-TS"), LINTS) for w in FILMS),
        "none outperforms MixTS or mTS": not any(
            ends.ahead(w, line, Line(name)) for w, line in variants for name in ("MixTS", "mTS")
        ),
        "mmTS only with balanced factors": ends.ahead(BALANCED, ends.kept(BALANCED, "ProBALL-TS"), Line("mmTS"))
        and not any(ends.ahead(w, line, Line("mmTS")) for w, line in variants if w == LITERAL),
        "more regret than UCB": all(
            both.ahead(w, both.kept(w, "ProBALL-UCB"), both.kept(w, "ProBALL-TS")) for w in FILMS
        ),
    }
    return Facts(claims=claims)


def ts_rating(results: Path) -> Facts:
    """Ratings of the samplers."""
    ends = Ends.of(results, "movielens-ts-rating", "reward")
    variants = [(w, line) for w in FILMS for line in ends.variants(w, "ProBALL-TS")]
    kept = {world: ends.kept(world, "ProBALL-TS") for world in FILMS}
    claims = {
        "every variant is rated lower than MixTS and mTS": all(
            ends.ahead(w, Line(name), line) for w, line in variants for name in ("MixTS", "mTS")
        ),
        "literal: every variant is rated lower than mmTS": all(
            ends.ahead(w, Line("mmTS"), line) for w, line in variants if w == LITERAL
        ),
        "balanced: in the subspace it is rated higher than mmTS": ends.ahead(BALANCED, kept[BALANCED], Line("mmTS")),
    }
    words = {
        f"{name}_{kind}": ends.gap(world, kept[world], Line(policy)).words
        for kind, world in (("literal", LITERAL), ("balanced", BALANCED))
        for name, policy in (("lints", "LinTS"), ("mixts", "MixTS"), ("mmts", "mmTS"))
    }
    return _rated(ends, "ProBALL-TS", "LinTS") | Facts(words, claims)


def lowdim(results: Path) -> Facts:
    """SOLD's subspace against true features."""
    ends = Ends.of(results, "lowdim-regret")
    kept = {world: ends.kept(world, "ProBALL-UCB") for world in FILMS}
    gaps = {
        (kind, name): ends.gap(world, kept[world], Line(policy))
        for kind, world in (("literal", LITERAL), ("balanced", BALANCED))
        for name, policy in (("mucb", "mUCB"), ("mmucb", "mmUCB"), ("true", TRUE.policy))
    }
    claims = {
        "balanced: level with true features": gaps["balanced", "true"].level,
        "literal: better than true features": gaps["literal", "true"].less,
        "balanced: outperforms mUCB and mmUCB": gaps["balanced", "mucb"].less and gaps["balanced", "mmucb"].less,
        "literal: behind mUCB, level with mmUCB": gaps["literal", "mucb"].more and gaps["literal", "mmucb"].level,
    }
    words = {f"{name}_{kind}": gap.words for (kind, name), gap in gaps.items()}
    return Facts(words, claims) | population(results)


def lowdim_rating(results: Path) -> Facts:
    """Ratings beside true features: never below them."""
    ends = Ends.of(results, "lowdim-rating", "reward")
    level = all(ends.gap(world, ends.kept(world, "ProBALL-UCB"), TRUE).level for world in FILMS)
    return Facts(claims={"level with true features": level}) | _level_with_mucb(ends)


def truth(results: Path) -> Facts:
    """The true subspace beside SOLD's: the newcomers of both figures are the same."""
    ends, other = Ends.of(results, "truth-regret"), Ends.of(results, "lowdim-regret")
    kept = {world: ends.kept(world, "ProBALL-UCB") for world in FILMS}
    sold = {
        world: Gap.of(ends.each(world, kept[world]), other.each(world, other.kept(world, "ProBALL-UCB")))
        for world in FILMS
    }
    rivals = [Line("mUCB"), Line("mmUCB")]
    claims = {
        "no worse than LinUCB": all(
            ends.no_worse(w, line, LINUCB) for w in FILMS for line in ends.variants(w, "ProBALL-UCB")
        ),
        "balanced: no more than SOLD's": sold[BALANCED].level,
        "balanced: ahead of both": all(ends.ahead(BALANCED, kept[BALANCED], line) for line in rivals),
        "literal: worse than SOLD's and than both": sold[LITERAL].more
        and all(ends.ahead(LITERAL, line, kept[LITERAL]) for line in rivals),
    }
    return Facts({"truth_literal": sold[LITERAL].words, "truth_balanced": sold[BALANCED].words}, claims)


def truth_rating(results: Path) -> Facts:
    """Ratings with the true subspace."""
    ends = Ends.of(results, "truth-rating", "reward")
    return _rated(ends, "ProBALL-UCB", "LinUCB") | _level_with_mucb(ends)

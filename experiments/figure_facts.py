"""What the verdicts say of the figures, as comparisons with their tables, and the numbers that they quote.

For each figure one function of the folder of results gives `Facts`. Its `words` fill the braces of the verdict's text,
so that no number there is typed; its `claims` are the statements of the text, each of which must be true of the tables
(`tests/test_verdicts.py` asks for all of them): results that are made anew and say something else fail there, and the
text has to change with them. Two means are *level* if they are within two standard errors of their difference, taken
as independent, which for newcomers who are the same is too wide.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import polars as pl

from experiments.figure_numbers import RADII_AT, read_table
from experiments.markdown import number, short
from newcomer.experiments.lines import KINDS
from newcomer.experiments.scale import BALANCED, FILMS, LEARNABLE, LITERAL, PRINTED, SIMULATIONS

IMPLIED = 48.0  # Delta_off of the remark that M-ProBALL with tau = 0.5 leaves at t = 70: 200 / (0.5 sqrt 70)
REMARKED = 70  # the round of that remark
PAPERS = 0.1  # the least tau of the paper


@dataclass(frozen=True)
class Facts:
    """`words` for the braces of a verdict's text, and its `claims`: what must be true of the tables, by its words."""

    words: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, bool] = field(default_factory=dict)

    def __or__(self, other: Facts) -> Facts:
        return Facts({**self.words, **other.words}, {**self.claims, **other.claims})


@dataclass(frozen=True)
class Value:
    """A mean and its standard error."""

    mean: float
    error: float

    def level(self, other: Value) -> bool:
        """Whether the two are within two standard errors."""
        return abs(self.mean - other.mean) <= 2 * math.hypot(self.error, other.error)

    def below(self, other: Value) -> bool:
        """Whether this one is less by more than two standard errors."""
        return self.mean < other.mean and not self.level(other)

    def no_worse(self, other: Value) -> bool:
        """Whether this one is not clearly more."""
        return not other.below(self)


@dataclass(frozen=True)
class Ends:
    """The lines of a regret figure after its last round."""

    frame: pl.DataFrame
    value: str = "regret"

    @classmethod
    def of(cls, results: Path, name: str, value: str = "regret") -> Ends:
        """Of the table of this figure."""
        return cls(read_table(results / f"{name}.csv"), value)

    @cached_property
    def last(self) -> pl.DataFrame:
        """The rows of the last round of each world."""
        return self.frame.filter(pl.col("t") == pl.col("t").max().over("world"))

    def at(self, world: str, policy: str, tau: float | None = None) -> Value:
        """One line, in the panel of this tau or in all."""
        same = pl.col("tau").is_null() if tau is None else pl.col("tau") == tau
        row = self.last.filter((pl.col("world") == world) & (pl.col("policy") == policy) & same).row(0, named=True)
        return Value(row[self.value], row[f"{self.value}_se"])

    def left(self, world: str, policy: str, tau: float) -> float:
        """The round in which it leaves; infinite if it stays."""
        own = self.last.filter(world=world, policy=policy, tau=tau)["left_at"].item()
        return math.inf if own is None else float(own)

    def taus(self, world: str) -> list[float]:
        """From the largest to the smallest."""
        return self.last.filter(world=world)["tau"].drop_nulls().unique().sort(descending=True).to_list()

    def kept(self, world: str, policy: str) -> Value:
        """M-ProBALL at the smallest tau, which keeps everybody in the subspace."""
        return self.at(world, f"M-{policy}", self.taus(world)[-1])

    def variants(self, world: str, policy: str) -> Iterator[Value]:
        """ProBALL with every radius at every tau."""
        return (self.at(world, f"{letter}-{policy}", tau) for tau in self.taus(world) for letter in KINDS)


def radii(results: Path) -> Facts:
    """Exits at the paper's tau, the martingale radius without B^2, and the order of the three radii."""
    films, simulated = Ends.of(results, "movielens-ucb-regret"), Ends.of(results, "simulation-ablation")
    found = read_table(results / "subspace-error.csv").filter(series="SOLD", users=RADII_AT)
    bare = {row["world"]: row["martingale"] / row["inverse_coverage"] ** 2 for row in found.iter_rows(named=True)}
    cells = [(ends, world) for ends, worlds in ((films, FILMS), (simulated, SIMULATIONS)) for world in worlds]
    lines = [(ends, world, tau) for ends, world in cells for tau in ends.taus(world)]
    claims = {
        "round 1 at the paper's tau": all(
            ends.left(world, f"{letter}-ProBALL-UCB", tau) == 1
            for ends, world, tau in lines
            if tau >= PAPERS
            for letter in KINDS
        ),
        "far larger than 48": all(
            row["martingale"] > 10 * IMPLIED for row in found.iter_rows(named=True) if row["world"] in FILMS
        ),
        "B^2 does not explain it": bare[LITERAL] > 2 * IMPLIED and bare[BALANCED] < IMPLIED / 2,
        "the tighter, the later": all(
            _sorted(ends.left(world, f"{x}-ProBALL-UCB", tau) for x in "HEM") for ends, world, tau in lines
        ),
        "the tighter, the smaller the regret": all(
            _falling([ends.at(world, f"{x}-ProBALL-UCB", tau) for x in "HEM"])
            for ends, world, tau in lines
            if world != PRINTED
        ),
    }
    return Facts({"bare_literal": short(bare[LITERAL]), "bare_balanced": short(bare[BALANCED])}, claims)


def _sorted(values: Iterator[float]) -> bool:
    found = list(values)
    return found == sorted(found)


def _falling(values: list[Value]) -> bool:
    return all(b.mean <= a.mean + b.error for a, b in pairwise(values))


def population(results: Path) -> Facts:
    """PopulationMean and PriorUCB beside ProBALL in the subspace."""
    ends, claims = Ends.of(results, "movielens-ucb-regret"), {}
    for world in FILMS:
        mean, prior, kept = (
            ends.at(world, "PopulationMean"),
            ends.at(world, "PriorUCB"),
            ends.kept(world, "ProBALL-UCB"),
        )
        claims[f"{world}: the mean does as well or better"] = mean.no_worse(kept)
        claims[f"{world}: PriorUCB does far better than both"] = prior.mean < 0.75 * min(mean.mean, kept.mean)
    return Facts(claims=claims)


def main(results: Path) -> Facts:
    """The four panels."""
    frame = read_table(results / "main.csv").filter(pl.col("x") == pl.col("x").max().over("panel"))

    def at(panel: int, policy: str) -> Value:
        row = frame.filter(pl.col("panel").str.starts_with(f"{panel}."), policy=policy).row(0, named=True)
        return Value(row["regret"], row["regret_se"])

    claims = {
        "far below LinUCB": all(at(p, "M-ProBALL-UCB").mean < 0.6 * at(p, "LinUCB").mean for p in (1, 2)),
        "tighter is better": all(_falling([at(p, f"{x}-ProBALL-UCB") for x in "HEM"]) for p in (1, 2)),
        "it comes to the true subspace": at(4, "M-ProBALL-UCB").level(at(4, "LinUCB, true features")),
        "not all others": at(3, "M-ProBALL-TS").mean > min(at(3, name).mean for name in ("mTS", "MixTS")),
    }
    return Facts(claims=claims) | radii(results)


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
    plain, best = ends.at(LEARNABLE, "LinUCB"), ends.kept(LEARNABLE, "ProBALL-UCB")
    claims = {
        "never worse at the learnable scale": all(v.no_worse(plain) for v in ends.variants(LEARNABLE, "ProBALL-UCB")),
        "a subspace at chance can hurt": row["more"] > 2 * row["more_se"],
        "LOCAL-UCB does as well as the best or better": ends.at(LEARNABLE, "LOCAL-UCB").no_worse(best),
        "LOCAL-UCB does as LinUCB where it is not known": ends.at(PRINTED, "LOCAL-UCB").level(
            ends.at(PRINTED, "LinUCB")
        ),
    }
    words = {"kept": number(row["more"], row["more_se"]), "newcomers": str(row["newcomers"])}
    return Facts(words, claims) | radii(results)


def simulated_ts(results: Path) -> Facts:
    """Thompson samplers in the simulation."""
    ends, samplers = Ends.of(results, "simulation-ts"), ("LinTS", "mTS", "mmTS", "MixTS")
    kept, told = ends.kept(LEARNABLE, "ProBALL-UCB"), ("mTS", "mmTS", "MixTS")
    early = [tau for tau in ends.taus(LEARNABLE) if ends.left(LEARNABLE, "M-ProBALL-UCB", tau) < 100]
    inside = ends.kept(PRINTED, "ProBALL-UCB").mean
    claims = {
        "well below every sampler": all(kept.mean < 0.5 * ends.at(LEARNABLE, name).mean for name in samplers),
        "MixTS is better where it leaves early": all(
            ends.at(LEARNABLE, "MixTS").mean < ends.at(LEARNABLE, "M-ProBALL-UCB", tau).mean for tau in early
        ),
        "as printed clusters win": all(
            ends.at(PRINTED, name).mean < min(inside, ends.at(PRINTED, "LinUCB").mean) for name in told
        ),
    }
    return Facts(claims=claims)


def together(results: Path) -> Facts:
    """UCB and TS on MovieLens."""
    ends, claims = Ends.of(results, "movielens-together"), {}
    for world in FILMS:
        ucb, ts = ends.kept(world, "ProBALL-UCB"), ends.kept(world, "ProBALL-TS")
        claims[f"{world}: better than LinUCB and LinTS in the subspace"] = ucb.below(
            ends.at(world, "LinUCB")
        ) and ts.below(ends.at(world, "LinTS"))
        claims[f"{world}: not better than MixTS"] = ts.mean > ends.at(world, "MixTS").mean
    claims["nor than mmTS with literal factors"] = ends.kept(LITERAL, "ProBALL-TS").mean > ends.at(LITERAL, "mmTS").mean
    return Facts(claims=claims) | population(results)


def ucb(results: Path) -> Facts:
    """Optimistic algorithms on MovieLens, and the exit of the paper's remark."""
    ends = Ends.of(results, "movielens-ucb-regret")
    taus = [tau for tau in ends.taus(BALANCED) if tau < PAPERS]
    exits = {tau: ends.left(BALANCED, "M-ProBALL-UCB", tau) for tau in taus}
    near = min(taus, key=lambda tau: abs(math.log(exits[tau] / REMARKED)))
    kept = {world: ends.kept(world, "ProBALL-UCB") for world in FILMS}
    rivals = {world: [ends.at(world, name) for name in ("mUCB", "mmUCB")] for world in FILMS}
    local = [(ends.at(world, "LOCAL-UCB"), ends.at(world, "LinUCB")) for world in FILMS]
    claims = {
        "no worse than LinUCB": all(
            v.no_worse(ends.at(w, "LinUCB")) for w in FILMS for v in ends.variants(w, "ProBALL-UCB")
        ),
        "balanced: ahead of mUCB, mmUCB worst": kept[BALANCED].mean < rivals[BALANCED][0].mean
        and rivals[BALANCED][1].mean > ends.at(BALANCED, "LinUCB").mean,
        "literal: level": all(kept[LITERAL].level(rival) for rival in rivals[LITERAL]),
        "an exit near round 70, and late learning": REMARKED / 2 < exits[near] < 2 * REMARKED
        and kept[BALANCED].below(ends.at(BALANCED, "M-ProBALL-UCB", near)),
        "LOCAL-UCB is safe and gains little": all(0.85 * b.mean < a.mean <= b.mean + b.error for a, b in local),
    }
    words = {"exit_tau": f"{near:g}", "exit_round": f"{exits[near]:.0f}"}
    return Facts(words, claims) | radii(results) | population(results)


def ucb_rating(results: Path) -> Facts:
    """Ratings have the order of regrets, and fall at the exit of the remark."""
    ends, tau = Ends.of(results, "movielens-ucb-rating", "reward"), float(ucb(results).words["exit_tau"])
    left = ends.left(BALANCED, "M-ProBALL-UCB", tau)
    own = ends.frame.filter(world=BALANCED, policy="M-ProBALL-UCB", tau=tau)
    before, after = (own.filter(t)["reward"] for t in (pl.col("t") <= left, pl.col("t") >= left + 25))
    falls = {"the rating falls at the exit": before[-1] > after[0]}
    return Facts(claims=falls) | _same(ends, "ProBALL-UCB", "LinUCB")


def _same(ends: Ends, policy: str, plain: str) -> Facts:
    """Who is better off in the subspace by regret is so by rating."""
    return Facts(
        claims={f"{w}: rated higher in the subspace": ends.at(w, plain).below(ends.kept(w, policy)) for w in FILMS}
    )


def ts(results: Path) -> Facts:
    """Samplers on MovieLens."""
    ends, other = Ends.of(results, "movielens-ts-regret"), Ends.of(results, "movielens-ucb-regret")
    best = {world: min(v.mean for v in ends.variants(world, "ProBALL-TS")) for world in FILMS}
    claims = {
        "no variant is worse than LinTS": all(
            v.no_worse(ends.at(w, "LinTS")) for w in FILMS for v in ends.variants(w, "ProBALL-TS")
        ),
        "none outperforms MixTS or mTS": all(
            best[w] > ends.at(w, name).mean for w in FILMS for name in ("MixTS", "mTS")
        ),
        "mmTS only with balanced factors": best[BALANCED] < ends.at(BALANCED, "mmTS").mean
        and best[LITERAL] > ends.at(LITERAL, "mmTS").mean,
        "more regret than UCB": all(ends.kept(w, "ProBALL-TS").mean > other.kept(w, "ProBALL-UCB").mean for w in FILMS),
    }
    return Facts(claims=claims)


def ts_rating(results: Path) -> Facts:
    """Ratings of the samplers."""
    return _same(Ends.of(results, "movielens-ts-rating", "reward"), "ProBALL-TS", "LinTS")


def lowdim(results: Path) -> Facts:
    """SOLD's subspace against true features."""
    ends = Ends.of(results, "lowdim-regret")
    kept = {world: ends.kept(world, "ProBALL-UCB") for world in FILMS}
    true = {world: ends.at(world, "LinUCB, true features") for world in FILMS}
    claims = {
        "balanced: level with true features": kept[BALANCED].level(true[BALANCED]),
        "literal: better than true features": kept[LITERAL].below(true[LITERAL]),
        "ahead of mUCB or level": kept[BALANCED].mean < ends.at(BALANCED, "mUCB").mean
        and kept[LITERAL].level(ends.at(LITERAL, "mUCB")),
    }
    return Facts(claims=claims) | population(results)


def lowdim_rating(results: Path) -> Facts:
    """Ratings beside true features: never below them."""
    ends = Ends.of(results, "lowdim-rating", "reward")
    pairs = [(ends.kept(world, "ProBALL-UCB"), ends.at(world, "LinUCB, true features")) for world in FILMS]
    return Facts(claims={"rated no lower than true features": all(not a.below(b) for a, b in pairs)})


def truth(results: Path) -> Facts:
    """The true subspace beside SOLD's."""
    ends, other = Ends.of(results, "truth-regret"), Ends.of(results, "movielens-ucb-regret")
    kept = {world: ends.kept(world, "ProBALL-UCB") for world in FILMS}
    sold = {world: other.kept(world, "ProBALL-UCB") for world in FILMS}
    claims = {
        "no worse than LinUCB": all(
            v.no_worse(ends.at(w, "LinUCB")) for w in FILMS for v in ends.variants(w, "ProBALL-UCB")
        ),
        "balanced: no more than SOLD's": kept[BALANCED].level(sold[BALANCED]),
        "balanced: ahead of both": all(
            kept[BALANCED].mean < ends.at(BALANCED, name).mean for name in ("mUCB", "mmUCB")
        ),
        "literal: worse than SOLD's and than mUCB": kept[LITERAL].mean
        > max(sold[LITERAL].mean, ends.at(LITERAL, "mUCB").mean),
    }
    return Facts(claims=claims)


def truth_rating(results: Path) -> Facts:
    """Ratings with the true subspace."""
    return _same(Ends.of(results, "truth-rating", "reward"), "ProBALL-UCB", "LinUCB")

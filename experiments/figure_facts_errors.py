"""Facts (`experiments.figure_facts`) of the figures that are not curves of regret, and of the readings."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import polars as pl

from experiments.figure_facts import REMARKED, Facts, eigenvalues
from experiments.figure_numbers import read_table
from experiments.markdown import number, short
from experiments.paired import Ends, Gap, Line
from newcomer.paper.figures import readings
from newcomer.paper.figures.insufficiency import ISOTROPIC
from newcomer.paper.lines import KINDS
from newcomer.paper.scale import BALANCED, FILMS, LEARNABLE, LITERAL, PRINTED, REPLAY

PCAS = ("PCA of raw rewards", "PCA of single estimates")
BARE = "M_N without correction"


def chance(dim: int, rank: int) -> float:
    """The Frobenius distance of a random subspace, in the root of the mean square.

    >>> round(chance(200, 18), 2)
    5.72
    """
    return math.sqrt(2 * (rank - rank**2 / dim))


def subspace_error(results: Path) -> Facts:
    """Rates, chance, and how much of the radii is B^2."""
    frame = read_table(results / "subspace-error.csv").filter(series="SOLD")
    error = {(world, users): value for world, users, value in frame.select("world", "users", "error").iter_rows()}
    squares = [b**2 for b in frame["inverse_coverage"].unique()]
    steps = {world: error[world, 2000] / error[world, 20_000] for world in (LEARNABLE, BALANCED)}
    lost = {LITERAL: chance(200, 18), PRINTED: chance(50, 2)}
    claims = {
        "at the rate from 2,000 users on": all(0.8 < step / math.sqrt(10) < 1.25 for step in steps.values()),
        "as printed: at chance": all(
            abs(value / lost[PRINTED] - 1) < 0.02 for (world, _), value in error.items() if world == PRINTED
        ),
        "literal: at chance or slightly worse": all(
            0 < value / lost[LITERAL] - 1 < 0.02 for (world, _), value in error.items() if world == LITERAL
        ),
        "literal: one strong direction is found": eigenvalues(results).claims["only the first stands out"],
        "B^2 is two to four orders of magnitude": 10**1.5 < min(squares) and max(squares) < 10**4.5,
    }
    words = {}
    for kind, world in (("literal", LITERAL), ("printed", PRINTED)):
        own = [value for (name, _), value in error.items() if name == world]
        words[f"worst_{kind}"] = f"{min(own):.2f} to {max(own):.2f}"
        words[f"chance_{kind}"] = f"{lost[world]:.2f}"
    return Facts(words, claims)


def _sizes(results: Path, name: str, version: str, plain: str) -> tuple[list[int], dict[tuple[str, str, int], Gap]]:
    """Numbers of users, and what ProBALL with each radius at the smallest tau has more than on true features."""
    ends = Ends.of(results, name)
    users = sorted(set(ends.newcomers["users"]))
    gaps = {}
    for world in FILMS:
        for n in users:
            true = Line(f"{plain}, true features", None, n)
            kept = ends.kept(world, version, n)
            for letter in KINDS:
                gaps[world, letter, n] = ends.gap(world, replace(kept, policy=f"{letter}-{version}"), true)
    return users, gaps


def _away(users: list[int], gaps: dict[tuple[str, str, int], Gap]) -> dict[str, str]:
    """How far from the line of the true features ProBALL is with literal factors, with few users and with many."""
    few, most = users[0], users[-1]
    near, far = gaps[LITERAL, "M", few].signed, gaps[LITERAL, "M", most].signed
    return {"few": f"{few:,}", "most": f"{most:,}", "away_few": near, "away_most": far}


def sizes_ucb(results: Path) -> Facts:
    """Regret against N, optimistic."""
    users, gaps = _sizes(results, "regret-vs-n-ucb", "ProBALL-UCB", "LinUCB")
    ends = Ends.of(results, "regret-vs-n-ucb")
    line = ends.mean(BALANCED, Line("LinUCB, true features", None, users[-1]))
    near = {x: next(n for n in users if gaps[BALANCED, x, n].mean < 0.1 * line) for x in KINDS}
    better = [gaps[LITERAL, "M", n].less for n in users]
    first = next(n for i, n in enumerate(users) if all(better[i:]))
    late = [gaps[BALANCED, "M", n] for n in users if n >= 1000]
    claims = {
        "E and M first, then H": near["M"] == near["E"] < near["H"] <= users[-1],
        "the subspace costs less and less": all(a.mean > b.mean for a, b in pairwise(late)),
        "clear at 1,000 and 2,000, not at 5,000": [gap.more for gap in late] == [True, True, False],
        "literal: better than the true one, and away from it": first < users[-1]
        and gaps[LITERAL, "M", users[-1]].mean < gaps[LITERAL, "M", users[0]].mean
        and gaps[LITERAL, "M", users[-1]].less,
    }
    words = _away(users, gaps) | {f"costs_{n}": gaps[BALANCED, "M", n].words for n in (1000, 2000, 5000)}
    kept = {n: ends.kept(BALANCED, "ProBALL-UCB", n) for n in users}
    mean = {n: ends.gap(BALANCED, kept[n], Line("PopulationMean", None, n)) for n in users}
    claims["balanced: the mean is ahead with few users, behind with many"] = (
        mean[250].more and mean[500].more and mean[users[-1]].less
    )
    claims["with 500 users it leaves"] = ends.left(BALANCED, kept[500]) < 200
    words |= {f"mean_{n}": gap.signed for n, gap in mean.items()}
    return Facts({"better_from": f"{first:,}", **words}, claims)


def sizes_ts(results: Path) -> Facts:
    """Regret against N, samplers."""
    users, gaps = _sizes(results, "regret-vs-n-ts", "ProBALL-TS", "LinTS")
    ends, last = Ends.of(results, "regret-vs-n-ts"), users[-1]
    mean, true = Line("PopulationMean", None, last), Line("LinTS, true features", None, last)
    late = [gaps[BALANCED, "M", n] for n in users if n >= 1000]
    few = ends.gap(BALANCED, replace(mean, users=users[0]), replace(true, users=users[0]))
    late_from = [n for n in users if ends.ahead(BALANCED, replace(mean, users=n), replace(true, users=n))]
    claims = {
        "balanced: nearer and nearer, and still above": all(a.mean > b.mean for a, b in pairwise(late))
        and late[-1].more,
        "literal: below, and away from it": gaps[LITERAL, "M", last].less
        and gaps[LITERAL, "M", last].mean < gaps[LITERAL, "M", users[0]].mean,
        "the mean is ahead of ProBALL at every size, and of the true features": all(
            ends.ahead(world, replace(mean, users=n), replace(ends.kept(world, "ProBALL-TS"), users=n))
            and (ends.ahead(world, replace(mean, users=n), replace(true, users=n)) or world == BALANCED)
            for world in FILMS
            for n in users
        ),
        "but not of these from the beginning": few.level and bool(late_from) and late_from == users[1:],
    }
    share = late[-1].mean / ends.mean(BALANCED, true)
    words = {f"costs_{n}": gaps[BALANCED, "M", n].words for n in (1000, 2000, 5000)}
    words |= {"mean_from": f"{late_from[0]:,}", "mean_few": few.signed} | _away(users, gaps)
    return Facts({"share": f"{share:.0%}", **words}, claims)


def geometry(results: Path) -> Facts:
    """Where the ellipse is in the ball, and the true vector in both sets."""
    frame = read_table(results / "geometry.csv")
    times = frame["time"].unique(maintain_order=True).to_list()
    shown = [time for time in times if time.startswith("LOCAL")]
    point = frame.filter(set="true beta").select("x", "y").row(0)
    inside = [
        [
            _within(point, frame.filter(time=time, set=name).sort("order").select("x", "y").rows())
            for name in ("online set (LinUCB)", "offline set")
        ]
        for time in shown
    ]
    ends = [time.rsplit(" ", 1)[-1] for time in times if time.startswith("ProBALL")]
    claims = {
        "stay, stay, leave": ends == ["stay", "stay", "leave"],
        "the truth is in both but for the offline set after 3": inside == [[True, False], [True, True], [True, True]],
    }
    return Facts(claims=claims)


def _within(point: tuple[float, float], outline: list[tuple[float, float]]) -> bool:
    """Whether a point is inside a closed outline, by the parity of the edges that a ray crosses."""
    x, y = point
    odd = False
    for (x1, y1), (x2, y2) in zip(outline, [*outline[1:], outline[0]], strict=True):
        if (y1 > y) != (y2 > y) and x < x1 + (y - y1) * (x2 - x1) / (y2 - y1):
            odd = not odd
    return odd


def insufficiency(results: Path) -> Facts:
    """Five estimators on the same logs."""
    frame = read_table(results / "insufficiency.csv")
    columns = frame.select("world", "estimator", "users", "error").iter_rows()
    error = {(world, estimator, users): value for world, estimator, users, value in columns}
    last, biased = 5000, (*PCAS, BARE)
    worlds = (BALANCED, LITERAL, ISOTROPIC)
    own = {(world, name): error[world, name, last] for world in worlds for name in (*biased, "PMF", "SOLD")}
    claims = {
        "M_N is hardly better than PCA": all(own[w, BARE] > 0.9 * own[w, PCAS[1]] for w in worlds),
        "they hardly fall": all(own[w, name] > 0.8 * error[w, name, 1000] for w in worlds for name in biased),
        "PCA of single estimates falls with every step, that of raw rewards with literal factors": all(
            error[world, name, more] < error[world, name, less]
            for world, name in (*((w, PCAS[1]) for w in worlds), (LITERAL, PCAS[0]))
            for less, more in pairwise((250, 500, 1000, 2000, 5000))
        ),
        "SOLD goes on": own[ISOTROPIC, "SOLD"] < 0.6 * error[ISOTROPIC, "SOLD", 1000],
        "PMF is better on isotropic items": own[ISOTROPIC, "PMF"] < own[ISOTROPIC, "SOLD"],
        "and worse on balanced factors": own[BALANCED, "PMF"] > own[BALANCED, "SOLD"],
        "literal: SOLD at chance, PMF hardly better": own[LITERAL, "SOLD"] > chance(200, 18) > own[LITERAL, "PMF"]
        and own[LITERAL, "PMF"] > 0.95 * chance(200, 18),
        "isotropic: M_N falls slowly": 0.8 * error[ISOTROPIC, BARE, 1000] < own[ISOTROPIC, BARE]
        and own[ISOTROPIC, BARE] < error[ISOTROPIC, BARE, 2000] < error[ISOTROPIC, BARE, 1000],
        "literal: the biased ones are closer": all(own[LITERAL, name] < own[LITERAL, "SOLD"] for name in biased),
    }
    words = {
        "bare_balanced": short(own[BALANCED, BARE]),
        "sold_balanced": short(own[BALANCED, "SOLD"]),
        "bare_isotropic": short(own[ISOTROPIC, BARE]),
        "bare_fall": f"{1 - own[ISOTROPIC, BARE] / error[ISOTROPIC, BARE, 1000]:.0%}",
        "pmf_literal": f"{own[LITERAL, 'PMF']:.2f}",
        "chance": f"{chance(200, 18):.2f}",
    }
    for kind, world in (("balanced", BALANCED), ("literal", LITERAL), ("isotropic", ISOTROPIC)):
        words[f"pca_{kind}"] = f"{max(1 - own[world, name] / error[world, name, 1000] for name in PCAS):.1%}"
    return Facts(words, claims)


def seeking(results: Path) -> Facts:
    """Errors of a logger that seeks reward, as shares of the uniform one's."""
    shares, claims = [], {}
    for (world, estimator), own in read_table(results / "reward-seeking-logger.csv").group_by("world", "estimator"):
        errors = own.sort("strength")["error"]
        shares.append(float(errors.min() / errors[0]))  # type: ignore[operator]
        claims[f"{world}, {estimator}: about half or less"] = shares[-1] < 0.6 and errors[-1] < 0.65 * errors[0]
    return Facts({"least": f"{min(shares):.2f}", "most": f"{max(shares):.2f}"}, claims)


def replay(results: Path) -> Facts:
    """Real ratings."""
    regret, rating = (Ends.of(results, "replay", value) for value in ("regret", "reward"))
    names = [name for name in regret.newcomers["policy"] if name not in ("PriorUCB", "PriorTS")]
    mean, prior, sampled = Line("PopulationMean"), Line("PriorUCB"), Line("PriorTS")
    claims = {
        "PriorUCB is ahead of all but PriorTS": all(
            ends.ahead(REPLAY, prior, Line(name)) for ends in (regret, rating) for name in names
        )
        and regret.gap(REPLAY, prior, sampled).level
        and rating.gap(REPLAY, prior, sampled).level,
        "logs help": all(
            ends.ahead(REPLAY, Line(f"ProBALL-{x}"), Line(f"Lin{x}"))
            for ends in (regret, rating)
            for x in ("UCB", "TS")
        ),
        "level with the mean, TS behind": all(
            ends.gap(REPLAY, Line("ProBALL-UCB"), mean).level and ends.ahead(REPLAY, mean, Line("ProBALL-TS"))
            for ends in (regret, rating)
        ),
    }
    against = regret.gap(REPLAY, Line("ProBALL-UCB"), mean)
    return Facts({"against_mean": against.signed, "prior": regret.gap(REPLAY, prior, mean).words}, claims)


def privacy(results: Path) -> Facts:
    """Guesses of gender and age."""
    frame = read_table(results / "privacy.csv")
    told = frame.filter(pl.col("known") == "attributes in the prior")
    frame = frame.filter(pl.col("known") != "attributes in the prior")
    rows = {(row["attribute"], row["ratings"]): row for row in frame.iter_rows(named=True)}
    better = {key: row["accuracy"] > row["base_rate"] + 2 * row["accuracy_error"] for key, row in rows.items()}
    known, sizes = ("35 or older", "female"), (5, 20, 50, 200)
    claims = {
        "far better than a coin": all(rows[name, None]["auc"] > 0.8 for name in known),
        "hardly after five, clearly after fifty": all(
            rows[name, 5]["auc"] < 0.62 and rows[name, 50]["auc"] > 0.65 for name in known
        ),
        "age after fifty, gender not": better["35 or older", 50] and not any(better["female", n] for n in sizes),
        "both of the long-known": all(better[name, None] for name in known),
        "told attributes can be read off": bool((told["accuracy"] == 1.0).all()) and len(told) == len(known),
        "more interactions give away more": all(
            rows[name, less]["auc"] < rows[name, more]["auc"] for name in known for less, more in pairwise(sizes)
        ),
    }
    words = {
        f"{kind}_{n}": f"{rows[name, n]['auc']:.2f}"
        for kind, name in (("female", "female"), ("older", known[0]))
        for n in sizes
    }
    return Facts(words, claims)


def of_readings(results: Path) -> Facts:
    """Which claims hold under which readings, and the exits and radii around the paper's remark."""
    frame = read_table(results / "readings.csv")
    bare = frame.filter(bound="without B^2")
    held = {
        (r, tau, claim): holds for r, tau, claim, holds in bare.select("reading", "tau", "claim", "holds").iter_rows()
    }
    own, plain = readings.PRIORS
    against = {name: f"ProBALL-UCB beats {name}" for name in ("LinUCB", "mUCB", "mmUCB")}
    names = list(readings.FIXED)
    wins, losses = ([n for n in names if held[n, 0.1, against["LinUCB"]] == kind] for kind in ("holds", "fails"))
    everything = [
        n for n in names if all(held[n, tau, c] == "holds" for c in against.values() for tau in readings.TAUS)
    ]
    sampled = {
        c: {n for n in names if any(held[n, tau, c] == "holds" for tau in readings.TAUS)}
        for c in (f"ProBALL-TS beats mmTS, {own}", f"ProBALL-TS beats MixTS, {own}")
        + (f"ProBALL-TS beats mmTS and MixTS, {plain}",)
    }
    balanced = "balanced factors"
    claims = {
        "with B^2 everybody leaves in round 1": bool((frame.filter(bound="with B^2")["left_at"] == 1).all()),
        "all UCB claims hold with balanced factors alone": everything == [balanced],
        "there mUCB is not ahead early, and nobody leaves": all(
            held[balanced, tau, f"mUCB is ahead of ProBALL-UCB after {readings.EARLY} rounds"] == "fails"
            for tau in readings.TAUS
        )
        and bool((bare.filter(reading=balanced)["left_at"] > 200).all()),
        "samplers": list(sampled.values()) == [{balanced}, set(), {balanced}],
        "the radius varies widely, but for balanced factors": all(
            (most > 2 * least) == (name != balanced)
            for name, least, most in bare.select("reading", "radius_least", "radius_most").iter_rows()
        ),
        **_afterwards(bare, held, list(against.values()), list(sampled)),
    }
    words = {
        "won": str(len(wins)),
        "readings": str(len(names)),
        "lost": " and ".join(f"*{name}*" for name in losses),
        "radius_balanced": short(bare.filter(reading=balanced)["radius"][0]),
        "exits": _exits(bare),
    }
    return Facts(words | _told(bare, "all together", "all") | _told(bare, readings.AFTERWARDS, "after"), claims)


def _afterwards(
    bare: pl.DataFrame, held: dict[tuple[str, float, str], str], optimistic: list[str], sampling: list[str]
) -> dict[str, bool]:
    """What the text says of the reading that was added."""
    name = readings.AFTERWARDS
    left = bare.filter(reading=name, tau=0.5)["left_at"][0]
    early = f"mUCB is ahead of ProBALL-UCB after {readings.EARLY} rounds"
    near = REMARKED / 2 < left < 2 * REMARKED
    return {
        "added: leaves near round 70 and beats LinUCB": near and held[name, 0.5, optimistic[0]] == "holds",
        "added: beats all three at 0.1": all(held[name, 0.1, claim] == "holds" for claim in optimistic),
        "added: an early lead is open": all(held[name, tau, early] == "open" for tau in readings.TAUS),
        "added: no sampler": not any(held[name, tau, claim] == "holds" for tau in readings.TAUS for claim in sampling),
    }


def _exits(bare: pl.DataFrame) -> str:
    """Readings whose exit is within a factor of two of the remark's round."""
    near = bare.filter(pl.col("left_at").is_between(REMARKED / 2, 2 * REMARKED))
    rows = near.select("reading", "tau", "left_at").unique(maintain_order=True).iter_rows()
    return "; ".join(f"*{name}*, tau = {tau:g}: round {left:.0f}" for name, tau, left in rows)


def _told(bare: pl.DataFrame, reading: str, prefix: str) -> dict[str, str]:
    """Radius and its range over data sets, exit at tau = 0.5, and what is gained over LinUCB at either tau."""
    own = bare.filter(reading=reading, claim="ProBALL-UCB beats LinUCB").sort("tau", descending=True)
    half, tenth = own.iter_rows(named=True)
    return {
        f"{prefix}_radius": short(half["radius"]),
        f"{prefix}_range": f"{short(half['radius_least'])} to {short(half['radius_most'])}",
        f"{prefix}_exit": f"{half['left_at']:.0f}",
        f"{prefix}_half": number(half["difference"], half["difference_se"]),
        f"{prefix}_tenth": number(tenth["difference"], tenth["difference_se"]),
    }

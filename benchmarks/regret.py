"""What ProBALL-UCB gains where its subspace is right, and what staying costs where it is wrong.

`make bench ARGS=regret` writes docs/paper/policies-measured.md and the same figures as CSV beside it. Everything is
paired: within a world all policies meet the same newcomers, action sets and noise. Worlds are learnable synthetic ones
(d = 50, k = 2, factor entries up to 1.25, noise 0.5, 20 fresh unit actions a round), the model a fit of 5000 users x 20
steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from math import sqrt
from pathlib import Path

import polars as pl
from scipy.special import stdtrit

import newcomer as nc
from benchmarks.measure import machine, markdown
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.model import Model
from newcomer.simulate import Player, simulated_exits
from newcomer.worlds import Synthetic

DOCS = Path(__file__).resolve().parent.parent / "docs" / "paper"
WORLDS, USERS = 3, 30  # newcomers of each world
SHORT, LONG = 500, 2000
EXITS = (25, 50, 100, 200, 400, 800)
ANGLES = {"wholly outside": 1.0, "half outside": 0.5, "a tenth outside": 0.1, "inside": 0.0}
LENGTHS = (1.0, 6.0)
REFERENCE = "LinUCB"

TEXT = """# Policies, measured

`make bench ARGS=regret` repeats this page. {machine}

Learnable synthetic worlds of the paper's simulation study: d = 50, k = 2, factor entries up to 1.25, noise 0.5, 20
fresh unit actions a round; the model is SOLD on 5000 users of 20 steps with rank 2; practical widths. {worlds} worlds
with {users} newcomers each. All policies meet the same newcomers; `ratio` is of mean cumulative regrets to LinUCB's,
paired by newcomer, with its 95% interval (linearised). The figures are also in
[policies-measured.csv](policies-measured.csv).

## Where the subspace is right

T = {short}; ProBALL-UCB with tau = 0 stays in the subspace.

{gain}

## What leaving later costs

T = {long}. Newcomers' reward vectors have length |beta| and stand at an angle to the subspace: `outside` is
|(I - P) beta| / |beta|. ProBALL-UCB leaves after the round given, because radius = 1 and tau = d / sqrt(round + 1/2).

{cost}

![Regret against LinUCB's, by the round of the exit](policies-measured.png)

{verdict}
"""


def main() -> None:
    """Play, and write the page, its CSV and its picture."""
    gain = _over_worlds(_gain)
    cost = pl.concat(_over_worlds(partial(_cost, kind, length), kind, length) for length in LENGTHS for kind in ANGLES)
    pl.concat([gain, cost], how="diagonal").write_csv(DOCS / "policies-measured.csv", float_precision=4)
    _draw(cost)
    tables = {"gain": markdown(gain), "cost": markdown(_wide(cost)), "verdict": _verdict(gain, cost)}
    sizes = {"worlds": WORLDS, "users": USERS, "short": SHORT, "long": LONG}
    body = TEXT.format(machine=machine(), **sizes, **tables)
    (DOCS / "policies-measured.md").write_text(body)
    print(body)


def _gain(world: Synthetic, model: Model) -> pl.DataFrame:
    truth = replace(model, basis=world.basis)
    policies = {
        REFERENCE: nc.LinUCB(world.dim, horizon=SHORT),
        "LinTS": nc.LinTS(world.dim, horizon=SHORT),
        "ProBALL-UCB": nc.ProBALLUCB(model, horizon=SHORT, tau=0.0),
        "ProBALL-TS": nc.ProBALLTS(model, horizon=SHORT, tau=0.0),
        "ProBALL-UCB, true subspace": nc.ProBALLUCB(truth, horizon=SHORT, tau=0.0),
        "PopulationMean": nc.PopulationMean(model),
        "Uniform": nc.Uniform(),
    }
    return nc.play(policies, world, horizon=SHORT, users=USERS, seed=world.seed)


def _cost(kind: str, length: float, inner: Synthetic, model: Model) -> pl.DataFrame:
    world = replace(inner, outside=ANGLES[kind], length=length)
    policies: dict[str, Player] = {REFERENCE: nc.LinUCB(world.dim, horizon=LONG)}
    for last in EXITS:
        tau = world.dim / sqrt(last + 0.5)
        policies[f"after {last}"] = nc.ProBALLUCB(model, horizon=LONG, tau=tau, radius=1.0)
    policies["never"] = nc.ProBALLUCB(model, horizon=LONG, tau=0.0)
    rows = nc.play(policies, world, horizon=LONG, users=USERS, seed=world.seed)
    left = simulated_exits(rows).group_by("policy").agg(pl.col("left_at").unique())
    assert dict(left.iter_rows()) == {f"after {last}": [last + 1] for last in EXITS} | {"never": [None]}
    return rows


@cache
def _learned(seed: int) -> tuple[Synthetic, Model]:
    world = Synthetic.learnable(seed=seed)
    return world, nc.fit(world.logs(5000, 20, seed), rank=2, estimator="sold", null=False)


def _over_worlds(
    played: Callable[[Synthetic, Model], pl.DataFrame], kind: str = "", length: float | None = None
) -> pl.DataFrame:
    """Regrets of all worlds' newcomers together, labelled by their kind."""
    rows = [played(*_learned(seed)).with_columns(pl.col("user") + seed * USERS) for seed in range(WORLDS)]
    table = _ratios(pl.concat(rows))
    label = [pl.lit(length).alias("length"), pl.lit(kind).alias("newcomers")] if kind else []
    return table.select(*label, pl.all())


def _ratios(rows: pl.DataFrame) -> pl.DataFrame:
    """Mean regret of each policy, and its ratio to the reference's with the interval that linearising it gives."""
    totals = rows.group_by("policy", "user", maintain_order=True).agg(pl.col("regret").sum())
    base = totals.filter(pl.col("policy") == REFERENCE).select("user", base="regret")
    own, other, count = pl.col("regret"), pl.col("base"), pl.len()
    ratio = own.mean() / other.mean()
    half = stdtrit(WORLDS * USERS - 1, 0.975) * (own - ratio * other).std() / count.sqrt() / other.mean()
    error = own.std() / count.sqrt()
    return (
        totals.join(base, on="user")
        .group_by("policy", maintain_order=True)
        .agg(regret=own.mean(), standard_error=error, ratio=ratio, low=ratio - half, high=ratio + half)
    )


def _draw(cost: pl.DataFrame) -> None:
    """The ratio against the round of the exit; no exit is drawn at the horizon."""
    last = pl.col("policy").str.extract(r"(\d+)").cast(pl.Int64).fill_null(LONG)
    lines = cost.filter(pl.col("policy") != REFERENCE).with_columns(
        exit=last,
        half=pl.col("high") - pl.col("ratio"),
        panel=pl.format("|beta| = {}", pl.col("length").cast(pl.Int64)),
    )
    axes = {
        "x": Axis("exit", "last round in the subspace", log=True),
        "y": Axis("ratio", "regret / LinUCB's", log=True),
    }
    path = DOCS / "policies-measured.png"
    draw_lines(lines, path, **axes, series="newcomers", error="half", facet="panel", marked=True)


def _wide(cost: pl.DataFrame) -> pl.DataFrame:
    """One line for each kind of newcomer, the ratio and its interval in a cell for each exit."""
    cell = pl.format("{} ({} to {})", *(pl.col(name).round(2) for name in ("ratio", "low", "high")))
    reference = cost.filter(pl.col("policy") == REFERENCE).select("length", "newcomers", LinUCB="regret")
    wide = cost.filter(pl.col("policy") != REFERENCE).with_columns(cell=cell)
    wide = wide.pivot("policy", index=["length", "newcomers"], values="cell")
    return reference.join(wide, on=["length", "newcomers"], maintain_order="left").rename({"length": "\\|beta\\|"})


def _verdict(gain: pl.DataFrame, cost: pl.DataFrame) -> str:
    """The two claims held against the figures, and the cost of staying in words."""
    stays = _ratio(gain, {"policy": "ProBALL-UCB"})
    short, long = ({e: _ratio(cost, _stray(e, length)) for e in (*EXITS, None)} for length in LENGTHS)
    return f"""## Held against what was expected

* In the subspace at most 0.15 of LinUCB's regret: found {stays:.3f}, {_holds(stays <= 0.15)}.
* Wholly outside, |beta| = 1, exit after round 100, at most 1.1 of LinUCB's regret: found {short[100]:.2f},
  {_holds(short[100] <= 1.1)}.

Later exits are not harmless. Wholly outside with |beta| = 1 they cost {short[400]:.2f} of LinUCB's regret after round
400, {short[800]:.2f} after 800 and {short[None]:.1f} without an exit. With |beta| = 6 a round in a wrong subspace loses
six times as much while LinUCB learns sooner: {long[25]:.2f} after round 25, {long[100]:.2f} after 100,
{long[400]:.1f} after 400, {long[None]:.0f} without an exit. The rule never looks at rewards, so no tau serves both
kinds of newcomer: for those inside, every exit is a loss."""


def _stray(last: int | None, length: float) -> dict[str, object]:
    return {"policy": f"after {last}" if last else "never", "newcomers": "wholly outside", "length": length}


def _holds(claim: bool) -> str:
    return "holds" if claim else "**does not hold**"


def _ratio(table: pl.DataFrame, where: Mapping[str, object]) -> float:
    return float(table.filter(**where)["ratio"].item())


if __name__ == "__main__":
    main()

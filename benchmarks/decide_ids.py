"""Decisions by ids and states, each beside a reference in the same run: the tables of `benchmarks/decide.py`.

The model is of MovieLens-1M at rank 16 (fitted once, kept in the cache folder) or, without the data, one of as many
one-hot actions with random numbers; 20 candidates by ids.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import polars as pl

import newcomer as nc
from benchmarks.measure import alternate
from newcomer import files
from newcomer.linear.state import State
from newcomer.paper.worlds.download import cache_folder, find_movielens

COUNT, REPEATS, TAILS = 200, 7, 25  # rounds of a newcomer, turns, turns for the 99th percentile
POLICIES = {"PriorUCB": 6.0, "EmpiricalArms": 4.0, "PopulationMean": 2.5}  # and the aim, in rounds of LinUCB at d = 50
COLUMNS = ("what", "measured", "unit", "reference", "of the reference", "ratio", "aim")


def film_model() -> tuple[nc.Model, str]:
    """The model of the films of MovieLens-1M, or one like it, and what it is."""
    try:
        ratings = find_movielens() / "ratings.dat"
    except nc.LogsError:
        return catalogued(np.random.default_rng(0)), "a random model of 3,706 actions, rank 16"
    kept = cache_folder() / "movielens-rank-16.newcomer"
    if not kept.is_file():
        table = pl.read_csv(ratings.read_bytes().replace(b"::", b","), has_header=False)
        names = dict(zip(table.columns, ("user", "action", "reward", "step"), strict=True))
        options = {"rank": 16, "null": False, "calibrate": False, "outcome": "gaussian"}
        nc.fit(nc.Logs.from_frame(table.rename(names)), **options).save(kept)
    return nc.load(kept), "MovieLens-1M, 3,706 films, rank 16"


def catalogued(rng: np.random.Generator, *, actions: int = 3706, rank: int = 16) -> nc.Model:
    """A model of one-hot actions with everything that a fit gives it; how much repeats is not known."""
    factor = 0.2 * rng.standard_normal((actions, rank))
    return nc.Model(
        np.linalg.qr(factor)[0],
        np.ones(rank),
        3.0 + 0.5 * rng.standard_normal(actions),
        factor,
        0.8,
        action_ids=tuple(range(1, actions + 1)),
        one_hot=True,
        persistence=None,
        residual_variance=rng.uniform(0.6, 1.1, actions),
        uncertainty=rng.uniform(0.0, 0.1, actions),
        error_scales=np.array([[0.5, 1.0, 2.0], [0.3, 0.4, 0.3]]),
    )


def row(what: str, measured: float, unit: str, reference: str, size: float, aim: str) -> dict[str, object]:
    """One line of the table; the ratio is measured over reference."""
    return dict(zip(COLUMNS, (what, measured, unit, reference, size, measured / size, aim), strict=True))


def offers(model: nc.Model, count: int = COUNT) -> list[list[int | str]]:
    """20 candidates for each round."""
    rng = np.random.default_rng(1)
    return [[model.action_ids[i] for i in rng.choice(len(model.action_ids), 20, replace=False)] for _ in range(count)]


def serve(policy: nc.PriorUCB, offered: list[list[int | str]], seconds: list[float] | None = None) -> State:
    """A newcomer's rounds, choose + update; `seconds` gets the processor time of each."""
    state, rewards = policy.start(1), np.random.default_rng(2).integers(1, 6, len(offered)).astype(float).tolist()
    for candidates, reward in zip(offered, rewards, strict=True):
        begun = process_time()
        policy.update(state, ids=[candidates[int(policy.choose(state, ids=candidates)[0])]], reward=[reward])
        if seconds is not None:
            seconds.append(process_time() - begun)
    return state


def linear_round() -> Callable[[], None]:
    """The rounds of one user of LinUCB at d = 50, K = 20."""
    rng, policy = np.random.default_rng(0), nc.LinUCB(50, horizon=COUNT)
    actions, rewards = rng.standard_normal((COUNT, 1, 20, 50)), rng.standard_normal((COUNT, 1))

    def play() -> None:
        state = policy.start(1)
        for candidates, reward in zip(actions, rewards, strict=True):
            index = int(policy.choose(state, candidates)[0])
            policy.update(state, candidates[:, index].copy(), reward)

    return play


def decisions(model: nc.Model) -> list[dict[str, object]]:
    """One user: microseconds of choose + update, and the 99th percentile of its rounds over their median."""
    offered = offers(model)
    policies = {name: getattr(nc, name)(model) for name in POLICIES}
    calls: dict[str, Callable[[], object]] = {name: partial(serve, own, offered) for name, own in policies.items()}
    seconds = alternate(calls | {"LinUCB": linear_round()}, repeats=REPEATS)
    micro = {name: 1e6 * value / COUNT for name, value in seconds.items()}
    rows = [
        row(f"{name}, choose + update", micro[name], "us", "LinUCB round, d = 50", micro["LinUCB"], f"{aim:g} times")
        for name, aim in POLICIES.items()
    ]
    for name, policy in policies.items():
        each: list[float] = []
        for _ in range(TAILS):
            serve(policy, offered, each)
        late, usual = 1e6 * float(np.quantile(each, 0.99)), 1e6 * float(np.median(each))
        rows.append(row(f"{name}, 99th percentile of rounds", late, "us", "their median", usual, "3 times"))
        # The lower quartile of a round's turns is without what other programs did to it.
        own = 1e6 * np.quantile(np.reshape(each, (TAILS, COUNT)), 0.25, axis=0)
        late, usual = float(np.quantile(own, 0.99)), float(np.median(own))
        rows.append(row(f"{name}, the same without interruptions", late, "us", "their median", usual, "3 times"))
    return rows


def batch(model: nc.Model, users: int = 1000, count: int = 10) -> dict[str, object]:
    """1,000 users in one call, against the compiled loops alone."""
    policy, offered = nc.PriorUCB(model), offers(model, count)
    places = [model.catalogue.known_codes(one) for one in offered]
    who, reward = np.arange(users), np.full(users, 3.5)

    def public() -> None:
        state = policy.start(users)
        for candidates in offered:
            chosen = policy.choose(state, ids=candidates)
            policy.update(state, ids=np.array(candidates)[chosen], reward=reward)

    def compiled() -> None:
        state = policy.start(users)
        for codes in places:
            chosen = policy.learner.choose_codes(state, who, codes[None], 0.5)
            policy.learner.learn_codes(state, who, codes[chosen], reward, np.inf)

    seconds = alternate({"public": public, "compiled": compiled}, repeats=REPEATS)
    micro = {name: 1e6 * value / (users * count) for name, value in seconds.items()}
    what = f"PriorUCB, {users:,} users in one call, a decision"
    return row(what, micro["public"], "us", "the compiled loops", micro["compiled"], "2 times")


def set_up(model: nc.Model) -> list[dict[str, object]]:
    """From a loaded model to a policy, and to the first decision, in a process that has loaded the compiled loops."""
    data, candidates = model.to_bytes(), offers(model, 1)[0]
    made, first, later, loading = [], [], [], []
    for _ in range(REPEATS):
        begun = perf_counter()
        loaded = nc.Model.from_bytes(data)
        loading.append(perf_counter() - begun)
        begun = perf_counter()
        policy = nc.PriorUCB(loaded)
        state = policy.start(1)
        made.append(perf_counter() - begun)
        for times in (first, later):
            begun = perf_counter()
            policy.choose(state, ids=candidates)
            times.append(perf_counter() - begun)
    load, ready, one, two = (1e3 * float(np.median(times)) for times in (loading, made, first, later))
    return [
        row("policy and state from a loaded model", ready, "ms", "loading the model", load, "20 ms"),
        row("its first choose", one, "ms", "its second choose", two, "20 ms"),
        cold_start(data, candidates),
    ]


def cold_start(data: bytes, candidates: list[int | str]) -> dict[str, object]:
    """The same in a process of its own, against Numba's own start: the first call of any loop, from its cache."""
    opening = "import sys, json, time; import numpy as np, newcomer as nc; from newcomer.array_loops import dot\n"
    loop = "x = np.ones(2); t = time.perf_counter(); dot(x, x); print(time.perf_counter() - t)"
    choice = (
        "m = nc.load(sys.argv[1]); c = json.loads(sys.argv[2]); p = nc.PriorUCB(m); s = p.start(1)\n"
        "t = time.perf_counter(); p.choose(s, ids=c); print(time.perf_counter() - t)"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.newcomer"
        path.write_bytes(data)
        found: dict[str, list[float]] = {loop: [], choice: []}
        for _ in range(3):
            for code, times in found.items():
                command = [sys.executable, "-c", opening + code, str(path), json.dumps(candidates)]
                times.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    own, numba = (1e3 * float(np.median(times)) for times in (found[choice], found[loop]))
    return row("first choose of a new process", own, "ms", "Numba's start", numba, "Numba's start + 20 ms")


def states(model: nc.Model) -> list[dict[str, object]]:
    """States as bytes, against safetensors files of the same arrays, which they were before."""
    policy, rows = nc.PriorUCB(model), []
    for count, aim in ((0, 500), (40, 3_000), (1_000, 20_000)):
        state = serve(policy, offers(model, count))
        size, before = len(state.to_bytes()), len(old_bytes(state))
        rows.append(row(f"state after {count:,} rewards", size, "bytes", "safetensors", before, f"{aim:,} bytes"))
    fresh, kind = policy.start(1), type(policy.start(1))

    def through(write: Callable[[State], bytes]) -> None:
        for _ in range(100):
            kind.from_bytes(write(fresh))

    ways = {"now": partial(through, kind.to_bytes), "before": partial(through, old_bytes)}
    micro = {name: 1e4 * seconds for name, seconds in alternate(ways, repeats=REPEATS).items()}
    return [*rows, row("a fresh state to and from bytes", micro["now"], "us", "safetensors", micro["before"], "50 us")]


def old_bytes(state: State) -> bytes:
    """A state as format 3 had it."""
    arrays = {name: array for name, array, _ in state.arrays()}
    return files.pack_file(state.saved_as or type(state).__name__, arrays, {"record": asdict(state.record)})


def million(model: nc.Model) -> list[dict[str, object]]:
    """A million newcomers in a process of its own, against a row for each."""
    code = (
        "import sys, time, tracemalloc, newcomer as nc\n"
        "p = nc.PriorUCB(nc.load(sys.argv[1])); p.start(1)\n"
        "t = time.perf_counter(); s = p.start(1_000_000); print(time.perf_counter() - t)\n"
        "tracemalloc.start(); s = p.start(1_000_000); print(tracemalloc.get_traced_memory()[1] / 2**20)"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.newcomer"
        path.write_bytes(model.to_bytes())
        done = subprocess.run([sys.executable, "-c", code, str(path)], check=True, capture_output=True, text=True)
    seconds, megabytes = map(float, done.stdout.split())
    policy = nc.PriorUCB(model)
    each = policy.start(1000).facts()["bytes_in_memory"] / 1000
    alone = alternate({"start": partial(policy.start, 1000)}, repeats=REPEATS)["start"]
    name = "a row for each"
    return [
        row("a million newcomers, memory", megabytes, "MB", name, each * 1e6 / 2**20, "300 MB"),
        row("a million newcomers, time", seconds, "s", name, alone * 1000, "1 s"),
    ]


def table() -> tuple[str, pl.DataFrame]:
    """What the model is, and all rows."""
    model, name = film_model()
    rows = [*decisions(model), batch(model), *set_up(model), *states(model), *million(model)]
    return name, pl.DataFrame(rows, schema_overrides={column: pl.Float64 for column in ("measured", "ratio")})

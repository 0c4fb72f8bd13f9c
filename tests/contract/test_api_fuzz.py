"""Whatever is passed to a public name, the answer is a result or one sentence: never another library's exception.

2,000 calls by a fixed seed: each public function and method is called with arguments that make sense, one to three of
which are replaced by something hostile. `python -m tests.contract.test_api_fuzz 20000 7` tries that many, by another
seed.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import sys
import traceback
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import newcomer as nc
from newcomer.errors import NewcomerError
from newcomer.worlds import Synthetic

CALLS = 2000
DIM = 4
POLICIES = ("ProBALLUCB", "ProBALLTS", "LocalUCB", "LinUCB", "LinTS", "PriorTS", "PriorUCB", "EmpiricalArms")
POLICIES += ("Uniform", "PopulationMean", "MUCB", "MmUCB", "MTS", "MmTS", "MixTS")


HALF = "\ud800"  # half of a character that takes two
RAISING = pl.LazyFrame({"user": [1, 1], "action": ["x", "y"], "reward": [1.0, 2.0]}).map_batches(lambda _: 1 / 0)


class Odd:
    """An object that has nothing to do with anything."""


def hostile(rng):
    """Something that was not meant."""
    pool = (
        lambda: None,
        lambda: "a",
        lambda: "",
        lambda: "nul\0",
        lambda: b"bytes",
        lambda: float("nan"),
        lambda: float("inf"),
        lambda: -float("inf"),
        lambda: 10**400,
        lambda: -(2**63) - 1,
        lambda: 2**64,
        lambda: -1,
        lambda: 0,
        lambda: 0.5,
        lambda: 1e300,
        lambda: True,
        lambda: 1 + 2j,
        lambda: Odd(),
        list,
        lambda: [[]],
        lambda: [[1.0], [1.0, 2.0]],
        lambda: ["a", 1, None],
        lambda: [None, None],
        lambda: [[None]],
        lambda: ["x", "y", "z"],
        lambda: [10**400, 1],
        lambda: [2**64, 1],
        lambda: [1 + 2j],
        dict,
        lambda: {"a": 1},
        lambda: {"user": "nobody", 3: 4},
        lambda: {1, 2},
        lambda: (i for i in range(3)),
        lambda: range(3),
        lambda: iter([]),
        lambda: datetime.date(2020, 1, 1),
        lambda: [datetime.datetime(2020, 1, 1)] * 3,
        lambda: np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"),
        lambda: np.array(3.0),
        lambda: np.float64("nan"),
        lambda: np.int64(-5),
        lambda: np.zeros(0),
        lambda: np.zeros((0, DIM)),
        lambda: np.zeros((3, 0)),
        lambda: np.zeros((2, 3, DIM, 1)),
        lambda: np.full((3, DIM), np.nan),
        lambda: np.full((3, DIM), np.inf),
        lambda: np.full((3, DIM), 1e200),
        lambda: np.full((3, DIM), 1e8),
        lambda: np.full(3, 1e8),
        lambda: np.ones((3, DIM), dtype=complex),
        lambda: np.ones((3, DIM), dtype=bool),
        lambda: np.ones((3, DIM), dtype=np.float16),
        lambda: np.ones((3, DIM)).astype(object),
        lambda: np.array([Odd(), None, "x"], dtype=object),
        lambda: np.array([{}, {}, {}], dtype=object),
        lambda: np.ma.masked_array(np.ones((3, DIM)), mask=True),
        lambda: np.ma.masked_array([1.0, 2.0, 3.0], mask=[True, False, False]),
        lambda: np.array([1, -1, 0]),
        lambda: np.array([0, 1, 2], dtype=np.uint64),
        lambda: np.array([2**63, 1, 2], dtype=np.uint64),
        lambda: np.array(["a", "b", "c"]),
        lambda: np.zeros(3, dtype=[("x", float)]),
        lambda: rng.standard_normal((3, DIM)),
        lambda: rng.standard_normal((2, 3, DIM)),
        lambda: rng.standard_normal((3, DIM + 1)),
        lambda: rng.standard_normal((DIM, DIM)),
        lambda: np.random.default_rng(0),
        lambda: [np.random.default_rng(0)] * 2,
        lambda: np.random.RandomState(0),
        lambda: pl.DataFrame({"a": [1, 2], "b": ["x", None]}),
        lambda: pl.DataFrame({"user": [1, 1], "action": ["x", "y"], "reward": [None, 1.0]}),
        lambda: pl.DataFrame(),
        lambda: pl.Series([1.0, None, 2.0]),
        lambda: pl.LazyFrame({"a": [1]}).select("missing"),
        lambda: RAISING,
        lambda: HALF,
        lambda: [HALF, "a", "b"],
        lambda: np.array([HALF, "a", "b"]),
        lambda: np.ones((3, DIM)).view(np.matrix),
        lambda: np.array(3),
        lambda: np.array("auto"),
        lambda: pd.Series(pd.date_range("2020-01-01", periods=3, tz="Europe/Paris")),
        lambda: pd.Series(["a", "b", "a"], dtype="category"),
        lambda: pd.DataFrame({"a": ["x", "y", "z"]}),
        lambda: pd.MultiIndex.from_arrays([[1, 2, 3], ["x", "y", "z"]]),
        lambda: "x" * 300,
        lambda: Path("/".join(["y" * 200] * 30)),
        lambda: Path("nowhere/at/all"),
        lambda: "nowhere/*.csv",
        lambda: lambda *_: None,
        lambda: sys,
        lambda: nc.LinUCB(3, horizon=5),
        lambda: nc.LinUCB(3, horizon=5).start(2),
        lambda: nc.Logs.from_arrays(user=[1, 1], action=["x", "y"], reward=[0.0, 1.0]),
    )
    return pool[rng.integers(len(pool))]()


class Ground:
    """What sensible calls are made with."""

    def __init__(self):
        rng = np.random.default_rng(5)
        user = np.repeat(np.arange(60), 6)
        features = rng.standard_normal((360, DIM))
        reward = features @ np.ones(DIM) + rng.standard_normal(360)
        self.arrays = {"user": user, "features": features, "reward": reward}
        self.logs = nc.Logs.from_arrays(**self.arrays)
        self.frame = pl.DataFrame({"user": user, "reward": reward, "action": rng.integers(3, size=360)})
        self.model = nc.fit(self.logs)
        self.sold = nc.fit(self.logs, estimator="sold", rank=1)
        # A catalogue of three actions with a constant: four features as well.
        self.named = nc.fit(nc.read_logs(self.frame, intercept=True))
        self.world = Synthetic(dim=DIM, noise=0.1)
        self.rows = nc.play({"U": nc.Uniform()}, self.world, horizon=3, users=2, seed=0, progress=False)
        centers = rng.standard_normal((3, DIM))
        self.settings = {
            "ProBALLUCB": {"model": self.sold, "horizon": 20, "tau": 1.0, "radius": 0.5},
            "ProBALLTS": {"model": self.sold, "horizon": 20, "tau": 1.0, "radius": 0.5, "votes": 4},
            "LocalUCB": {"model": self.sold, "horizon": 20, "radius": 0.5, "reward_bound": 4.0, "widths": "practical"},
            "LinUCB": {"dim": DIM, "horizon": 20, "widths": "theoretical"},
            "LinTS": {"dim": DIM, "horizon": 20, "widths": 1.0, "votes": 4},
            "PriorTS": {"model": self.model, "level": 0.1, "scale": 0.5, "memory_scale": 0.5, "votes": 4},
            "PriorUCB": {"model": self.named, "level": 0.1, "width": 0.5, "memory_width": 0.5},
            "EmpiricalArms": {"model": self.named, "width": 0.5},
            "Uniform": {},
            "PopulationMean": {"model": self.model},
            "MUCB": {"centers": centers, "horizon": 20, "noise_sd": 0.5},
            "MmUCB": {"centers": centers, "epsilon": 0.1, "horizon": 20, "noise_sd": 0.5},
            "MTS": {"centers": centers, "weights": [1.0, 2.0, 3.0], "noise_sd": 0.5},
            "MmTS": {"centers": centers, "variances": 0.3, "weights": None, "noise_sd": 0.5, "votes": 4},
            "MixTS": {"centers": centers, "covariances": np.eye(DIM), "weights": None, "noise_sd": 0.5, "votes": 4},
        }
        self.policies = {name: getattr(nc, name)(**given) for name, given in self.settings.items()}
        self.features = rng.standard_normal((3, DIM))
        # Too few to be evaluated: what is tried is arguments.
        self.few = nc.Logs.from_arrays(user=[1, 1, 2], action=["a", "b", "a"], reward=[0.0, 1.0, 0.5])

    def functions(self, folder):
        """(name, function, arguments that make sense) of all that is not a policy."""
        model = {"basis": np.eye(DIM, 1), "spectrum": np.ones(DIM), "mean": np.zeros(DIM), "factor": np.eye(DIM, 1)}
        model |= {"noise_variance": 1.0, "estimator": "em", "parameters": {}, "evidence": self.model.evidence}
        model |= {"fingerprint": "x", "action_ids": ("a", "b", "c", "d"), "intercept": False, "one_hot": True}
        model |= {"action_names": None, "feature_names": None, "residual_variance": np.ones(DIM), "persistence": 0.5}
        model |= {"action_features": None, "offsets": np.zeros(DIM)}
        reading = {"items": None, "features": None, "columns": None, "intercept": False, "clip": None, "epoch": None}
        arrays = {**self.arrays, "action": self.arrays["user"] % 3, "step": None, "propensity": None}
        arrays |= {"items": None, "intercept": False, "clip": None, "epoch": None}
        arrays |= {"candidates": [[0, 1, 2]] * 360, "arm": ["a", "b"] * 180}
        told = {"seed": 0, "quick": True, "run": None, "called": "logs.csv"}
        fitting = {"rank": 1, "estimator": "sold", "ridge": 1.0, "literal": False, "uncovered": "restrict"}
        fitting |= {"null": False, "calibrate": False, "persistence": None, "run": None}
        radius = {"kind": "bernstein", "delta": 0.05, "norm": "spectral", "clip": True, "simplified": False}
        one = {"U": nc.Uniform()}
        playing = {"policies": one, "world": self.world, "horizon": 3, "users": 2, "seed": 0, "batch": 1}
        playing |= {"progress": False}
        return [
            ("fit", nc.fit, {"logs": self.logs, **fitting}),
            ("fit", nc.fit, {"logs": self.frame, **fitting}),
            ("check", nc.check, {"logs": self.logs, "level": 0.05, "fit": False, "seed": 0, "run": None}),
            ("read_logs", nc.read_logs, {"path": self.frame, **reading, "grouped": False, "memory": None}),
            ("Logs.from_arrays", nc.Logs.from_arrays, arrays),
            ("Logs.from_frame", nc.Logs.from_frame, {"frame": self.frame, **reading}),
            ("Logs.batches", lambda rows: list(self.logs.batches(rows)), {"rows": 10}),
            ("Model", nc.Model, model),
            ("Model.from_bytes", nc.Model.from_bytes, {"data": self.model.to_bytes()}),
            ("Model.features", self.named.features, {"ids": [0, 1], "unknown": "refuse"}),
            ("Model.codes", self.named.codes, {"ids": [0, 1]}),
            ("Model.radius", self.sold.radius, radius),
            ("Model.save", self.model.save, {"path": folder / "m.newcomer"}),
            ("load", nc.load, {"path": folder / "loaded.newcomer"}),
            ("play", nc.play, playing),
            ("evaluate", nc.evaluate, {"logs": self.few, "seed": 0, "quick": True, "run": None}),
            ("report", nc.report, {"logs": self.few, "path": folder / "report.html", **told}),
            ("Model.transform", self.named.transform, {"logs": self.few, "persistence": 0.5}),
            ("plot", nc.plot, {"result": self.rows, "title": "regret"}),
            ("summary", nc.summary, {"rows": self.rows, "reference": "U", "window": 2, "level": 0.9}),
            ("NewcomerError", nc.NewcomerError, {"what": "something", "where": "here", "todo": "mend it"}),
        ]

    def methods(self, policy):
        """(name, function, arguments that make sense) of a policy and its state; the state is a new one."""
        state = policy.start(2)
        rng, mask = [np.random.default_rng(0), np.random.default_rng(1)], [True, True, False]
        asking = {"actions": self.features, "rng": rng, "ids": [0, 1, 2], "mask": mask, "users": [0, 1]}
        update = {"features": self.features[:2], "reward": [1.0, np.nan], "ids": [0, 1], "users": [0, 1]}
        kind = type(state)
        return [
            ("start", policy.start, {"n": 2}),
            ("choose", policy.choose, {"state": state, **asking}),
            ("probabilities", policy.probabilities, {"state": state, **asking}),
            ("scores", policy.scores, {"state": state, **asking}),
            ("in_subspace", policy.in_subspace, {"state": state}),
            ("update", policy.update, {"state": state, **update}),
            ("update", policy.update, {"state": state, **update}),
            ("take", state.take, {"users": [1, 0]}),
            ("concat", kind.concat, {"states": [state, state]}),
            ("from_bytes", kind.from_bytes, {"data": state.to_bytes()}),
            ("==", lambda other: (state == other, policy == other), {"other": state}),
            ("repr", lambda: (repr(state), repr(policy), policy._repr_html_(), state._repr_html_()), {}),
        ]


@pytest.fixture(scope="module")
def ground():
    return Ground()


def call(ground, rng, folder):
    """One call: its name with what was passed, and the exception that must not be, if there was one."""
    kind = rng.integers(4)
    if kind == 0:
        name = POLICIES[rng.integers(len(POLICIES))]
        function, given = getattr(nc, name), ground.settings[name]
    elif kind == 1:
        functions = ground.functions(folder)
        name, function, given = functions[rng.integers(len(functions))]
    else:
        owner = POLICIES[rng.integers(len(POLICIES))]
        methods = ground.methods(ground.policies[owner])
        name, function, given = methods[rng.integers(len(methods))]
        name = f"{owner}.{name}"
    given = dict(given)
    for _ in range(min(int(rng.integers(1, 4)), len(given))):
        given[list(given)[rng.integers(len(given))]] = hostile(rng)
    try:
        function(**given)
    except NewcomerError as error:
        assert "\n" not in str(error) and str(error)
    except Exception as error:  # noqa: BLE001  (this is what is looked for)
        return f"{name}({', '.join(f'{part}={value!r:.80}' for part, value in given.items())})", error
    return name, None


def seen(ground, calls, seed, folder):
    """The calls that ended in an exception of another library."""
    rng = np.random.default_rng(seed)
    ground.model.save(folder / "loaded.newcomer")
    with contextlib.chdir(folder):
        tried = [call(ground, rng, folder) for _ in range(calls)]
    return [(what, error) for what, error in tried if error is not None]


@pytest.mark.filterwarnings("ignore:.*ids are not among")
def test_hostile_arguments_end_in_a_result_or_a_sentence(ground, tmp_path):
    found = seen(ground, CALLS, 0, tmp_path)
    assert [f"{type(error).__name__}: {error} in {what}" for what, error in found[:5]] == []


def refused(said, call, *given, **named):
    with pytest.raises(NewcomerError, match=said):
        call(*given, **named)


def test_ids_with_half_a_character_are_refused_and_change_nothing(ground):
    for name in ("PriorUCB", "EmpiricalArms"):
        policy = ground.policies[name]
        state, known = policy.start(1), policy.start(1)
        for ids in ([HALF, "a"], np.array([HALF, "a"], dtype=object)):
            refused("surrogate", policy.choose, state, ids=ids)
            refused("surrogate", policy.scores, state, ids=ids)
            refused("surrogate", policy.probabilities, state, ids=ids)
            refused("surrogate", policy.update, state, ids=ids, reward=[1.0, 1.0], users=[0, 0])
            refused("surr", policy.update, state, np.eye(DIM)[:2], [1.0, 1.0], ids=ids, users=[0, 0])
        assert state == known


@pytest.mark.parametrize("arrow", [True, False])
def test_candidates_of_any_kind_are_lists_or_refused(ground, arrow, monkeypatch):
    if not arrow:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    action = np.array(["a", "b", "c"])[np.arange(60) % 3]
    given = {"user": np.repeat(np.arange(10), 6), "action": action, "reward": np.arange(60.0)}
    two = np.stack([action, np.where(action == "a", "b", "a")], axis=1)
    for kind in (pd.DataFrame(two), pd.MultiIndex.from_arrays(two.T), two.view(np.matrix), pd.Series(two.tolist())):
        assert len(next(nc.Logs.from_arrays(**given, candidates=kind).batches()).candidates.actions) == 120
    one = pd.Series(action, dtype="category")
    assert len(next(nc.Logs.from_arrays(**given, candidates=one).batches()).candidates.actions) == 60
    zoned = pd.Series(pd.date_range("2020-01-01", periods=60, tz="Europe/Paris"))
    for kind in (zoned, pd.period_range("2020", periods=60), np.ma.masked_array(two, mask=True), Odd()):
        refused("candidates", nc.Logs.from_arrays, **given, candidates=kind)


def test_paths_that_are_too_long_are_refused(ground, tmp_path):
    for path in (tmp_path / ("x" * 300), tmp_path / "/".join(["y" * 200] * 30)):
        refused("File name too long", nc.read_logs, path)
        refused("File name too long", nc.read_logs, ground.frame, items=path)
        refused("too long|no file matches", nc.read_logs, path / "*.csv")
        refused("File name too long", nc.load, path)
        refused("File name too long", ground.model.save, path)
        refused("File name too long", nc.fit, ground.logs, rank=1, run=nc.Run(checkpoint=path))
        refused("File name too long", nc.report, ground.few, path, quick=True)


def test_settings_of_no_sense_are_refused(ground):
    for clip in (np.array(3), np.array("auto"), np.eye(2), [1.0, [2.0]], pd.Series([0.0, 1.0])):
        refused("clip is", nc.Logs.from_arrays, **ground.arrays, clip=clip)
    model = {"basis": np.eye(1), "spectrum": np.ones(1), "mean": np.ones(1), "factor": np.ones((1, 0))}
    for name in model:
        refused(f"{name} is None", nc.Model, **{**model, name: None}, noise_variance=1.0)
    refused("basis is None", nc.Model, None, None, None, None, 1.0)


def test_a_lazy_frame_that_raises_inside_is_refused(ground):
    refused("the lazy frame cannot be read: division by zero", nc.read_logs, RAISING)
    refused("the lazy frame cannot be read", nc.Logs.from_frame, RAISING)
    refused("the lazy frame cannot be read", nc.read_logs, ground.frame, items=RAISING)
    silent = pl.LazyFrame({"user": [1], "action": [1], "reward": [1.0]}).map_batches(lambda _: {}.pop(""))
    refused("the lazy frame cannot be read", nc.read_logs, silent)


def test_uniform_needs_ids_and_nothing_else():
    policy, rng = nc.Uniform(), np.random.default_rng(0)
    state = policy.start(2)
    assert set(policy.choose(state, rng=rng, ids=["a", "b"]).tolist()) <= {0, 1}
    assert policy.probabilities(state, ids=[[7, 8], [8, 9]], mask=[True, False]).tolist() == [[1.0, 0.0]] * 2
    policy.update(state, ids=["a", "b"], reward=[1.0, np.nan])
    assert state.count.tolist() == [1, 0]


def test_what_people_get_back_is_json(ground, tmp_path):
    named = np.int64(20)
    known = nc.LinUCB(np.int64(DIM), horizon=named), nc.MUCB(np.eye(2, DIM), horizon=named), *ground.policies.values()
    page = nc.report(ground.few, tmp_path / "page.html", quick=True)
    found = nc.check(ground.logs, fit=False)
    told = [ground.logs, ground.model, ground.named, ground.logs.summary, ground.model.evidence, found, page]
    told += [*found.findings, *known, *(policy.start(2) for policy in known), ground.named.transform(ground.few)]
    told.append(nc.evaluate(Synthetic.learnable(dim=4, seed=1).logs(60, 8, seed=1), quick=True))
    for one in told:
        assert json.loads(json.dumps(one.facts())).keys() == one.facts().keys()
    chosen = known[0].choose(known[0].start(2), ground.features)
    assert json.dumps(chosen.tolist()) and json.dumps(int(chosen[0]))
    json.dumps(nc.summary(ground.rows).to_dicts())


def test_every_public_name_is_tried(ground, tmp_path):
    tried = {name.split(".")[0] for name, *_ in ground.functions(tmp_path)} | set(POLICIES)
    errors = {name for name in nc.__all__ if isinstance(getattr(nc, name), type) and name.endswith(("Error", "Extra"))}
    service = {"Client", "AsyncClient"}  # tests/serve
    assert tried | errors | service | {"__version__", "Run"} == set(nc.__all__)


if __name__ == "__main__":
    import tempfile
    import warnings
    from collections import Counter

    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", message=".*ids are not among")  # which hostile ids rarely are
    with tempfile.TemporaryDirectory() as scratch:
        bad = seen(Ground(), int(sys.argv[1]), int(sys.argv[2]), Path(scratch))
    places = Counter()
    for what, error in bad:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "newcomer" in frame.filename and "tests" not in frame.filename]
        last = ours[-1] if ours else frames[-1]
        places[f"{type(error).__name__} {Path(last.filename).name}:{last.lineno} {str(error)[:70]!r}"] += 1
        if places.total() <= int(sys.argv[3]) if len(sys.argv) > 3 else False:
            print(what, type(error).__name__, str(error)[:100])
    for place, count in places.most_common(150):
        print(count, place)
    print(f"{len(bad)} of {sys.argv[1]} calls ended in an exception of another library")

"""Guards set-up's promise: after `python -m newcomer.compile_cache` no fit and no decision waits for the compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

import newcomer as nc
from newcomer import compile_cache
from newcomer.testing import check_policy
from newcomer.worlds import Synthetic
from tests.helpers import HANDED_OVER

ROOT = Path(__file__).resolve().parent.parent
DIM, HORIZON = 6, 20


def dispatchers(module):
    """The compiled loops of a file by name, less those that only loops call: _named so, or with records to return."""
    own = {name: value for name, value in vars(module).items() if hasattr(value, "signatures")}
    own = {name: loop for name, loop in own.items() if loop.py_func.__annotations__["return"] in HANDED_OVER}
    return {name: loop for name, loop in own.items() if loop.py_func.__module__ == module.__name__ and name[0] != "_"}


def test_every_file_of_loops_is_found():
    names = [module.__name__ for module in compile_cache.compile_cache_modules()]
    assert {"newcomer.array_loops", "newcomer.local.ascent_loops", "newcomer.em.likelihood_loops"} <= set(names)
    for module in compile_cache.compile_cache_modules():
        assert getattr(module, f"warm_{module.__name__.rpartition('.')[2]}").__module__ == module.__name__


def test_every_loop_has_machine_code_after_warming():
    compile_cache.warm_compile_cache()
    loops = {module.__name__: dispatchers(module) for module in compile_cache.compile_cache_modules()}
    assert all(loops.values())
    assert not [f"{file}.{name}" for file, own in loops.items() for name, loop in own.items() if not loop.signatures]


def test_code_is_forgotten_when_a_file_that_its_loops_call_is_newer(tmp_path, monkeypatch):
    """Numba's cache takes notice of the caller's own file only."""
    monkeypatch.setattr(compile_cache, "HERE", tmp_path)
    (tmp_path / "__pycache__").mkdir()
    sources = {"caller": "from middle_loops import f", "middle": "import changed_loops", "changed": "", "apart": ""}
    for name, text in sources.items():
        source, code = tmp_path / f"{name}_loops.py", tmp_path / "__pycache__" / f"{name}_loops.f-1.py311.1.nbc"
        source.write_text(text)
        code.write_text("")
        os.utime(source, (2000, 2000) if name == "changed" else (0, 0))
        os.utime(code, (1000, 1000))
    compile_cache.forget_old_compile_cache()
    assert [code.name.split("_")[0] for code in (tmp_path / "__pycache__").iterdir()] == ["apart"]


def logs_of_every_kind(folder):
    """Features a row, a catalogue, one-hot actions, and a file; ragged, short and long histories."""
    world = Synthetic(dim=DIM, rank=2, seed=1)
    yield world.logs(150, 6, seed=1)
    yield world.logs(150, (2, 16), seed=1)
    yield Synthetic(dim=DIM, rank=2, seed=1, items=30).logs(150, 6, seed=1)
    rng = np.random.default_rng(0)
    rows = {"user": np.arange(900) % 150, "action": rng.integers(9, size=900), "reward": rng.standard_normal(900)}
    yield nc.Logs.from_arrays(**rows)
    lines = ["user,action,reward", *(f"{u},{a},{r}" for u, a, r in zip(*rows.values(), strict=True))]
    (folder / "logs.csv").write_text("\n".join(lines))
    yield nc.read_logs(folder / "logs.csv")


def policies(model):
    """Every public policy, with every exit."""
    centers, settings = np.random.default_rng(0).standard_normal((3, DIM)), {"horizon": HORIZON}
    spread = np.stack([np.eye(DIM)] * 3)
    yield nc.Uniform()
    yield nc.PopulationMean(model)
    yield nc.LinUCB(DIM, **settings)
    yield nc.LinTS(DIM, votes=20, **settings)
    for kind in (nc.ProBALLUCB, nc.ProBALLTS):
        for tau, tau_prime in ((0.0, 0.0), (2.0, 0.0), (0.5, 0.5), (1e9, 0.0)):
            yield kind(model, tau=tau, tau_prime=tau_prime, radius=1.0, **settings)
        for name in ("savings", "containment"):
            yield kind(model, exit=name, radius=0.5, reward_bound=2.0, **settings)
    yield nc.PriorUCB(model)
    yield nc.PriorTS(model)
    named = replace(
        model, action_ids=tuple(range(DIM)), one_hot=True, residual_variance=np.ones(DIM), offsets=np.zeros(DIM)
    )
    for share in (None, 0.5):
        yield nc.EmpiricalArms(replace(named, persistence=share))
        yield nc.PriorUCB(replace(named, persistence=share))
    for bound in (2.0, np.inf):
        yield nc.LocalUCB(model, radius=0.4, reward_bound=bound, **settings)
    yield nc.MUCB(centers, **settings)
    yield nc.MmUCB(centers, 0.3, **settings)
    yield nc.MTS(centers)
    yield nc.MmTS(centers, variances=np.ones(3))
    yield nc.MixTS(centers, covariances=spread)


def use_everything(folder):
    """Fits of every kind and the whole contract of every policy, and a game."""
    for logs in logs_of_every_kind(folder):
        for estimator in ("em", "sold", "sold-pinv"):
            nc.fit(logs, estimator=estimator, rank=2)
    nc.fit(logs)  # of actions, with everything chosen from the data
    model = nc.fit(next(logs_of_every_kind(folder)))
    model = model if model.rank else nc.fit(next(logs_of_every_kind(folder)), rank=2)
    tried = list(policies(model))
    assert {type(policy).__name__ for policy in tried} == {n for n in nc.__all__ if hasattr(getattr(nc, n), "choose")}
    for policy in tried:
        check_policy(policy, dim=DIM)
    game = {str(i): policy for i, policy in enumerate(tried)}
    nc.play(game, Synthetic(dim=DIM, rank=2, seed=1), horizon=HORIZON, users=3, seed=1, progress=False)


def types_met():
    """The types of arguments that each loop has machine code for in this process."""
    loops = {
        f"{module.__name__}.{name}": loop
        for module in compile_cache.compile_cache_modules()
        for name, loop in vars(module).items()
    }
    return {name: sorted(map(str, loop.signatures)) for name, loop in loops.items() if hasattr(loop, "signatures")}


PROCESS = """
import json, sys, warnings
from pathlib import Path
from numba.core import event
warnings.simplefilter("ignore")
with event.install_recorder("numba:compile") as seen:
    from tests import test_compile_cache
    {use}
compiled = sorted({{str(e.data["dispatcher"].py_func.__qualname__) for _, e in seen.buffer if e.is_start}})
print(json.dumps([compiled, test_compile_cache.types_met()]))
"""


def in_a_process(use, *arguments):
    """What a new process compiles, and the types that its loops have met, when it does `use`."""
    command = [sys.executable, "-c", PROCESS.format(use=use), *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_fresh_process_compiles_nothing_after_set_up(tmp_path):
    """Set-up in one process; then another that uses everything and listens to Numba.

    What an earlier test had compiled is in the cache too, so the types that loops have met are compared as well.
    """
    _, warmed = in_a_process("test_compile_cache.compile_cache.warm_compile_cache()")
    compiled, met = in_a_process("test_compile_cache.use_everything(Path(sys.argv[1]))", tmp_path)
    assert compiled == []
    assert {name: set(types) - set(warmed[name]) for name, types in met.items() if set(types) - set(warmed[name])} == {}
    assert sum(map(bool, met.values())) > 20

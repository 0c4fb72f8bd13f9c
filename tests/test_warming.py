"""Guards the compiled loops: set-up compiles all of them, and whoever meets them uncompiled is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from newcomer import warming
from newcomer.cli import screen

EVERYTHING = """
import numpy as np, newcomer as nc
from newcomer import warming
from newcomer.worlds import Synthetic

def compiled():
    loops = [loop for module in warming.loop_modules() for loop in vars(module).values() if hasattr(loop, "stats")]
    return {(loop.__name__, str(one)) for loop in loops for one in loop.nopython_signatures}

warming.warm()
before = compiled()
world, shop = Synthetic.learnable(dim=6, seed=2), Synthetic(dim=4, items=30, seed=2)
rng = np.random.default_rng(0)
plain = nc.Logs.from_arrays(user=np.repeat(range(60), 8), action=rng.integers(0, 5, 480), reward=rng.random(480))
everyone = world.logs(300, 8, seed=2), shop.logs(200, 6, seed=1), plain
models = [nc.fit(logs, estimator=name, rank=2) for logs in everyone for name in ("em", "sold", "sold-pinv")]
model = nc.Model.from_bytes(models[0].to_bytes())
policies = {"PriorUCB": nc.PriorUCB(model), "PriorTS": nc.PriorTS(model), "LocalUCB": nc.LocalUCB(model, horizon=5),
            "ProBALLUCB": nc.ProBALLUCB(model, horizon=5), "ProBALLTS": nc.ProBALLTS(model, horizon=5),
            "Savings": nc.ProBALLUCB(model, horizon=5, exit="savings"), "LinUCB": nc.LinUCB(6, horizon=5),
            "LinTS": nc.LinTS(6, horizon=5), "PopulationMean": nc.PopulationMean(model), "Uniform": nc.Uniform(),
            "MUCB": nc.MUCB(np.eye(6), horizon=5), "MTS": nc.MTS(np.eye(6)), "MmTS": nc.MmTS(np.eye(6), variances=1.0)}
nc.play(policies, world, horizon=12, users=3, seed=0, progress=False)
print(sorted(compiled() - before))
"""


def test_set_up_compiles_it_all() -> None:
    """After `warm` neither a fit nor a policy compiles anything more."""
    done = subprocess.run([sys.executable, "-c", EVERYTHING], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_a_machine_without_compiled_loops_is_cold(tmp_path: Path) -> None:
    code = "from newcomer import warming; print(warming.cold('population'), warming.cold())"
    warming.warm()
    for folder, told in ((str(tmp_path), "True True\n"), ("", "False False\n")):
        env = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
        env |= {"NUMBA_CACHE_DIR": folder} if folder else {}
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env)
        assert done.stdout == told
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=env)
    assert done.stdout == "False False\n", "what is never compiled is never cold"


def test_the_first_fit_says_that_it_compiles(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    warmed: list[str] = []
    monkeypatch.setattr("newcomer.warming.warm", lambda *rooms: warmed.extend(rooms))
    for cold, told in ((True, "compiling the inner loops, once"), (False, "")):
        monkeypatch.setattr("newcomer.warming.cold", lambda *rooms, cold=cold: cold)
        screen.compile_first("population")
        said = capsys.readouterr()
        assert said.out == "" and said.err.startswith(told) and bool(said.err) == cold
    assert warmed == ["population"]

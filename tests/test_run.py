"""Guards nc.Run: how something is run is one record, keywords of before still work and say where they went."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import newcomer as nc
from newcomer.worlds import Synthetic


@pytest.fixture(scope="module")
def logs() -> nc.Logs:
    return Synthetic.learnable(dim=6, seed=1).logs(200, 8, seed=1)


def test_a_run_and_the_keywords_of_before_do_the_same(logs, tmp_path) -> None:
    told: dict[str, list] = {"run": [], "before": []}
    settings = {"rank": 2, "estimator": "sold", "null": False, "calibrate": False}
    run = nc.Run(moments=tmp_path / "run.moments", progress=lambda *rows: told["run"].append(rows))
    new = nc.fit(logs, **settings, run=run)
    with pytest.warns(FutureWarning) as caught:
        old = nc.fit(
            logs,
            **settings,
            moments=tmp_path / "old.moments",
            journal=tmp_path / "journal",
            progress=lambda *rows: told["before"].append(rows),
        )
    assert len(caught) == 1 and caught[0].filename == __file__
    said = "fit: pass run=nc.Run(progress=..., moments=..., checkpoint=...) in place of progress, moments, journal"
    assert str(caught[0].message).startswith(said)
    assert new.id == old.id and told["run"] == told["before"] != []
    assert (tmp_path / "run.moments").read_bytes() == (tmp_path / "old.moments").read_bytes()


@pytest.mark.parametrize("name", ["check", "evaluate", "report"])
def test_everything_that_reads_logs_takes_a_run(logs, tmp_path, name) -> None:
    call = {
        "check": lambda **how: nc.check(logs, fit=False, **how),
        "evaluate": lambda **how: nc.evaluate(logs, quick=True, **how),
        "report": lambda **how: nc.report(logs, tmp_path / "page.html", quick=True, **how),
    }[name]
    told = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(run=nc.Run(progress=lambda *_: told.append(1)))
    assert told
    with pytest.raises(nc.ModelError, match=f"{name} has no checkpoint"):
        call(run=nc.Run(checkpoint=tmp_path))
    with pytest.warns(FutureWarning, match=rf"^{name}: pass run=nc.Run\(progress=\.\.\.\) in place of progress"):
        call(progress=lambda *_: None)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"workers": 0}, "workers must be a whole number"),
        ({"resume": True}, "nothing to resume from"),
        ({"resume": "yes"}, "resume"),
        ({"progress": 3}, "progress"),
        ({"checkpoint": 7}, "checkpoint"),
    ],
)
def test_a_run_that_makes_no_sense_is_refused(wrong, said) -> None:
    with pytest.raises(nc.ModelError, match=said):
        nc.Run(**wrong)


def test_what_is_no_run_or_said_twice_is_refused(logs) -> None:
    with pytest.raises(nc.ModelError, match="run must be"):
        nc.fit(logs, run={"workers": 2})
    with pytest.raises(nc.ModelError, match="fit was given progress beside run="):
        nc.fit(logs, run=nc.Run(), progress=print)
    assert np.isfinite(nc.fit(logs, rank=1, run=nc.Run(workers=1), null=False, calibrate=False).mean).all()

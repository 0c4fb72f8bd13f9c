"""Guards the comparison with an earlier commit: what is dealt, how it is served, what is said of the ratios."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
from experiments import since, since_play

from newcomer.paper.scale import Setting
from newcomer.paper.studies import repeatability
from newcomer.paper.studies.people import LIKES


def test_dealt_newcomers_are_those_of_the_study_and_are_served_as_there(tmp_path: Path) -> None:
    """Alone, PriorUCB as it comes has the regret that the study `repeatability` finds for its own start."""
    setting = Setting("quick", str(tmp_path / "ml-1m"), "")
    point = {"people": "young 0/1", "size": 12, "newcomers": 4, "seed": 1}
    np.savez(tmp_path / "000.npz", **since.deal_table(setting, **point))
    since_play.main(tmp_path, tmp_path / "out.json")
    found = pl.DataFrame(json.loads((tmp_path / "out.json").read_text()))
    study = repeatability.run(setting, **point)
    assert found["case"].to_list() == list(LIKES)
    for name, policy in {"alone": "PriorUCB, start 0.5, curiosity 0.25"}.items():
        np.testing.assert_allclose(found[name], study.filter(policy=policy)["regret"], rtol=1e-9)


def test_ratios_are_paired_and_told_in_words() -> None:
    rows = pl.DataFrame(
        {
            "people": ["young"] * 2 + ["young 0/1"] * 2,
            "size": [0, 0, 16, 16],
            "case": ["half redrawn"] * 4,
            "then": [2.0, 4.0, 1.0, 1.0],
            "now": [2.2, 4.4, 0.9, 0.9],
            "told": [2.0, 4.0, 0.8, 0.8],
        }
    )
    frame = since.table(rows)
    assert frame["ratio"].round(6).to_list() == [1.1, 0.9] and frame["ratio_se"].round(6).to_list() == [0.0, 0.0]
    told = since.verdicts(frame)
    assert "0.5% less regret on average" in told and "ratings 10.0% more regret, 0/1 10.0% less regret" in told
    assert "two standard errors: young, half redrawn 1.100 (se 0.000) (nowhere was asked)" in told
    assert "20.0% less regret on average (4% less was asked)" in told
    assert "| young 0/1, 16 questions, half redrawn | 2 | 0.900 (se 0.000) | 0.800 (se 0.000) |" in told

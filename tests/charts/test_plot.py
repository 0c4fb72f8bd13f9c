"""Guards `nc.plot`: the right chart for each result, numbers that are the result's own, sentences for what has none."""

from __future__ import annotations

import sys
from dataclasses import replace

import polars as pl
import pytest

import newcomer as nc
from newcomer.evaluation.results import CurveStep, Evaluation, HeadlineStep
from newcomer.findings import Finding, Findings, Picture
from newcomer.interval import Interval
from newcomer.worlds import Synthetic
from newcomer.worlds.people import MadeUp
from tests.helpers import plain_model

LINE = Picture(
    "Over time", "step", "reward", (0.0, 1.0, 2.0), (3.0, 2.0, 1.0), (2.5, 1.5, 0.5), (3.5, 2.5, 1.5), band="2 se"
)
BARS = Picture("By level", "level", "share", (0.0, 1.0), (0.3, 0.7), (0.2, 0.6), (0.4, 0.8), ("a", "b"), "bars", "2 se")
FOUND = Findings(
    (
        Finding("drift", "doubtful", "Rewards drift.", "Look.", 0.3, "sd", 0.0001, 0.001, 0.2, 0.5, LINE),
        Finding("coverage", "broken", "Little is covered.", "Log.", 9.0, "", 0.0, 0.0, None, 0.5, BARS),
        Finding("repeats", "unknowable", "No action comes again.", ""),
    ),
    users=1000,
    rows=8000,
)


def around(value: float) -> Interval:
    return Interval(value, 0.1, value - 0.2, value + 0.2, 90)


def evaluation() -> Evaluation:
    steps = tuple(HeadlineStep(t, 90, around(3.0 + t), around(0.1 * t), None, around(0.3 * t)) for t in (1, 5))
    curves = tuple(
        CurveStep(name, t, 90, around(1.0), around(0.1), around(0.6), around(2.0 + place * t))
        for place, name in enumerate(("PopulationMean", "ridge", "posterior"))
        for t in (0, 1, 5)
    )
    twins = tuple(replace(one, predictor="EmpiricalArms") for one in curves if one.predictor == "PopulationMean")
    return Evaluation(200, 1800, 90, 5, 6, steps, (*curves, *twins), (), None, "", (), ())


@pytest.fixture(scope="module")
def model() -> nc.Model:
    return nc.fit(MadeUp.draw(300, 20, seed=1).world.logs(steps=10, seed=1))


def values(chart: object, column: str) -> list[object]:
    """Every value of a column in the tables of a chart."""
    tables = chart.to_dict()["datasets"].values()  # type: ignore[attr-defined]
    return [row[column] for table in tables for row in table if column in row]


def drawn(chart: object, path: object) -> bytes:
    chart.save(str(path), scale_factor=0.5)  # type: ignore[attr-defined]
    return path.read_bytes()[:8]  # type: ignore[attr-defined]


def test_every_result_is_a_picture(model, tmp_path):
    rows = nc.play({"Uniform": nc.Uniform()}, Synthetic(dim=5, seed=0), horizon=8, users=3, seed=0)
    for one in (rows, model, plain_model(6, 2), FOUND, FOUND["drift"], FOUND["coverage"], evaluation()):
        assert drawn(nc.plot(one), tmp_path / "one.png") == b"\x89PNG\r\n\x1a\n"


def test_rows_are_regret_curves_with_names_at_their_ends():
    rows = nc.play(
        {"Uniform": nc.Uniform(), "mine": nc.Uniform()}, Synthetic(dim=5, seed=0), horizon=8, users=3, seed=0
    )
    chart = nc.plot(rows)
    assert {"Uniform", "mine"} == set(values(chart, "policy"))
    total = rows.filter(pl.col("policy") == "mine")["regret"].sum() / 3
    assert any(abs(value - total) < 1e-9 for value in values(chart, "regret"))
    assert nc.plot(rows, title="Mine").to_dict()["title"] == "Mine"


def test_many_policies_stay_below_what_altair_takes():
    base = nc.play({"a": nc.Uniform()}, Synthetic(dim=4, seed=0), horizon=400, users=2, seed=0)
    rows = pl.concat([base.with_columns(policy=pl.lit(f"policy {i}")) for i in range(20)])
    assert max(map(len, nc.plot(rows).to_dict()["datasets"].values())) <= 5000


def test_a_model_shows_its_spectrum_and_what_held_out_users_gained(model):
    chart = nc.plot(model)
    steps = model.evidence.population.heldout_gain.steps
    assert [one for one in values(chart, "value") if one != 0.0] == [step.gain for step in steps]
    assert f"kept (rank {model.rank})" in values(chart, "kept")
    assert values(nc.plot(plain_model(6, 2)), "kept") == ["kept (rank 2)"] * 2 + ["not kept"] * 4


def test_findings_are_drawn_in_multiples_of_what_matters():
    chart = nc.plot(FOUND)
    assert "broken (1,000 users, 8,000 rows)" in chart.to_dict()["title"]
    told = {row["name"]: row for table in chart.to_dict()["datasets"].values() for row in table if "name" in row}
    assert told["drift"]["multiple"] == pytest.approx(1.5) and told["coverage"]["multiple"] == 3.0
    assert told["repeats"]["multiple"] is None and told["drift"]["told"] == "0.3 sd, p < 0.001"


def test_an_evaluation_shows_gains_and_predictors_once_each():
    chart = nc.plot(evaluation())
    names = set(values(chart, "name"))
    assert names == {"the population mean", "what was logged", "PriorUCB", "PopulationMean = EmpiricalArms", "ridge"}


@pytest.mark.parametrize("given", [None, 3, "model.newcomer", pl.DataFrame({"x": [1]})])
def test_what_has_no_chart_gets_a_sentence(given):
    with pytest.raises(nc.NewcomerError, match="plot has no chart for .*pass rows of nc.play, a model"):
        nc.plot(given)


def test_what_measured_nothing_gets_a_sentence():
    with pytest.raises(nc.NewcomerError, match="the finding 'repeats' has no chart"):
        nc.plot(FOUND["repeats"])
    with pytest.raises(nc.NewcomerError, match="could measure nothing that can be drawn"):
        nc.plot(replace(evaluation(), headline=()))


def test_without_the_extra_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    monkeypatch.delitem(sys.modules, "newcomer.charts.pictures", raising=False)
    with pytest.raises(nc.MissingExtra, match=r"pip install 'newcomer\[report\]'"):
        nc.plot(FOUND)

"""What people are shown: rates, comparisons, units, names and axes that mean something."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rich.console import Console

import newcomer as nc
from newcomer.charts import palette
from newcomer.checks import dependence
from newcomer.cli.output import Meter
from newcomer.errors import LogsError, ModelError
from newcomer.evaluation.results import CurveStep, HeadlineStep, Interval, PolicyRow, _replay, _rivals, result_in_words
from newcomer.reporting.markup import SvgLine
from newcomer.reporting.sections_model import model_section_directions
from newcomer.reporting.sections_users import user_section_lines_near

SOME = Interval(0.2, 0.05, 0.1, 0.3, 100)


def test_a_pass_that_has_just_begun_has_no_rate() -> None:
    now, screen = [0.0], StringIO()
    meter = Meter("Fitting", console=Console(file=screen, width=120), clock=lambda: now[0])
    for at, done in ((0.5, 900_000), (40.0, 1_000_000), (40.0, 20_000), (80.0, 40_000)):
        now[0] = at
        meter(done, 1_000_000)
    now[0] = 80.0 + 1e-9
    assert "rows/s" not in meter.line(20_000, 1_000_000, 40.0) and meter.line(40_000, 1_000_000, 80.0).count(
        "1,000 rows/s"
    )
    assert "000,000,000 rows/s" not in screen.getvalue()


def test_differences_say_more_or_less_only_where_it_is_clear() -> None:
    assert result_in_words(SOME, "chance") == "+0.200 (+0.100 to +0.300) against chance"
    unclear = Interval(-0.0001, 0.001, -0.0021, 0.0019, 90)
    assert result_in_words(unclear, "chance") == (
        "no clear difference from chance (-0.0001, 95% interval -0.0021 to +0.0019)"
    )
    assert result_in_words(Interval(0.0, 0.0, 0.0, 0.0, 9), "chance") == "the same as chance, for every user"
    assert result_in_words(Interval(-0.2, 0.05, -0.3, -0.1, 90), "chance") == "-0.200 (-0.300 to -0.100) against chance"


def test_who_chose_better_is_said_of_a_number_of_interactions_and_of_all_rounds() -> None:
    look = HeadlineStep(5, 100, Interval(4.0, 0.1, 3.8, 4.2, 100), SOME, SOME, SOME)
    unclear = Interval(0.01, 0.05, -0.09, 0.11, 100)
    step = CurveStep("ALS fold-in", 5, 100, SOME, SOME, SOME, SOME, over_ours=unclear)
    (said,) = _rivals(type("Found", (), {"curves": (step,)})(), look)  # type: ignore[arg-type]
    assert said.startswith("On the same 100 held-out users and choices, after 5 interactions, no rival predictor chose")
    rows = [PolicyRow("PriorUCB", 10, 100, SOME, SOME), PolicyRow("ALS fold-in", 10, 100, SOME, SOME, SOME)]
    (said,) = _replay(tuple(rows))
    assert said.endswith("ALS fold-in did better than PriorUCB by +0.200 (+0.100 to +0.300).")
    assert "mean reward per round of PriorUCB +0.200 (+0.100 to +0.300) against the population mean" in said
    assert "better" not in _replay((rows[0], replace(rows[1], over_ours=unclear)))[0]


def test_units_are_written_out() -> None:
    assert dependence.SHIFT == "standard deviations (per standard deviation of preference)"


def test_the_demo_does_not_say_film_51_of_10() -> None:
    page = (Path(__file__).parents[2] / "docs" / "start" / "install.md").read_text(encoding="utf-8")
    assert "film 51 (of 10), expected" in page and "film 51 of 10" not in page


def test_curves_far_from_what_matters_are_listed_and_not_drawn() -> None:
    def line(name: str, *y: float, band: float = 0.0) -> SvgLine:
        return SvgLine(
            name, range(len(y)), y, palette.policy_colour(name), [v - band for v in y], [v + band for v in y]
        )

    lines = [line("posterior", 4.2, 4.3, band=0.05), line("PopulationMean", 4.2, 4.2), line("ALS fold-in", 4.18, 4.28),
             line("ridge", 0.0, 1.5), line("SOLD's subspace", np.nan, 3.0)]  # fmt: skip
    drawn, far = user_section_lines_near(lines)
    assert [one.name for one in drawn] == ["posterior", "PopulationMean", "ALS fold-in"]
    assert [one.name for one in far] == ["ridge", "SOLD's subspace"]
    alone = [line("ridge", 1.0), line("ALS fold-in", 2.0)]
    assert user_section_lines_near(alone) == (alone, [])


def ratings(folder: Path) -> tuple[Path, Path]:
    rng = np.random.default_rng(0)
    user, item = np.repeat(np.arange(60), 8), np.concatenate([rng.permutation(12)[:8] for _ in range(60)])
    taste = rng.standard_normal(60)[user] * np.where(item % 2, 1.0, -1.0)
    logs, items = folder / "ratings.csv", folder / "films.csv"
    pl.DataFrame({"user": user, "film": item, "rating": taste + 0.3 * rng.standard_normal(len(user))}).write_csv(logs)
    films = {"film": np.arange(11), "name": [f"The {i}th" for i in range(10)] + [None], "studio": ["x"] * 11}
    pl.DataFrame(films).write_csv(items)
    return logs, items


@pytest.mark.parametrize("column", ["name", "title"])
def test_items_name_the_directions_of_one_hot_logs(tmp_path: Path, column: str) -> None:
    path, items = ratings(tmp_path)
    items.write_text(items.read_text().replace("name", column))
    logs = nc.read_logs(path, items=items)
    assert logs.one_hot and logs.dim == 12 and logs == nc.read_logs(path)
    assert logs.item_names == (*(f"The {i}th" for i in range(10)), "10", "11")
    assert logs.direction_names[3] == "The 3th" and "Items have names and no features" in " ".join(logs.advice)
    model = nc.Model.from_bytes(nc.fit(logs, rank=1).to_bytes())
    assert model.action_names == logs.item_names and model == nc.fit(nc.read_logs(path), rank=1)
    (found,) = model_section_directions(model)
    assert {name for name, _ in (*found.front, *found.back)} <= set(model.action_names or ())


def test_items_without_names_or_numbers_are_refused(tmp_path: Path) -> None:
    path, items = ratings(tmp_path)
    items.write_text(items.read_text().replace("name", "label"))
    with pytest.raises(LogsError, match="items have no numeric columns.*a column name for one-hot features with names"):
        nc.read_logs(path, items=items)


def test_the_report_takes_what_fit_takes(tmp_path: Path) -> None:
    path, items = ratings(tmp_path)
    logs = nc.read_logs(path, items=items)
    found = nc.report(logs, tmp_path / "page.html", rank=2, estimator="sold", quick=True)
    assert found.model is not None and (found.model.rank, found.model.estimator) == (2, "sold")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "--rank 2 --estimator sold" in page and "The 3th" in page
    for wrong in ({"rank": 0}, {"rank": 99}, {"estimator": "best"}):
        with pytest.raises(ModelError):
            nc.report(logs, tmp_path / "no.html", **wrong)
    assert not (tmp_path / "no.html").exists()

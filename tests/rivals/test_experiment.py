"""The experiment of rivals: its measures by hand, its jobs, a small game of everybody, and its page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from experiments import rivals_jobs, rivals_page, rivals_people, rivals_recommenders, rivals_taxes

from newcomer.worlds.people import MadeUp, People


def test_order_counts_pairs_and_half_of_ties() -> None:
    said, rating = np.array([3.0, 1.0, 1.0, 0.0]), np.array([5.0, 2.0, 4.0, 4.0])
    # Pairs apart: (0,1) right, (0,2) right, (0,3) right, (1,2) tie, (1,3) wrong.
    assert rivals_recommenders.order(said, rating) == pytest.approx(3.5 / 5)
    assert rivals_recommenders.order(said, np.ones(4)) == 0.5


def test_ndcg_and_choice_by_hand() -> None:
    said, rating = np.array([2.0, 3.0, 1.0]), np.array([1.0, 4.0, 5.0])
    ideal, found = 5 + 4 / np.log2(3), 4 + 1 / np.log2(3)
    assert rivals_recommenders.ndcg(said, rating, top=2) == pytest.approx(found / ideal)
    assert rivals_recommenders.choice(said, rating, np.array([0, 0, 1])) == pytest.approx((4 + 5) / 2)


def test_the_first_level_of_each_group_is_the_reference() -> None:
    assert rivals_taxes.references(["a_1", "a_2", "b_x", "b_y"]) == {"a_1", "b_x"}


def test_a_job_that_is_done_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEWCOMER_WORK", str(tmp_path))
    made = []

    def job(number: int) -> pl.DataFrame:
        made.append(number)
        return pl.DataFrame({"number": [number]})

    module, every = "experiments.markdown", [{"number": 1}, {"number": 2}]
    assert rivals_jobs.all_kept(module, job, every, made=False) is None
    rivals_jobs.kept(module, job, every[0])
    found = rivals_jobs.all_kept(module, job, every, made=False)
    assert found is not None and found["number"].to_list() == [1]
    rivals_jobs.all_kept(module, job, every)
    assert made == [1, 2]


@pytest.fixture(scope="module")
def games() -> pl.DataFrame:
    """A split of made-up people, five newcomers, and what another might have given."""
    patch = pytest.MonkeyPatch()

    def made_up(people: str, seed: int) -> People:
        return replace(MadeUp.draw(80, 12).world, held_out=0.3, retest=0.0, seed=seed)

    patch.setattr(rivals_people, "world_of", made_up)
    patch.setattr(rivals_people, "NEWCOMERS", 5)
    patch.setattr(rivals_people, "ROUNDS", 6)
    tuned = rivals_people.tune("bfi", 6).row(0, named=True)
    one = rivals_people.split("bfi", 6, 1, **tuned)
    patch.undo()
    return rivals_people.compared(pl.concat([one, one.with_columns(pl.col("regret") * 1.1, unit=pl.lit(2))]))


def test_everybody_plays_and_is_compared_with_ours(games: pl.DataFrame) -> None:
    assert set(games["policy"]) == set(rivals_page.NEEDS)
    assert games["units"].unique().to_list() == [2]
    ours = games.filter(policy="PriorUCB")
    assert ours["ratio"].to_list() == pytest.approx([1.0, 1.0])
    assert (games["low"] <= games["ratio"]).all() and (games["regret"] >= 0).all()


def test_the_page_tells_every_policy(games: pl.DataFrame, tmp_path: Path) -> None:
    rows = [games.with_columns(people=pl.lit(people), answers=pl.lit(n)) for people, n, _ in rivals_page.OVERVIEW]
    once = rows[2].filter(case="half redrawn").with_columns(case=pl.lit("each once"))
    pl.concat([*rows, once]).unique(["people", "answers", "case", "policy"], maintain_order=True).write_csv(
        tmp_path / "rivals.csv"
    )
    begin, close = "<!-- rivals: written by experiments.write_pages -->", "<!-- end of rivals -->"
    page = rivals_page.with_tables(f"before\n{begin}\nold\n{close}\nafter", tmp_path)
    assert page.startswith("before") and page.endswith("after") and "old" not in page
    assert all(f"| {name} |" in page or f"| **{name}** |" in page for name in rivals_page.NEEDS)
    assert page == rivals_page.with_tables(page, tmp_path)


def test_from_when_on_the_item_mean_is_beaten() -> None:
    by = {
        one: {"order_over_mean": gap, "order_over_mean_se": 0.01}
        for one, gap in ((0, 0.0), (1, 0.05), (2, 0.01), (5, 0.03))
    }
    assert rivals_page._from(by, (0, 1, 2, 5)) == "5"
    by[2]["order_over_mean"] = 0.03
    assert rivals_page._from(by, (0, 1, 2, 5)) == "1"
    by[5]["order_over_mean"] = -0.03
    assert rivals_page._from(by, (0, 1, 2, 5)) == "never"


def lines(people: str, method: str, over_mean: float) -> list[dict[str, object]]:
    """Rows of one recommender, the same for every number of known ratings."""
    measures = ("order", "ndcg", "choice")
    numbers = {one: 0.5 for one in measures} | {f"{one}_over_ours": -0.25 for one in measures}
    errors = {f"{one}_over_ours_se": 0.01 for one in measures}
    row = {"people": people, "method": method, "taken": "folded in", "newcomers": 7, "seconds": 0.001}
    gap = {"order_over_mean": over_mean, "order_over_mean_se": 0.01}
    return [row | numbers | errors | gap | {"known": known} for known in rivals_page.FEW]


def test_recommenders_are_told_with_intervals_and_since_when_they_beat_item_means() -> None:
    found = pl.DataFrame(
        [*lines("young", "newcomer", 0.05), *lines("young", "item mean", 0.0), *lines("young", "worse", -0.05)]
    )
    assert rivals_page.few_ratings(found) == "- Young People: from 0: newcomer; never: worse."
    assert "Young People, 7 newcomers" in rivals_page.recommenders(found)
    told = rivals_page.gaps(found).splitlines()
    assert told[0].startswith("| Young People, order over ours | 0 known |")
    assert told[4] == "| worse |" + " -0.250 ± 0.020 |" * 6


def test_clear_wins_are_counted_and_the_readme_has_ranges(games: pl.DataFrame, tmp_path: Path) -> None:
    level = games.with_columns(ratio=1.0, low=0.9, high=1.1)
    assert rivals_page.wins(level).endswith("by chance.") and " 0 are clearly better" in rivals_page.wins(level)
    best = level.with_columns(high=pl.when(pl.col("policy") == "CLUB").then(0.95).otherwise("high"))
    assert rivals_page.wins(best).count("\n- CLUB: bfi, 6 logged") == 2
    level.write_csv(tmp_path / "rivals.csv")
    assert "2 settings of" in rivals_page.in_readme(tmp_path) and "CLUB 1.00 to 1.00" in rivals_page.in_readme(tmp_path)

"""Guards the verdicts: what they say of the results is true of the tables, and numbers in them are not typed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from experiments.figure_captions import ALL_VARIANTS, CAPTIONS, COMPARED, answer, comparisons
from experiments.figure_facts import Facts
from experiments.figure_facts_errors import _within, chance
from experiments.figure_verdicts import VERDICTS
from experiments.paired import Ends, Gap, Line
from experiments.study_targets import rates_verdicts

from newcomer.paper.catalogue import FIGURES
from newcomer.paper.studies import hard
from newcomer.paper.studies.stars_and_clicks import CLICKS, STARS

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"


@pytest.mark.parametrize("name", VERDICTS)
def test_what_a_verdict_says_is_true_of_the_tables(name: str) -> None:
    facts = VERDICTS[name].facts(RESULTS)
    assert facts.claims and [claim for claim, holds in facts.claims.items() if not holds] == []
    assert "{" not in VERDICTS[name].told(RESULTS)


def test_differences_are_paired_and_clear_beyond_two_standard_errors() -> None:
    """Newcomers differ far more than policies do: means as if independent would call these two level."""
    newcomers = np.array([10.0, 60.0, 35.0, 90.0])
    gap = Gap.of(newcomers + [1.0, 2.0, 1.0, 2.0], newcomers)
    assert gap.mean == 1.5 and gap.error == pytest.approx(np.sqrt(1 / 3) / 2) and gap.more and not gap.level
    assert Gap(1.0, 0.5).level and Gap(-1.1, 0.5).less and Gap(0.0, 0.0).level  # the same run is level with itself
    assert (Gap(-1.1, 0.5).words, Gap(1.0, 0.5).signed) == ("1.1 ± 0.5", "+1.0 ± 0.5")
    assert (Facts({"a": "1"}, {"x": True}) | Facts({"b": "2"}, {"y": False})).claims == {"x": True, "y": False}


def test_newcomers_are_those_of_the_curves() -> None:
    """The mean over newcomers is the last point of a line, and its standard error the one drawn there."""
    for name in COMPARED:
        value = "reward" if name.endswith("rating") else "regret"
        ends = Ends.of(RESULTS, name, value)
        last = (
            ends.curves
            if "t" not in ends.curves.columns
            else ends.curves.filter(pl.col("t") == pl.col("t").max().over("world"))
        )
        for row in last.iter_rows(named=True):
            own = ends.each(row["world"], Line(row["policy"], row["tau"], row.get("users")))
            assert own.mean() == pytest.approx(row[value], rel=1e-4), (name, row["policy"])
            assert own.std(ddof=1) / np.sqrt(len(own)) == pytest.approx(row[f"{value}_se"], rel=1e-3)


def test_figures_share_their_newcomers() -> None:
    """A line that two figures have is the same, newcomer by newcomer: what pairs lines across figures."""
    first, second = Ends.of(RESULTS, "lowdim-regret"), Ends.of(RESULTS, "movielens-together")
    for world in first.newcomers["world"].unique():
        for line in (Line("PopulationMean"), Line("PriorUCB"), first.kept(world, "ProBALL-UCB")):
            np.testing.assert_array_equal(first.each(world, line), second.each(world, line))


@pytest.mark.parametrize("name", CAPTIONS)
def test_a_claim_has_the_verbs_of_its_caption(name: str) -> None:
    """Not a weaker one: "no worse than" for "outperform" once made two figures out to be reproduced."""
    claim, caption = FIGURES[name].claim, CAPTIONS[name]
    assert comparisons(claim) == comparisons(caption) != set()
    assert (ALL_VARIANTS in claim.lower()) == (ALL_VARIANTS in caption.lower())


def test_weaker_words_are_told_apart() -> None:
    outperform, no_worse = "It outperforms mUCB, and mmUCB.", "It is no worse than mUCB and mmUCB."
    assert comparisons(outperform) == {("outperform", "mUCB"), ("outperform", "mmUCB")}
    assert comparisons(no_worse) == {("no worse than", "mUCB"), ("no worse than", "mmUCB")}
    mixed = "All are no worse than LinUCB; A outperforms LinTS, and ProBALL-TS outperforms TS algorithms."
    assert comparisons(mixed) == {("no worse than", "LinUCB"), ("outperform", "TS algorithms")}


@pytest.mark.parametrize("name", COMPARED)
def test_an_answer_is_what_the_caption_and_the_newcomers_give(name: str) -> None:
    assert VERDICTS[name].answer == answer(RESULTS, name)


@pytest.mark.parametrize("name", [name for name in COMPARED if name.endswith("rating")])
def test_a_verdict_on_ratings_rests_on_ratings(name: str, tmp_path: Path) -> None:
    """Turn every rating around and leave regret alone: the verdict on ratings is no longer true."""
    for table in RESULTS.glob("*.csv"):
        (tmp_path / table.name).symlink_to(table)
    own = tmp_path / f"{name}-newcomers.csv"
    own.unlink()
    turned = pl.read_csv(RESULTS / own.name, infer_schema_length=None).with_columns(-pl.col("^n[0-9]+$"))
    turned.write_csv(own)
    assert not all(VERDICTS[name].facts(tmp_path).claims.values())


def test_a_point_is_inside_an_outline_or_not() -> None:
    bent = [(0.0, 0.0), (2.0, 0.0), (2.0, 2.0), (1.0, 0.5), (0.0, 2.0)]
    assert _within((0.2, 1.0), bent) and not _within((1.0, 1.0), bent) and not _within((3.0, 1.0), bent)
    assert chance(2, 1) == pytest.approx(1.0)  # E sin^2 = 1/2 of a random line in the plane


# Numbers that pages of the theory quote from the tables of studies.


def test_the_page_on_local_ucb_quotes_its_table() -> None:
    text = re.sub(r"\s+", " ", (ROOT / "docs" / "paper" / "local-ucb.md").read_text(encoding="utf-8"))
    frame = pl.read_csv(RESULTS / "local-regret.csv", infer_schema_length=None)

    def regret(world: str, policy: str, users: int | None) -> str:
        size = pl.col("users").is_null() if users is None else pl.col("users") == users
        return f"{frame.filter(size, world=world, policy=policy)['regret'].item():.1f}"

    ours, theirs, plain = (regret("learnable", name, None) for name in ("LOCAL-UCB", "ProBALL-UCB", "LinUCB"))
    assert f"LOCAL-UCB has {ours}, ProBALL-UCB {theirs} and LinUCB {plain}" in text
    weak = [regret("weak", "LOCAL-UCB", users) for users in (200, 5000)]
    assert f"{weak[0]} at 200 users, {weak[1]} at 5,000" in text
    assert f"better off with it ({regret('weak', 'ProBALL-UCB', 200)} at 200 users)" in text
    pooled = frame.filter(pl.col("users").is_null(), policy="ProBALL-UCB")
    shares = [pooled.filter(world=world)["share_upper"].item() for world in ("learnable", "weak")]
    assert f"is {shares[0]:.1%} of LinUCB's regret" in text and f"the upper limit is {shares[1]:.0%} of" in text
    learning = ("LOCAL-UCB", "ProBALL-UCB", "ProBALL-UCB, savings exit", "LinUCB")
    for world in ("learnable", "weak"):
        own = frame.filter(pl.col("users").is_null(), world=world)
        prior = own.filter(policy="PriorUCB").row(0, named=True)
        assert prior["regret"] < own.filter(pl.col("policy").is_in(learning))["regret"].min()
        assert prior["ratio"] > 1 + 2 * prior["ratio_se"]  # of LOCAL-UCB's regret to it, newcomer by newcomer


def test_the_map_quotes_how_the_measured_error_falls() -> None:
    error, *_ = rates_verdicts(study_table("rates"))
    assert error.holds is None
    assert f"falls by {error.measured} of the rate's fall" in (ROOT / "docs/paper/map.md").read_text(encoding="utf-8")


def study_table(name: str) -> pl.DataFrame:
    return pl.read_csv(RESULTS / f"{name}.csv", infer_schema_length=None)


# Claims of studies, which say what came out.


def test_rewards_are_predicted_on_the_right_scale_and_too_low_at_first() -> None:
    frame = study_table("prior-ratings")
    assert frame["slope"].is_between(0.95, 1.05).all()
    first = frame.filter(seen=0, rewards=STARS)
    assert (first["predicted"] < first["actual"]).all() and first["bias"][0] < -0.1
    rare = frame.filter(rewards=CLICKS, bin=0)
    assert (rare["predicted"] + 2 * rare["actual_se"] < rare["actual"]).all()


def test_exploring_by_what_a_reward_would_tell_is_near_the_best_width() -> None:
    frame = study_table("exploration")
    ours, drawn = (frame.filter(policy=f"{name}, curiosity 0.5")["ratio"] for name in ("PriorUCB", "PriorTS"))
    assert ours.max() <= 1.03 and (drawn <= 1.03).mean() > 0.5


def test_nobody_saves_more_than_a_fifth_at_the_scale_of_the_theorem() -> None:
    frame = study_table("hard")
    assert frame.filter(pl.col("policy").is_in(hard.policies_in(frame)), scale=1.0)["blind"].min() >= 0.8


def test_weak_directions_help_young_people_and_not_bfi() -> None:
    frame = study_table("weak-directions").filter(policy="average")
    young, bfi = (frame.filter(pl.col("people").str.starts_with(name)) for name in ("young", "bfi"))
    assert (young["ratio"] <= 1.005).all() and np.log(young["ratio"]).mean() < -0.005
    assert abs(np.log(bfi["ratio"]).sum()) < 2 * np.sqrt((bfi["ratio_se"] ** 2).sum())


@pytest.mark.parametrize("policy", ["PriorUCB, start {}, curiosity 0.5", "PriorUCB, start {}, curiosity 0.25"])
def test_newcomers_who_are_told_lose_less_than_with_any_fixed_start(policy: str) -> None:
    frame, by = study_table("repeatability"), ["people", "size", "case"]
    told = frame.filter(policy=policy.format("told"))
    for start in ("0.5", "0.25", "0.1", "0.9"):
        both = frame.filter(policy=policy.format(start)).join(told, on=by, suffix="_told")
        assert len(both) and np.log(both["ratio_told"] / both["ratio"]).mean() < -0.005

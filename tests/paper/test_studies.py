"""Guards the studies past the paper: paired ratios, the true prior, the oracle floor, clicks, verdicts and the page
made of them.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from experiments.study_page import page
from experiments.study_targets import TARGETS, users_verdicts
from scipy import stats

from newcomer.paper.catalogue import EVERYTHING, FIGURES, STUDIES, chosen
from newcomer.paper.scale import SCALES, Setting
from newcomer.paper.studies import prior_subspace as subspace
from newcomer.paper.studies import weak_directions
from newcomer.paper.studies.comparison import compared, regrets, t_intervals, truth_of
from newcomer.paper.studies.stars_and_clicks import Clicks
from newcomer.policies.baselines import PopulationMean, Uniform
from newcomer.subspace import subspace_distance
from newcomer.worlds.people import MadeUp
from newcomer.worlds.synthetic import Synthetic


def test_every_study_is_in_the_catalogue_and_not_among_the_papers_figures():
    assert len(STUDIES) == 17 and set(STUDIES) == set(TARGETS) and not set(STUDIES) & set(FIGURES)
    assert chosen(["prior-users"]) == [EVERYTHING["prior-users"]]
    for figure in STUDIES.values():
        assert figure.claim and figure.caption(SCALES["full"]) and not figure.fits(SCALES["full"])
        assert figure.run is not None


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_jobs_are_distinct_and_fewer_when_quick(name):
    kept = [SimpleNamespace(scale=SCALES[scale], setting=Setting(scale, "", "")) for scale in ("full", "quick")]
    full, small = map(STUDIES[name].jobs, kept)
    assert len(set(full)) == len(full) > len(small) > 0
    assert {job.figure for job in (*full, *small)} == {name}


def test_variants_of_weak_directions_ask_held_out_users_or_do_not():
    """`always` keeps the full covariance where held-out users refuse it, as in a world of exact rank."""
    found = weak_directions.variants(MadeUp.draw(120, 10).world.logs(steps=6))
    assert set(found) == {"clear", "average", "always", "ranks", "entries"}
    assert found["always"].factor.shape[1] >= found["average"].factor.shape[1] >= found["clear"].factor.shape[1]


def test_intervals_are_those_of_students_t():
    rng = np.random.default_rng(1)
    values = rng.standard_normal((2, 7))
    frame = pl.DataFrame({"g": np.repeat([0, 1], 7), "x": values.ravel()})
    found = t_intervals(frame, 2 * pl.col("x"), ["g"], level=0.9)
    for row, own in zip(found.iter_rows(named=True), 2 * values, strict=True):
        low, high = stats.t.interval(0.9, 6, own.mean(), stats.sem(own))
        assert (row["mean"], row["low"], row["high"]) == pytest.approx((own.mean(), low, high))


def test_ratios_are_of_means_over_paired_units_with_the_delta_method():
    rng = np.random.default_rng(0)
    a, b = rng.gamma(2.0, size=(2, 12, 3))  # twelve units with three users each
    frame = pl.concat(
        pl.DataFrame(
            {"policy": name, "seed": np.repeat(np.arange(12), 3), "user": np.tile(np.arange(3), 12)}
        ).with_columns(regret=pl.Series(values.ravel()), g=pl.lit(1))
        for name, values in (("ours", a), ("other", b))
    )
    found = compared(frame, "ours", ["g"], ["seed"]).filter(policy="other").row(0, named=True)
    ours, other = a.mean(axis=1), b.mean(axis=1)
    ratio = ours.mean() / other.mean()
    assert found["units"] == 12
    assert found["ratio"] == pytest.approx(ratio)
    assert found["ratio_se"] == pytest.approx(np.std(ours - ratio * other, ddof=1) / np.sqrt(12) / other.mean())
    assert found["regret_se"] == pytest.approx(np.std(other, ddof=1) / np.sqrt(12))


def test_the_true_prior_is_the_worlds():
    world = Synthetic(dim=8, rank=3, offset=0.4, seed=2)
    model = truth_of(world)
    np.testing.assert_allclose(model.covariance, world.covariance, atol=1e-12)
    np.testing.assert_allclose(model.mean, world.mean)
    assert subspace_distance(model.basis, world.basis) < 1e-6 and model.noise_variance == world.noise**2


def test_regrets_accumulate():
    world = Synthetic(dim=5, seed=1)
    policies = {"a": Uniform(), "b": PopulationMean(truth_of(world))}
    rows = regrets(policies, world, horizon=6, users=2, seed=0, every=3)
    assert rows["t"].unique().sort().to_list() == [3, 6] and len(rows) == 8
    wide = rows.pivot("t", index=["policy", "user"], values="regret")
    assert (wide["6"] >= wide["3"]).all()


def test_knowing_theta_finds_the_subspace_of_noiseless_logs_exactly_and_noisy_ones_nearly():
    exact = Synthetic(dim=10, rank=2, noise=0.0, seed=3)
    assert subspace_distance(subspace.known_theta(exact, 300, 3), exact.basis) < 1e-6
    noisy = Synthetic(dim=10, rank=2, seed=3)
    assert 1e-3 < subspace_distance(subspace.known_theta(noisy, 300, 3), noisy.basis) < 0.2


def test_clicks_are_zero_or_one_with_the_probability_of_their_score():
    world = Clicks(Synthetic(dim=6, offset=0.5, seed=1))
    episode = world.episode(np.random.default_rng(0), 500)
    assert set(np.unique(episode.rewards)) == {0.0, 1.0}
    assert episode.actions.shape[2] == world.dim == 7 and (episode.actions[..., -1] == 1).all()
    assert abs(float((episode.rewards - episode.means).mean())) < 4 * 0.5 / np.sqrt(episode.means.size)
    logs = world.logs(300, 4, seed=2)
    assert logs.dim == 7 and logs.summary.rows == 1200
    assert 0.2 < logs.summary.mean_reward < 0.6


def test_a_verdict_needs_the_whole_interval():
    line = {"world": "w", "policy": "LinUCB", "units": 9, "regret": 10.0, "regret_se": 1.0, "ratio": 1.0, "over": -1.0}
    cases = [(-2.0, -0.5, True), (-2.0, 0.5, None), (0.1, 0.5, False)]
    frame = pl.DataFrame(
        [{**line, "users": n, "over_low": low, "over_high": high} for n, (low, high, _) in enumerate(cases)]
    )
    assert [verdict.holds for verdict in users_verdicts(frame)][:3] == [holds for *_, holds in cases]


def test_the_page_is_made_of_the_tables_that_exist(tmp_path):
    rows = [
        {"scale": entry, "estimator": name, "worlds": 20, "error": 0.1, "error_se": 0.01, "ratio": 0.5, "ratio_se": 0.1}
        for entry in subspace.SCALES
        for name in ("EM", "SOLD")
    ]
    pl.DataFrame(rows).write_csv(tmp_path / "prior-subspace.csv")
    text = page(tmp_path, tmp_path / "page.md")
    assert "| EM / SOLD, entries up to 1.25 | at most 0.45 | 0.5 (se 0.1) | **does not hold** |" in text
    assert "## prior-subspace" in text and "## prior-users" not in text

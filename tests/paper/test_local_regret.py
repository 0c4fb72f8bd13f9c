"""Guards the study of LOCAL-UCB's regret: its jobs, the rate drawn, the pooled shares and limits, and its verdicts."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from experiments.study_targets import local_verdicts
from scipy import stats

import newcomer as nc
from newcomer.paper.scale import SCALES
from newcomer.paper.studies import local_regret as study
from newcomer.paper.studies.comparison import truth_of
from newcomer.worlds.synthetic import Synthetic


def make_rows(seed=0, worlds=4, newcomers=3, sizes=(200, 2000)):
    rng = np.random.default_rng(seed)
    keys = [(n, s, u) for n in sizes for s in range(worlds) for u in range(newcomers)]
    columns = {name: [key[i] for key in keys] for i, name in enumerate(("users", "seed", "user"))}
    return pl.concat(
        pl.DataFrame({"policy": name, **columns, "regret": rng.gamma(shape, size=len(keys))})
        for name, shape in ((study.LOCAL, 3.0), (study.LITERAL, 2.0), (study.SAVINGS, 5.0), (study.LINEAR, 9.0))
    )


def test_jobs_are_distinct_and_fewer_when_quick():
    full, small = ([tuple(point.items()) for point in study.sweep(SCALES[scale])] for scale in ("full", "quick"))
    assert len(set(full)) == len(full) == len(study.WORLDS) * len(study.SIZES) * study.SEEDS > len(small) > 0
    assert study.SEEDS * study.NEWCOMERS == 100


def test_on_the_true_subspace_it_is_linucb_in_k_dimensions():
    world = Synthetic(dim=study.DIM, rank=study.RANK, seed=1)
    truth, rng = truth_of(world), np.random.default_rng(0)
    policy = nc.ProBALLUCB(truth, horizon=study.ROUNDS, radius=0.0)
    low = nc.LinUCB(study.RANK, horizon=study.ROUNDS)
    state, twin = policy.start(1), low.start(1)
    features, reward = rng.standard_normal((30, study.DIM)), rng.standard_normal(30)
    policy.update(state, features, reward, users=np.zeros(30, dtype=int))
    low.update(twin, features @ truth.basis, reward, users=np.zeros(30, dtype=int))
    actions = rng.standard_normal((7, study.DIM))
    np.testing.assert_allclose(policy.scores(state, actions), low.scores(twin, actions @ truth.basis), rtol=1e-10)


def test_shares_and_their_limits_are_those_of_paired_differences():
    rows = make_rows()
    found = study.pooled(rows).filter(policy=study.LITERAL).row(0, named=True)
    wide = {name: rows.filter(policy=name)["regret"].to_numpy().reshape(2, 4, 3) for name in rows["policy"].unique()}
    less, linear = (wide[study.LOCAL] - wide[study.LITERAL]).mean(axis=0), wide[study.LINEAR].mean()
    for values, name in ((less.ravel(), "share_upper"), (less.mean(axis=1), "share_upper_worlds")):
        upper = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))[1]
        assert found[name] == pytest.approx(upper / linear)
    assert found["share"] == pytest.approx(less.mean() / linear)
    assert found["regret"] == pytest.approx(wide[study.LITERAL].mean())


def test_the_rate_is_linucbs_regret_at_worst_and_k_over_d_of_it_at_best():
    sizes = (1, 200, 10**9)
    own = pl.DataFrame({"users": sizes, "policy": study.LINEAR, "regret": [30.0, 40.0, 50.0]})
    d, k, t = study.DIM, study.RANK, study.ROUNDS
    least = [min(d * np.sqrt(t), k * np.sqrt(t) * (1 + np.sqrt(d * t / (k * n)))) for n in sizes]
    np.testing.assert_allclose(study.rates(own)["regret"], 40.0 * np.array(least) / (d * np.sqrt(t)))


@pytest.mark.parametrize(("upper", "holds"), [(0.049, True), (0.051, False)])
def test_the_verdict_is_on_the_limit_over_newcomers(upper, holds):
    line = {"users": None, "share": 0.01, "share_upper": upper, "share_upper_worlds": 0.9}
    frame = pl.DataFrame(
        [
            {**line, "world": name, "policy": policy}
            for name in study.WORLDS
            for policy in (study.LITERAL, study.SAVINGS)
        ]
    )
    found = local_verdicts(frame)
    assert [verdict.holds for verdict in found] == [holds, None] * 4
    assert [verdict.target for verdict in found] == ["at most 0.05", "reported"] * 4

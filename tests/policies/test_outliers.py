"""Guards against rewards far outside: one of them hid everything without a word.

The robust summary is the same for any order, batches and storage; rows are named; clipping finds the taste again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import newcomer as nc
from newcomer.cli.model_summary import model_summary_of, model_summary_rank_line
from newcomer.errors import LogsError
from newcomer.logs import reader, summary
from newcomer.logs.summary import RewardHistogram

DIM, RANK = 8, 2


def people(users: int, *, degrees: float | None = None, seed: int = 0) -> tuple[dict[str, Any], np.ndarray]:
    """Logs with two hidden directions, as arrays, and these (d, 2); normal noise, or Student's of so many `degrees`."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(DIM, RANK)))[0]
    tastes = rng.normal(size=(users, RANK)) @ basis.T
    user, features = np.repeat(np.arange(users), 10), rng.normal(size=(users * 10, DIM)) * 0.5
    noise = rng.standard_normal(len(user)) if degrees is None else rng.standard_t(degrees, size=len(user))
    reward = (features * tastes[user]).sum(axis=1) + 0.5 * noise
    return {"user": user, "features": features, "reward": reward}, basis


def distance(model: nc.Model, basis: np.ndarray) -> float:
    return float(np.linalg.norm(basis - model.basis @ (model.basis.T @ basis), 2))


@pytest.fixture(scope="module")
def spoilt() -> tuple[dict[str, Any], np.ndarray]:
    """4,000 rows, one of which has a reward of -999: row 5 of user 123."""
    arrays, basis = people(400)
    arrays["reward"][1234] = -999.0
    return arrays, basis


def test_one_reward_far_outside_is_named_and_not_taken_for_people_who_are_alike(
    spoilt: tuple[dict[str, Any], np.ndarray],
) -> None:
    logs = nc.Logs.from_arrays(**spoilt[0])
    (sentence,) = [line for line in logs.advice if "-999" in line]
    assert "1 of 4,000 rewards" in sentence and "user 123, row 5" in sentence and "--clip auto" in sentence
    found = model_summary_of(nc.fit(logs))
    assert found.rank == 0 and "1 reward far outside all others may hide it" in model_summary_rank_line(found)
    assert found.decision.answer == "not yet" and found.decision.everybody == found.decision.personal == "not clear"
    advice = found.decision.sentences[3]
    assert "1 reward far outside all others may hide" in advice and "--clip auto" in advice


@pytest.mark.parametrize("clip", ["auto", (-5.0, 5.0)])
def test_clipping_brings_the_taste_back(spoilt: tuple[dict[str, Any], np.ndarray], clip: Any) -> None:
    arrays, basis = spoilt
    logs = nc.Logs.from_arrays(**arrays, clip=clip)
    assert logs.summary.clip is not None and logs.summary.max_reward <= max(map(abs, logs.summary.clip))
    outside = (arrays["reward"] < logs.summary.clip[0]) | (arrays["reward"] > logs.summary.clip[1])
    assert logs.summary.clipped == outside.sum() and logs.summary.far_rewards == 0
    assert any(f"{outside.sum()} of 4,000 rewards were clipped to [" in line for line in logs.advice)
    model = nc.fit(logs)
    assert model.rank == RANK and distance(model, basis) < 0.15
    assert model.evidence.logs == logs.summary
    assert arrays["reward"][1234] == -999.0, "the caller's array is as it was"


@pytest.mark.parametrize("degrees", [2.0, 2.5, 3.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_heavy_tailed_noise_is_said_and_clipping_finds_the_taste(degrees: float, seed: int) -> None:
    arrays, basis = people(1000, degrees=degrees, seed=seed)
    plain = nc.Logs.from_arrays(**arrays)
    assert any(("heavy tails" in line or "deviations" in line) and "--clip auto" in line for line in plain.advice)
    assert plain.summary.hiding
    clipped = nc.fit(nc.Logs.from_arrays(**arrays, clip="auto"))
    assert clipped.rank >= RANK and distance(clipped, basis) < 0.2
    assert model_summary_of(clipped).decision.personal == "yes"


def test_rewards_of_every_usual_kind_get_no_word() -> None:
    rng = np.random.default_rng(0)
    usual = {
        "normal": rng.normal(size=2000) * 1e6 + 1e9,
        "clicks": (rng.random(2000) < 0.02) * 1.0,
        "stars": rng.integers(1, 6, 2000) * 1.0,
        "constant": np.ones(2000),
        "taste": people(200)[0]["reward"],
        "huge": rng.normal(size=2000) * 1e74,
    }
    for name, reward in usual.items():
        logs = nc.Logs.from_arrays(
            user=np.repeat(np.arange(200), 10), features=rng.normal(size=(2000, 2)), reward=reward
        )
        assert not logs.summary.hiding and not any("clip" in line for line in logs.advice), name


def test_a_number_that_stands_for_missing_is_found_among_clicks() -> None:
    rng = np.random.default_rng(0)
    reward = (rng.random(2000) < 0.1) * 1.0
    reward[rng.choice(2000, 40, replace=False)] = -1000.0
    logs = nc.Logs.from_arrays(user=np.repeat(np.arange(200), 10), action=rng.integers(0, 5, 2000), reward=reward)
    assert any("40 of 2,000 rewards" in line and "-1000" in line and "missing" in line for line in logs.advice)


def naive(values: np.ndarray) -> tuple[float, float]:
    """The definition: median, and 1.4826 times the median distance from it (of those that differ, if half do not)."""
    median = np.median(values)
    away = np.abs(values - median)
    return median, 1.4826 * (np.median(away) or np.median(away[away > 0]))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.floats(-1e6, 1e6), st.integers(-3, 3).map(float)), min_size=2, max_size=300), st.data())
def test_the_sketch_is_exact_while_values_are_few(values: list[float], data: st.DataObject) -> None:
    array = np.array(values)
    cut = data.draw(st.integers(0, len(array)))
    whole = RewardHistogram().seeing(array)
    for joined in (
        RewardHistogram().seeing(array[cut:]).seeing(array[:cut]),
        RewardHistogram().seeing(array[:cut]) + RewardHistogram().seeing(array[cut:]),
    ):
        assert np.array_equal(joined.keys, whole.keys) and np.array_equal(joined.counts, whole.counts)
    if len(np.unique(array + 0.0)) > 1:
        median, deviation = naive(array)
        assert whole.spread()[:2] == pytest.approx((median, deviation), rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("centre", [0.0, 1e6, -1e9])
def test_a_full_sketch_is_the_same_in_any_order_and_close(monkeypatch: pytest.MonkeyPatch, centre: float) -> None:
    monkeypatch.setattr(summary, "LIMIT", 1 << 10)
    monkeypatch.setattr(summary, "HISTOGRAM_CHUNK", 1 << 12)
    rng = np.random.default_rng(0)
    values = centre + np.concatenate([rng.normal(size=30_000), 1e12 * rng.standard_t(1, size=50), np.zeros(100)])
    first = RewardHistogram().seeing(values)
    assert len(first.keys) <= 1 << 10 < len(np.unique(values)) and first.counts.sum() == len(values)
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(len(values))
        parts = [RewardHistogram().seeing(part) for part in np.array_split(values[order], seed + 2)]
        again = sum(parts[1:], parts[0])
        assert again.dropped == first.dropped
        assert np.array_equal(again.keys, first.keys) and np.array_equal(again.counts, first.counts)
    assert first.spread()[:2] == pytest.approx(naive(values), abs=0.02)


@pytest.mark.parametrize("clip", [None, "auto", (-1.0, 1.5)])
def test_robust_numbers_do_not_depend_on_order_chunks_or_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clip: Any
) -> None:
    arrays, _ = people(150, degrees=2.0, seed=3)
    monkeypatch.setattr(summary, "LIMIT", 1 << 7)
    frame = pl.DataFrame({**arrays, "step": np.arange(1500)})
    shuffled = frame[np.random.default_rng(0).permutation(1500)]
    for i in range(3):
        shuffled[i::3].write_parquet(tmp_path / f"{i}.parquet")
    (tmp_path / "grouped").mkdir()
    frame.write_parquet(tmp_path / "grouped" / "a.parquet")
    held = nc.Logs.from_frame(frame, clip=clip)
    monkeypatch.setattr(reader, "CHUNK_ROWS", 64)
    monkeypatch.setattr(reader, "CHUNK_BYTES", 1)
    ways = [
        nc.Logs.from_frame(shuffled, clip=clip),
        nc.read_logs(str(tmp_path / "*.parquet"), clip=clip),
        nc.read_logs(str(tmp_path / "*.parquet"), clip=clip, memory=1000),
        nc.read_logs(tmp_path / "grouped", clip=clip, grouped=True),
    ]
    names = (
        "median_reward",
        "robust_deviation",
        "far_rewards",
        "tail_share",
        "clip",
        "clipped",
        "fingerprint",
        "max_reward",
    )
    for logs in ways:
        assert [getattr(logs.summary, name) for name in names] == [getattr(held.summary, name) for name in names]
        assert logs.advice == held.advice
        assert sorted(np.concatenate([b.rewards for b in logs.batches(rows=90)])) == sorted(
            np.concatenate([b.rewards for b in held.batches()])
        )


@pytest.mark.parametrize("clip", ["always", (1.0,), (2.0, 1.0), (0.0, float("inf")), 3.0, ("a", "b"), (1.0, 2.0, 3.0)])
def test_limits_that_are_none_are_refused(clip: Any, tmp_path: Path) -> None:
    with pytest.raises(LogsError, match="clip is .*: pass two numbers"):
        nc.Logs.from_arrays(user=[1, 1], action=[0, 1], reward=[1.0, 2.0], clip=clip)
    with pytest.raises(LogsError, match="clip is .*: pass two numbers"):
        nc.read_logs(tmp_path, clip=clip)

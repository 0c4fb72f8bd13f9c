"""Checks: each fault of the logs is found, clean logs are not accused; order, batches and units do not matter."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import reduce as fold

import numpy as np
import polars as pl
import pytest

import newcomer as nc
from newcomer.checks.check import check_enough_users, check_with_gain
from newcomer.checks.dependence import leading_dependence_directions
from newcomer.checks.descriptive import describe_repeat_agreement
from newcomer.checks.permutation_tests import (
    DRAWS,
    Draft,
    Limits,
    PermutationTest,
    UsersTested,
    cross_permutation_test,
    findings_by_permutation_tests,
    paired_permutation_test,
    sign_flip_permutation_test,
)
from newcomer.checks.quick import TESTS, quick_check
from newcomer.checks.residuals import (
    LEADING,
    LONGEST,
    AgreementOfHalves,
    HalvedRows,
    ResidualSample,
    residual_drawing_weights,
    residual_sample_of_batch,
    residuals,
    take_residual_sample,
)
from newcomer.evidence import Evidence
from newcomer.findings import Finding, Findings, holm_adjusted_findings
from newcomer.paper.studies.check_rates import clean, self_selected
from newcomer.paper.theory.confounded import Confounded
from newcomer.paper.worlds.biased_logs import BiasedLogs
from newcomer.worlds.synthetic import Synthetic
from tests.oracles import checks as oracle

WORLD = Synthetic(dim=12, seed=3)
NAMES = {*TESTS, "shared preferences"}


def actions(rng: np.random.Generator, *, once: bool, users: int = 300, steps: int = 8) -> nc.Logs:
    """Users with tastes for 20 actions, drawn at random."""
    tastes = rng.standard_normal((users, 2)) @ rng.standard_normal((2, 20))
    user = np.repeat(np.arange(users), steps)
    rows = [rng.permutation(20)[:steps] if once else rng.integers(20, size=steps) for _ in range(users)]
    action = np.concatenate(rows)
    return nc.Logs.from_arrays(
        user=user, action=action, reward=tastes[user, action] + rng.standard_normal(len(user)), propensity=None
    )


# What each fault looks like: 2,000 users of 20 rows.


@pytest.mark.parametrize(
    ("bias", "strength", "name"),
    [
        ("taste", 4.0, "preference-dependent logging"),
        ("adaptive", 1.0, "adaptive logging"),
        ("liking", 2.0, "self-selection"),
        ("lengths", 1.0, "history length"),
        ("drift", 1.5, "drift"),
    ],
)
def test_logs_of_each_biased_world_are_broken(bias, strength, name):
    found = nc.check(BiasedLogs(WORLD, bias, strength).logs(2000, 20, seed=2), fit=False)
    assert found[name].verdict == "broken" and found.verdict == "broken"
    assert found[name].p_value <= 0.01 and found[name].effect >= found[name].broken
    assert found[name].picture is not None and len(found[name].picture.x) == len(found[name].picture.y) > 5


def test_a_logger_that_learns_is_not_taken_for_one_that_knew():
    found = nc.check(BiasedLogs(WORLD, "adaptive", 1.0).logs(2000, 20, seed=2), fit=False)
    assert found["adaptive logging"].verdict == "broken"
    assert found["preference-dependent logging"].verdict == "fine"


def test_clean_logs_are_fine_and_taste_is_seen():
    found = nc.check(WORLD.logs(2000, 20, seed=2), fit=False)
    assert found.verdict == "fine", found
    assert found["shared preferences"].effect > 0.1 and found["shared preferences"].p_value < 0.01
    assert {one.verdict for one in found.of("unknowable")} == {"unknowable"}
    assert {"hidden causes", "newcomers unlike the logged", "later change"} <= {o.name for o in found.of("unknowable")}


@pytest.mark.parametrize("breach", ["contexts", "tastes", "logger"])
def test_the_twins_of_lemma_1_get_the_same_answer(breach):
    """Their logs have equal laws: no method tells them apart. That contexts do not mix is seen, in both."""
    one, two = (nc.check(Confounded(breach, twin).logs(2000, 20, seed=1), fit=False) for twin in (1, 2))
    assert one == two
    assert one["contexts"].verdict == "broken" and one["hidden causes"].verdict == "unknowable"


@pytest.mark.parametrize("once", [True, False])
def test_actions_that_come_once_each_are_no_dependence(once):
    found = nc.check(actions(np.random.default_rng(5), once=once), fit=False)
    assert found["contexts"].verdict == "fine" and found["shared preferences"].verdict == "fine"
    assert (found["repeats"].verdict == "unknowable") == once


def test_clean_sets_alarm_about_as_often_as_they_may():
    """60 sets of 100 users, six tests, level 0.05: 18 alarms expected, 7 to 32 with probability above 0.998."""
    rng, alarms = np.random.default_rng(11), []
    for number in range(60):
        found = quick_check(clean(rng, "features, ragged", users=100), seed=number)
        alarms += [found[name].p_value <= 0.05 for name in TESTS]
    assert len(alarms) == 360 and 7 <= sum(alarms) <= 32


# What must not matter.


def frame_of(logs: nc.Logs) -> pl.DataFrame:
    rows = next(logs.batches(rows=10**9))
    step = np.concatenate([np.arange(n) for n in rows.lengths])
    user = np.repeat(rows.users, rows.lengths)
    return pl.DataFrame({"user": user, "step": step, "features": rows.features.tolist(), "reward": rows.rewards})


def test_order_of_rows_and_units_do_not_matter():
    frame = frame_of(WORLD.logs(400, (4, 9), seed=4))
    told = nc.check(frame, fit=False)
    assert nc.check(frame.sample(fraction=1.0, shuffle=True, seed=1), fit=False) == told
    scaled = nc.check(frame.with_columns(pl.col("reward") * 128.0), fit=False)
    assert [one.p_value for one in scaled] == [one.p_value for one in told]
    assert scaled["drift"].effect == pytest.approx(told["drift"].effect)


def test_batches_and_workers_do_not_matter(crew):
    logs = WORLD.logs(500, (3, 9), seed=4)
    whole = take_residual_sample(logs)
    parts = [residual_sample_of_batch(batch, share=1.0, actions=0, width=12) for batch in logs.batches(rows=100)]
    assert len(parts) > 10
    joined = fold(lambda a, b: a + b, parts[::-1]).in_order()
    for name in ("lengths", "hashes", "length", "kept", "rewards", "features"):
        assert np.array_equal(getattr(whole, name), getattr(joined, name)), name
    assert np.allclose(whole.gram, joined.gram, rtol=1e-12)
    assert logs.on(crew).engine is crew
    for one, other in zip(quick_check(logs), quick_check(logs.on(crew)), strict=True):
        assert replace(other, effect=one.effect) == one
        if one.effect is not None:  # sums of Gram matrices, in another order
            assert other.effect == pytest.approx(one.effect, rel=1e-12)


def test_of_many_users_a_sample_by_hash_is_looked_at(monkeypatch):
    monkeypatch.setattr("newcomer.checks.residuals.MOST", 100)
    logs = WORLD.logs(1000, 5, seed=4)
    found = take_residual_sample(logs)
    assert 60 <= len(found.hashes) <= 140 and found.lengths.sum() == 1000
    assert set(found.hashes) <= set(next(logs.batches(rows=10**9)).hashes)
    assert quick_check(logs).tested == len(found.hashes)


def test_of_long_histories_the_first_rows_are_kept():
    user = np.repeat([1, 2], LONGEST + 50)
    logs = nc.Logs.from_arrays(user=user, action=np.arange(len(user)) % 7, reward=np.arange(len(user)) * 1.0)
    found = take_residual_sample(logs)
    assert found.kept.tolist() == [LONGEST] * 2 and found.length.tolist() == [LONGEST + 50] * 2
    assert found.shown.sum() == len(user)


# The pieces, against their oracles.


def test_holm_against_its_definition():
    rng = np.random.default_rng(0)
    for _ in range(200):
        p_values = rng.random(rng.integers(1, 8)) ** 2
        assert [p <= 0.1 for p in holm_adjusted_findings(list(p_values))] == oracle.holm(list(p_values), 0.1)


def test_the_pair_test_against_loops():
    rng = np.random.default_rng(9)
    strata = np.array([4] * 30 + [6] * 20 + [9])
    x = rng.standard_normal((51, 3))
    y, weights = x + 2.0 * rng.standard_normal((51, 3)), rng.random(51) + 0.5
    found = paired_permutation_test(x, y, strata, weights, seed=1)
    products, total = [], 0.0
    for stratum in (4, 6):
        own = np.flatnonzero(strata == stratum)
        for u in own:
            products.append((x[u] - x[own].mean(axis=0)) @ (y[u] - y[own].mean(axis=0)))
            total += weights[u] * (1 - 1 / len(own))
    assert found.size == pytest.approx(sum(products) / total) and found.p_value <= 0.01
    away = paired_permutation_test(x, -y, strata, weights, seed=1)
    assert away.size == 0.0 and away.effect == 0.0 and away.p_value >= 0.98
    assert paired_permutation_test(x, y, np.arange(51), weights, seed=1) is None


def test_directions_of_liking_are_those_of_the_dense_matrix():
    """Within halves, weights w: sum over users and pairs of different rows of w w f f^T, f standardised one-hot."""
    rng = np.random.default_rng(10)
    sample = ResidualSample.of(take_residual_sample(self_selected(rng, 2.0, users=200)), None)
    view = HalvedRows.of(sample, shuffled=True)
    features = (np.eye(sample.count)[sample.actions[view.order]] - sample.shares) / sample.usual[1]
    for weights in (sample.residual, np.ones(len(sample.residual))):
        weighted = weights[view.order][:, None] * features
        dense = -weighted.T @ weighted
        for half in oracle.half_sums(sample.user, weighted):
            dense += half.T @ half
        best = np.linalg.eigvalsh(dense)[::-1][:LEADING].sum()
        found = leading_dependence_directions(view, weights) * sample.usual[1][:, None]
        assert np.allclose(found.T @ found, np.eye(LEADING), atol=1e-8)
        assert 0.9 * best < np.trace(found.T @ dense @ found) <= best + 1e-8


def test_self_selection_is_seen_and_popularity_is_not():
    """Strong self-selection leaves rewards that are all high, which tests that look along rewards do not see."""
    rng = np.random.default_rng(12)
    found = quick_check(self_selected(rng, 2.0, users=300))
    assert found["self-selection"].verdict == "broken" and found["self-selection"].adjusted <= 0.05
    assert (
        "preferences in the user's other rows" in found["self-selection"].what
        and "random actions" in found["self-selection"].advice
    )
    alarms = [
        quick_check(clean(rng, "actions once, good ones popular"), seed=number)["self-selection"].p_value <= 0.05
        for number in range(20)
    ]
    assert sum(alarms) <= 4


def test_what_shows_in_no_logs_is_said_first():
    """Liking of single actions, nothing shared: means are too high, nothing accuses, the unknowable begin with it."""
    rng = np.random.default_rng(13)
    liked = rng.standard_normal((400, 40))
    action = rng.permuted(np.argsort(-(liked + rng.gumbel(size=liked.shape)), axis=1)[:, :8], axis=1)
    reward = np.take_along_axis(liked, action, axis=1)
    found = quick_check(
        nc.Logs.from_arrays(user=np.repeat(np.arange(400), 8), action=action.ravel(), reward=reward.ravel())
    )
    assert reward.mean() > 0.6 and found["self-selection"].verdict in ("fine", "unknowable")
    unseen = next(one for one in found if one.name not in {*NAMES, "coverage", "rewards", "propensities", "repeats"})
    assert unseen.name == "unseen self-selection" and unseen.verdict == "unknowable"
    assert unseen.effect == pytest.approx(reward.std(), rel=0.05)


def test_the_cross_test_against_loops():
    rng = np.random.default_rng(1)
    strata = np.array([3, 3, 3, 5, 5, 9])
    x, y = rng.standard_normal((6, 3)), rng.standard_normal((6, 2))
    found = cross_permutation_test(x, y, strata, np.full(6, 2.0), seed=0, matched=2)
    several = strata != 9  # a user alone in a stratum cannot be permuted
    products, squares = oracle.crossed(*(oracle.centred(one[several], strata[several]) for one in (x, y)))
    weights = 2.0 * sum(1 - 1 / (strata == own).sum() for own in strata[several])
    assert found is not None and np.allclose(found.matrix, products / weights, rtol=1e-9)
    assert found.size == pytest.approx(np.linalg.svd(products / weights, compute_uv=False).sum())
    assert found.null.shape == (DRAWS,) and 1 / (DRAWS + 1) <= found.p_value <= 1
    assert cross_permutation_test(x, y, np.arange(6), np.ones(6), seed=0) is None
    assert squares.shape == (3, 2)


def test_p_values_are_uniform_under_independence():
    """200 draws: the share of p <= 0.2 has a standard error of 0.028; four of these."""
    rng, small = np.random.default_rng(2), []
    for number in range(200):
        strata = rng.integers(3, size=40)
        x, y = rng.standard_t(3, (40, 3)), rng.exponential(size=(40, 2))
        small.append(cross_permutation_test(x, y, strata, np.ones(40), seed=number, matched=2).p_value <= 0.2)
    assert abs(np.mean(small) - 0.2) <= 0.113


def test_flips_find_a_mean_and_nothing_else():
    rng = np.random.default_rng(3)
    vectors = rng.standard_normal((200, 4))
    assert sign_flip_permutation_test(vectors, 200.0, seed=0).p_value > 0.05
    moved = sign_flip_permutation_test(vectors + [0.5, 0, 0, 0], 200.0, seed=0)
    assert moved.p_value == 1 / (DRAWS + 1) and moved.effect == pytest.approx(0.5, abs=0.15)
    assert sign_flip_permutation_test(np.zeros((5, 2)), 1.0, seed=0) is None


def test_halves_and_residuals_against_loops():
    logs = actions(np.random.default_rng(4), once=False, users=30, steps=7)
    sample = ResidualSample.of(take_residual_sample(logs), None)
    view = HalvedRows.of(sample, shuffled=False)
    first, second = view.sums(view.paid(level=True))
    slow = oracle.half_sums(sample.user, view.paid(level=True))
    assert np.allclose(first, slow[0]) and np.allclose(second, slow[1])
    means = [sample.reward[sample.actions == a].mean() for a in range(sample.count)]
    assert np.allclose(sample.residual, sample.reward - np.array(means)[sample.actions])
    assert np.allclose(view.z.T @ view.z / len(view.z), np.eye(view.z.shape[1]), atol=1e-8)


@pytest.mark.parametrize("kind", ["one-hot", "items", "features"])
def test_agreement_of_halves_is_a_sum_over_pairs_of_rows(kind):
    rng = np.random.default_rng(8)
    if kind == "features":
        logs, table = WORLD.logs(20, 6, seed=2), None
    else:
        logs = actions(rng, once=False, users=20, steps=6)
        table = rng.standard_normal((20, 4)) if kind == "items" else None
    sample = ResidualSample.of(take_residual_sample(logs), table)
    order = HalvedRows.of(sample, shuffled=True).order
    weights, basis = rng.standard_normal(len(order)), rng.standard_normal((sample.dim, 3))
    mean = sample.usual[0]
    rows = sample.project(np.eye(sample.dim)) - mean
    halves = np.repeat(np.arange(2 * len(sample)), np.stack(HalvedRows.of(sample, shuffled=True).sizes, axis=1).ravel())
    slow = np.zeros((sample.dim, sample.dim))
    for i, one in enumerate(order):
        for j, other in enumerate(order):
            if i != j and halves[i] == halves[j]:
                slow += weights[one] * weights[other] * np.outer(rows[one], rows[other])
    assert np.allclose(AgreementOfHalves(sample, weights, order, mean).times(basis), slow @ basis)


def test_residuals_of_features_are_those_of_least_squares():
    rng = np.random.default_rng(5)
    features, reward = rng.standard_normal((50, 3)), rng.standard_normal(50)
    design = np.column_stack([features, np.ones(50)])
    fitted = design @ np.linalg.lstsq(design, reward, rcond=None)[0]
    assert np.allclose(residuals(reward, features, np.zeros(0, np.int64), 0), reward - fitted)


def test_expected_draws_without_replacement_against_enumeration():
    rng = np.random.default_rng(6)
    logs = actions(rng, once=True, users=60, steps=6)
    sample = ResidualSample.of(take_residual_sample(logs), None)
    view = HalvedRows.of(sample, shuffled=False)
    assert sample.once
    weights = residual_drawing_weights(sample.actions, sample.window, sample.count)
    table = np.array([view.z[sample.actions == a][0] for a in range(sample.count)])
    for u in (0, 7):
        own = sample.actions[sample.offsets[u] : sample.offsets[u + 1]]
        for h, row in enumerate(range(sample.offsets[u], sample.offsets[u + 1])):
            expected = oracle.expected_draw(table, weights, list(own[:h]))
            assert np.allclose(view.z[row] - view.due[row], expected, atol=1e-8)


def test_drawing_weights_climb_the_likelihood():
    rng = np.random.default_rng(7)
    truth = np.exp(rng.standard_normal(8))
    drawn = np.argsort(-(np.log(truth) + rng.gumbel(size=(400, 8))), axis=1)[:, :5]
    found = residual_drawing_weights(drawn.ravel(), np.full(400, 5), 8)
    shares = np.bincount(drawn.ravel(), minlength=8) / drawn.size
    best = oracle.log_likelihood(found, drawn)
    assert best > oracle.log_likelihood(shares, drawn)
    assert best >= oracle.log_likelihood(truth / truth.sum(), drawn) - 1.0
    assert np.allclose(found, truth / truth.sum(), atol=0.05)


def test_repeats_against_loops():
    sample = ResidualSample.of(
        take_residual_sample(actions(np.random.default_rng(8), once=False, users=25, steps=8)), None
    )
    same, other, _ = describe_repeat_agreement(sample)
    assert (same, other) == pytest.approx(oracle.repeated(sample.user, sample.actions, sample.residual))


def test_what_lasts_of_single_actions_is_found():
    rng = np.random.default_rng(9)
    own = rng.standard_normal((500, 10))
    user, action = np.repeat(np.arange(500), 12), rng.integers(10, size=6000)
    logs = nc.Logs.from_arrays(user=user, action=action, reward=own[user, action] + rng.standard_normal(6000))
    assert nc.check(logs, fit=False)["repeats"].effect == pytest.approx(0.5, abs=0.1)


# Verdicts: p-values and effects together.


@pytest.mark.parametrize(
    ("size", "p_value", "spread", "verdict"),
    [
        (0.9, 0.002, 0.01, "broken"),
        (0.3, 0.002, 0.01, "doubtful"),
        (0.05, 0.002, 0.01, "fine"),  # with a million rows everything is significant
        (0.3, 0.2, 0.01, "fine"),
        (0.9, 0.2, 2.0, "unknowable"),  # too few to see what would break the logs
    ],
)
def test_a_verdict_needs_an_effect_and_a_p_value(size, p_value, spread, verdict):
    null = spread * np.abs(np.random.default_rng(0).standard_normal(99))
    texts = dict.fromkeys(("fine", "doubtful", "broken", "unknowable"), "Do this.")
    chance = PermutationTest(p_value, size, null, np.eye(1))
    draft = Draft("drift", chance, 1.0, "sd", Limits(0.1, 0.5), "It is {effect} {unit}", texts)
    (found,) = findings_by_permutation_tests([draft], 0.05, UsersTested(500, 500))
    assert found.verdict == verdict and found.adjusted == p_value
    assert ("too small to matter" in found.what) == (size == 0.05)


def drafted(p_value: float, size: float = 0.53, spread: float = 0.2, **given) -> Draft:
    null = spread * np.abs(np.random.default_rng(0).standard_normal(99))
    texts = dict.fromkeys(("fine", "doubtful", "broken", "unknowable"), "Do this.")
    return Draft(
        "drift", PermutationTest(p_value, size, null, np.eye(1)), 1.0, "sd", Limits(0.1, 0.3), "{effect} {unit}",
        texts, **given,
    )  # fmt: skip


def test_what_chance_gives_is_not_contradicted():
    (found,) = findings_by_permutation_tests([drafted(0.072)], 0.05, UsersTested(500, 500))
    assert found.verdict == "unknowable" and "not significant (p = 0.072, by a test that" in found.what
    assert "These 500 users are too few" in found.what
    assert "by chance alone 5% of effects exceed 0.31" in found.what  # and 0.49 is seen
    (small,) = findings_by_permutation_tests([drafted(0.072, size=0.3)], 0.05, UsersTested(500, 500))
    assert "not significant (p = 0.072)" in small.what
    both = findings_by_permutation_tests([drafted(0.03), drafted(0.5)], 0.05, UsersTested(500, 500))
    assert "p = 0.06 with all tests counted" in both[0].what


def test_many_users_are_not_told_to_log_more():
    (found,) = findings_by_permutation_tests([drafted(0.3)], 0.05, UsersTested(500_000, 19_972))
    assert "The 19,972 users drawn for the tests (of 500,000) are too few" in found.what
    assert "more users" not in found.advice and "Longer histories" in found.advice


def test_tests_of_order_say_so_where_no_times_are_known():
    (fine,) = findings_by_permutation_tests(
        [drafted(0.5, spread=0.01, in_time=True)], 0.05, UsersTested(500, 500, ordered=False)
    )
    assert fine.verdict == "unknowable" and "order of rows in the file" in fine.what and "step" in fine.advice
    (broken,) = findings_by_permutation_tests(
        [drafted(0.001, in_time=True)], 0.05, UsersTested(500, 500, ordered=False)
    )
    assert broken.verdict == "broken" and "order of rows in the file" in broken.what
    (other,) = findings_by_permutation_tests([drafted(0.5, spread=0.01)], 0.05, UsersTested(500, 500, ordered=False))
    assert other.verdict == "fine"


def test_logs_without_times_leave_questions_of_order_open():
    logs = Synthetic.learnable(dim=8, seed=1).logs(400, 10, seed=1)
    logs.ordered = False
    found = quick_check(logs)
    for name in ("adaptive logging", "preference-dependent logging", "drift"):
        assert found[name].verdict == "unknowable", name
    assert found["self-selection"].verdict == "fine" and found["contexts"].verdict == "fine"


def test_propensities_that_fit_rule_out_what_else_is_unknowable():
    rng = np.random.default_rng(3)
    user, action = np.repeat(np.arange(400), 8), rng.integers(0, 6, 3200)
    logs = nc.Logs.from_arrays(
        user=user, action=action, reward=rng.standard_normal(3200), propensity=np.full(3200, 1 / 6)
    )
    found = quick_check(logs)
    for name in ("hidden causes", "unseen self-selection"):
        assert found[name].verdict == "fine" and "If they alone drew the actions" in found[name].what


def test_names_of_before_are_understood():
    found = Findings((Finding("shared taste", "fine", "Some.", "Nothing."),))
    assert found["shared taste"].name == found["shared preferences"].name == "shared preferences"


def test_the_worst_finding_decides_and_the_unknowable_do_not():
    def of(*verdicts):
        return Findings(tuple(Finding(str(i), one, "It is so.", "Do this.") for i, one in enumerate(verdicts))).verdict

    assert of("fine", "unknowable") == "fine" and of("unknowable") == "unknowable" == of()
    assert of("fine", "doubtful") == "doubtful" and of("doubtful", "broken", "fine") == "broken"


def test_findings_are_shown_kept_and_read_back():
    found = nc.check(WORLD.logs(200, 6, seed=1), fit=False)
    assert repr(found).startswith("Findings: ") and len(repr(found).splitlines()) == len(found) + 1
    assert "<caption>Findings: " in found._repr_html_()
    assert found.frame.columns[:3] == ["name", "verdict", "effect"] and len(found.frame) == len(found)
    plain = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert plain["verdict"] == found.verdict and plain["findings"][0]["name"] == "coverage"
    again = Evidence.from_json(json.loads(json.dumps(Evidence(checks=found).to_json()))).checks
    assert again == found
    with pytest.raises(nc.NewcomerError, match="did you mean 'drift'"):
        found["drft"]


# Propensities, rewards, coverage.


def shown(propensity: np.ndarray | float, *, odds: np.ndarray, users: int = 400) -> Finding:
    rng = np.random.default_rng(0)
    user, action = np.repeat(np.arange(users), 5), rng.choice(len(odds), size=5 * users, p=odds)
    column = np.broadcast_to(propensity, (len(odds),))[action]
    reward = rng.standard_normal(len(user))
    return nc.check(nc.Logs.from_arrays(user=user, action=action, reward=reward, propensity=column), fit=False)[
        "propensities"
    ]


def test_few_rows_with_true_propensities_are_rarely_called_broken():
    """Forty small logs by a fair draw of 12 actions, at a level of 5%."""
    called = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        user, action = np.repeat(np.arange(29), 6), rng.integers(12, size=174)
        reward, fair = rng.standard_normal(174), np.full(174, 1 / 12)
        logs = nc.Logs.from_arrays(user=user, action=action, reward=reward, propensity=fair)
        called += nc.check(logs, fit=False)["propensities"].verdict == "broken"
    assert called <= 4


def test_propensities_are_held_against_frequencies():
    odds = np.array([0.5, 0.3, 0.2])
    assert shown(odds, odds=odds).verdict == "fine"
    assert shown(odds[::-1].copy(), odds=odds).verdict == "broken"
    assert shown(odds / 2, odds=odds).verdict == "broken"
    assert shown(np.minimum(odds * 1.5, 1.0), odds=odds).verdict == "fine"  # others may have been on offer less often
    rare = np.array([0.9995, 0.0005])
    assert shown(rare, odds=rare).verdict == "doubtful"
    with pytest.raises(nc.LogsError, match="propensity"):
        nc.Logs.from_arrays(user=[1, 1], action=[1, 2], reward=[0, 1], propensity=[0.0, 0.5])


@pytest.mark.parametrize(
    ("reward", "verdict", "word"),
    [
        (lambda r: r * 0 + 2, "broken", "Every reward is 2"),
        (lambda r: (r > 0) * 1.0, "fine", "two values"),
        (lambda r: (r > 2.4) * 1.0, "doubtful", "rarer"),
        (lambda r: np.minimum(np.round(r), 0), "doubtful", "are 0, the highest"),
        (lambda r: np.where(np.arange(len(r)) == 3, 1e6, r), "doubtful", "far outside"),
        (lambda r: r, "fine", "Rewards go from"),
    ],
)
def test_rewards_of_every_sort(reward, verdict, word):
    rng = np.random.default_rng(1)
    user = np.repeat(np.arange(300), 6)
    logs = nc.Logs.from_arrays(user=user, action=rng.integers(9, size=1800), reward=reward(rng.standard_normal(1800)))
    found = nc.check(logs, fit=False)["rewards"]
    assert found.verdict == verdict and word in found.what, found


def test_directions_that_items_have_and_logs_do_not_are_missed():
    rng = np.random.default_rng(2)
    user = np.repeat(np.arange(100), 4)
    items = np.eye(5)
    logs = nc.Logs.from_arrays(user=user, action=rng.integers(4, size=400), items=items, reward=rng.random(400))
    found = nc.check(logs, fit=False)["coverage"]
    assert found.verdict == "doubtful" and "1 directions of the items are never shown" in found.what


# Bad input: findings or one sentence, never optimism.

ROWS = np.random.default_rng(3)
USER, ACTION = np.repeat(np.arange(40), 5), ROWS.integers(6, size=200)
HOSTILE = {
    "one user": {"user": [1] * 5, "action": [1, 2, 3, 1, 2], "reward": [1, 0, 1, 0, 1]},
    "one row": {"user": [1], "action": [1], "reward": [1.0]},
    "two users": {"user": [1, 1, 2, 2], "action": [1, 2, 1, 2], "reward": [1.0, 0, 0, 1]},
    "one action": {"user": USER, "action": ACTION * 0, "reward": ROWS.standard_normal(200)},
    "constant feature": {"user": USER, "features": np.ones((200, 1)), "reward": ROWS.standard_normal(200)},
    "zero features": {"user": USER, "features": np.zeros((200, 2)), "reward": ROWS.standard_normal(200)},
    "constant rewards": {"user": USER, "action": ACTION, "reward": np.full(200, 3.0)},
    "all alike": {"user": USER, "action": np.tile(np.arange(5), 40), "reward": np.tile(np.arange(5.0), 40)},
    "action decides": {"user": USER, "action": ACTION, "reward": ACTION * 1.0},
    "user decides": {"user": USER, "action": ACTION, "reward": USER * 1.0},
    "huge": {"user": USER, "features": ROWS.standard_normal((200, 3)) * 1e90, "reward": ROWS.random(200) * 1e75},
    "tiny": {"user": USER, "features": ROWS.standard_normal((200, 3)) * 1e-90, "reward": ROWS.random(200) * 1e-90},
    "own actions": {"user": USER, "action": np.arange(200), "reward": ROWS.standard_normal(200)},
    "single rows": {"user": np.arange(200), "action": ACTION, "reward": ROWS.standard_normal(200)},
    "many features": {"user": USER, "features": ROWS.standard_normal((200, 300)), "reward": ROWS.random(200)},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_bad_logs_are_never_called_fine(name):
    found = nc.check(nc.Logs.from_arrays(**HOSTILE[name]), fit=False)
    assert any(one.verdict in ("doubtful", "broken") for one in found), found
    assert NAMES <= {one.name for one in found} and json.dumps(found.to_json(), allow_nan=False)


def test_a_million_users_of_one_row_are_broken():
    rng = np.random.default_rng(0)
    logs = nc.Logs.from_arrays(user=np.arange(10**6), action=rng.integers(9, size=10**6), reward=rng.random(10**6))
    found = nc.check(logs)
    assert found["coverage"].verdict == "broken" and found["enough users"].verdict == "broken"


@pytest.mark.parametrize("wrong", [{"level": 0}, {"level": 2.0}, {"level": "x"}, {"seed": -1}, {"fit": "yes"}])
def test_wrong_arguments_are_refused_in_one_sentence(wrong):
    with pytest.raises(nc.NewcomerError):
        nc.check(nc.Logs.from_arrays(user=[1, 1], action=[1, 2], reward=[0, 1]), **wrong)


# With a fit.


def test_enough_users_are_told_by_held_out_users():
    found = nc.check(Synthetic.learnable(dim=8, seed=1).logs(600, 12, seed=1))
    told = found["enough users"]
    assert told.verdict == "fine" and told.effect > 0
    assert told.picture.x == (1.0, 2.0, 5.0) and told.effect == told.picture.y[2]
    # What more users would add is measured by `evaluate`, not projected.
    assert "600 held-out users gain" in told.what and "1,200" not in told.what
    assert found.decision.personal == "yes" and check_enough_users(None, found.decision, "too few").verdict == "broken"


def test_no_finding_contradicts_the_decision():
    """Held-out users may gain where halves of histories do not agree; then no advice says to serve everybody alike."""
    shared = Finding("shared preferences", "doubtful", "Halves do not agree.", "Serve everybody the best.", p_value=0.4)
    yes = nc.check(Synthetic.learnable(dim=8, seed=1).logs(300, 10, seed=1)).decision
    assert yes.personal == "yes"
    told = check_with_gain(Findings((shared,)), None, yes)["shared preferences"]
    assert told.verdict == "fine" and "takes precedence" in told.what and "everybody" not in told.advice
    no = replace(yes, personal="not clear")
    assert check_with_gain(Findings((shared,)), None, no)["shared preferences"] == shared


def test_heavy_tails_may_hide_preferences_and_the_finding_says_so():
    rng = np.random.default_rng(3)
    user, action = np.repeat(np.arange(200), 6), rng.integers(0, 10, 1200)
    logs = nc.Logs.from_arrays(user=user, action=action, reward=np.floor(np.exp(2.5 * rng.standard_normal(1200))))
    assert "heavy tails" in logs.summary.hiding
    found = quick_check(logs)["shared preferences"]
    assert found.verdict == "unknowable" and "heavy tails of the rewards may hide" in found.what
    assert "log1p" in found.advice and "best" not in found.advice
    assert "with heavy tails, which" in quick_check(logs)["rewards"].what


def test_what_is_told_of_logarithms_says_so():
    rng = np.random.default_rng(3)
    user, action = np.repeat(np.arange(200), 8), rng.integers(0, 10, 1600)
    liked = rng.standard_normal(200)[user] * np.where(action < 5, 1.0, -1.0)
    counts = [np.floor(np.exp(2.0 + part + 0.5 * rng.standard_normal(1600))) for part in (liked, 0.0)]
    found, alike = (
        quick_check(nc.Logs.from_arrays(user=user, action=action, reward=count, reward_transform="log1p"))
        for count in counts
    )
    assert found["rewards"].what.startswith("Log(1 + reward) goes from ")
    assert "higher in log(1 + reward)" in found["unseen self-selection"].what
    assert "Preferences move log(1 + reward) by" in found["newcomers unlike the logged"].what
    assert alike["shared preferences"].verdict == "doubtful"  # then no size of preferences is told
    assert "%" not in alike["hidden causes"].what and "move" not in alike["newcomers unlike the logged"].what


def test_a_fit_keeps_what_checks_found_and_its_id(tmp_path):
    logs = Synthetic.learnable(dim=6, seed=1).logs(300, 8, seed=1)
    plain, checked = (nc.fit(logs, calibrate=False, check=check) for check in (False, True))
    assert plain.evidence.checks is None and checked.evidence.checks == quick_check(logs)
    assert plain.id == checked.id
    checked.save(tmp_path / "m.newcomer")
    assert nc.load(tmp_path / "m.newcomer").evidence.checks == checked.evidence.checks

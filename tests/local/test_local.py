"""Guards LOCAL-UCB's solver: the reductions, limits, bounds and feasibility.

They are compared with covers of all subspaces and with an optimiser that knows none of the reductions. The full
comparison with the covers is `python -m tests.oracles.local 200`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from newcomer.local import rounds, tilts
from newcomer.local.problem import TOLERANCE, pose_problem, problem_violations
from newcomer.local.tilts import evaluated_tilt, steepest_tilt, tilt_point, tilt_through_point
from newcomer.local.upper_bounds import (
    ball_upper_bound,
    cone_upper_bound,
    nearest_point_for_bound,
    pair_upper_bounds,
    pencil_of_bounds,
)
from tests.oracles import local as oracle

SIZES = [(3, 1), (4, 2), (6, 3), (7, 5), (12, 2)]


def limits(case):
    return {"radius": case.radius, "inner": case.inner, "outer": case.outer, "bound": case.bound}


def problem_of(case):
    return pose_problem(case.gram, case.moment, case.basis, **limits(case))


def solve(case, **options):
    return rounds.solve_round(problem_of(case), case.action[None], **options)


def cases(d, k, count, **options):
    return [oracle.random_case(np.random.default_rng([d, k, i]), d, k, **options) for i in range(count)]


def linucb(case):
    return float(case.action @ np.linalg.solve(case.gram, case.moment)) + case.scale


def inside_basis(case):
    """The value at U_hat, literally (notes 5 i), without R."""
    gram, moment = case.basis.T @ case.gram @ case.basis, case.basis.T @ case.moment
    gap = case.moment @ np.linalg.solve(case.gram, case.moment) - moment @ np.linalg.solve(gram, moment)
    squared = min(case.inner**2, case.outer**2 - gap)
    phi = case.basis.T @ case.action
    if squared < 0:
        return -np.inf
    return float(phi @ np.linalg.solve(gram, moment) + np.sqrt(squared * (phi @ np.linalg.solve(gram, phi))))


# The reductions


@pytest.mark.parametrize(("d", "k"), [(5, 2), (7, 3), (6, 4)])
def test_least_tilt_of_a_subspace_through_beta_and_orthogonal_to_r(d, k):
    """Theorem 2: the least sum of squared sines is (1 + A + C - sqrt((1 - A - C)^2 + 4 c^2)) / 2."""
    rng = np.random.default_rng(d)
    for _ in range(20):
        basis = np.linalg.qr(rng.normal(size=(d, k)))[0]
        beta, r = rng.normal(size=(2, d))
        r -= beta * (beta @ r) / (beta @ beta)
        unit, normal = beta / np.linalg.norm(beta), r / np.linalg.norm(r)
        away, near = 1 - np.linalg.norm(basis.T @ unit) ** 2, np.linalg.norm(basis.T @ normal) ** 2
        cross = (basis.T @ unit) @ (basis.T @ normal)
        formula = (1 + away + near - np.sqrt((1 - away - near) ** 2 + 4 * cross**2)) / 2
        rest = basis - np.outer(unit, unit @ basis) - np.outer(normal, normal @ basis)
        values = np.linalg.svd(rest, compute_uv=False)
        assert formula == pytest.approx(k - (1 - away) - (values[: k - 1] ** 2).sum(), abs=1e-12)
        allowed = 1.01 * formula
        if allowed < 1:
            assert away + near - cross**2 / (1 - allowed) <= allowed


@pytest.mark.parametrize(("d", "k"), SIZES)
def test_through_contains_beta_and_is_orthogonal_to_r(d, k):
    case = cases(d, k, 1, sine=0.5)[0]
    problem, rng = problem_of(case), np.random.default_rng(0)
    beta, r = rng.normal(size=(2, d))
    _, frame = tilt_point(problem, tilt_through_point(problem, beta, r), np.zeros(k))
    r -= beta * (beta @ r) / (beta @ beta)
    np.testing.assert_allclose(frame @ (frame.T @ beta), beta, atol=1e-10)
    np.testing.assert_allclose(frame.T @ r, 0, atol=1e-10)


@pytest.mark.parametrize(("d", "k"), SIZES)
@pytest.mark.parametrize("bounded", [False, True])
def test_gradient_is_that_of_the_value(d, k, bounded):
    rng = np.random.default_rng(1)
    for case in cases(d, k, 3, bounded=bounded):
        problem = problem_of(case)
        for size in (0.01, 3.0):
            outside = size * rng.normal(size=(d, 2))
            outside -= case.basis @ (case.basis.T @ outside)
            rows = np.eye(k, 2) if k <= 2 else rng.normal(size=(k, 2))
            tilt, ahead = np.concatenate([outside, rows]), rng.normal(size=(d + k, 2))
            ahead[:d] -= case.basis @ (case.basis.T @ ahead[:d])
            ahead[d:] *= k > 2

            def value(z, case=case, problem=problem):
                return evaluated_tilt(problem, case.action, z, 0.1).value

            assert value(tilt) > -np.inf, "these tilts are feasible: none may be skipped"
            measured = (value(tilt + 1e-6 * ahead) - value(tilt - 1e-6 * ahead)) / 2e-6
            slope = evaluated_tilt(problem, case.action, tilt, 0.1).slope
            assert (slope * ahead).sum() == pytest.approx(measured, abs=2e-6, rel=1e-5)


# Oracles


def compare(case, effort):
    found, best = solve(case), oracle.cover_value(case, **effort)
    assert np.isfinite(best), "the covers of these seeds find a feasible point: none may be skipped"
    assert abs(found.values[0] - best) <= 1e-3 * case.scale
    assert best <= found.upper[0] + 1e-9 * case.scale


@pytest.mark.parametrize("seed", range(8))
def test_agrees_with_a_fine_cover_of_lines(seed):
    compare(oracle.random_case(np.random.default_rng([3, seed]), 3, 1), {"cells": 61, "keep": 30, "levels": 8})


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_a_refined_cover_of_planes(seed):
    compare(oracle.random_case(np.random.default_rng([4, seed]), 4, 2), {"cells": 7, "keep": 12, "levels": 12})


@pytest.mark.filterwarnings("ignore")  # SLSQP steps outside its bounds
@pytest.mark.parametrize(("d", "k", "seed"), [(7, 3, 0), (7, 3, 1), (9, 4, 2), (12, 2, 3)])
def test_fifty_random_starts_of_another_optimiser_do_not_win(d, k, seed):
    rng = np.random.default_rng([7, d, k, seed])
    case = oracle.random_case(rng, d, k)
    best = oracle.random_starts_value(case, starts=50, rng=rng)
    assert best <= solve(case).values[0] + 1e-4 * case.scale


# Feasibility and bounds


@pytest.mark.parametrize(("d", "k"), SIZES)
def test_points_meet_every_constraint_and_attain_the_value(d, k):
    for case in cases(d, k, 12):
        found, problem = solve(case), problem_of(case)
        assert found.feasible, "these cases are feasible: none may be skipped"
        (beta,), (frame,) = rounds.round_maximisers(problem, found)
        assert problem_violations(case.gram, case.moment, case.basis, beta, frame, **limits(case)).max() <= TOLERANCE
        assert case.action @ beta == pytest.approx(found.values[0], abs=1e-9 * case.scale)


@pytest.mark.parametrize(("d", "k"), SIZES)
def test_bounds_are_in_order(d, k):
    """value <= pair dual <= cone dual <= plain cone dual <= LinUCB, to the accuracy of the duals."""
    for case in cases(d, k, 12):
        found, problem = solve(case), problem_of(case)
        assert found.feasible and case.radius > 0, "these cases are feasible: none may be skipped"
        view, action, slack = pencil_of_bounds(problem), case.action[None], 2e-5 * case.scale
        pair, cone = pair_upper_bounds(view, action)[0][0], cone_upper_bound(view, action)[0]
        plain = cone_upper_bound(view, action, squared=problem.outer)[0]
        assert found.values[0] <= found.upper[0] + 1e-9 * case.scale
        assert found.upper[0] <= pair <= cone + slack
        assert cone <= plain + 1e-9 * case.scale
        assert plain <= linucb(case) + 1e-9 * case.scale


def test_ball_bound_is_the_support_of_the_cone_in_a_ball():
    case = cases(4, 2, 1, bounded=True, sine=0.4)[0]
    rng = np.random.default_rng(0)
    frames = oracle.frames_of(case, rng.normal(size=(40_000, 2, 2)))
    reward = case.bound * np.linalg.norm(np.einsum("ndk,d->nk", frames, case.action), axis=1)
    assert reward.max() <= ball_upper_bound(problem_of(case), case.action[None])[0] <= 1.02 * reward.max()


# Limits


@pytest.mark.parametrize(("d", "k"), SIZES)
def test_radius_zero_is_linucb_inside_the_basis(d, k):
    for case in cases(d, k, 5):
        fixed = replace(case, radius=0.0, outer=1e9, bound=np.inf)
        assert solve(fixed).values[0] == pytest.approx(inside_basis(fixed), abs=1e-9)


@pytest.mark.parametrize(("d", "k"), SIZES)
def test_small_radius_comes_close_to_radius_zero(d, k):
    for case in cases(d, k, 5):
        close = replace(case, radius=1e-6, outer=1e3, bound=np.inf)
        assert solve(close).values[0] == pytest.approx(inside_basis(close), abs=1e-4)


@pytest.mark.parametrize(("d", "k"), SIZES)
def test_vacuous_radius_with_a1_at_least_a2_is_linucb(d, k):
    for case in cases(d, k, 8):
        free = replace(case, radius=2.0, inner=1.5 * case.outer, bound=np.inf)
        assert solve(free).values[0] == pytest.approx(linucb(free), abs=1e-6 * free.scale)


@pytest.mark.parametrize(("d", "k"), SIZES)
def test_between_the_basis_and_linucb_and_monotone_in_the_radius(d, k):
    for case in cases(d, k, 6, bounded=False):
        values = [solve(replace(case, radius=np.sqrt(2) * s)).values[0] for s in (0.0, 0.05, 0.2, 0.5, 0.9, 1.0)]
        assert values[0] == pytest.approx(inside_basis(case), abs=1e-9)
        assert all(low <= high + 1e-5 * case.scale for low, high in pairwise(values))
        assert values[-1] <= linucb(case) + 1e-9 * case.scale


def test_infinite_radii_leave_the_ball():
    case = replace(cases(6, 2, 1)[0], inner=np.inf, outer=np.inf, bound=1.3, radius=0.6)
    assert solve(case).values[0] == pytest.approx(ball_upper_bound(problem_of(case), case.action[None])[0], rel=1e-5)


# Infeasible rounds


def hopeless(d=6, k=2, *, bound=np.inf):
    """A user whose rewards lie far outside every allowed subspace."""
    basis = np.eye(d)[:, :k]
    gram = np.eye(d) + 400 * np.diag(np.eye(d)[-1])
    return oracle.Case(gram, 400 * np.eye(d)[-1] + 0.1, basis, np.ones(d), 0.1, 1.0, 2.0, bound)


def test_infeasible_rounds_are_proved_so():
    found = solve(hopeless())
    assert not found.feasible and found.impossible


def test_feasible_only_away_from_the_basis():
    """U_hat fits too badly, but a tilt within the radius does not."""
    case = replace(hopeless(), radius=1.2, outer=12.0)
    problem = problem_of(case)
    assert inside_basis(case) == -np.inf and not steepest_tilt(problem, case.action)[: problem.dim].any()
    anchor, distance = nearest_point_for_bound(pencil_of_bounds(problem))
    shift = anchor - problem.mean
    assert shift @ case.gram @ shift == pytest.approx(distance, rel=1e-6)
    found = solve(case)
    assert found.feasible and found.values[0] <= found.upper[0] + 1e-9


# A round of many actions


def many(seed, d=20, k=3, count=12):
    rng = np.random.default_rng(seed)
    case = oracle.random_case(rng, d, k, sine=0.3)
    actions = rng.normal(size=(count, d))
    return problem_of(case), actions / np.linalg.norm(actions, axis=1, keepdims=True)


@pytest.mark.parametrize("seed", range(6))
def test_pruning_keeps_the_winner_and_its_value(seed):
    problem, actions = many(seed)
    full, quick = rounds.solve_round(problem, actions), rounds.solve_round(problem, actions, prune=True)
    best = int(np.argmax(full.values))
    assert np.argmax(quick.values) == best and quick.values[best] == full.values[best]
    assert quick.evaluations.sum() < full.evaluations.sum()


def test_an_answer_does_not_depend_on_the_other_actions():
    problem, actions = many(0)
    full = rounds.solve_round(problem, actions).values
    for a in range(3):
        assert rounds.solve_round(problem, actions[a : a + 1]).values[0] == full[a]


def test_the_answer_does_not_depend_on_the_rotation_of_the_basis():
    case = cases(8, 3, 1, sine=0.4)[0]
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    turned = replace(case, basis=case.basis @ turn)
    assert solve(turned).values[0] == pytest.approx(solve(case).values[0], abs=1e-6 * case.scale)


def test_runs_without_the_compiler():
    code = "import tests.local.test_local as t; print(float(t.solve(t.cases(4, 2, 1)[0]).values[0]))"
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    plain = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert float(plain.stdout) == pytest.approx(float(solve(cases(4, 2, 1)[0]).values[0]), abs=1e-6)


def test_a_polish_that_runs_away_leaves_the_tilt_as_it_was(monkeypatch):
    """Far away I + B^T B is singular to rounding; the ascent's own answer then stands."""
    case = cases(6, 3, 1)[0]
    problem, tilt = problem_of(case), np.ones((9, 2))

    def lost(objective, start, **options):
        raise np.linalg.LinAlgError("Singular matrix")

    monkeypatch.setattr(tilts, "minimize", lost)
    assert tilts.polished_tilt(problem, case.action, tilt, np.ones(3)) is tilt

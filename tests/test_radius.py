"""Guards Delta_off: bounds against formulas on per-user matrices, norms, clipping, and that it covers the truth."""

from __future__ import annotations

import numpy as np
import pytest

import newcomer as nc
from newcomer.errors import ModelError
from newcomer.radius import (
    FACTORS,
    KINDS,
    radius_coverage_error,
    radius_moment_error,
    radius_printed_moment_error,
    subspace_radius,
)
from newcomer.sold.correction import corrected_second_moment, correction_of, coverage_for_correction
from newcomer.sold.moments import moments_of
from newcomer.sold.radius_terms import radius_terms_of, walk_for_radius_terms
from newcomer.subspace import subspace_distance, top_eigenvectors
from newcomer.users import user_bucket_count, user_buckets, user_group_bounds
from newcomer.worlds import Synthetic
from tests.helpers import batch_of, histories
from tests.oracles import radii, sold


def setting(ridge, lengths=(8, 8), users=150, dim=5, literal=False):
    parts = histories(np.random.default_rng(0), users=users, dim=dim, lengths=lengths)
    batch = batch_of(parts)
    moments = moments_of(batch, ridge)
    spectrum, basis = top_eigenvectors(corrected_second_moment(moments, literal=literal), 2)
    terms = [sold.user_terms(X, r, ridge) for X, r in parts]
    correction = correction_of(moments, coverage_for_correction(moments), literal=literal)
    return parts, batch, terms, moments, radius_terms_of(moments, correction, spectrum, basis)


def in_groups(matrices, batch):
    """The users' matrices in the groups in which the martingale bound meets them, at d = 5."""
    where = np.searchsorted(user_group_bounds(64), user_buckets(batch.hashes, user_bucket_count(5)), side="right") - 1
    return [[M for M, g in zip(matrices, where, strict=True) if g == i] for i in range(7)]


@pytest.mark.parametrize("literal", [True, False])
@pytest.mark.parametrize("ridge", [1.0, None])
def test_bounds_on_the_moment_match_their_formulas(ridge, literal):
    """Of the symmetrised moment as they are, of the other through its dilation, 2d = 10 in the logarithm of both."""
    parts, batch, terms, _moments, x = setting(ridge, literal=literal)
    Ms = [sold.sym(t[0]) if literal else radii.dilation(t[0]) for t in terms]
    R = max(np.abs(r).max() for _, r in parts)
    L = R**2 * 4 / 4 if ridge else max(np.linalg.norm(M, 2) for M in Ms)
    groups = in_groups(Ms, batch)
    for delta in (0.2, 0.05, 1e-6):
        assert radius_moment_error(x, "hoeffding", delta) == pytest.approx(radii.hoeffding(5, 150, L, delta), rel=1e-9)
        assert radius_moment_error(x, "bernstein", delta) == pytest.approx(radii.bernstein(Ms, L, delta, 10), rel=1e-9)
        assert radius_moment_error(x, "martingale", delta) == pytest.approx(
            radii.martingale(groups, L, delta, 10), rel=1e-9
        )
        assert radius_coverage_error(x, delta) == pytest.approx(np.sqrt(8 * np.log(10 / delta) / 150))
    assert np.linalg.norm(np.mean(Ms, axis=0), 2) < radius_moment_error(x, "martingale", 0.05)


def test_printed_formulas_are_the_papers():
    parts, _, terms, moments, x = setting(0.5)
    Ms, R = [sold.sym(t[0]) for t in terms], max(np.abs(r).max() for _, r in parts)
    # The proposition holds with probability 1 - delta/2 and the theorem wants 1 - delta/3: delta of the one is 2/3.
    assert radius_printed_moment_error(x, "bernstein", 0.05) == pytest.approx(
        radii.printed(Ms, R, 8, 0.5, 0.1), rel=1e-9
    )
    gap = np.linalg.eigvalsh(np.mean(Ms, axis=0))[::-1]
    options = {"delta": 0.15, "clip": False, "printed": True}
    bare = subspace_radius(x, "bernstein", simplified="without B", **options)
    assert bare == pytest.approx(2 * 2 / (gap[1] - gap[2]) * radii.printed(Ms, R, 8, 0.5, 0.1), rel=1e-9)
    for norm in ("spectral", "frobenius"):
        whole = subspace_radius(x, "bernstein", simplified=True, norm=norm, **options)
        assert whole == pytest.approx(coverage_for_correction(moments).inverse_norm ** 2 * bare, rel=1e-9)
    assert radius_coverage_error(x, 0.05, printed=True) == pytest.approx(np.sqrt(8 * np.log(4 * 5 / 0.2) / 150))


def test_steps_do_not_look_ahead():
    """Users of later groups are exchanged for others (of the same range): earlier steps and centres stay."""
    parts, batch, _, moments, x = setting(1.0, users=400)
    correction = correction_of(moments, coverage_for_correction(moments))
    before = list(walk_for_radius_terms(moments, correction, x.largest_range))
    where = np.searchsorted(user_group_bounds(64), user_buckets(batch.hashes, 64), side="right") - 1
    for group in range(1, 6):
        later = np.flatnonzero(where > group)
        changed = list(parts)
        for i, j in zip(later, np.random.default_rng(group).permutation(later), strict=True):
            changed[i] = (parts[j][0], -2 * parts[j][1])  # other people, and twice as large
        moved = moments_of(batch_of(changed), 1.0)
        after = list(walk_for_radius_terms(moved, correction, x.largest_range))
        for i in range(group + 2):  # the group that comes next is still served by what came before it
            np.testing.assert_array_equal(after[i].steps, before[i].steps)
            np.testing.assert_array_equal(after[i].centre, before[i].centre)
        assert group == 5 or not np.array_equal(after[6].centre, before[6].centre)
    assert all((one.steps <= 0.5).all() for one in before) and len(before[0].steps) == len(FACTORS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_theorem_and_the_identity(kind):
    _, _, terms, moments, x = setting(1.0, users=20_000, dim=3)
    values = np.linalg.eigvalsh(corrected_second_moment(moments))[::-1]
    B = max(1 / np.linalg.eigvalsh(np.mean([t[i] for t in terms], axis=0))[0] for i in (1, 2))
    gap = values[1] - values[2]
    for simplified in (True, False):
        dM, dD = radius_moment_error(x, kind, 0.1 / 3), 0.0 if simplified else radius_coverage_error(x, 0.1 / 3)
        expected = radii.theorem(2, gap, B, moments.reward_max, dM, dD)
        options = {"delta": 0.1, "clip": False, "simplified": simplified}
        raw = subspace_radius(x, kind, norm="frobenius", **options)
        assert np.isfinite(raw) and raw == pytest.approx(expected, rel=1e-9)
        assert subspace_radius(x, kind, norm="spectral", **options) == pytest.approx(raw / np.sqrt(2))
        error = expected * gap / (2 * 2)  # the norm of E, without 2 sqrt(2k) / gap
        spectral, frobenius = (
            subspace_radius(x, kind, norm=norm, form="identity", **options) for norm in ("spectral", "frobenius")
        )
        assert spectral == pytest.approx(error / values[1], rel=1e-9)
        assert frobenius == pytest.approx(np.sqrt(2 * min(2, 3 - 2)) * spectral, rel=1e-9)
    bare = subspace_radius(x, kind, delta=0.1, clip=False, simplified="without B")
    whole = subspace_radius(x, kind, delta=0.1, clip=False, simplified=True)
    assert whole == pytest.approx(B**2 * bare, rel=1e-9)


def symmetric_of_norm(rng, dim, size):
    A = sold.sym(rng.standard_normal((dim, dim)))
    return size * A / np.linalg.norm(A, 2)


@pytest.mark.parametrize("seed", range(30))
def test_the_error_of_the_corrected_moment_is_bounded_as_said(seed):
    """Lemma 5 for matrices of any kind: coverage with eigenvalues in (0, 1], ||E M|| <= R^2, errors dD and dM."""
    rng = np.random.default_rng(seed)
    turns = [np.linalg.qr(rng.standard_normal((4, 4)))[0] for _ in range(2)]
    means = [turn * rng.uniform(0.2, 1.0, 4) @ turn.T for turn in turns]
    dD, dM, R = rng.uniform(0.0, 0.1), rng.uniform(0.0, 1.0), 1.0
    found = [D + symmetric_of_norm(rng, 4, dD) for D in means]
    M = rng.standard_normal((4, 4))
    M *= R**2 / np.linalg.norm(M, 2)
    seen = M + dM * (A := rng.standard_normal((4, 4))) / np.linalg.norm(A, 2)
    inverse, known = ([np.linalg.inv(D) for D in both] for both in (found, means))
    error = np.linalg.norm(inverse[0] @ seen @ inverse[1] - known[0] @ M @ known[1], 2)
    B = max(np.linalg.norm(D, 2) for D in inverse)
    bound = radii.theorem(2, 2 * np.sqrt(2 * 2), B, R, dM, dD)  # a gap that makes the factor in front 1
    assert error <= bound * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_subspaces_are_as_near_as_both_forms_say(seed):
    """Davis-Kahan with the gap of the *estimate*, and the identity: S of rank k, any symmetric error."""
    rng = np.random.default_rng(seed)
    dim, rank = 7, int(rng.integers(1, 5))
    factor = rng.standard_normal((dim, rank))
    S, E = factor @ factor.T, symmetric_of_norm(rng, dim, 10 ** rng.uniform(-3, 0.5))
    values, found = top_eigenvectors(S + E, dim)
    true, size = np.linalg.qr(factor)[0], np.linalg.norm(E, 2)
    basis, gap = found[:, :rank], values[rank - 1] - values[rank]
    assert subspace_distance(basis, true, norm="frobenius") <= 2 * np.sqrt(2 * rank) * size / gap * (1 + 1e-9)
    if values[rank - 1] > 0:
        assert subspace_distance(basis, true) <= size / values[rank - 1] * (1 + 1e-9)
        limit = np.sqrt(2 * min(rank, dim - rank)) * size / values[rank - 1]
        assert subspace_distance(basis, true, norm="frobenius") <= limit * (1 + 1e-9)


def test_a_users_matrix_is_no_larger_than_its_range():
    """Lemma 4, first part: |b_i| <= |r_i| / (2 sqrt mu), so ||M_n|| <= R^2 sqrt(h1 h2) / (4 mu); nearly met."""
    rng, mu, nearest = np.random.default_rng(0), 0.7, 0.0
    for steps in (2, 3, 9):
        axis = np.eye(4)[0] * np.sqrt(mu / np.array([-(-steps // 2), steps // 2])[np.arange(steps) % 2])[:, None]
        for X in (rng.standard_normal((steps, 4)), axis):
            r = np.ones(steps)
            M = sold.sym(sold.user_terms(X, r, mu)[0])
            bound = np.sqrt((steps + 1) // 2 * (steps // 2)) / (4 * mu)
            assert np.linalg.norm(M, 2) <= bound * (1 + 1e-12)
            nearest = max(nearest, np.linalg.norm(M, 2) / bound)
    assert nearest == pytest.approx(1.0)


def test_the_printed_bound_on_the_square_drops_products_of_signal_and_noise():
    """Lemma 4, second part. X has the rows sqrt(mu) e_1, ..., sqrt(mu) e_d, so D = I/2, and each coordinate has noise
    of variance v = s / (4 mu). With A = E[b b^T] = beta beta^T / 4 + v I, E[M^2] = (A tr(A) + A^2) / 2 exactly.
    """
    d, s, mu, R = 2000, 1 / 16, 1.0, 1.0
    v = s / (4 * mu)
    top = R**2 / 4 + v  # the largest eigenvalue of A, along beta
    exact = (top * (R**2 / 4 + d * v) + top**2) / 2
    assert exact > 2 * (R**4 + s**2 * (d + 1) / (8 * mu**2))  # as printed: too small by more than a half
    assert exact <= (R**2 + v) * (R**2 + d * v)


def test_infinite_unless_coverage_is_known_well_enough():
    *_, x = setting(1.0, users=60)
    assert subspace_radius(x, "bernstein", clip=False) == np.inf
    assert subspace_radius(x, "bernstein") == 1.0
    assert subspace_radius(x, "bernstein", norm="frobenius") == pytest.approx(2.0)
    assert np.isfinite(subspace_radius(x, "bernstein", clip=False, simplified=True))


def test_ragged_histories_use_the_longest_range():
    parts, _, _, _moments, x = setting(0.5, lengths=(2, 100))
    R = max(np.abs(r).max() for _, r in parts)
    longest = max(len(r) for _, r in parts)
    bound = R**2 * np.sqrt(np.ceil(longest / 2) * (longest // 2)) / (4 * 0.5)
    assert bound <= x.largest_range <= 1.25 * bound
    assert x.mean_square_range < x.largest_range**2


@pytest.fixture(scope="module")
def model():
    return nc.fit(Synthetic.learnable(dim=8, seed=0).logs(3000, 12, seed=0), rank=2, estimator="sold")


def test_a_model_answers_for_every_kind_norm_and_level(model):
    for kind in KINDS:
        raw = [model.radius(kind, delta=d, clip=False, simplified=True) for d in (0.3, 0.05, 0.001)]
        assert raw == sorted(raw)
        assert model.radius(kind, norm="frobenius") <= 2.0 and model.radius(kind) <= 1.0
    assert model.radius("bernstein", delta=0.05, clip=False, simplified=True) == pytest.approx(
        model.radius("bernstein", clip=False, simplified=True)
    )


def test_bad_questions_get_one_sentence(model):
    with pytest.raises(ModelError, match=r"no radius of kind 'hoefding'.*did you mean 'hoeffding'"):
        model.radius("hoefding")
    with pytest.raises(ModelError, match="delta is 1.5"):
        model.radius(delta=1.5)


def test_radii_cover_the_true_error():
    """They exceed it by far (docs/explanation/radius.md says how far), so 20 of 20 worlds must be covered."""
    for seed in range(20):
        world = Synthetic.learnable(dim=6, seed=seed)
        model = nc.fit(world.logs(2000, 12, seed=seed), rank=2, estimator="sold", null=False)
        for norm in ("spectral", "frobenius"):
            error = subspace_distance(model.basis, world.basis, norm=norm)
            for kind in KINDS:
                for form in ("theorem", "identity"):
                    assert error <= model.radius(kind, norm=norm, clip=False, simplified=True, form=form)


def test_directions_without_variance_have_no_bound():
    user = np.repeat(np.arange(60), 4)
    reward = np.random.default_rng(0).integers(1, 6, len(user)).astype(float)
    model = nc.fit(nc.Logs.from_arrays(user=user, action=np.zeros(len(user), dtype=int), reward=reward))
    for kind in KINDS:
        assert model.radius(kind, clip=False, form="identity") == np.inf
        assert model.radius(kind, clip=False) == np.inf and model.radius(kind, form="identity") == 0.0

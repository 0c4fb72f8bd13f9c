"""Guards the calibrated radius: disagreeing parts, their quantiles, and that it holds and does not exaggerate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from newcomer._fit import fit
from newcomer.em.fit import estimate_population
from newcomer.em.passes import Passes
from newcomer.errors import ModelError
from newcomer.logs.logs import Logs
from newcomer.model import Model
from newcomer.radius import Draws, calibrated_radius
from newcomer.subspace import subspace_distance
from newcomer.worlds import Synthetic


def draws(*values, hopeless=False):
    return Draws(2, values, values, hopeless)


def test_equal_draws_leave_the_spread_that_dimension_alone_gives():
    radius = calibrated_radius(draws(0.1, 0.1, 0.1, 0.1), dim=52, rank=2, delta=0.1, norm="spectral")
    tangent = 0.1 * np.exp(1.6377 * np.sqrt(2) / np.sqrt(100))
    assert radius == pytest.approx(tangent / np.sqrt(1 + tangent**2), rel=1e-4)


def test_the_radius_grows_with_certainty_and_never_exceeds_the_largest_distance():
    noisy = draws(0.2, 0.3, 0.5, 0.4)
    for norm, most in (("spectral", 1.0), ("frobenius", 2.0)):
        radii = [calibrated_radius(noisy, dim=20, rank=2, delta=d, norm=norm) for d in (0.5, 0.1, 0.01, 1e-9)]
        assert radii == sorted(radii)
        assert radii[-1] <= most
        assert calibrated_radius(draws(0.1, hopeless=True), dim=20, rank=2, delta=0.1, norm=norm) == most
    assert calibrated_radius(noisy, dim=2, rank=2, delta=0.1, norm="spectral") == 0.0


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_holds_and_is_no_exaggeration_where_the_subspace_is_found(seed):
    world = Synthetic.learnable(dim=30, seed=seed)
    model = fit(world.logs(2000, 15, seed=seed), rank=2, null=False)
    for norm in ("spectral", "frobenius"):
        error = subspace_distance(model.basis, world.basis, norm=norm)
        assert error <= model.radius(delta=0.01, norm=norm)
        assert model.radius(delta=0.1, norm=norm) <= 2.5 * error
    assert model.radius() == model.radius("calibrated") < model.radius("bernstein", clip=False)


def test_noise_is_hopeless():
    logs = Synthetic.printed(dim=30, seed=1).logs(2000, 10, seed=1)
    model = fit(logs, rank=2, null=False)
    assert model.evidence.calibrated.hopeless
    assert model.radius() == 1.0


def test_draws_are_those_of_parts_fitted_apart():
    world = Synthetic.learnable(dim=12, seed=5)
    logs = world.logs(1500, 12, seed=5)
    apart = Passes(logs)
    fitted = estimate_population(apart, rank=2)
    before = apart.count
    found = fitted.draws(2)
    assert found.parts == 8 and len(found.spectral) == 4 and apart.count > before + 2
    shared = Passes(logs)
    again = estimate_population(shared, rank=2, calibrate=True)
    assert again.draws(2) == found and shared.count < apart.count
    assert np.array_equal(again.population.factor, fitted.population.factor)
    assert all(one <= whole for one, whole in zip(found.spectral, found.frobenius, strict=True))


def test_models_without_draws_say_so():
    model = Model(np.eye(3, 1), np.ones(3), np.zeros(3), np.eye(3, 1), 1.0)
    with pytest.raises(ModelError, match="no calibrated radius"):
        model.radius("calibrated")


@pytest.mark.parametrize("estimator", ["sold", "sold-pinv"])
def test_sold_has_one_too_and_the_papers_stays_its_default(estimator):
    world = Synthetic.learnable(dim=30, seed=3)
    model = fit(world.logs(2000, 15, seed=3), rank=2, null=False, estimator=estimator)
    for norm in ("spectral", "frobenius"):
        error = subspace_distance(model.basis, world.basis, norm=norm)
        assert error <= model.radius("calibrated", delta=0.01, norm=norm)
        assert model.radius("calibrated", delta=0.1, norm=norm) <= 3 * error
    assert model.radius() == model.radius("bernstein")
    hopeless = fit(Synthetic.printed(dim=30, seed=1).logs(2000, 10, seed=1), rank=2, null=False, estimator=estimator)
    assert hopeless.radius("calibrated") == 1.0
    plain = fit(world.logs(200, 15, seed=3), rank=2, estimator=estimator, calibrate=False)
    assert plain.evidence.calibrated is None


def test_an_unsure_last_direction_does_not_hide_what_is_sure():
    """Two strong directions and one that is drowned in noise: the radius of all three is large, that of two is not."""
    rng = np.random.default_rng(3)
    users, rows, dim = 1500, 12, 20
    directions = np.linalg.qr(rng.standard_normal((dim, 3)))[0]
    beta = rng.standard_normal((users, 3)) * [3.0, 2.0, 0.05] @ directions.T
    features = rng.standard_normal((users, rows, dim))
    reward = np.einsum("urd,ud->ur", features, beta) + rng.standard_normal((users, rows))
    logs = Logs.from_arrays(
        user=np.repeat(np.arange(users), rows), features=features.reshape(-1, dim), reward=reward.ravel()
    )
    for estimator in ("em", "sold"):
        model = fit(logs, rank=3, null=False, estimator=estimator)
        draws, (count, error) = model.evidence.calibrated, model.evidence.calibrated.sure
        assert model.radius("calibrated") > 0.9 and count == 2 and len(draws.leading) == 3
        assert subspace_distance(model.basis[:, :2], directions[:, :2]) <= error < 0.3
        assert "Of 3 directions 2 are known" in draws.sentence() and "the 3rd is not" in draws.sentence()
        assert Model.from_bytes(model.to_bytes()).evidence.calibrated == draws
        kept = replace(draws, leading=(), dim=0)  # as files of before had it
        before = replace(model, evidence=replace(model.evidence, calibrated=kept))
        assert before.id == model.id and before.radius("calibrated") == model.radius("calibrated")
        assert kept.sure == (0, 1.0) and kept.sentence() == ""
        assert "leading" not in before.evidence.to_json()["calibrated"]


def test_draws_of_all_leading_directions_are_the_draws():
    world = Synthetic.learnable(dim=12, seed=5)
    draws = fit(world.logs(1500, 12, seed=5), rank=2, null=False).evidence.calibrated
    assert draws.leading[-1] == draws.spectral and draws.dim == 12 and draws.sure[0] == 2
    assert draws.scaled(0.25).leading[0] == pytest.approx([one / 2 for one in draws.leading[0]])

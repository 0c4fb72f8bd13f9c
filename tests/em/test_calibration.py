"""Guards the calibrated radius: disagreeing parts, their quantiles, and that it holds and does not exaggerate."""

from __future__ import annotations

import numpy as np
import pytest

from newcomer._fit import fit
from newcomer.em.fit import estimate_population
from newcomer.em.passes import Passes
from newcomer.errors import ModelError
from newcomer.model import Model
from newcomer.radius import Draws, calibrated_radius
from newcomer.subspace import distance
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
        error = distance(model.basis, world.basis, norm=norm)
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
        error = distance(model.basis, world.basis, norm=norm)
        assert error <= model.radius("calibrated", delta=0.01, norm=norm)
        assert model.radius("calibrated", delta=0.1, norm=norm) <= 3 * error
    assert model.radius() == model.radius("bernstein")
    hopeless = fit(Synthetic.printed(dim=30, seed=1).logs(2000, 10, seed=1), rank=2, null=False, estimator=estimator)
    assert hopeless.radius("calibrated") == 1.0
    plain = fit(world.logs(200, 15, seed=3), rank=2, estimator=estimator, calibrate=False)
    assert plain.evidence.calibrated is None

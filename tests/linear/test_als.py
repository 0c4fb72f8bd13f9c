"""Guards alternating least squares: each row against augmented least squares, however rows and factors are cut."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from newcomer.linear import als
from newcomer.linear.als import AlsRegression, fit_als, observed_als_cells
from tests.oracles import evaluate as oracle
from tests.oracles.lowrank import ridge_by_augmented_rows


@pytest.fixture
def table():
    """30 rows of 20 cells, 60% of them observed, some twice, some of them zero; row 4 has none."""
    rng = np.random.default_rng(3)
    row, column = np.nonzero(rng.random((30, 20)) < 0.6)
    row, column = np.append(row, [7, 7]), np.append(column, [2, 2])
    row, column = row[row != 4], column[row != 4]
    order = np.argsort(row, kind="stable")
    value = rng.standard_normal(len(row))
    value[::5] = 0.0
    starts = np.searchsorted(row[order], np.arange(31))
    return sparse.csr_array((value, column[order], starts), shape=(30, 20))


def cut(monkeypatch, block, products):
    monkeypatch.setattr(als, "_BLOCK", block)
    monkeypatch.setattr(als, "_PRODUCTS", products)


@pytest.mark.parametrize("block", [1, 100, 10**9])
@pytest.mark.parametrize("products", [1, 10**9])
def test_each_row_is_a_ridge_regression_of_its_own(table, block, products, monkeypatch):
    cut(monkeypatch, block, products)
    features = np.random.default_rng(0).standard_normal((20, 4))
    found = AlsRegression(features, 0.7).solve(table)
    np.testing.assert_allclose(found, ridge_by_augmented_rows(table, features, 0.7), atol=1e-10)
    assert not found[4].any()


@pytest.mark.parametrize(("block", "products"), [(100, 1), (10**9, 10**9)])
def test_sweeps_solve_both_sides_in_turn(table, block, products, monkeypatch):
    cut(monkeypatch, block, products)
    table.sum_duplicates()
    start = np.random.default_rng(1).standard_normal((20, 3))
    users, items = fit_als(table, start, ridge=0.5, sweeps=4)
    met = observed_als_cells(table).toarray() > 0
    np.testing.assert_allclose(items, oracle.als(table.toarray(), met, 0.5, start, 4), atol=1e-9)
    np.testing.assert_allclose(AlsRegression(users, 0.5).solve(table.T.tocsr()), items, atol=1e-12)


def test_numbers_beside_which_a_ridge_vanishes_are_solved_too() -> None:
    """Two equal factors of that size make a singular system on some processors."""
    table = sparse.csr_array(np.array([[1e12, 2e12], [3e12, 1e12]]))
    found = AlsRegression(np.array([[1e12, 1e12], [2e12, 2e12]]), ridge=1e-3).solve(table)
    np.testing.assert_allclose(found.sum(axis=1), [1.0, 1.0], rtol=1e-6)

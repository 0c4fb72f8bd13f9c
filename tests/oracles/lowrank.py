"""Low-rank fits the slow and obvious way."""

from __future__ import annotations

import numpy as np


def ridge_by_augmented_rows(table, features, ridge):
    """argmin_w sum_j (r_j - w . f_j)^2 + ridge |w|^2 for each row, as least squares with sqrt(ridge) I appended."""
    dim = features.shape[1]
    out = []
    for row in range(table.shape[0]):
        cells = slice(table.indptr[row], table.indptr[row + 1])
        shown, values = features[table.indices[cells]], table.data[cells]
        system = np.vstack([shown, np.sqrt(ridge) * np.eye(dim)])
        out.append(np.linalg.lstsq(system, np.concatenate([values, np.zeros(dim)]), rcond=None)[0])
    return np.array(out)


def threshold_by_svd(matrix, amount):
    """The proximal map of amount |.|_*: max(singular value - amount, 0) (Cai, Candes and Shen 2010, Theorem 2.1)."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    return left @ np.diag(np.maximum(values - amount, 0.0)) @ right


def objective(observed, users, movies):
    """1/2 sum over observed entries of (r_ij - b_i . f_j)^2."""
    entries = zip(observed.row, observed.column, observed.value, strict=True)
    return 0.5 * sum((value - users[i] @ movies[j]) ** 2 for i, j, value in entries)

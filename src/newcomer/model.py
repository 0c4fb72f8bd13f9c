"""Model: what users have in common, with how it was found, in one immutable record and one file.

A model is a basis of the shared subspace, the prior of reward vectors (mean, low-rank covariance, noise), what is
needed to say how wrong the basis may be, and its provenance. Every policy takes every model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from newcomer.errors import ModelError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Model:
    """Subspace, prior and provenance.

    `basis` (d, k) is orthonormal, the largest entry of each column positive; `spectrum` (d,) holds the eigenvalues of
    the symmetrised second moment, largest first; beta has mean `mean` (d,) and covariance `factor @ factor.T`, rewards
    have noise variance `noise_variance`.
    """

    basis: Floats
    spectrum: Floats
    mean: Floats
    factor: Floats
    noise_variance: float
    estimator: str = "sold"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str = ""
    action_ids: tuple[int | str, ...] | None = None
    intercept: bool = False

    @property
    def dim(self) -> int:
        """Ambient feature dimension d."""
        return int(self.basis.shape[0])

    @property
    def rank(self) -> int:
        """Dimension k of the shared subspace; 0 says that nothing shared was found."""
        return int(self.basis.shape[1])

    @cached_property
    def covariance(self) -> Floats:
        """Covariance (d, d) of users' reward vectors."""
        return self.factor @ self.factor.T

    def needs_basis(self, who: str) -> None:
        """Refuse rank 0 on behalf of a policy that works in the subspace."""
        if self.rank == 0:
            raise ModelError(
                f"{who} needs a shared subspace and this model has rank 0",
                todo="use PopulationMean or LinUCB, fit more logs, or pass rank= to fit",
            )

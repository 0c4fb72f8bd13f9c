"""Model: what users have in common, with how it was found, in one immutable record and one file.

A model is a basis of the shared subspace, the prior of reward vectors (mean, low-rank covariance, noise), what is
needed to say how wrong the basis may be, and its provenance. Every policy takes every model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from newcomer import __version__
from newcomer.errors import ModelError
from newcomer.files import pack, read, unpack, write

if TYPE_CHECKING:
    from newcomer.radius import Form
    from newcomer.subspace import Norm

Floats = NDArray[np.float64]

ARRAYS = ("basis", "spectrum", "mean", "factor")
FACTS = ("estimator", "parameters", "evidence", "fingerprint", "intercept", "noise_variance")


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

    def radius(
        self,
        kind: str | None = None,
        *,
        delta: float = 0.05,
        norm: Norm = "spectral",
        clip: bool = True,
        simplified: bool = False,
        form: Form = "theorem",
    ) -> float:
        """Delta_off: with probability 1 - `delta` the basis is no further than this from the truth.

        Parameters
        ----------
        kind : "calibrated" (see `newcomer.population.calibration`; the default of a model by em that has it; the options below `norm` do
            not concern it), or the paper's "hoeffding", "bernstein" (the default of a model by sold) or "martingale".
        norm : "spectral" (sine of the largest angle, at most 1) or "frobenius" (at most sqrt(2k)).
        clip : cut at the largest distance there is; without it the raw bound, which may be infinite.
        simplified : take the coverage as known (Delta_D = 0), as the paper's figures do.
        form : "theorem", the paper's, or "identity", sharper and valid too (see `newcomer.radius`).
        """
        from newcomer.radius import Ingredients, subspace_radius

        if not 0 < delta < 1:
            raise ModelError(f"delta is {delta}", todo="choose a probability between 0 and 1")
        self.needs_basis("a radius")
        if kind == "calibrated" or (kind is None and self.estimator == "em" and "calibrated" in self.evidence):
            return self._calibrated(delta, norm)
        if "radius" not in self.evidence:
            raise ModelError("this model keeps no evidence for a radius", todo="fit it from logs, or pass radius=")
        ingredients = Ingredients.from_dict(self.evidence["radius"])
        return subspace_radius(
            ingredients, kind or "bernstein", delta=delta, norm=norm, clip=clip, simplified=simplified, form=form
        )

    def _calibrated(self, delta: float, norm: Norm) -> float:
        from newcomer.population.calibration import calibrated_radius

        if "calibrated" not in self.evidence:
            raise ModelError("this model keeps no calibrated radius", todo="fit it with calibrate=True")
        draws = self.evidence["calibrated"]
        return calibrated_radius(draws, dim=self.dim, rank=self.rank, delta=delta, norm=norm)

    def to_bytes(self) -> bytes:
        """The model as the bytes of its file."""
        facts = {name: getattr(self, name) for name in FACTS}
        facts |= {"action_ids": self.action_ids, "dim": self.dim, "rank": self.rank}
        facts |= {"versions": {"newcomer": __version__}, "created": datetime.now(UTC).isoformat(timespec="seconds")}
        return pack("model", {name: getattr(self, name) for name in ARRAYS}, facts)

    @classmethod
    def from_bytes(cls, data: bytes, *, where: str = "") -> Model:
        """The model in these bytes; refuses what is newer, damaged or something else."""
        arrays, facts = unpack(data, "model", where=where)
        try:
            ids = facts["action_ids"]
            parts: dict[str, Any] = {name: arrays[name] for name in ARRAYS} | {name: facts[name] for name in FACTS}
            return cls(**parts, action_ids=None if ids is None else tuple(ids))
        except KeyError as error:
            raise ModelError(f"the model lacks {error}", where=where, todo="make it again") from error

    def save(self, path: str | Path) -> None:
        """Write the model file, all or nothing."""
        write(Path(path), self.to_bytes())

    def needs_basis(self, who: str) -> None:
        """Refuse rank 0 on behalf of a policy that works in the subspace."""
        if self.rank == 0:
            raise ModelError(
                f"{who} needs a shared subspace and this model has rank 0",
                todo="use PopulationMean or LinUCB, fit more logs, or pass rank= to fit",
            )


def load(path: str | Path) -> Model:
    """Read a model file."""
    return Model.from_bytes(read(Path(path)), where=str(path))

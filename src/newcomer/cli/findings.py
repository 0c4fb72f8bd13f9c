"""What a model has to say, as plain numbers: the one form that the screen and `--json` show."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from newcomer.errors import ModelError

if TYPE_CHECKING:
    from newcomer.evidence import CoverageFacts, RidgeChoice, Summary
    from newcomer.model import Model


@dataclass(frozen=True)
class RankFindings:
    """Why the rank: `chosen` "auto" or "given"; leading eigenvalues and what each had to exceed (empty without a test).

    `level`: probability of a false direction where none is shared; `differing`: directions along which users differ.
    """

    chosen: str
    eigenvalues: tuple[float, ...]
    thresholds: tuple[float, ...] = ()
    level: float | None = None
    stand_out: int | None = None
    differing: int | None = None

    @classmethod
    def of(cls, model: Model) -> RankFindings:
        """From the evidence in the model."""
        kept = model.evidence.rank
        assert kept is not None
        test, other = kept.moment, kept.covariance
        if test is None or other is None:
            return cls(kept.chosen, tuple(model.spectrum.tolist()))
        return cls(kept.chosen, test.spectrum, test.threshold, test.level, test.rank, other.rank)


@dataclass(frozen=True)
class RadiusFindings:
    """One kind of radius: the paper's, the sharper form, and the paper's with coverage taken as known (Delta_D = 0).

    Spectral, clipped at 1; `_raw` is not clipped.
    """

    kind: str
    theorem: float
    theorem_raw: float
    identity: float
    identity_raw: float
    simplified: float
    simplified_raw: float

    @classmethod
    def of(cls, model: Model, kind: str, delta: float) -> RadiusFindings:
        """Ask the model."""
        theorem = [model.radius(kind, delta=delta, clip=clip) for clip in (True, False)]
        identity = [model.radius(kind, delta=delta, clip=clip, form="identity") for clip in (True, False)]
        simplified = [model.radius(kind, delta=delta, clip=clip, simplified=True) for clip in (True, False)]
        return cls(kind, *theorem, *identity, *simplified)


@dataclass(frozen=True)
class Findings:
    """Everything `fit` and `inspect` show."""

    estimator: str
    dim: int
    rank: int
    logs: Summary
    ridge: RidgeChoice
    evidence: RankFindings
    coverage: CoverageFacts
    delta: float
    radius: tuple[RadiusFindings, ...]
    calibrated: float | None
    forecast: tuple[str, ...]
    noise_variance: float
    intercept: bool
    fingerprint: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return asdict(self)


def findings_of(model: Model, *, delta: float = 0.05) -> Findings:
    """Everything there is to say about a model that was fitted from logs."""
    from newcomer.radius import KINDS

    kept = model.evidence
    if kept.logs is None or kept.ridge is None or kept.rank is None or kept.coverage is None:
        raise ModelError("the model keeps no evidence on its logs", todo="fit it from logs with this version")
    return Findings(
        estimator=model.estimator,
        dim=model.dim,
        rank=model.rank,
        logs=kept.logs,
        ridge=kept.ridge,
        evidence=RankFindings.of(model),
        coverage=kept.coverage,
        delta=delta,
        radius=tuple(RadiusFindings.of(model, kind, delta) for kind in KINDS) if model.rank else (),
        calibrated=model.radius("calibrated", delta=delta) if model.rank and kept.calibrated else None,
        forecast=tuple(kept.population.forecast.sentences()) if kept.population else (),
        noise_variance=model.noise_variance,
        intercept=model.intercept,
        fingerprint=model.fingerprint,
    )

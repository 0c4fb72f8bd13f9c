"""What a model has to say, as plain numbers: the one form that the screen and `--json` show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from newcomer.errors import ModelError

if TYPE_CHECKING:
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
        kept = model.evidence["rank"]
        if "moment" not in kept:
            return cls(kept["chosen"], tuple(model.spectrum.tolist()))
        test = kept["moment"]
        return cls(
            kept["chosen"],
            tuple(test["spectrum"]),
            tuple(test["threshold"]),
            test["level"],
            test["rank"],
            kept["covariance"]["rank"],
        )


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
    logs: Mapping[str, Any]
    ridge: Mapping[str, Any]
    evidence: RankFindings
    coverage: Mapping[str, Any]
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

    missing = [part for part in ("logs", "ridge", "rank", "coverage") if part not in model.evidence]
    if missing:
        raise ModelError(f"the model keeps no evidence on {missing[0]}", todo="fit it from logs with this version")
    return Findings(
        estimator=model.estimator,
        dim=model.dim,
        rank=model.rank,
        logs=model.evidence["logs"],
        ridge=model.evidence["ridge"],
        evidence=RankFindings.of(model),
        coverage=model.evidence["coverage"],
        delta=delta,
        radius=tuple(RadiusFindings.of(model, kind, delta) for kind in KINDS) if model.rank else (),
        calibrated=model.radius("calibrated", delta=delta) if model.rank and "calibrated" in model.evidence else None,
        forecast=_forecast(model),
        noise_variance=model.noise_variance,
        intercept=model.intercept,
        fingerprint=model.fingerprint,
    )


def _forecast(model: Model) -> tuple[str, ...]:
    """What a newcomer may expect, in sentences; nothing for estimators without a distribution of users."""
    from newcomer.population.forecast import sentences

    kept = model.evidence.get("prior", {}).get("forecast")
    return tuple(sentences(kept)) if kept else ()

"""Model: what users have in common, with how it was found, in one immutable record and one file.

A model is a basis of the shared subspace, the distribution of reward vectors (mean, low-rank covariance, noise), the
catalogue of actions it was fitted with, what is needed to say how wrong the basis may be, and its provenance. Every
policy takes every model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from newcomer import __version__
from newcomer.arrays import Floats, Ints, read_only_array
from newcomer.catalogue import Catalogue, catalogue_action_ids
from newcomer.encoding import Column, encode_columns, refuse_unencoded_names, table_to_encode
from newcomer.errors import ModelError, OutputError
from newcomer.evidence import Evidence
from newcomer.files import file_digest, pack_file, read_file, unpack_file, write_file
from newcomer.one_hot import OneHot, one_hot_is_large, one_hot_is_wide
from newcomer.population import AttributePrior
from newcomer.radius import ALL, Form, Simplified, calibrated_radius, subspace_radius
from newcomer.records import Shown
from newcomer.subspace import Norm
from newcomer.transforms import TRANSFORMS, Transform, untransform_rewards
from newcomer.validate import (
    show_invalid_value,
    validate_flag,
    validate_instance,
    validate_number,
    validate_numbers,
    validate_one_of,
    validate_path,
    validate_share,
)

if TYPE_CHECKING:
    from newcomer._transform import Coordinates

ARRAYS = ("basis", "spectrum", "mean", "factor")
FACTS = ("estimator", "parameters", "fingerprint", "intercept", "noise_variance")
TUPLES = ("action_ids", "action_names", "feature_names")  # None where there are none
OUTCOMES = ("gaussian", "binary")
OPTIONAL = (
    "reward_step",
    "tidy_ids",
    "reward_transform",
)  # facts that many models do without, and older files do not have
BY_ACTION = ("residual_variance", "offsets")  # arrays that files of format 1 do not have
ATTRIBUTES = ("attribute_effects", "attribute_covariance")  # arrays of models with attributes alone
SURENESS = ("uncertainty", "error_scales")  # arrays that older files do not have; models without them keep their id


def _nothing() -> Floats:
    """An array that is left out."""
    return np.zeros(0)


@dataclass(frozen=True)
class Model(Shown):
    """The result of `fit`: the distribution of users, the shared subspace, the catalogue, and the evidence for them.

    Arrays are read-only. Models are equal if their `id` is, which means that every policy does the same with both.

    Attributes
    ----------
    basis : orthonormal (d, k), the largest entry of each column positive.
    spectrum : eigenvalues (d,) of the symmetrised second moment, largest first. With more than 1,000 features only the
        leading ones: 24, or the rank if it is larger.
    mean, factor : mean (d,) and factor L of the covariance L L^T of users' reward vectors beta (`covariance`).
    noise_variance : of rewards, averaged over rows; `residual_variance` (A,) has that of each action.
    action_ids, action_features : the A actions of the logs, and their features (A, d). Ids are None if the logs name no
        actions. Features are None if actions are `one_hot`, or if rows brought their own features.
    intercept : whether the last feature is the constant 1.
    feature_names : names of the other features, if they have any; policies take tables by these names.
    parameters, evidence : the arguments of `fit`, and the reasons for its choices.
    uncertainty : variance (A,), or (1,), of the model's own error about the mean of each action.
    error_scales : (2, J): factors by which squared errors of held-out users exceed the expected ones, and the share of
        users with each.
    attributes : how attributes of users are encoded (`newcomer.encoding`); empty without attributes.
    attribute_covariance, attribute_effects : covariance (p, p) of the encoded attributes, and Gamma (k, p), by which
        they shift the coordinates of users. `mean` and `factor` are over all users; `prior(attributes)` is for users
        with these attributes.
    outcome : "gaussian", or "binary": rewards are 1 with probability sigma(phi^T (m + L z) + o), sigma(x) = 1 / (1 +
        exp(-x)). Then mean, factor, offsets and uncertainty are on the scale of log-odds, where the residual is a
        standard logistic variable of variance pi^2 / 3. Policies return probabilities. Basis, spectrum and radius stay
        on the scale of rewards.
    """

    basis: Floats
    spectrum: Floats
    mean: Floats
    factor: Floats
    noise_variance: float
    estimator: str = "sold"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    evidence: Evidence = field(default_factory=Evidence)
    fingerprint: str = ""
    action_ids: tuple[int | str, ...] | None = None
    intercept: bool = False
    action_features: Floats | None = None
    action_names: tuple[str, ...] | None = None
    one_hot: bool = False
    feature_names: tuple[str, ...] | None = None
    residual_variance: Floats = field(default_factory=_nothing)  # left out: `noise_variance` for all actions
    offsets: Floats = field(default_factory=_nothing)  # left out: zero
    persistence: float | None = 0.0
    reward_step: float = 0.0  # between neighbouring rewards, where they are on a scale: clicks, stars
    uncertainty: Floats = field(default_factory=_nothing)  # left out: zero
    error_scales: Floats = field(default_factory=_nothing)  # left out: everybody's errors are as large as expected
    feature_levels: tuple[Column, ...] = ()  # of features that are text: how their names become indicators
    reward_transform: Transform | None = None  # what rewards are learned as, "log1p" or themselves
    tidy_ids: bool = False  # ids that differ in case, or in blanks at their ends, are the same
    attributes: tuple[Column, ...] = ()
    attribute_effects: Floats = field(default_factory=_nothing)
    attribute_covariance: Floats = field(default_factory=_nothing)
    outcome: Literal["gaussian", "binary"] = "gaussian"  # "binary": mean and factor are of log-odds

    def __post_init__(self) -> None:
        self._check_facts()
        actions = len(self.action_ids) if self.action_ids else 1
        fillers = {"residual_variance": self.noise_variance, "offsets": 0.0, "uncertainty": 0.0}
        for name, filler in fillers.items():
            # Where no action is named the one residual variance is `noise_variance`, also after a replace.
            given = getattr(self, name) if self.action_ids or name == "uncertainty" else None
            if given is None or validate_numbers(given, name, kind=ModelError).size == 0:
                object.__setattr__(self, name, np.full(actions, float(filler)))
        for name, array in self._arrays().items():
            own = np.array(validate_numbers(array, name, kind=ModelError))
            if not np.isfinite(own).all():
                raise ModelError(f"{name} must be finite numbers")
            object.__setattr__(self, name, read_only_array(own))
        self._check_shapes(actions)

    def _check_facts(self) -> None:
        """Refuse what is no array and makes no sense; what is left out stays so."""
        missing = next((name for name in ARRAYS if getattr(self, name) is None), None)
        if missing is not None:
            raise ModelError(f"{missing} is None", todo="pass an array, or take the model that nc.fit or nc.load gave")
        variance = validate_number(self.noise_variance, "noise_variance", kind=ModelError)
        object.__setattr__(self, "noise_variance", variance)
        if self.persistence is not None:
            validate_number(self.persistence, "persistence", kind=ModelError)
        object.__setattr__(self, "reward_step", validate_number(self.reward_step, "reward_step", kind=ModelError))
        if self.reward_transform is not None:
            validate_one_of(self.reward_transform, "reward_transform", TRANSFORMS, kind=ModelError)
        validate_one_of(self.outcome, "outcome", OUTCOMES, kind=ModelError)
        for name in ("estimator", "fingerprint"):
            validate_instance(getattr(self, name), str, name, kind=ModelError)
        for name in ("intercept", "one_hot", "tidy_ids"):
            object.__setattr__(self, name, validate_flag(getattr(self, name), name, kind=ModelError))
        if not isinstance(self.parameters, Mapping):
            raise ModelError(f"parameters must be a dict, not {show_invalid_value(self.parameters)}")
        validate_instance(self.evidence, Evidence, "evidence", kind=ModelError)
        for name in TUPLES:
            given, kinds = getattr(self, name), (int, str) if name == "action_ids" else (str,)
            if given is None:
                continue
            listed = isinstance(given, Sequence) and not isinstance(given, str | bytes)
            if not listed or any(isinstance(one, bool) or not isinstance(one, kinds) for one in given):
                what = "ids, whole numbers or text" if name == "action_ids" else "texts"
                raise ModelError(f"{name} must be a list of {what}, not {show_invalid_value(given)}")
            object.__setattr__(self, name, tuple(given))
        object.__setattr__(self, "attributes", tuple(self.attributes))
        for one in self.attributes:
            validate_instance(one, Column, "an attribute", kind=ModelError)

    def _check_shapes(self, actions: int) -> None:
        """Refuse arrays that do not belong together."""
        if self.basis.ndim != 2 or self.factor.ndim != 2 or self.dim < 1 or self.rank > self.dim:
            raise ModelError(f"basis and factor must be (d, k), not {self.basis.shape} and {self.factor.shape}")
        leading = min(self.spectrum.size, self.dim) if one_hot_is_wide(self.dim) else self.dim
        wanted: dict[str, tuple[int, ...]] = {"spectrum": (leading,), "mean": (self.dim,)}
        wanted |= {"factor": (self.dim, self.factor.shape[1]), "action_features": (actions, self.dim)}
        wanted |= {"residual_variance": (actions,), "offsets": (actions,), "uncertainty": (actions,)}
        width = sum(one.width for one in self.attributes)
        wanted |= {"attribute_effects": (self.factor.shape[1], width), "attribute_covariance": (width, width)}
        for name, array in self._arrays().items():
            single = name in (*BY_ACTION, "uncertainty") and array.shape == (1,)
            if array.shape != wanted.get(name, array.shape) and not single:
                raise ModelError(f"{name} must have shape {wanted[name]}, not {array.shape}")
        if (self.uncertainty < 0).any():
            raise ModelError("uncertainty must be variances, none below zero")
        scales = self.error_scales
        if scales.size and not (scales.ndim == 2 and len(scales) == 2 and (np.diff(scales[0], prepend=0.0) > 0).all()):
            raise ModelError("error_scales must be scales above zero, ascending, and their weights (2, J)")
        if scales.size and not ((scales[1] >= 0).all() and abs(float(scales[1].sum()) - 1.0) < 1e-6):
            raise ModelError("error_scales must have weights that sum to one")
        if self.one_hot and self.action_features is None and self.dim != len(self.action_ids or ()) + self.intercept:
            what = f"{len(self.action_ids or ())} one-hot actions do not make {self.dim} features"
            raise ModelError(what, todo="pass an action_ids entry for each feature")

    def facts(self) -> dict[str, Any]:
        """The model in a few numbers and words."""
        logs, named = self.evidence.logs, self.feature_names or self.action_ids or ()
        found: dict[str, Any] = {"rank": self.rank, "dim": self.dim, "estimator": self.estimator}
        found |= {"users": logs.users, "rows": logs.rows} if logs else {}
        found |= {"features" if self.feature_names else "actions": named} if named else {}
        found |= {"intercept": True} if self.intercept else {}
        found |= {"attributes": tuple(one.name for one in self.attributes)} if self.attributes else {}
        found |= {"reward_transform": self.reward_transform} if self.reward_transform else {}
        found |= self._link
        return found | {"noise_variance": self.noise_variance, "id": self.id[:12]}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def _arrays(self) -> dict[str, Floats]:
        named = {name: getattr(self, name) for name in (*ARRAYS, *BY_ACTION, "action_features")}
        named |= {name: getattr(self, name) for name in SURENESS if np.any(getattr(self, name))}
        named |= {name: getattr(self, name) for name in ATTRIBUTES if self.attributes}
        return {name: array for name, array in named.items() if array is not None}

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
        """Covariance (d, d) of users' reward vectors; of more than 2,000 features it is not written out."""
        if one_hot_is_large(self.dim):
            what = f"the covariance of {self.dim:,} features would have {self.dim**2:,} entries"
            raise ModelError(what, todo="use model.factor, whose rows times its transpose are rows of it")
        return read_only_array(self.factor @ self.factor.T)

    @cached_property
    def id(self) -> str:
        """SHA-256 (hex) of everything that policies read, and of nothing else: states say which model they belong to.

        The same logs fitted again, or a model saved and loaded, have the same id; so have models that differ only in
        what was tried on the way to them, in the time they were made, or in the names of actions.
        """
        arrays = self._arrays()
        del arrays["spectrum"]
        evidence = self.evidence.to_json()
        facts = {
            "noise_variance": float(self.noise_variance),
            "persistence": self.persistence,
            "repeats": (evidence.get("population") or {}).get("persistence"),
            "radius": evidence.get("radius"),
            "calibrated": _without(evidence.get("calibrated"), "leading", "dim"),
            "default_radius": self._default_radius,
            "action_ids": self.action_ids,
            "intercept": self.intercept,
            "one_hot": self.one_hot,
            **{name: getattr(self, name) for name in OPTIONAL if getattr(self, name)},  # models without keep their id
        }
        facts |= {"feature_names": self.feature_names} if self.feature_names else {}
        return file_digest(arrays, facts | self._levels() | self._schema() | self._link)

    def _levels(self) -> dict[str, Any]:
        """The levels of features as plain data; nothing of a model without."""
        return {"feature_levels": [one.to_json() for one in self.feature_levels]} if self.feature_levels else {}

    def _schema(self) -> dict[str, Any]:
        """The attributes as plain data; nothing of a model without."""
        return {"attributes": [one.to_json() for one in self.attributes]} if self.attributes else {}

    @property
    def attribute_prior(self) -> AttributePrior:
        """What attributes say of the coordinates of users."""
        return AttributePrior(self.attribute_effects, self.attribute_covariance)

    def without_attributes(self) -> Model:
        """The same model for policies without attributes: the average over people."""
        return replace(self, attributes=(), attribute_effects=_nothing(), attribute_covariance=_nothing())

    def encode(self, attributes: Any) -> Floats:
        """Attributes (n, p) of n users as the model takes them, NaN where they are missing.

        They are a frame, a dict of columns or one dict a user. An attribute that the model does not know is refused; a
        value that is missing, or a level that no user of the logs had, is average, and leaves the prior less sure.
        """
        table, count = table_to_encode(attributes)
        tried = {one.name for one in self.evidence.attributes}  # those that did not help may be passed all the same
        refuse_unencoded_names(self.attributes, [name for name in table if name not in tried])
        return encode_columns(self.attributes, table, count)

    def prior(self, attributes: Any = None) -> tuple[Floats, Floats]:
        """Mean and covariance of the reward vector of a newcomer with these attributes; over all people without any.

        A dict of single values gives (d,) and (d, d), attributes of n users give (n, d) and (n, d, d).

        >>> plan = Column("plan", "level", levels=("free", "paid"), shares=(0.5, 0.5))
        >>> model = Model(np.eye(1), np.ones(1), np.zeros(1), np.eye(1), 1.0, attributes=(plan,),
        ...     attribute_effects=[[-0.5, 0.5]], attribute_covariance=[[0.25, -0.25], [-0.25, 0.25]])
        >>> mean, covariance = model.prior({"plan": "paid"})
        >>> mean.tolist(), covariance.tolist(), model.prior()[1].tolist()
        ([0.5], [[0.75]], [[1.0]])
        """
        if attributes is None or not self.attributes:
            return self.mean, self.covariance
        one = isinstance(attributes, Mapping) and all(
            value is None or isinstance(value, str | int | float | np.number | np.bool_)
            for value in attributes.values()
        )
        mean, covariance = self.attribute_prior.given(self.encode([attributes] if one else attributes))
        means = self.mean + mean @ self.factor.T
        covariances = self.factor @ covariance @ self.factor.T
        return (means[0], covariances[0]) if one else (means, covariances)

    @property
    def _link(self) -> dict[str, str]:
        """The outcome, if it is not Gaussian: models that are keep their id and their file as they were."""
        return {} if self.outcome == "gaussian" else {"outcome": self.outcome}

    def codes(self, ids: Iterable[int | str]) -> Ints:
        """The place (K,) of each action in the catalogue, -1 for those that are not in it.

        An id of the other type means the same: "7" is the action 7 where there is no action "7", and 7 the action "7".
        With `tidy_ids`, so does one that differs in case, or in blanks at its ends.

        >>> Model(np.eye(1), np.ones(1), np.ones(1), np.eye(1), 1.0, action_ids=("a", "7")).codes([7, "c"]).tolist()
        [1, -1]
        """
        return self.catalogue.codes(ids)

    @cached_property
    def catalogue(self) -> Catalogue:
        """The actions: ids looked up, and what the model says of each."""
        one_hot = OneHot(len(self.action_ids or ()), self.intercept) if self.one_hot else None
        features = one_hot if self.action_features is None else self.action_features
        ids = self.action_ids or ()
        return Catalogue(ids, features, self.mean, self.factor, self.offsets, tidy=self.tidy_ids)

    def features(self, ids: Iterable[int | str], *, unknown: Literal["refuse", "average"] = "refuse") -> Floats:
        """Features (K, d) of actions of the catalogue, as the model was fitted with them.

        An action that is not in it is refused, or has the features of the average action.

        >>> model = Model(np.eye(3, 1), np.ones(3), np.zeros(3), np.eye(3, 1), 1.0,
        ...               action_ids=("a", "b"), intercept=True, one_hot=True)
        >>> model.features(["b", "a"]).tolist()
        [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]
        """
        catalogue = self.catalogue
        if not catalogue.known:
            why = "keeps no features of its actions" if self.action_ids else "was fitted from logs without actions"
            raise ModelError(f"this model {why}", todo="pass features instead of ids, or fit again with items=")
        wanted = ids if isinstance(ids, np.ndarray) and ids.ndim == 1 else catalogue_action_ids(ids)
        validate_one_of(unknown, "unknown", ("refuse", "average"), kind=ModelError)
        codes = catalogue.codes(wanted)
        if not isinstance(wanted, np.ndarray):  # 1.0 is no id, though it equals one
            codes[[not isinstance(one, int | str | np.integer) for one in wanted]] = -1
        if unknown == "refuse" and (codes < 0).any():
            first = show_invalid_value(list(wanted)[int(np.argmax(codes < 0))])
            what = f"action {first} is not among the {len(catalogue):,} actions of the model"
            raise ModelError(what, todo="pass ids of model.action_ids, or fit again with this action")
        return catalogue.rows(codes)

    @property
    def _default_radius(self) -> str:
        return "calibrated" if self.estimator == "em" and self.evidence.calibrated else "bernstein"

    def radius(
        self,
        kind: str | None = None,
        *,
        delta: float = 0.05,
        norm: Norm = "spectral",
        clip: bool = True,
        simplified: Simplified = False,
        form: Form = "theorem",
        printed: bool = False,
    ) -> float:
        """Delta_off: with probability 1 - `delta` the basis is no further than this from the truth.

        Parameters
        ----------
        kind : "calibrated" (the default of a model by em that has it; the options below `norm` do not concern it), or
            the paper's "hoeffding", "bernstein" (the default of a model by sold) or "martingale"; `newcomer.radius`
            explains them.
        norm : "spectral" (sine of the largest angle, at most 1) or "frobenius" (at most sqrt(2k)).
        clip : cut at the largest distance there is; without it the raw bound, which may be infinite.
        simplified : take the coverage as known (Delta_D = 0), as the paper's figures do; "without B" leaves the factor
            B^2 out besides, as those figures seem to.
        form : "theorem", the paper's, or "identity", sharper and valid too.
        printed : the formulas as the paper prints them (docs/paper/errata.md lists where they slip).
        """
        todo = "choose a probability between 0 and 1"
        delta = validate_share(delta, "delta", least=1.0, todo=todo, kind=ModelError)
        for name, value, choices in (("norm", norm, get_args(Norm)), ("form", form, get_args(Form))):
            validate_one_of(value, name, choices, kind=ModelError)
        if kind is not None and not isinstance(kind, str):
            validate_one_of(kind, "kind", ALL, kind=ModelError)
        clip, printed = (validate_flag(one, "clip and printed", kind=ModelError) for one in (clip, printed))
        if not isinstance(simplified, str) or simplified != "without B":
            simplified = validate_flag(simplified, "simplified", kind=ModelError)
        self.needs_basis("a radius")
        kind, evidence = kind or self._default_radius, self.evidence
        if kind == "calibrated":
            if evidence.calibrated is None:
                raise ModelError("this model keeps no calibrated radius", todo="fit it with calibrate=True")
            return calibrated_radius(evidence.calibrated, dim=self.dim, rank=self.rank, delta=delta, norm=norm)
        if evidence.radius is None:
            todo = "fit it from logs, or pass radius="
            if one_hot_is_wide(self.dim) and self.estimator == "em":
                todo = "with so many actions, fit with estimator='sold' for the radii of the paper"
            raise ModelError("this model keeps no evidence for a radius", todo=todo)
        x = evidence.radius
        return subspace_radius(
            x, kind, delta=delta, norm=norm, clip=clip, simplified=simplified, form=form, printed=printed
        )

    def typical(self, scores: Floats) -> Floats:
        """What `PopulationMean` or a policy of width 0 expects, in the units of the rewards.

        That is the scores themselves, unless rewards were transformed. Then it is a typical reward, about the median,
        and not the mean, which a few large rewards make larger.

        >>> model = Model(np.eye(1), np.ones(1), np.ones(1), np.eye(1), 1.0, reward_transform="log1p")
        >>> model.typical(np.log([8.0, 1.0])).round(6).tolist()
        [7.0, 0.0]
        """
        return untransform_rewards(scores, self.reward_transform)

    def transform(self, logs: Any, *, persistence: float | None = None) -> Coordinates:
        """Each user's latent coordinates z, where their reward vector is mean + factor z, with the uncertainty.

        The users may be others than those of the fit, who count as newcomers here. Actions are known by their ids where
        the model has a catalogue, else by the features of the logs; rows of actions of which it knows nothing are left
        out. `persistence` is the share of the residual that repeats, by default the model's; where the model does not
        know it, what its logs seemed to say, or none.

        >>> model = Model(np.eye(1), np.ones(1), np.zeros(1), np.eye(1), 1.0)
        >>> from newcomer import Logs
        >>> where = model.transform(Logs.from_arrays(user=["ann", "ann"], features=[[1.0], [1.0]], reward=[1.0, 3.0]))
        >>> where.mean.round(3).tolist(), where.covariance.round(3).tolist()
        ([[1.333]], [[[0.333]]])
        """
        from newcomer._transform import transform_logs  # reads logs, which a model does without

        return transform_logs(logs, self, persistence=persistence)

    def to_bytes(self) -> bytes:
        """The model as the bytes of its file."""
        names = (*FACTS, *TUPLES, "one_hot", "persistence", "dim", "rank")
        facts = {name: getattr(self, name) for name in names}
        facts |= {name: getattr(self, name) for name in OPTIONAL if getattr(self, name)}
        facts |= self._levels() | self._schema() | self._link
        facts |= {"evidence": self.evidence.to_json(), "versions": {"newcomer": __version__}}
        facts |= {"created": datetime.now(UTC).isoformat(timespec="seconds")}
        return pack_file("model", self._arrays(), facts)

    @classmethod
    def from_bytes(cls, data: bytes, *, where: str = "") -> Model:
        """The model in these bytes; refuses what is newer, damaged or something else.

        Files of format 1 say neither the features nor the names of actions, nor whether features are one-hot: such a
        model has ids without features, one variance for all actions, and no per-action effects.
        """
        arrays, facts = unpack_file(data, "model", where=where)
        try:
            parts: dict[str, Any] = {name: arrays[name] for name in ARRAYS} | {name: facts[name] for name in FACTS}
            for name in TUPLES:
                parts[name] = None if facts.get(name) is None else tuple(facts[name])
            parts |= {name: arrays.get(name) for name in (*BY_ACTION, "action_features")}
            parts |= {name: arrays[name] for name in SURENESS if name in arrays}
            parts |= {"one_hot": facts.get("one_hot", False), "persistence": facts.get("persistence", 0.0)}
            parts |= {name: facts[name] for name in (*OPTIONAL, "outcome") if name in facts}
            parts["feature_levels"] = tuple(map(Column.from_json, facts.get("feature_levels", ())))
            parts |= {name: arrays[name] for name in ATTRIBUTES if name in arrays}
            parts["attributes"] = tuple(map(Column.from_json, facts.get("attributes", ())))
            parts["evidence"] = Evidence.from_json(facts["evidence"])
        except KeyError as error:
            raise ModelError(f"the model lacks {error}", where=where, todo="make it again") from error
        return cls(**parts)

    def save(self, path: str | Path) -> None:
        """Write the model file, all or nothing."""
        write_file(validate_path(path, "path", kind=OutputError), self.to_bytes())

    @property
    def by_ids_alone(self) -> bool:
        """Whether actions are known by their ids alone: one-hot, and so many that their features are not written."""
        return self.one_hot and not self.intercept and one_hot_is_large(self.dim)

    def needs_all_features(self, who: str) -> None:
        """Refuse a model of many features on behalf of a policy that keeps d x d numbers for each user."""
        if one_hot_is_large(self.dim):
            what = f"{who} keeps a system of {self.dim:,} x {self.dim:,} numbers for each user"
            raise ModelError(what, todo="use PriorUCB or PriorTS, which work along the shared directions")

    def needs_basis(self, who: str) -> None:
        """Refuse rank 0 on behalf of a policy that works in the subspace."""
        if self.rank == 0:
            raise ModelError(
                f"{who} needs a shared subspace and this model has rank 0",
                todo="use PopulationMean or LinUCB, fit more logs, or pass rank= to fit",
            )


def load(path: str | Path) -> Model:
    """Read a model file."""
    return Model.from_bytes(read_file(validate_path(path, "path", kind=ModelError)), where=str(path))


def _without(record: dict[str, Any] | None, *names: str) -> dict[str, Any] | None:
    """A record without some of its fields; None stays None."""
    return None if record is None else {name: value for name, value in record.items() if name not in names}

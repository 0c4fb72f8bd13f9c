"""Records of arrays as files and back: sums that a pass gave, moments that a later fit adds to.

A record is a frozen dataclass or a named tuple of this package, whose fields are arrays, numbers, texts, None, tuples,
or records again. Arrays go into the file as they are; the rest becomes a tree of JSON that says which record is which.
Floats come back to the bit. Nothing is pickled, and nothing but records of this package is made on reading.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import numpy as np

from newcomer.errors import ModelError
from newcomer.files import Arrays, file_digest, pack_file, unpack_file

PACKAGE = "newcomer."
# Records and passes are saved under the first name that they had, so that files of earlier versions are read and
# checkpoints resumed: "module:name" today, and then. What is not listed was never renamed.
FIRST_NAMES = {
    "logs.sample:gather_sample": "logs.sample:gather",
    "_transform:transform_batch": "_transform:locate",
    "em.attributes:add_up_attribute_information": "em.attributes:add_up",
    "em.binary_likelihood:binary_likelihood_sums": "em.binary_likelihood:expect_clicks",
    "gain.best_actions:best_actions_pass": "gain.best_actions:asked",
    "gain.heldout_gain:heldout_gain_of_batch": "gain.heldout_gain:look_at",
    "outcome:outcome_differences": "gain.outcomes:look_at",
    "checks.dependence:_look": "checks.attributes:_look",
    "checks.residuals:CheckSample": "checks.sample:CheckSample",
    "checks.residuals:Propensities": "checks.sample:Propensities",
    "checks.residuals:residual_sample_of_batch": "checks.sample:look_at",
    "population:AttributePrior": "attribute_prior:AttributePrior",
    "gain.best_actions:ActionSums": "gain.everybody:Seen",
    "gain.best_actions:best_action_sums": "gain.everybody:look_at",
    "gain.deals:PerUser": "gain.per_user:PerUser",
    "logs.summary:RewardHistogram": "logs.intake.sketch:Sketch",
    "logs.summary:LogTotals": "logs.intake.survey:Survey",
    "em.pairs:DensePairs": "population.all_pairs:Pairs",
    "em.pairs:SparsePairs": "population.all_pairs:SparsePairs",
    "em.pairs:pair_action_levels": "population.all_pairs:levels_of",
    "em.pairs:dense_pairs_of": "population.all_pairs:pairs_of",
    "em.pairs:sparse_pairs_of": "population.all_pairs:sparse_pairs_of",
    "em.full_covariance:AllProducts": "population.full_covariance:AllProducts",
    "em.full_covariance:ScatterSums": "population.full_covariance:Products",
    "em.full_covariance:Whole": "population.full_covariance:Whole",
    "em.full_covariance:full_covariance_cost": "population.full_covariance:cubes_of",
    "em.full_covariance:full_covariance_products": "population.full_covariance:products_of",
    "em.likelihood:Comparison": "population.likelihood:Comparison",
    "em.likelihood:Sums": "population.likelihood:Sums",
    "em.likelihood:Task": "population.likelihood:Task",
    "em.likelihood:compare_likelihoods": "population.likelihood:compare",
    "em.likelihood:likelihood_sums": "population.likelihood:expect",
    "em.likelihood:likelihood_squared_errors": "population.likelihood:squared_errors",
    "population:Population": "population.record:Population",
    "em.pair_moment:pair_moment_products": "population.wide_start:images_of",
    "_warm_start:SavedMoments": "refitting:Past",
    "sold.sparse_moments:KeptPairs": "sold.kept_pairs:KeptPairs",
    "sold.sparse_moments:Sparse": "sold.kept_pairs:Sparse",
    "sold.sparse_moments:sparse_moment_pairs": "sold.kept_pairs:kept_pairs_of",
    "sold.sparse_moments:BlockProducts": "sold.wide_moments:Products",
    "sold.sparse_moments:Probe": "sold.wide_moments:Weighted",
    "sold.sparse_moments:SparseMoments": "sold.wide_moments:SparseMoments",
    "sold.sparse_moments:sparse_moment_products": "sold.wide_moments:products_of",
    "sold.sparse_moments:sparse_moment_squares": "sold.wide_moments:squares_of",
    "sold.sparse_moments:sparse_moments_of": "sold.wide_moments:sparse_moments_of",
}
LAST_NAMES = {first: last for last, first in FIRST_NAMES.items()}
LAST_NAMES["population.wide_start:Images"] = "sold.sparse_moments:BlockProducts"  # was a record of its own


def serialize_record(kind: str, record: object, facts: Mapping[str, Any]) -> bytes:
    """Bytes of a file of this kind that holds a record and facts about it.

    >>> deserialize_record(serialize_record("notes", (np.arange(3), -np.inf, "fine"), {"mood": 1}), "notes")
    ((array([0, 1, 2]), -inf, 'fine'), {'mood': 1})
    """
    arrays: Arrays = {}
    tree = _tree(record, arrays)
    return pack_file(kind, arrays, {"facts": dict(facts), "record": tree})


def deserialize_record(data: bytes, kind: str, *, where: str = "") -> tuple[Any, dict[str, Any]]:
    """The record and the facts of what `serialize_record` made."""
    arrays, header = unpack_file(data, kind, where=where)
    try:
        return _grown(header["record"], arrays), dict(header["facts"])
    except (KeyError, TypeError, ValueError, AttributeError, ImportError) as error:
        todo = "make it again with this version of newcomer"
        raise ModelError(f"this {kind} file is of another version", where=where, todo=todo) from error


def serialized_digest(work: Callable[..., Any]) -> str:
    """A hash of a function and of what `functools.partial` has bound to it.

    >>> serialized_digest(functools.partial(math.pow, 2.0)) == serialized_digest(functools.partial(math.pow, 2.0))
    True
    """
    arrays: Arrays = {}
    bound: tuple[Any, ...] = ()
    while isinstance(work, functools.partial):
        bound = (*bound, work.args, tuple(sorted(work.keywords.items())))
        work = work.func
    return file_digest(arrays, {"work": _name(work), "bound": _tree(bound, arrays)})


def _tree(value: object, arrays: Arrays) -> Any:
    """A value as JSON; its arrays are put into `arrays`, by number."""
    if isinstance(value, np.ndarray):
        name = str(len(arrays))
        arrays[name] = value
        return {"array": name}
    if isinstance(value, np.generic):
        return _tree(value.item(), arrays)
    if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        return [_tree(one, arrays) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    names = _field_names(type(value))
    if names is not None:
        parts = {name: _tree(getattr(value, name), arrays) for name in names}
        return {"record": _name(type(value)), "fields": parts}
    raise TypeError(f"{type(value).__name__} is no part of a record")


def _field_names(kind: type) -> tuple[str, ...] | None:
    """The fields that make a record of this kind; None for what is no record."""
    if is_dataclass(kind):
        return tuple(part.name for part in fields(kind) if part.init)
    return getattr(kind, "_fields", None) if issubclass(kind, tuple) else None


def _name(named: Callable[..., Any]) -> str:
    """What a record or a function is saved as."""
    name = f"{named.__module__}:{named.__qualname__}".removeprefix(PACKAGE)
    return (PACKAGE if named.__module__.startswith(PACKAGE) else "") + FIRST_NAMES.get(name, name)


def _grown(tree: Any, arrays: Arrays) -> Any:
    """The inverse of `_tree`; lists come back as tuples."""
    if isinstance(tree, list):
        return tuple(_grown(one, arrays) for one in tree)
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        return arrays[tree["array"]]
    if "number" in tree:
        return float(tree["number"])
    saved = str(tree["record"])
    own = LAST_NAMES.get(saved.removeprefix(PACKAGE), saved.removeprefix(PACKAGE))
    module, _, name = own.partition(":")
    kind = getattr(import_module(PACKAGE + module), name) if saved.startswith(PACKAGE) else None
    if not isinstance(kind, type) or _field_names(kind) is None:
        raise ValueError(f"{tree['record']} is no record")
    return kind(**{part: _grown(one, arrays) for part, one in tree["fields"].items()})

"""What `--json` prints, as JSON Schema: `newcomer fit --json-schema` prints it, for programs that read the output.

The schemas are made from the records that are printed, so that they cannot fall behind them. Numbers may be null:
JSON knows no infinity. Objects may gain keys within a `version`; keys that are there keep their meaning.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

DRAFT = "https://json-schema.org/draft/2020-12/schema"
_PLAIN = {str: "string", int: "integer", bool: "boolean", NoneType: "null"}


def schema_of(command: str, keys: Mapping[str, Any], record: Any = None) -> dict[str, Any]:
    """The schema of one command's object: `version` and `command`, its own `keys`, then those of a record.

    >>> made = schema_of("fit", {"model": str})
    >>> made["required"], made["properties"]["model"]
    (['version', 'command', 'model'], {'type': 'string'})
    """
    head: dict[str, Any] = {"version": {"const": 1}, "command": {"const": command}}
    own = {name: of_type(kind) for name, kind in keys.items()}
    rest = of_type(record)["properties"] if record is not None else {}
    properties = {**head, **own, **rest}
    title = f"newcomer {command} --json"
    return {"$schema": DRAFT, "title": title, "type": "object", "properties": properties, "required": [*properties]}


def of_type(kind: Any) -> dict[str, Any]:
    """The schema of values of a type: records, numbers, text, tuples, lists, mappings from text, and unions.

    >>> of_type(tuple[float, ...])
    {'type': 'array', 'items': {'type': ['number', 'null']}}
    >>> of_type(int | None)
    {'anyOf': [{'type': 'integer'}, {'type': 'null'}]}
    """
    if kind is float:
        return {"type": ["number", "null"]}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if is_dataclass(kind):
        # Findings name records for the type checker alone, so that `--help` need not load them.
        homes = [vars(import_module(f"newcomer.{home}")) for home in ("findings", "evidence")]
        hints = get_type_hints(kind, localns=homes[0] | homes[1])
        parts = {one.name: of_type(hints[one.name]) for one in fields(kind)}
        return {"type": "object", "properties": parts, "required": list(parts)}
    arguments = get_args(kind)
    if get_origin(kind) is Literal:
        return {"enum": list(arguments)}
    if get_origin(kind) in (UnionType, Union):
        return {"anyOf": [of_type(one) for one in arguments]}
    if get_origin(kind) in (tuple, list):
        if get_origin(kind) is tuple and Ellipsis not in arguments:
            size = len(arguments)
            return {"type": "array", "prefixItems": [of_type(one) for one in arguments], "minItems": size,
                    "maxItems": size}  # fmt: skip
        return {"type": "array", "items": of_type(arguments[0])}
    if get_origin(kind) is dict:
        return {"type": "object", "additionalProperties": of_type(arguments[1])}
    raise NotImplementedError(f"no schema for {kind!r}")


def option(made: Callable[[], dict[str, Any]]) -> Any:
    """The option `--json-schema` of a command: prints the schema and leaves, whatever else was typed."""

    def show(wanted: bool) -> None:
        if wanted:
            print(json.dumps(made(), indent=2))
            raise typer.Exit

    told = "Show the JSON Schema of --json, and leave."
    return typer.Option("--json-schema", help=told, is_eager=True, callback=show)

"""The description of the API, made from the same table that routes requests, and from the shapes that check them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any

import msgspec

from newcomer import __version__
from newcomer.serve import shapes
from newcomer.serve.limits import Limits


@dataclass(frozen=True)
class Query:
    """A parameter of an address."""

    name: str
    schema: dict[str, Any]


@dataclass(frozen=True)
class Operation:
    """One route: what it takes, what it gives, who may use it, and who carries it out."""

    method: str
    path: str
    role: str  # decide, admin or open
    summary: str
    handler: Any
    takes: Any = None  # a shape, bytes, or nothing
    gives: Any = None  # a shape, or a media type
    refuses: Sequence[int] = ()
    queries: Sequence[Query] = ()

    @property
    def name(self) -> str:
        """The operation's id."""
        words = [word.strip("{}") for word in self.path.split("/") if word not in ("", "v1")]
        return "_".join([self.method.lower(), *words]).replace(".", "_") or self.method.lower()


def openapi_document(operations: Sequence[Operation], limits: Limits, *, tokens: bool) -> dict[str, Any]:
    """The OpenAPI document."""
    kinds = [kind for one in operations for kind in (one.takes, one.gives) if _is_shape(kind)]
    _, components = msgspec.json.schema_components([*kinds, shapes.Failure], ref_template="#/components/schemas/{name}")
    for schema in components.values():
        if "description" in schema:
            schema["description"] = cleandoc(schema["description"])
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _described(one, tokens)
    told = (
        f"Limits: bodies of {limits.body:,} bytes, models of {limits.model:,}, {limits.candidates:,} candidates,"
        f" {limits.batch:,} items in a batch, ids of 256 bytes; requests a second and caller: "
        f"{limits.rate or 'no limit'}."
    )
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "newcomer", "version": __version__, "description": told},
        "paths": paths,
        "components": {"schemas": components},
    }
    if tokens:
        found["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return found


def _is_shape(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _ref(kind: type) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _described(one: Operation, tokens: bool) -> dict[str, Any]:
    answers: dict[str, Any] = {"200": {"description": "Done", "content": _content(one.gives)}}
    refused = set(one.refuses) | ({400, 413, 422} if one.takes is not None else set())
    refused |= set() if one.role == "open" else {401, 403, 429, 503}
    for status in sorted(refused):
        answers[str(status)] = {"description": "Refused", "content": _content(shapes.Failure)}
    found: dict[str, Any] = {"operationId": one.name, "summary": one.summary, "responses": answers}
    if one.takes is not None:
        body = _content(one.takes) if _is_shape(one.takes) else {"application/octet-stream": {"schema": {}}}
        found["requestBody"] = {"required": True, "content": body}
    parts = [word.strip("{}") for word in one.path.split("/") if word.startswith("{")]
    identifier = {"type": "string", "minLength": 1, "maxLength": 256}
    parameters = [{"name": name, "in": "path", "required": True, "schema": identifier} for name in parts]
    parameters += [{"name": query.name, "in": "query", "schema": query.schema} for query in one.queries]
    if parameters:
        found["parameters"] = parameters
    if tokens and one.role != "open":
        found["security"] = [{"token": []}]
    return found


def _content(kind: Any) -> dict[str, Any]:
    if _is_shape(kind):
        return {"application/json": {"schema": _ref(kind)}}
    if isinstance(kind, str):
        return {kind: {"schema": {"type": "string"}}}
    return {"application/json": {"schema": {"type": "object"}}}

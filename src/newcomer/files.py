"""The one place that reads and writes our files: safetensors with one line of JSON that says what they are.

Written beside the target, read back, synced, renamed: a reader sees the old file or the new one, whole. On reading,
a newer format, another kind, a truncated file or altered bytes are refused in one sentence.

The JSON line holds the facts about the arrays, the format, the kind, and a SHA-256 over arrays and facts together, so
that no bit of the file can change unnoticed. Format 1, still read, hashed the arrays alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from newcomer.errors import ModelError

FORMAT = 2
Arrays = dict[str, NDArray[Any]]


def pack(kind: str, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> bytes:
    """Bytes of a file of this kind: named arrays and JSON-ready facts about them.

    >>> arrays, facts = unpack(pack("notes", {"x": np.arange(3)}, {"mood": "fine"}), "notes")
    >>> int(arrays["x"].sum()), facts["mood"]
    (3, 'fine')
    """
    # safetensors writes the memory of a non-contiguous array as if it were contiguous: never hand it one.
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    header = {**facts, "format": FORMAT, "kind": kind}
    return save(plain, metadata={"newcomer": _canonical({**header, "sha256": digest(plain, header)})})


def unpack(data: bytes, kind: str, *, where: str = "") -> tuple[Arrays, dict[str, Any]]:
    """Arrays and facts of what `pack` made, checked; the format of the file is among the facts."""
    header = _header(data, where)
    version = header.get("format")
    if type(version) is not int or version < 1:
        raise ModelError("the file does not say its format", where=where, todo="copy or make it again")
    if version > FORMAT:
        todo = "upgrade newcomer"
        raise ModelError(f"format {version} is newer than this version of newcomer reads", where=where, todo=todo)
    if header.get("kind") != kind:
        what = f"this is a file of kind '{header.get('kind')}', not '{kind}'"
        raise ModelError(what, where=where, todo=f"pass a {kind} file")
    said = header.pop("sha256", None)
    try:
        arrays = load(data)
        found = digest(arrays, None if version == 1 else header)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ModelError("the file is damaged or cut short", where=where, todo="copy or make it again") from error
    if found != said:
        raise ModelError("the contents do not match their checksum", where=where, todo="copy or make it again")
    return arrays, header


def write(path: Path, data: bytes) -> None:
    """Put the bytes at `path`, all or nothing, with the permissions that the process gives to new files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}"
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if temporary.read_bytes() != data:
            raise ModelError("what was written cannot be read back", where=str(path), todo="check the disk")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    # The new name is an entry of the folder, and lasts once the folder is on disk too.
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read(path: Path) -> bytes:
    """The bytes at `path`."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError("the file cannot be read", where=str(path), todo=error.strerror or "check the path") from error


def digest(arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any] | None = None) -> str:
    """SHA-256 (hex) of names, types, shapes and bytes of arrays, in the order of names, and of facts as sorted JSON.

    >>> digest({"x": np.zeros(2)}, {"a": 1, "b": 2}) == digest({"x": np.zeros(2)}, {"b": 2, "a": 1})
    True
    """
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name}:{array.dtype.str}:{array.shape}:".encode())
        total.update(array.tobytes())
    if facts is not None:
        total.update(f"facts:{_canonical(facts)}".encode())
    return total.hexdigest()


def _canonical(facts: Mapping[str, Any]) -> str:
    """The one JSON text of these facts; numbers survive it exactly."""
    return json.dumps(facts, sort_keys=True, allow_nan=False)


def _header(data: bytes, where: str) -> dict[str, Any]:
    """The JSON line, read without trusting the rest (8 bytes of length, then safetensors' own header)."""
    try:
        size = int.from_bytes(data[:8], "little")
        if not 0 < size <= len(data) - 8:
            raise ValueError("header length")
        header = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["newcomer"])
        if not isinstance(header, dict):
            raise TypeError("header type")
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(
            "this is not a newcomer file, or it is cut short", where=where, todo="check the path"
        ) from error
    return header

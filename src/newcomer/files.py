"""The one place that reads and writes our files: safetensors with one line of JSON that says what they are.

Written beside the target, read back, synced, renamed: a reader sees the old file or the new one, whole. On reading,
a newer format, another kind, a truncated file or altered bytes are refused in one sentence.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from newcomer.errors import ModelError

FORMAT = 1
Arrays = dict[str, NDArray[Any]]


def pack(kind: str, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> bytes:
    """Bytes of a file of this kind: named arrays and JSON-ready facts about them."""
    # safetensors writes the memory of a non-contiguous array as if it were contiguous: never hand it one.
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    header = {**facts, "format": FORMAT, "kind": kind, "sha256": digest(plain)}
    return save(plain, metadata={"newcomer": json.dumps(header, sort_keys=True, allow_nan=False)})


def unpack(data: bytes, kind: str, *, where: str = "") -> tuple[Arrays, dict[str, Any]]:
    """Arrays and facts of what `pack` made, checked."""
    header = _header(data, where)
    if header.get("format", 0) > FORMAT:
        _refuse(f"format {header['format']} is newer than this version of newcomer reads", where, "upgrade newcomer")
    if header.get("kind") != kind:
        _refuse(f"this is a file of kind '{header.get('kind')}', not '{kind}'", where, f"pass a {kind} file")
    try:
        arrays = load(data)
    except (SafetensorError, ValueError) as error:
        raise ModelError("the file is damaged or cut short", where=where, todo="copy or make it again") from error
    if digest(arrays) != header.get("sha256"):
        _refuse("the contents do not match their checksum", where, "copy or make it again")
    return arrays, header


def write(path: Path, data: bytes) -> None:
    """Put the bytes at `path`, all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if temporary.read_bytes() != data:
            raise ModelError("what was written cannot be read back", where=str(path), todo="check the disk")
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read(path: Path) -> bytes:
    """The bytes at `path`."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError("the file cannot be read", where=str(path), todo=error.strerror or "check the path") from error


def digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of names, types, shapes and bytes, in the order of names."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name}:{array.dtype.str}:{array.shape}:".encode())
        total.update(array.tobytes())
    return total.hexdigest()


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


def _refuse(what: str, where: str, todo: str) -> None:
    raise ModelError(what, where=where, todo=todo)

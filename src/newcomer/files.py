"""The one place that reads and writes our files: safetensors with one line of JSON that says what they are.

Written beside the target, read back, synced, renamed: a reader sees the old file or the new one, whole. A link is
followed, so that what it points to is replaced; a device is never written to. On reading, a newer format, another kind,
a truncated file or altered bytes are refused in one sentence.

The JSON line holds the facts about the arrays, the format, the kind, and a SHA-256 over arrays and facts together, so
that no bit of the file can change unnoticed. Format 1, still read, hashed the arrays alone; format 2, still read, knew
neither transformed rewards nor tidied ids, which an older version must not pass over.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from newcomer.errors import ModelError, NewcomerError, OutputError

FORMAT = 3
PROBE = 1 << 16  # bytes written to see whether a file could be: a full disk often takes an empty one
Arrays = dict[str, NDArray[Any]]


def pack_file(kind: str, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> bytes:
    """Bytes of a file of this kind: named arrays and JSON-ready facts about them.

    >>> arrays, facts = unpack_file(pack_file("notes", {"x": np.arange(3)}, {"mood": "fine"}), "notes")
    >>> int(arrays["x"].sum()), facts["mood"]
    (3, 'fine')
    """
    # safetensors writes the memory of a non-contiguous array as if it were contiguous: never hand it one.
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    header = {**facts, "format": FORMAT, "kind": kind}
    try:
        return save(plain, metadata={"newcomer": _canonical({**header, "sha256": file_digest(plain, header)})})
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        todo = "use finite numbers, text, lists and mappings of them"
        raise ModelError(f"this {kind} holds something that cannot be written ({error})", todo=todo) from error


def unpack_file(data: bytes, kind: str, *, where: str = "") -> tuple[Arrays, dict[str, Any]]:
    """Arrays and facts of what `pack_file` made, checked; the format of the file is among the facts."""
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
        found = file_digest(arrays, None if version == 1 else header)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ModelError("the file is damaged or cut short", where=where, todo="copy or make it again") from error
    if found != said:
        raise ModelError("the contents do not match their checksum", where=where, todo="copy or make it again")
    return arrays, header


def write_file(path: Path, data: bytes) -> None:
    """Put the bytes at `path`, all or nothing, with the permissions that the process gives to new files."""
    target = _file_destination(path)
    with file_errors_told(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = _beside(target)
        try:
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if temporary.read_bytes() != data:
                raise OutputError("what was written cannot be read back", where=str(path), todo="check the disk")
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
        # The new name is an entry of the folder, and is durable once the folder is on disk too.
        if os.name == "posix":
            folder = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def _file_destination(path: Path) -> Path:
    """The file that writing to `path` makes or replaces: where links lead, and never a folder or a device."""
    with file_errors_told(path):
        target = Path(os.path.realpath(path))
        if target.is_symlink():
            raise OutputError("this link points to itself", where=str(path), todo="name a file")
        if target.is_dir():
            raise OutputError("this is a folder", where=str(path), todo="name a file in it")
        if target.exists() and not target.is_file():
            raise OutputError("this is a device or a pipe, not a file", where=str(path), todo="name a file")
    return target


def probe_file(path: Path) -> None:
    """Refuse a path that could not be written: tried with a small file beside it, which is removed at once."""
    target = _file_destination(path)
    temporary = _beside(target)
    with file_errors_told(path):
        try:
            with open(temporary, "xb") as file:
                file.write(bytes(PROBE))
                file.flush()
                os.fsync(file.fileno())
        finally:
            temporary.unlink(missing_ok=True)


def rescue_file(name: str, data: bytes) -> Path | None:
    """Put bytes that must not be lost into the first folder that takes them, and say where; None if none does.

    Tried are a new private folder for temporary files, then the working folder and the home of the user.
    """
    for place in (None, Path.cwd, Path.home):
        folder = None
        try:
            folder = Path(tempfile.mkdtemp(prefix="newcomer-", dir=None if place is None else place()))
            write_file(folder / name, data)
        except (OSError, RuntimeError, OutputError):
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            continue
        return folder / name
    return None


def _beside(target: Path) -> Path:
    """A name for a temporary file in the folder of the target, short enough wherever the target's is."""
    return target.parent / f".{target.name[:100]}.{secrets.token_hex(8)}"


@contextmanager
def file_errors_told(path: str | Path) -> Iterator[None]:
    """For whatever writes: what the system refuses becomes one sentence with the path."""
    try:
        yield
    except (OSError, ValueError) as error:
        if isinstance(error, NewcomerError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputError(
            f"the file cannot be written: {reason}", where=str(path), todo="free some space, or choose another place"
        ) from error


def read_file(path: Path) -> bytes:
    """The bytes at `path`."""
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        todo = getattr(error, "strerror", None) or "check the path"
        raise ModelError("the file cannot be read", where=str(path), todo=todo) from error


def file_digest(arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any] | None = None) -> str:
    """SHA-256 (hex) of names, types, shapes and bytes of arrays, in the order of names, and of facts as sorted JSON.

    >>> file_digest({"x": np.zeros(2)}, {"a": 1, "b": 2}) == file_digest({"x": np.zeros(2)}, {"b": 2, "a": 1})
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
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ModelError("these are not bytes", where=where, todo="pass what to_bytes gave, or the bytes of a file")
    data = bytes(data)
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

"""PNG files made smaller without changing a pixel: the renderer compresses little and keeps an unused alpha channel.

The format is that of the PNG specification (W3C): chunks of length, type, data and checksum; pixels row by row behind a
byte that says how the row was filtered, all of it deflated.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"
EIGHT_BIT_RGBA = bytes([8, 6, 0, 0, 0])  # depth, colour type, compression, filter method, interlacing
EIGHT_BIT_RGB = bytes([8, 2, 0, 0, 0])
PLAIN, LEFT = 0, 1  # rows as they are, or each pixel less the one to its left


def squeezed(data: bytes) -> bytes:
    """The same picture as opaque RGB at full compression; anything but an opaque 8-bit RGBA picture as it is.

    Rows that the renderer filtered hold each pixel less its left neighbour; their running sum (modulo 256) is the row.
    """
    parts = list(_chunks(data))
    head = parts[0][1] if parts and parts[0][0] == b"IHDR" else b""
    if head[8:] != EIGHT_BIT_RGBA:
        return data
    width, height = struct.unpack(">II", head[:8])
    packed = b"".join(body for kind, body in parts if kind == b"IDAT")
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + 4 * width)
    if not np.isin(rows[:, 0], (PLAIN, LEFT)).all():
        return data
    pixels = rows[:, 1:].reshape(height, width, 4).copy()
    filtered = rows[:, 0] == LEFT
    pixels[filtered] = np.cumsum(pixels[filtered], axis=1, dtype=np.uint8)
    if not (pixels[..., 3] == 255).all():
        return data
    plain = np.zeros((height, 1 + 3 * width), np.uint8)
    plain[:, 1:] = pixels[..., :3].reshape(height, -1)
    body = [
        (b"IHDR", head[:8] + EIGHT_BIT_RGB),
        *((kind, content) for kind, content in parts if kind == b"pHYs"),  # the resolution
        (b"IDAT", zlib.compress(plain.tobytes(), 9)),
        (b"IEND", b""),
    ]
    return SIGNATURE + b"".join(_chunk(kind, content) for kind, content in body)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Type and data of each chunk; nothing if this is no PNG."""
    place = len(SIGNATURE) if data.startswith(SIGNATURE) else len(data)
    while place + 12 <= len(data):
        (size,) = struct.unpack(">I", data[place : place + 4])
        yield data[place + 4 : place + 8], data[place + 8 : place + 8 + size]
        place += 12 + size


def _chunk(kind: bytes, body: bytes) -> bytes:
    """Length, type, data and checksum of type and data."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

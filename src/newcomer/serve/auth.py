"""Who may ask what: bearer tokens with a role each, compared in constant time; none is needed on loopback.

A file of tokens has one a line, the role first: `decide TOKEN` (decide, reward, observe, shown, void) or
`admin TOKEN` (everything). Only SHA-256 digests of tokens are kept in memory, and tokens are never logged.

Without tokens the service answers on loopback only, and only to programs: a request that a web page of another origin
sends to localhost, or that reaches loopback under a foreign name (DNS rebinding), is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from newcomer.errors import StoreError
from newcomer.serve.shapes import Refused

ROLES = ("decide", "admin")
SHORTEST = 16  # characters of a token


@dataclass(frozen=True)
class Tokens:
    """Digests of tokens and their roles."""

    digests: tuple[tuple[bytes, str], ...] = ()

    @classmethod
    def read(cls, path: Path) -> Tokens:
        """The tokens of a file."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError("the file of tokens cannot be read", where=str(path), todo="check the path") from error
        return cls.parse(lines, where=str(path))

    @classmethod
    def parse(cls, lines: list[str], where: str = "") -> Tokens:
        """Tokens from lines `role token`; empty lines and comments (#) are left out."""
        found = []
        for number, line in enumerate(lines, start=1):
            words = line.split()
            if not words or line.lstrip().startswith("#"):
                continue
            if len(words) != 2 or words[0] not in ROLES or len(words[1]) < SHORTEST:
                what = f"a line of tokens is `decide TOKEN` or `admin TOKEN`, of {SHORTEST} characters or more"
                raise StoreError(what, where=f"{where}, line {number}", todo="try: openssl rand -hex 24")
            found.append((_digest(words[1]), words[0]))
        if not found:
            raise StoreError("the file of tokens has no token", where=where, todo="write a line `admin TOKEN`")
        return cls(tuple(found))

    def check(self, role: str, headers: Mapping[str, str]) -> str:
        """The caller's name for limits, if the request may do what `role` may; admin may everything."""
        if not self.digests:
            _check_local(headers)
            return "loopback"
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given, found = _digest(token.strip()), ""
        for known, theirs in self.digests:  # all of them, whichever fits: the time tells nothing
            if hmac.compare_digest(known, given):
                found = theirs
        if scheme.lower() != "bearer" or not found:
            raise Refused(401, "no_token", "send a known token: Authorization: Bearer TOKEN")
        if found != role and found != "admin":
            raise Refused(403, "wrong_role", f"this needs a token with the role {role}")
        return given.hex()[:16]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _check_local(headers: Mapping[str, str]) -> None:
    """Refuse what a browser sends on behalf of a page that is not this service's."""
    host = headers.get("host", "")
    origin = headers.get("origin")
    if not is_loopback_for_auth(_host_name(host)) or (origin is not None and origin.partition("://")[2] != host):
        raise Refused(403, "foreign_origin", "without tokens only programs on this machine are answered")


def _host_name(host: str) -> str:
    """The name in a Host header, without the port.

    >>> _host_name("[::1]:8321"), _host_name("localhost:8321")
    ('::1', 'localhost')
    """
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


@lru_cache(maxsize=256)
def is_loopback_for_auth(host: str) -> bool:
    """Whether an interface, or the name of one, is reached from this machine alone.

    >>> is_loopback_for_auth("127.0.0.1"), is_loopback_for_auth("0.0.0.0"), is_loopback_for_auth("localhost")
    (True, False, True)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

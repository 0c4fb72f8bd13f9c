"""Finding MovieLens-1M on this computer, or fetching it from its publisher.

The data may be used for research but not redistributed, so it is never part of this package. It is looked for in a
folder you name, in the folder NEWCOMER_DATA, and in the cache; it is fetched from files.grouplens.org only when you
ask for it, checked against the MD5 sum that GroupLens publishes beside it, and its licence is shown.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

from newcomer.errors import LogsError

NAME = "ml-1m"
URL = "https://files.grouplens.org/datasets/movielens/ml-1m.zip"
MD5 = "c4d9eecfca2ab87c1945afe126590906"
FILES = ("README", "movies.dat", "ratings.dat", "users.dat")

LICENCE = """\
MovieLens-1M, GroupLens Research, University of Minnesota (F. Maxwell Harper and Joseph A. Konstan, 2015).
For research only: do not redistribute it, do not use it commercially without permission, acknowledge its use in
publications, imply no endorsement. The full terms are in the README beside the data."""


def cache_folder(cache: str | Path | None = None) -> Path:
    """`cache` if given, else XDG_CACHE_HOME/newcomer, else ~/.cache/newcomer; not created."""
    if cache is not None:
        return Path(cache)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "newcomer"


def find_movielens(path: str | Path | None = None, *, cache: str | Path | None = None) -> Path:
    """The folder with `ratings.dat`: in `path` if given, else in NEWCOMER_DATA, else in the cache.

    `path` and NEWCOMER_DATA may be the folder itself or the one that holds `ml-1m/`.
    """
    named = path if path is not None else os.environ.get("NEWCOMER_DATA") or None
    places = [Path(named)] if named is not None else [cache_folder(cache)]
    for place in places:
        for folder in (place / NAME, place):
            if (folder / "ratings.dat").is_file():
                return folder
    raise LogsError(
        "MovieLens-1M was not found",
        where=", ".join(map(str, places)),
        todo="set NEWCOMER_DATA to the folder that holds ml-1m/, or call "
        "newcomer.paper.worlds.download.download_movielens",
    )


def download_movielens(*, cache: str | Path | None = None, url: str = URL, md5: str = MD5) -> Path:
    """Fetch the data once into the cache and return its folder; shows the licence on stderr.

    An archive whose MD5 sum differs is refused before anything is unpacked.
    """
    folder = cache_folder(cache) / NAME
    if all((folder / name).is_file() for name in FILES):
        return folder
    print(f"{LICENCE}\nFetching {url}", file=sys.stderr)
    archive = _fetch(url)
    found = hashlib.md5(archive, usedforsecurity=False).hexdigest()
    if found != md5:
        raise LogsError(
            "the downloaded MovieLens archive is not the published one", where=f"MD5 {found}", todo=_BY_HAND
        )
    _unpack(archive, folder)
    return folder


_BY_HAND = f"fetch {URL} on a connected computer, unpack it, and set NEWCOMER_DATA to the folder that holds ml-1m/"


def _fetch(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return bytes(answer.read())
    except (urllib.error.URLError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise LogsError("MovieLens-1M could not be downloaded", where=f"{url}: {reason}", todo=_BY_HAND) from error


def _unpack(archive: bytes, folder: Path) -> None:
    """Write the four files one by one under names of our own, so that no path inside the archive is trusted."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as packed:
            contents = {name: packed.read(f"{NAME}/{name}") for name in FILES}
    except (zipfile.BadZipFile, KeyError) as error:
        raise LogsError("the MovieLens archive cannot be unpacked", where=str(error), todo=_BY_HAND) from error
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        partial = folder / f"{name}.part"
        partial.write_bytes(content)
        partial.replace(folder / name)

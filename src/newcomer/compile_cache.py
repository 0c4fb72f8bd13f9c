"""Compiles every loop of the library ahead of its first use: `python -m newcomer.compile_cache` during set-up.

No list of loops is kept, so none can be left out of it: the files whose names end in `_loops.py` are found, and each
has a function `warm_<file>` that calls its loops once. Numba keeps the machine code on disk, so that later processes
only load it; a service that must answer its first request quickly calls `warm_compile_cache` before it says that it is
ready. `compile_cache_is_cold` says whether there is anything to compile.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent


def _loop_files(*rooms: str) -> list[Path]:
    """The files that hold compiled loops: of these folders and top-level modules, or of all.

    >>> _loop_files()[0].name, _loop_files("local")[0].name
    ('array_loops.py', 'ascent_loops.py')
    """
    found = sorted(HERE.rglob("*_loops.py"))
    return [path for path in found if not rooms or path.relative_to(HERE).with_suffix("").parts[0] in rooms]


def compile_cache_modules(*rooms: str) -> list[ModuleType]:
    """The same, imported."""
    names = [".".join(["newcomer", *path.relative_to(HERE).with_suffix("").parts]) for path in _loop_files(*rooms)]
    return [importlib.import_module(name) for name in names]


def compile_cache_is_cold(*rooms: str) -> bool:
    """Whether some loop will have to be compiled at its first use."""
    for path, module in zip(_loop_files(*rooms), compile_cache_modules(*rooms), strict=True):
        for name, loop in vars(module).items():
            folder = getattr(getattr(loop, "stats", None), "cache_path", None)  # None without the compiler
            if folder is None or loop.py_func.__module__ != module.__name__:
                continue
            kept = Path(folder).glob(f"{path.stem}.{name}-*.nbi")
            if not any(index.stat().st_mtime >= path.stat().st_mtime for index in kept):
                return True
    return False


def warm_compile_cache(*rooms: str) -> None:
    """Load every loop from Numba's cache, compiling those that are not there yet."""
    for module in compile_cache_modules(*rooms):
        getattr(module, f"warm_{module.__name__.rpartition('.')[2]}")()


def forget_old_compile_cache() -> None:
    """Remove machine code that is older than the file of its loop, or than a file of loops that this one calls.

    Numba itself looks at the file of the caller only. A caller would go on with the old code of what it calls, or
    crash: what both were compiled to would use the same names for different things.
    """
    for path in _loop_files():
        newest = max(source.stat().st_mtime for source in _sources(path))
        codes = list((path.parent / "__pycache__").glob(f"{path.stem}.*.nb[ci]"))
        if any(code.stat().st_mtime < newest for code in codes):
            for code in codes:
                code.unlink(missing_ok=True)


def _sources(path: Path) -> set[Path]:
    """A file of loops and all such files that it names, and that they name."""
    found: set[Path] = set()
    left = [path]
    while left:
        last = left.pop()
        words = set(re.findall(r"\w+", last.read_text()))
        found.add(last)
        left += [other for other in _loop_files() if other.stem in words and other not in found]
    return found


if __name__ == "__main__":
    forget_old_compile_cache()
    warm_compile_cache()

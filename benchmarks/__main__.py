"""python -m benchmarks [NAME ...]: run all, or those named."""

from __future__ import annotations

import sys
from importlib import import_module

NAMES = (
    "fit",
    "files",
    "scaling",
    "decide",
    "local",
    "regret",
    "prior",
    "scale",
    "catalogue",
    "checks",
    "serve",
    "waits",
)


def main(names: list[str]) -> int:
    """Run the benchmarks one after another; each prints its page and writes it to docs/benchmarks/."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"no benchmark '{unknown[0]}': choose from {', '.join(NAMES)}", file=sys.stderr)
        return 2
    for name in names or NAMES:
        import_module(f"benchmarks.{name}").main()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Head to head: policies with learned priors, recommenders, a mixed logit, a transformer, on the same people as ours.

    python -m experiments.rivals [people recommenders taxes transformer table]

What is tried is listed in experiments/rivals-plan.md, which was written before the first result. Every job's rows are a
file of the folder NEWCOMER_WORK (.work by default), named by a hash of its settings and of the code behind its part, so
that a run that was stopped goes on. Each part writes a table, experiments/results/rivals*.csv; with `table` it is
written from the jobs that are done, of the same code, and none is run.
NEWCOMER_DATA names the folder of the data. Recommenders, taxes and the transformer need the environments that `python
benchmarks/peers/prepare.py rivals` makes; a peer whose environment is missing is left out, and that is said.
"""

from __future__ import annotations

import sys

from experiments import rivals_people, rivals_recommenders, rivals_taxes, rivals_transformer

PARTS = {
    "people": rivals_people.write,
    "recommenders": rivals_recommenders.write,
    "taxes": rivals_taxes.write,
    "transformer": rivals_transformer.write,
}


def main(parts: list[str]) -> None:
    """Run the parts asked for, all by default, and write their tables."""
    unknown = [part for part in parts if part not in (*PARTS, "table")]
    if unknown:
        raise SystemExit(f"there is no part '{unknown[0]}': choose of {', '.join((*PARTS, 'table'))}")
    making = "table" not in parts
    for part in [one for one in PARTS if one in parts] or PARTS:
        PARTS[part](made=making)


if __name__ == "__main__":
    main(sys.argv[1:])

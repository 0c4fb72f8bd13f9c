"""Head to head: policies with learned priors, recommenders, a mixed logit, a transformer, on the same people as ours.

    python -m experiments.rivals [people recommenders taxes transformer table] [--quick] [--out DIR]

What is tried is listed in experiments/rivals-plan.md, which was written before the first result. Every job's rows are a
file of the folder NEWCOMER_WORK (.work by default), named by a hash of its settings and of the code behind its part, so
that a run that was stopped goes on. Each part writes a table, experiments/results/rivals*.csv; with `table` it is
written from the jobs that are done, of the same code, and none is run. A part is a command, too: `python -m
experiments.rivals_people`. Quick runs have no peers.
NEWCOMER_DATA names the folder of the data. Recommenders, taxes and the transformer need the environments that `python
benchmarks/peers/prepare.py rivals` makes; a peer whose environment is missing is left out, and that is said.
"""

from __future__ import annotations

from dataclasses import replace

from experiments import rivals_people, rivals_recommenders, rivals_taxes, rivals_transformer
from experiments.results_table import Command

PARTS = {
    "people": rivals_people.write,
    "recommenders": rivals_recommenders.write,
    "taxes": rivals_taxes.write,
    "transformer": rivals_transformer.write,
}


def main(command: Command) -> None:
    """Make the parts asked for, all by default, and write their tables."""
    parts = [one for one in PARTS if one in command.parts] or list(PARTS)
    for part in parts:
        own = replace(command, module=f"experiments.rivals_{part}", parts=(), whole=True)
        PARTS[part](own, made="table" not in command.parts or command.whole)


if __name__ == "__main__":
    main(Command.read(*PARTS, "table"))

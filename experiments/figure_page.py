"""docs/paper/figures.md: every figure with the paper's claim, what was measured, and a verdict."""

from __future__ import annotations

import os
from pathlib import Path

from experiments import markdown
from experiments.figure_numbers import measured
from experiments.figure_verdicts import VERDICTS
from newcomer.paper.catalogue import APART, FIGURES
from newcomer.paper.figure import Figure
from newcomer.paper.scale import FULL

INTRO = """# Every figure of the paper

Every figure of the paper "Leveraging Offline Data in Linear Latent Contextual Bandits" (Kausik, Tan and Tewari), and \
some that it lacks, made by

    newcomer reproduce all          # NEWCOMER_DATA is the folder that holds ml-1m/
    newcomer reproduce all --quick  # two minutes, on made-up ratings
    newcomer reproduce readings     # apart, as are the studies: they take longer

Pictures and tables are in `experiments/results`. Numbers below are read from those tables by `python -m \
experiments.write_pages`. The [table of contents](../../experiments/README.md) has the command behind each table, its \
minutes, its commit and a hash of its code.

How to read them. H, E and M are ProBALL with the Hoeffding, empirical Bernstein and martingale Bernstein radius \
(Frobenius, unclipped, coverage
taken as known, as in the paper's figures). A number is the mean over 30 newcomers and its standard error; every \
policy meets the same
newcomers, candidates and noise. So policies are compared newcomer by newcomer: whatever a verdict says of two of them \
rests on the mean of their paired differences \
(`results/*-newcomers.csv` has every newcomer's), is clear beyond two standard errors of it, and is called level \
otherwise; the errors in the tables are those of single means. Three lines are ours and not the paper's: \
*PopulationMean*, which scores with E[beta] \
and does not personalise; *EmpiricalArms*, which keeps a mean for each action and person (in worlds whose actions \
come again); and
*PriorUCB*, which starts from the distribution of users that the same logs show. *LOCAL-UCB* is the paper's, which \
could not compute it, with our calibrated radius and EM's basis. Lines more than 1.3 times LinUCB's final regret \
leave the pictures; their numbers are in the tables. Verdicts: \
*reproduced*, all that the caption claims holds in all worlds shown; *not reproduced*, none of it in any; *partly*, \
otherwise. A line *approaches* another if with the largest N it is within a tenth of it, and nearer than with the \
least.

Two settings cannot be taken as printed, so both readings are shown. **Simulation:** U_ij ~ Unif(0, 2.5/(k d)) gives \
rewards of a size around
0.01 under noise of 0.5; "learnable" has entries up to 2.5/k. **MovieLens:** the factorisation as described \
(*literal*: nuclear norm, rank 18) has
eigenvalues that fall by five orders of magnitude; *balanced* writes the same kind of rewards in coordinates with 18 \
equal ones, which is what the paper's plots of eigenvalues show.
"""


def page(results: Path, place: Path) -> str:
    """The page from the tables in `results`; figures without a table are left out; its links lead from `place`."""
    shown = [figure for figure in (FIGURES | APART).values() if (results / f"{figure.name}.csv").is_file()]
    head = ["figure", "the paper's claim", "verdict"]
    rows = [[f"[{f.name}](#{f.name})", f.claim, VERDICTS[f.name].answer] for f in shown]
    folder = os.path.relpath(results, place.parent)
    return "\n".join([INTRO, markdown.table(head, rows), "", *[section(figure, results, folder) for figure in shown]])


def section(figure: Figure, results: Path, folder: str) -> str:
    """Picture, claim, verdict, numbers, and what the paper does not state."""
    verdict = VERDICTS[figure.name]
    parts = [
        f"## {figure.name}",
        f"![{figure.name}]({folder}/{figure.name}.png)",
        f"*Claim.* {figure.claim}",
        f"*Verdict: {verdict.answer}.* {verdict.told(results)}",
        f"*Measured* ([table]({folder}/{figure.name}.csv)).",
        measured(figure.name, results),
        f"*Setting.* {figure.caption(FULL)}",
    ]
    return "\n\n".join(parts) + "\n"

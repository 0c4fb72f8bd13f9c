"""experiments/README.md: every figure with the paper's claim, what was measured, and a verdict.

    python -m newcomer.experiments.verdicts experiments

reads `experiments/results/*.csv` and writes `experiments/README.md`. Numbers come from the tables (`newcomer.experiments.measured`);
the verdicts below are judgements about the results of the full scale, made by people who looked.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from newcomer.experiments.catalogue import FIGURES
from newcomer.experiments.figure import Figure
from newcomer.experiments.measured import markdown, measured
from newcomer.experiments.scale import FULL


@dataclass(frozen=True)
class Verdict:
    """`answer` is reproduced, partly or not; `why` says where it departs, with the evidence."""

    answer: str
    why: str


_RADII = (
    "At the paper's tau all three of our radii leave the subspace in round 1, so ProBALL *is* LinUCB there: with none of the constants dropped and the slips "
    "of the propositions mended, Delta_off is far above what the paper's remark (M-ProBALL, tau = 0.5, leaves at about t = 70, hence Delta_off near 48) implies. "
    "Smaller tau shows the order that the paper describes."
)
_SAME = "The runs of the regret figure above, seen as the mean rating of the last 25 rounds: the same order, the same verdict."

VERDICTS: dict[str, Verdict] = {}

INTRO = """# Experiments

Every figure of the paper "Leveraging Offline Data in Linear Latent Contextual Bandits" (Kausik, Tan and Tewari), and some that it lacks, made by

    newcomer reproduce all          # NEWCOMER_DATA is the folder that holds ml-1m/
    newcomer reproduce all --quick  # minutes, on made-up ratings

Pictures and tables are in [results](results). Numbers below are read from those tables by `python -m newcomer.experiments.verdicts experiments`.

How to read them. H, E and M are ProBALL with the Hoeffding, empirical Bernstein and martingale Bernstein radius (Frobenius, unclipped, coverage
taken as known, as in the paper's figures). A number is the mean over 30 newcomers and its standard error; every policy meets the same
newcomers, candidates and noise. Two lines are ours and not the paper's: *PopulationMean*, which scores with E[beta] and does not personalise, and
*PriorUCB*, which starts from the distribution of users that the same logs show. Lines more than 1.3 times LinUCB's final regret leave the pictures; their numbers are in the tables.

Two settings cannot be taken as printed, so both readings are shown. **Simulation:** U_ij ~ Unif(0, 2.5/(k d)) gives rewards of a size around
0.01 under noise of 0.5; "learnable" has entries up to 2.5/k. **MovieLens:** the factorisation as described (*literal*: nuclear norm, rank 18) has
eigenvalues that fall by five orders of magnitude; *balanced* writes the same kind of rewards in coordinates with 18 equal ones, which is what the paper's plots of eigenvalues show.
"""


def readme(results: Path) -> str:
    """The whole text, from the tables in `results`; figures without a table are left out."""
    shown = [figure for figure in FIGURES.values() if (results / f"{figure.name}.csv").is_file()]
    head = ["figure", "the paper's claim", "verdict"]
    rows = [[f"[{f.name}](#{f.name})", f.claim, VERDICTS[f.name].answer] for f in shown]
    return "\n".join([INTRO, markdown(head, rows), "", *[section(figure, results) for figure in shown]])


def section(figure: Figure, results: Path) -> str:
    """Picture, claim, numbers, verdict and what the paper does not state."""
    verdict = VERDICTS[figure.name]
    parts = [
        f"## {figure.name}",
        f"![{figure.name}](results/{figure.name}.png)",
        f"*Claim.* {figure.claim}",
        f"*Verdict: {verdict.answer}.* {verdict.why}",
        f"*Measured* ([table](results/{figure.name}.csv)).",
        measured(figure.name, results),
        f"*Setting.* {figure.caption(FULL)}",
    ]
    return "\n\n".join(parts) + "\n"


def main(folder: Path = Path("experiments")) -> None:
    """Write the README beside the results."""
    (folder / "README.md").write_text(readme(folder / "results"), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("experiments"))

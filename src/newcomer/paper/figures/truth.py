"""truth-regret, truth-rating: ProBALL-UCB with the true subspace in place of SOLD's, and SOLD's radii.

What is lost here is not lost to a wrong subspace: it is the cost of exploring k directions, and of leaving them too
early.
"""

from __future__ import annotations

from dataclasses import replace

from newcomer.paper.figures.movielens import UCB, lines, regret_and_rating
from newcomer.paper.jobs import JobFolder
from newcomer.paper.lines import Line


def truth_lines(kept: JobFolder) -> list[Line]:
    """The lines of `movielens-ucb` (without LOCAL-UCB), with the true basis for ProBALL."""
    found = lines(kept, UCB, ("ProBALL-UCB",))
    return [replace(line, play=replace(line.play, truth=line.play.policy == "ProBALL-UCB")) for line in found]


FIGURES = regret_and_rating(
    "truth",
    "With the true subspace all variants of ProBALL-UCB are no worse than LinUCB and outperform mUCB and mmUCB.",
    truth_lines,
)

"""lowdim-regret, lowdim-rating: ProBALL-UCB against rivals that are given the true k-dimensional features.

LinUCB then learns in k dimensions from the first round on. mUCB and mmUCB gain nothing: their models, clusters of
true reward vectors, lie in the span of the true features anyway.
"""

from __future__ import annotations

from newcomer.paper.figures.movielens import UCB, lines, regret_and_rating
from newcomer.paper.jobs import JobFolder
from newcomer.paper.lines import Line, run
from newcomer.paper.scale import FILMS


def lowdim_lines(kept: JobFolder) -> list[Line]:
    """LinUCB on U*^T phi, the clustered rivals, and ProBALL-UCB with SOLD's subspace."""
    low = [Line("LinUCB, true features", run(kept.scale, world, "LinUCB", latent=True)) for world in FILMS]
    return low + lines(kept, UCB[1:], ("ProBALL-UCB",))


FIGURES = regret_and_rating(
    "lowdim",
    "With tau small enough all variants of ProBALL-UCB are no worse than LinUCB and outperform mUCB and mmUCB, all on "
    "the "
    "true low-dimensional features.",
    lowdim_lines,
)

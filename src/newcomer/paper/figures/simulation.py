"""simulation-ablation, simulation-ts: ProBALL-UCB against LinUCB and the Thompson samplers, for every tau and radius.

The simulation is run at both scales of the hidden factor: as printed, U_ij up to 2.5/(k d), where nothing can be
learned, and "learnable", up to 2.5/k. `simulation-ablation` asks how ProBALL-UCB depends on tau and on the radius,
`simulation-ts` holds the same runs of ProBALL-UCB against the Thompson samplers.
"""

from __future__ import annotations

from functools import partial

from newcomer.paper.jobs import JobFolder
from newcomer.paper.lines import Line, baseline, fits, own_lines, played, proball, sold
from newcomer.paper.panels import regret_panels
from newcomer.paper.scale import SIMULATIONS, Scale

ABLATION = ("LinUCB", "LOCAL-UCB")
SAMPLERS = ("LinUCB", "LinTS", "mTS", "mmTS", "MixTS")


def lines(kept: JobFolder, rivals: tuple[str, ...], worlds: tuple[str, ...] = SIMULATIONS) -> list[Line]:
    """The rivals, ProBALL-UCB with the three radii at every tau, and the two lines that the paper lacks."""
    found: list[Line] = []
    for world in worlds:
        found += [baseline(kept.scale, world, policy) for policy in rivals]
        found += proball(kept, "ProBALL-UCB", sold(kept.scale, world))
        found += own_lines(kept.scale, world)
    return found


def caption(scale: Scale) -> str:
    """What the paper does not state."""
    return (
        f"d = 50, k = 2, {scale.users:,} offline users of {scale.steps} steps, noise sd 0.5, practical widths, "
        f"tau' = 0, {scale.trials} newcomers, bands of one standard error, a diamond where the subspace is left. "
        f"Ours: K = 20 fresh candidates a round, T = {scale.rounds}, SOLD with ridge mu = 1 and the true rank, "
        "delta = 0.05, R = largest |reward| in the logs (a plug-in: Gaussian rewards have no bound), unit-norm "
        "features; mTS, mmTS and MixTS have k = 2 clusters of true user vectors with their shares as weights, mmTS "
        "the variance and MixTS the covariance (+ 0.1 of the pooled variance) within a cluster. LOCAL-UCB: EM's "
        "basis of the true rank and its calibrated radius. Left panels of a row: tau of the paper; below them the "
        "grid goes on until the radii can be told apart."
    )


FIGURES = (
    played(
        "simulation-ablation",
        claim="All variants are no worse than LinUCB; tighter radii are better, and martingale Bernstein is best.",
        caption=caption,
        fits=partial(fits, worlds=SIMULATIONS, local=True),
        lines=partial(lines, rivals=ABLATION),
        draw=regret_panels,
    ),
    played(
        "simulation-ts",
        claim="All variants are no worse than LinUCB and outperform the TS algorithms; martingale Bernstein is best.",
        caption=caption,
        fits=partial(fits, worlds=SIMULATIONS),
        lines=partial(lines, rivals=SAMPLERS),
        draw=regret_panels,
    ),
)

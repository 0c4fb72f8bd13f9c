"""The simulation study: ProBALL-UCB against LinUCB and the Thompson samplers, for every tau and radius.

Run at both scales of the hidden factor: as printed, U_ij up to 2.5/(k d), where nothing can be learned, and up to 2.5/k.
"""

from __future__ import annotations

from newcomer.experiments.bench import Bench
from newcomer.experiments.figure import Figure, Line, curve_table, played, proball, regret_panels
from newcomer.experiments.scale import SIMULATIONS, Scale
from newcomer.experiments.sweeps import fits, honest, local, plain, run, sold, sure

SWEEP = {"simulation-ablation": ("LinUCB", "LOCAL-UCB"), "simulation-ts": ("LinUCB", "LinTS", "mTS", "mmTS", "MixTS")}


def lines(scale: Scale, bench: Bench, baselines: tuple[str, ...]) -> list[Line]:
    """Baselines, the three radii at every tau, and the two lines that the paper lacks."""
    found: list[Line] = []
    for world in SIMULATIONS:
        fit = sold(scale, world)
        found += [local(scale, world) if policy == "LOCAL-UCB" else plain(scale, world, policy) for policy in baselines]
        found += proball(bench, scale.taus[world], run(scale, world, "ProBALL-UCB", fit=fit))
        found += honest(scale, world)
    return found


def caption(scale: Scale) -> str:
    """What the paper does not state."""
    return (
        f"d = 50, k = 2, {scale.users:,} offline users of {scale.steps} steps, noise sd 0.5, practical widths, tau' "
        "= 0, "
        f"{scale.trials} newcomers, bands of one standard error, a diamond where the subspace is left. Ours: K = 20 "
        "fresh "
        f"candidates a round, T = {scale.rounds}, SOLD with ridge mu = 1 and the true rank, delta = 0.05, R = "
        "largest |reward| in the "
        "logs (a plug-in: Gaussian rewards have no bound), unit-norm features; mTS, mmTS and MixTS have k = 2 "
        "clusters of true "
        "user vectors with their shares as weights, mmTS the variance and MixTS the covariance (+ 0.1 of the pooled "
        "variance) within a "
        "cluster. LOCAL-UCB: EM's basis of the true rank and its calibrated radius. Left panels of a row: tau of the paper; below them the grid goes on until the radii can be told "
        "apart."
    )


def _figure(name: str, claim: str) -> Figure:
    def own(scale: Scale, bench: Bench) -> list[Line]:
        return lines(scale, bench, SWEEP[name])

    return Figure(
        name=name,
        claim=claim,
        caption=caption,
        fits=lambda scale: fits(scale, SIMULATIONS) + [sure(scale, world) for world in SIMULATIONS],
        jobs=played(own),
        table=curve_table(own),
        draw=regret_panels,
    )


FIGURES = (
    _figure(
        "simulation-ablation",
        "No worse than LinUCB for any tau and radius; tighter radii are better, martingale Bernstein best.",
    ),
    _figure("simulation-ts", "ProBALL-UCB is no worse than LinUCB and outperforms the TS algorithms."),
)

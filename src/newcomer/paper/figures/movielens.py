"""movielens-together, movielens-ucb-*, movielens-ts-*: ProBALL and its rivals on MovieLens.

Every figure is drawn for both factorisations of the ratings (`newcomer.paper.worlds.factorise`): the literal one is the
paper's description, the balanced one has the eigenvalues that its plots show. Regret and rating come from the same
runs.

Baselines are given what the paper gives them, which no policy could know: clusters of the users' true reward vectors,
and the noise of rewards. LOCAL-UCB, which the paper could not compute, is in the figures of the optimistic algorithms
only, since its plays take minutes.
"""

from __future__ import annotations

from functools import partial

from newcomer.paper.figure import Figure
from newcomer.paper.jobs import JobFolder
from newcomer.paper.lines import Line, Lines, baseline, fits, own_lines, played, proball, sold
from newcomer.paper.panels import rating_panels, regret_panels
from newcomer.paper.scale import FILMS, Scale

TOGETHER = ("LinUCB", "LinTS", "mmTS", "MixTS")
UCB = ("LinUCB", "mUCB", "mmUCB", "mmUCB, fitted epsilon")
TS = ("LinTS", "mTS", "mmTS", "MixTS")


def lines(
    kept: JobFolder, rivals: tuple[str, ...], versions: tuple[str, ...], worlds: tuple[str, ...] = FILMS
) -> list[Line]:
    """The rivals, versions of ProBALL with the three radii at every tau, and the two lines that the paper lacks."""
    found: list[Line] = []
    for world in worlds:
        found += [baseline(kept.scale, world, policy) for policy in rivals]
        for version in versions:
            found += proball(kept, version, sold(kept.scale, world))
        found += own_lines(kept.scale, world)
    return found


def ucb_lines(kept: JobFolder, worlds: tuple[str, ...] = FILMS) -> list[Line]:
    """The optimistic algorithms, LOCAL-UCB among them."""
    return [baseline(kept.scale, world, "LOCAL-UCB") for world in worlds] + lines(kept, UCB, ("ProBALL-UCB",), worlds)


def ts_lines(kept: JobFolder) -> list[Line]:
    """The Thompson samplers."""
    return lines(kept, TS, ("ProBALL-TS",))


def against_samplers(kept: JobFolder, worlds: tuple[str, ...] = FILMS) -> list[Line]:
    """The third panel of `main`, as its caption has it: ProBALL-UCB against the Thompson samplers, and ProBALL-TS."""
    return lines(kept, TS, ("ProBALL-UCB", "ProBALL-TS"), worlds)


def caption(scale: Scale, *, users: str = "", exits: bool = True, local: bool = False) -> str:
    """What the paper does not state; `exits` are marked, `local` says that LOCAL-UCB is among the lines."""
    users = users or f"{scale.film_users:,}"
    marked = ", a diamond where the subspace is left" if exits else ""
    own = " LOCAL-UCB: EM's basis of the true rank and its calibrated radius." if local else ""
    return (
        f"d = {scale.dim}, k = {scale.rank}, {users} histories of {scale.film_steps} steps with uniform "
        f"behaviour, pseudo-inverse SOLD with the true rank, T = {scale.film_rounds}, noise variance 0.5, practical "
        f"widths, tau' = 0, {scale.trials} newcomers, bands of one standard error{marked}. Ours: K = 20 movies of "
        "distinct genre strings, features scaled to norm at most 1, delta = 0.05, R = largest |reward| and L = largest "
        "|beta_1||beta_2| in the logs (plug-ins), histories of users drawn with replacement; baselines have "
        f"{scale.rank} k-means clusters of the true user vectors with their shares as weights, mmTS the variance and "
        "MixTS the covariance (+ 0.1 of the pooled variance) within a cluster; mmUCB has epsilon = Delta_off as the "
        f"paper says, and the 90% quantile of the clusters' reward error.{own} tau = 0.5 and 0.1 are the paper's; the "
        "smaller ones are ours."
    )


def regret_and_rating(
    name: str, claim: str, lines: Lines, *, rated: str | None = None, local: bool = False
) -> tuple[Figure, Figure]:
    """The regret figure and the rating figure of the same runs; the latter's claim is `rated`, if it is another one.

    `local` says that LOCAL-UCB, which has a fit of its own, is among the lines.
    """
    make = partial(played, fits=partial(fits, worlds=FILMS, local=local), lines=lines)
    regret, rating = (partial(caption, exits=exits, local=local) for exits in (True, False))
    rated = rated or claim
    drawn = make(f"{name}-rating", claim=rated, caption=rating, draw=rating_panels, values=("reward",))
    return make(f"{name}-regret", claim=claim, caption=regret, draw=regret_panels), drawn


FIGURES = (
    played(
        "movielens-together",
        claim="ProBALL-UCB outperforms LinUCB; ProBALL-TS outperforms MixTS and mmTS.",
        caption=caption,
        fits=partial(fits, worlds=FILMS),
        lines=partial(lines, rivals=TOGETHER, versions=("ProBALL-UCB", "ProBALL-TS")),
        draw=regret_panels,
    ),
    *regret_and_rating(
        "movielens-ucb",
        "All variants of ProBALL-UCB are no worse than LinUCB and outperform mUCB and mmUCB.",
        ucb_lines,
        rated="ProBALL-UCB is no worse than LinUCB and outperforms mUCB and mmUCB.",
        local=True,
    ),
    *regret_and_rating("movielens-ts", "All variants of ProBALL-TS outperform TS, mmTS and MixTS.", ts_lines),
)

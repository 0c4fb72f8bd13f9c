"""privacy: how much of a person's gender and age is in what a recommender knows of them?

The paper's broader-impact section warns that latent states can reveal protected attributes. MovieLens users stated
gender and age, so it can be measured: a logistic regression on a user's coordinates in the shared subspace,
cross-validated over users, against the base rate (always saying the more frequent answer; an area under the ROC curve
of 0.5).

Three kinds of coordinates, all of k numbers a user:

* "factor vector": a user's vector in the factorisation of everybody's ratings, what a recommender keeps of a
  long-known user;
* "posterior": the mean of a newcomer's beta given t of that newcomer's real ratings. The newcomer is a held-out user,
  and the movie features and the prior N(mean, covariance) come from the other users only;
* "attributes in the prior": the same with gender and age told to the prior, whose mean is Gamma x: the state keeps no
  attribute, and tells what was told.

The attacker knows the attribute of the other users of the same kind, nothing else, and has not tried hard: these
numbers are lower bounds on what can be learned. Success is the area under the ROC curve: 0.5 is a coin, 1 is certainty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from newcomer.arrays import Bools, Floats, Ints
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.errors import NewcomerError
from newcomer.paper.figure import Point, swept
from newcomer.paper.scale import Scale, Setting
from newcomer.paper.worlds.factorise import Factors, factorise
from newcomer.paper.worlds.ratings import Ratings, read_ratings
from newcomer.paper.worlds.replay import split_users
from newcomer.population import AttributePrior
from newcomer.worlds.world import world_stream

_Known = tuple[str, int | None, Ratings, Floats]

SEEN = (5, 20, 50, 200)
POSTERIOR, TOLD = "posterior", "attributes in the prior"
OLDER = 35  # lower end of the first age group that counts as older; 37% of the filtered users are
FOLDS, FEWER_FOLDS = 10, 5  # of users; fewer at the quick scale
NEWTON = 30


@dataclass(frozen=True)
class Guess:
    """Cross-validated success at guessing a yes-or-no attribute; `_error` are standard errors over the folds."""

    base_rate: float
    accuracy: float
    accuracy_error: float
    auc: float
    auc_error: float


def sweep(scale: Scale) -> list[Point]:
    """One computation: factorisations are shared by all its rows."""
    return [{"dim": scale.replay_dim, "rank": scale.rank, "least": scale.least}]


def run(setting: Setting, *, dim: int, rank: int, least: int) -> pl.DataFrame:
    """The table of `privacy_table` for users and movies with at least `least` ratings.

    The factorisations are kept in the cache, and the half of the users who are newcomers is in none that is used on
    them.
    """
    ratings = read_ratings(Path(setting.data)).filtered(least)
    folds = FEWER_FOLDS if setting.sizes.quick else FOLDS
    return privacy_table(ratings, dim=dim, rank=rank, folds=folds, cache=Path(setting.cache))


def privacy_table(
    ratings: Ratings,
    *,
    seen: Sequence[int] = SEEN,
    dim: int = 40,
    rank: int = 18,
    held_out: float = 0.5,
    folds: int = 10,
    seed: int = 0,
    cache: str | Path | None = None,
) -> pl.DataFrame:
    """One row for each attribute and each thing known of a user.

    Columns `attribute`, `known` ("factor vector", "posterior" or "attributes in the prior"), `ratings` behind the
    coordinates (null for factor vectors: all of them), `users`, and those of `Guess`. `seen` are the numbers of ratings
    of a newcomer to try.
    """
    train, test = split_users(ratings, held_out, seed=seed)
    everyone = factorise(ratings, dim=dim, rank=rank, seed=seed, cache=cache)
    others = factorise(train, dim=dim, rank=rank, seed=seed, cache=cache)
    known: list[_Known] = [("factor vector", None, ratings, latent_coordinates(everyone))]
    known += [(POSTERIOR, t, test, posterior_coordinates(test, others, t, seed=seed)) for t in seen]
    prior = attribute_prior(train, others)
    known += [(TOLD, seen[0], test, posterior_coordinates(test, others, seen[0], seed=seed, prior=prior))]
    rows: list[dict[str, object]] = []
    for what, count, people, coordinates in known:
        for attribute, label in (("female", people.gender == "F"), (f"{OLDER} or older", people.age >= OLDER)):
            guess = guessable(coordinates, label, folds=folds, seed=seed)
            named = {"attribute": attribute, "known": what, "ratings": count, "users": len(label)}
            rows.append({**named, **vars(guess)})
    return pl.DataFrame(rows, schema_overrides={"ratings": pl.Int64}).sort("attribute", maintain_order=True)


def latent_coordinates(factors: Factors) -> Floats:
    """Users' reward vectors in the basis of their own subspace, (n, k).

    With the vectors B (n, d) = W S R^T by singular values, these are the rows of W S: the coordinates of B in the
    basis R.
    """
    left, values, _ = np.linalg.svd(factors.users, full_matrices=False)
    return np.asarray(left[:, : factors.rank] * values[: factors.rank])


def stated(people: Ratings) -> Floats:
    """What people have stated, (n, 2): woman or man, older or not."""
    return np.column_stack([people.gender == "F", people.age >= OLDER]).astype(np.float64)


def attribute_prior(train: Ratings, factors: Factors) -> AttributePrior:
    """Gamma of z ~ N(Gamma x, .), by regression of the coordinates of the users in `factors` on what they stated."""
    x = stated(train) - stated(train).mean(axis=0)
    left, _, _ = np.linalg.svd(factors.users - factors.users.mean(axis=0), full_matrices=False)
    z = left[:, : factors.rank] * np.sqrt(len(x))
    return AttributePrior(np.linalg.solve(x.T @ x + np.eye(2), x.T @ z).T, x.T @ x / len(x))


def posterior_coordinates(
    test: Ratings, factors: Factors, count: int, *, seed: int, prior: AttributePrior | None = None
) -> Floats:
    """Posterior means (n, k) of test users' latent states given `count` of their ratings, drawn uniformly.

    beta = m + L z, z ~ N(0, I), with m and L L^T the mean and covariance of the users in `factors`; rewards have the
    noise of its held-out error. With a `prior`, z is that of users who have stated gender and age.
    """
    mean = factors.users.mean(axis=0)
    _, values, right = np.linalg.svd(factors.users - mean, full_matrices=False)
    spread = (right[: factors.rank] * values[: factors.rank, None] / np.sqrt(len(factors.users))).T
    x = stated(test) - stated(test).mean(axis=0)
    told = (np.zeros((1, factors.rank, factors.rank)), np.zeros((1, factors.rank)))
    precision, moment = told if prior is None else prior.information(x)
    lottery = world_stream(seed, "privacy ratings").random(len(test.user))
    out = np.zeros((len(test.users), factors.rank))
    for user in range(len(test.users)):
        rows = np.flatnonzero(test.user == user)
        rows = rows[np.argsort(lottery[rows])][:count]
        own = (precision[min(user, len(precision) - 1)], moment[min(user, len(moment) - 1)])
        out[user] = _posterior(factors.movies[test.movie[rows]], test.rating[rows], mean, spread, factors.rmse**2, own)
    return out


def _posterior(
    shown: Floats, rating: Floats, mean: Floats, spread: Floats, variance: float, told: tuple[Floats, Floats]
) -> Floats:
    """E[z | ratings] = (I + G + Z^T Z / s2)^-1 (g + Z^T (r - X m) / s2), with Z = X L, s2 the `variance` of the noise,
    and G (k, k), g (k,) what attributes add to the information."""
    loading = shown @ spread
    system = np.eye(spread.shape[1]) + told[0] + loading.T @ loading / variance
    moment = told[1] + loading.T @ (rating - shown @ mean) / variance
    return np.asarray(np.linalg.solve(system, moment), dtype=np.float64)


def guessable(coordinates: Floats, label: Bools, *, folds: int = 10, ridge: float = 1.0, seed: int = 0) -> Guess:
    """How well a ridge logistic regression on `coordinates` (n, k) guesses `label` (n,) of users it has not seen.

    Folds have the same share of yes; success is measured in each fold and averaged.
    """
    if min(label.sum(), (~label).sum()) < folds:
        raise NewcomerError(
            "too few users on one side", where=f"{int(label.sum())} of {len(label)}", todo="fewer folds"
        )
    fold = _folds(label, folds, world_stream(seed, "privacy folds"))
    right, area = np.empty(folds), np.empty(folds)
    for index in range(folds):
        inside = fold == index
        scores = _scores(coordinates, label, inside, ridge)
        right[index] = np.mean((scores > 0) == label[inside])
        area[index] = auc(scores, label[inside])
    share, root = float(label.mean()), np.sqrt(folds)
    errors = (float(values.std(ddof=1) / root) for values in (right, area))
    return Guess(max(share, 1 - share), float(right.mean()), next(errors), float(area.mean()), next(errors))


def _folds(label: Bools, folds: int, rng: np.random.Generator) -> Ints:
    """A fold (n,) for each user; users of either side are dealt out in turn, so folds have equal shares of yes."""
    order = rng.permutation(len(label))
    order = order[np.argsort(label[order], kind="stable")]
    fold = np.empty(len(label), dtype=np.int64)
    fold[order] = np.arange(len(label)) % folds
    return fold


def _scores(coordinates: Floats, label: Bools, inside: Bools, ridge: float) -> Floats:
    """Log-odds for the users inside, learned from those outside.

    Coordinates are centred and scaled by the mean and deviation of the users outside, so that nothing of the users to
    be guessed is in the regression, and the ridge means the same in every direction.
    """
    learned = coordinates[~inside]
    scale = np.where(learned.std(axis=0) > 0, learned.std(axis=0), 1.0)
    design = np.column_stack([np.ones(len(label)), (coordinates - learned.mean(axis=0)) / scale])
    return np.asarray(design[inside] @ logistic(design[~inside], label[~inside], ridge))


def logistic(design: Floats, label: Bools, ridge: float) -> Floats:
    """Weights of a ridge logistic regression by Newton's method; the first column, a constant, is not penalised.

    With p = 1 / (1 + exp(-X w)) the step solves (X^T diag(p (1 - p)) X + R) s = X^T (y - p) - R w, R = diag(0, ridge,
    ...).
    """
    penalty = np.full(design.shape[1], ridge)
    penalty[0] = 0.0
    weights = np.zeros(design.shape[1])
    for _ in range(NEWTON):
        chance = 1.0 / (1.0 + np.exp(-design @ weights))
        gradient = design.T @ (label - chance) - penalty * weights
        curvature = (design.T * (chance * (1.0 - chance))) @ design + np.diag(penalty)
        step = np.linalg.solve(curvature, gradient)
        weights += step
        if np.abs(step).max() < 1e-10:
            break
    return weights


def auc(scores: Floats, label: Bools) -> float:
    """Chance that a random yes scores above a random no, ties counted half (Mann and Whitney)."""
    _, position, counts = np.unique(scores, return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2.0)[position]
    yes, no = int(label.sum()), int((~label).sum())
    return float((rank[label].sum() - yes * (yes + 1) / 2.0) / (yes * no))


def draw(frame: pl.DataFrame, path: Path) -> Path:
    """Area against the number of ratings known, a panel for each attribute.

    What is known of long-known users, and a coin, do not depend on that number: they are flat lines.
    """
    posterior = frame.filter(known="posterior").with_columns(line=pl.lit("newcomer, from this many ratings"))
    known = frame.filter(known="factor vector").drop("ratings")
    known = known.with_columns(line=pl.lit("long-known user, all ratings"))
    coin = known.with_columns(line=pl.lit("coin"), auc=pl.lit(0.5), auc_error=pl.lit(0.0))
    flat = pl.concat([known, coin]).join(pl.DataFrame({"ratings": [min(SEEN), max(SEEN)]}), how="cross")
    return draw_lines(
        pl.concat([posterior, flat.select(posterior.columns)]),
        path,
        x=Axis("ratings", "ratings known", log=True),
        y=Axis("auc", "area under the ROC curve", zero=False),
        series="line",
        error="auc_error",
        facet="attribute",
        marked=True,
    )


def caption(scale: Scale) -> str:
    """What has been done."""
    return (
        f"Ridge logistic regression on {scale.rank} coordinates, {FOLDS} folds of users, bands of one standard error "
        f"over folds. The newcomers are half of the users; features (d = {scale.replay_dim}) and prior come from the "
        f"other half. Older is {OLDER} or more. The attacker is given the attribute of nine users in ten and tries no "
        "harder than this: the numbers are lower bounds."
    )


FIGURES = (
    swept(
        "privacy",
        claim="Latent states of users can reveal protected attributes (the paper's broader impact, which measures "
        "nothing).",
        caption=caption,
        sweep=sweep,
        run=run,
        table=lambda rows: rows,
        draw=draw,
    ),
)

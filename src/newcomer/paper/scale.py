"""How large the experiments are: the paper's sizes, and small ones that take minutes on made-up ratings.

Sizes that the paper does not state are ours: 20 candidates and 1000 rounds in the simulation, a ridge of 1 for SOLD,
the grid of tau. Its text names tau = 5 (simulation), 0.1 and 0.5 (MovieLens). Our radii, with the constants of its
propositions corrected and none dropped, are thousands of times those that its remarks imply, so the same tau
leaves the subspace in the first round; the grids therefore go on to values at which the phases differ.
"""

from __future__ import annotations

from dataclasses import dataclass

# Worlds by the name that tables and titles have for them. The simulation has entries of U up to 2.5/(k d), as printed,
# or up to 2.5/k, at which logs can be learned from; MovieLens is factorised as the paper describes it, or with equal
# eigenvalues.
PRINTED = "simulation as printed"
LEARNABLE = "simulation, learnable scale"
LITERAL = "MovieLens, literal factors"
BALANCED = "MovieLens, balanced factors"
REPLAY = "replay of real ratings"
SIMULATIONS = (PRINTED, LEARNABLE)
FILMS = (LITERAL, BALANCED)


@dataclass(frozen=True)
class Scale:
    """The sizes of every experiment.

    Logs have `users` histories of `steps` rows in the simulation, `film_users` of `film_steps` on MovieLens; `trials`
    newcomers are then served for `rounds` or `film_rounds` rounds. Ratings of users and movies with at least `least`
    of them are factorised to `dim` features of which `rank` matter. `taus` is the grid of ProBALL's tau in each
    world, the paper's values first, and `shown` the value in the figure `main`. `sizes` are the numbers of offline
    users in the figures against N (`error_sizes` those of the subspace error alone), and `repeats` the data sets that
    an error is averaged over. The replay of real ratings has sizes of its own.
    """

    name: str
    trials: int
    rounds: int
    users: int
    steps: int
    film_rounds: int
    film_users: int
    film_steps: int
    dim: int
    rank: int
    least: int
    sizes: tuple[int, ...]
    error_sizes: tuple[int, ...]
    repeats: int
    taus: dict[str, tuple[float, ...]]
    shown: dict[str, float]
    replay_dim: int
    replay_rounds: int
    replay_trials: int

    @property
    def quick(self) -> bool:
        """Whether this is the small scale, which runs on made-up ratings."""
        return self.name == "quick"


FULL = Scale(
    name="full",
    trials=30,
    rounds=1000,
    users=5000,
    steps=20,
    film_rounds=200,
    film_users=5000,
    film_steps=50,
    dim=200,
    rank=18,
    least=200,
    sizes=(250, 500, 1000, 2000, 5000),
    error_sizes=(250, 500, 1000, 2000, 5000, 10_000, 20_000),
    repeats=3,
    taus={
        PRINTED: (5.0, 0.5, 0.02, 0.005, 0.001, 0.0002),
        LEARNABLE: (5.0, 0.5, 0.02, 0.005, 0.001, 0.0002),
        LITERAL: (0.5, 0.1, 2e-5, 1e-5, 2e-6, 2e-7),
        BALANCED: (0.5, 0.1, 1e-3, 5e-4, 1e-4, 1e-5),
    },
    shown={PRINTED: 0.005, LEARNABLE: 0.005, LITERAL: 1e-5, BALANCED: 1e-4},
    replay_dim=40,
    replay_rounds=40,
    replay_trials=100,
)

QUICK = Scale(
    name="quick",
    trials=6,
    rounds=100,
    users=1000,
    steps=20,
    film_rounds=60,
    film_users=1000,
    film_steps=20,
    dim=30,
    rank=4,
    least=150,
    sizes=(250, 1000),
    error_sizes=(250, 1000),
    repeats=2,
    taus={
        PRINTED: (5.0, 0.001),
        LEARNABLE: (5.0, 0.005),
        LITERAL: (0.1, 1e-5),
        BALANCED: (0.1, 1e-4),
    },
    shown={PRINTED: 0.001, LEARNABLE: 0.005, LITERAL: 1e-5, BALANCED: 1e-4},
    replay_dim=20,
    replay_rounds=15,
    replay_trials=10,
)

SCALES = {scale.name: scale for scale in (FULL, QUICK)}


@dataclass(frozen=True)
class Setting:
    """What a worker process gets, in plain words.

    These are the name of the scale, the folder of ratings, and the folder in which factorisations are cached; of
    sweeps over splits or worlds, how many are wanted (0: all of them).
    """

    scale: str
    data: str
    cache: str
    repeats: int = 0

    @property
    def sizes(self) -> Scale:
        """The scale of this name.

        >>> Setting("full", "ml-1m", "cache").sizes.rank
        18
        """
        return SCALES[self.scale]

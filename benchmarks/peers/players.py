"""One player per library: a linear bandit with one shared parameter vector, through the library's documented calls.

A player sees a round as anyone's program would: a float64 array of K feature vectors (K, d), then the reward of the one
it chose. Turning that array into what the library wants (lists, dictionaries, text) is part of the player's work.
Exploration is alpha = 1 and the ridge 1 wherever the library has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np


class Player(Protocol):
    """A bandit for one user."""

    def choose(self, actions: np.ndarray) -> int:
        """The index of the action to play among `actions` (K, d)."""

    def update(self, features: np.ndarray, reward: float) -> None:
        """Learn from the reward of the action just chosen, whose features (d,) are given."""


class Ours:
    """newcomer: choose and update of LinUCB or LinTS with all their checks, a batch of one user."""

    def __init__(self, dim: int, count: int, kind: str = "LinUCB") -> None:
        import newcomer

        self.policy = getattr(newcomer, kind)(dim, horizon=1000)
        self.state = self.policy.start(1)
        self.rng = np.random.default_rng(0)

    def choose(self, actions: np.ndarray) -> int:
        return int(self.policy.choose(self.state, actions, self.rng)[0])

    def update(self, features: np.ndarray, reward: float) -> None:
        self.policy.update(self.state, features[None], np.array([reward]))


class ContextualBandits:
    """contextualbandits: the `linreg` object with Sherman-Morrison updates, scored by its LinUCB prediction."""

    def __init__(self, dim: int, count: int, use_float: bool = False) -> None:
        from contextualbandits.linreg import LinearRegression

        self.model = LinearRegression(lambda_=1.0, fit_intercept=False, method="sm", use_float=use_float)

    def choose(self, actions: np.ndarray) -> int:
        return int(np.argmax(self.model.predict_ucb(actions, alpha=1.0)))

    def update(self, features: np.ndarray, reward: float) -> None:
        self.model.partial_fit(features[None], np.array([reward]))


class MABWiser:
    """MABWiser: its LinUCB keeps one model per arm, so a single arm whose contexts are the candidates is shared."""

    def __init__(self, dim: int, count: int) -> None:
        from mabwiser.mab import MAB, LearningPolicy

        self.bandit = MAB([0], LearningPolicy.LinUCB(alpha=1.0, l2_lambda=1.0))
        self.bandit.fit([0], [0.0], np.zeros((1, dim)))

    def choose(self, actions: np.ndarray) -> int:
        scores = self.bandit.predict_expectations(actions)
        return max(range(len(scores)), key=lambda index: scores[index][0])

    def update(self, features: np.ndarray, reward: float) -> None:
        self.bandit.partial_fit([0], [reward], features[None])


class Coba:
    """coba: LinUCBLearner on action features alone; actions are tuples."""

    def __init__(self, dim: int, count: int) -> None:
        from coba.learners import LinUCBLearner

        self.learner = LinUCBLearner(alpha=1.0, features=["a"])
        self.chosen: Any = None

    def choose(self, actions: np.ndarray) -> int:
        options = [tuple(row) for row in actions.tolist()]
        self.chosen = self.learner.predict(None, options)
        return options.index(self.chosen[0])

    def update(self, features: np.ndarray, reward: float) -> None:
        action, probability = self.chosen[:2]
        self.learner.learn(None, action, reward, probability)


class BayesianBandits:
    """bayesianbandits: LipschitzContextualAgent, its agent with one shared learner; the round's array is the context.

    Its UCB estimates quantiles from 1,000 samples; Thompson sampling is what it recommends and its fastest policy.
    """

    def __init__(self, dim: int, count: int, policy: str = "ThompsonSampling") -> None:
        import bayesianbandits as bb
        from bayesianbandits.featurizers import FunctionArmFeaturizer

        def of_round(context: Any, tokens: Any) -> np.ndarray:
            return np.asarray(context).reshape(len(context), count, dim)[:, list(tokens), :].transpose(0, 2, 1)

        self.agent = bb.LipschitzContextualAgent(
            arms=[bb.Arm(index) for index in range(count)],
            policy=getattr(bb, policy)(),
            arm_featurizer=FunctionArmFeaturizer(of_round),
            learner=bb.NormalRegressor(alpha=1.0, beta=1.0),
            random_seed=0,
        )
        self.context = np.empty((1, count * dim))

    def choose(self, actions: np.ndarray) -> int:
        self.context = actions.reshape(1, -1)
        return int(self.agent.pull(self.context)[0])

    def update(self, features: np.ndarray, reward: float) -> None:
        self.agent.update(self.context, np.array([reward]))


class River:
    """river: its LinUCB is disjoint (a model per arm), so the model it is made of, shared, scored mean + deviation."""

    def __init__(self, dim: int, count: int) -> None:
        from river.linear_model import BayesianLinearRegression

        self.model = BayesianLinearRegression(alpha=1.0, beta=1.0)

    def choose(self, actions: np.ndarray) -> int:
        beliefs = [self.model.predict_one(dict(enumerate(row)), with_dist=True) for row in actions.tolist()]
        return max(range(len(beliefs)), key=lambda index: beliefs[index].mu + beliefs[index].sigma)

    def update(self, features: np.ndarray, reward: float) -> None:
        self.model.learn_one(dict(enumerate(features.tolist())), reward)


class VowpalWabbit:
    """Vowpal Wabbit: action-dependent features; gradient steps, O(d) an action, no d x d system at all.

    `--regcbopt` (optimism over a confidence band) is its nearest relative of LinUCB; `--squarecb` is a common choice.
    """

    def __init__(self, dim: int, count: int, explore: str = "--regcbopt") -> None:
        from vowpalwabbit import Workspace

        self.workspace = Workspace(f"--cb_explore_adf {explore} --quiet --noconstant --random_seed 1")
        self.form = "| " + " ".join(f"{index}:%.7g" for index in range(dim))
        self.lines: list[str] = []
        self.chosen = (0, 1.0)

    def choose(self, actions: np.ndarray) -> int:
        self.lines = [self.form % tuple(row) for row in actions.tolist()]
        pairs = self.workspace.predict(self.lines)
        index = int(np.argmax(pairs))
        self.chosen = (index, pairs[index])
        return index

    def update(self, features: np.ndarray, reward: float) -> None:
        index, probability = self.chosen
        lines = list(self.lines)
        lines[index] = f"0:{-reward}:{probability} {lines[index]}"
        self.workspace.learn(lines)


PLAYERS: dict[str, Callable[[int, int], Player]] = {
    "newcomer LinUCB": Ours,
    "newcomer LinTS": lambda dim, count: Ours(dim, count, "LinTS"),
    "contextualbandits linreg, float64": ContextualBandits,
    "contextualbandits linreg, float32": lambda dim, count: ContextualBandits(dim, count, use_float=True),
    "MABWiser LinUCB": MABWiser,
    "coba LinUCB": Coba,
    "bayesianbandits TS": BayesianBandits,
    "bayesianbandits UCB": lambda dim, count: BayesianBandits(dim, count, "UpperConfidenceBound"),
    "river Bayesian regression, UCB": River,
    "Vowpal Wabbit RegCB": VowpalWabbit,
    "Vowpal Wabbit SquareCB": lambda dim, count: VowpalWabbit(dim, count, "--squarecb"),
}

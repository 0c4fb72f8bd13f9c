"""Attributes and the distribution of users together: m, L, the variances and the effects of attributes, by turns.

A fit without attributes puts what they explain into L, and its mean is that of users whose attributes happened to be
logged. With attributes x the model is

    beta = m + B x + L z,      B = L Gamma + F,      z ~ N(0, I),

and what is maximised is the marginal likelihood of all rewards given x, times what is believed beforehand of m, L, the
variances and offsets (`shrinkage`) and of Gamma and F (`attributes`). Two conditional maximisations take turns (ECM,
Meng and Rubin 1993), neither of which lowers it:

* Gamma and F given the rest: one linear system from one pass (`attributes.AttributeEffects.solved`);
* m, L, variances and offsets given Gamma and F: `STEPS` passes of the quasi-Newton ascent of the fit itself, with
  z ~ N(Gamma x, I) and rewards less X F x (`likelihood.known_likelihood_sums`).

The fit to everybody and those without a fold of the users take their steps in the same passes: `ROUNDS` (`STEPS` + 1)
of them and one more, at most. Rank, shrinkage, repeatability and the attributes that stay are those of the fit. Basis,
spectrum and radii are those of all users, whatever their attributes, and stay too. Weak directions (`full_covariance`)
are found again, of rewards less X B x.

Clicks are not joined: a pass of theirs adds up over actions and nodes, whatever the user. With a shift of its own every
user would need the sums of every row and node, many times the cost of a pass; their effects are found given the fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from newcomer.arrays import Bools
from newcomer.em.attributes import AttributeEffects, AttributeTask
from newcomer.em.fit import FINE, FINELY, FittedPopulation, population_where_fit_ended
from newcomer.em.likelihood import KnownTask, Sums, known_likelihood_sums, merge_likelihood_sums
from newcomer.em.optimizer import Optimizer
from newcomer.em.passes import Ascent, Passes
from newcomer.em.shrinkage import HeldoutFold
from newcomer.evidence import JointFit
from newcomer.population import Population
from newcomer.users import Split

ROUNDS = 3  # in which effects and everything else take turns
STEPS = 4  # passes of a round that move m, L, variances and offsets


@dataclass(frozen=True)
class JoinedFits:
    """Populations given attributes, of everybody first, the tasks with their effects, and how they were found."""

    populations: tuple[Population, ...]
    tasks: tuple[AttributeTask, ...]
    facts: JointFit


def join_attributes(
    passes: Passes, people: FittedPopulation, effects: AttributeEffects, *, rounds: int = ROUNDS, steps: int = STEPS
) -> JoinedFits:
    """The fits to everybody and to a part of the users, found again together with the effects of attributes."""
    begun, origin = passes.count, people.origin
    if origin.moment.by_passes:  # what variances are shrunk towards would take passes to find again
        origin = replace(origin, towards=people.optimizer.penalty.variance)
    every = np.ones(len(origin.pairs.users), dtype=np.bool_)
    ascents = [_ascent(people.optimizer, Split(every, ~every))]
    for one, judged in people.held_out:
        split = Split(~judged, judged)
        ascents.append(_ascent(HeldoutFold(origin, split).optimizer(people.facts.precision, one), split))
    tasks, values = _solved(passes, effects, ascents), list[float]()
    for _ in range(rounds):
        ascents = [_ascent(one.optimizer, one.split) for one in ascents]
        for _ in range(steps):
            going = [i for i, one in enumerate(ascents) if not one.arrived]
            if not going:
                break
            known = tuple(_known(ascents[i].optimizer.trial, tasks[i], effects) for i in going)
            found: tuple[Sums, ...] = passes.run(partial(known_likelihood_sums, tasks=known), merge_likelihood_sums)
            for i, sums in zip(going, found, strict=True):
                ascents[i].optimizer.tell(sums)
            values.append(ascents[0].optimizer.value + effects.penalty(tasks[0]))
        tasks = _solved(passes, effects, ascents)
    gain = (values[-1] - values[0]) / max(passes.logs.summary.users, 1) if values else 0.0
    ended = tuple(population_where_fit_ended(one.optimizer, origin) for one in ascents)
    return JoinedFits(ended, tuple(tasks), JointFit(rounds, passes.count - begun, gain))


def _ascent(optimizer: Optimizer, split: Split) -> Ascent:
    """An ascent from the best of an optimizer, with what that has learned of how the likelihood bends."""
    return Ascent(optimizer.among(optimizer.gram, optimizer.penalty, 1.0), split, FINE, FINELY)


def _solved(passes: Passes, effects: AttributeEffects, ascents: Sequence[Ascent]) -> list[AttributeTask]:
    """The effects given where the ascents are."""
    populations = [one.optimizer.best or one.optimizer.trial for one in ascents]
    fitted: list[Bools] = [one.split.fitted for one in ascents]
    return effects.solved(passes, effects.tasks(populations, fitted))


def _known(trial: Population, task: AttributeTask, effects: AttributeEffects) -> KnownTask:
    """What a pass is to find for the next step, given the effects."""
    return KnownTask(trial, task.fitted, task.shared, task.single, effects.prior, effects.entries)

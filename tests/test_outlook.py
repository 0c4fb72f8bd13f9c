"""The outlook: exact beside the policies themselves, blind to order and batches, honest where there is nothing."""

from __future__ import annotations

import operator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import newcomer as nc
from newcomer.evaluation.served import served
from newcomer.evidence import Evidence, Outlook, OutlookStep
from newcomer.logs.engine import reduce
from newcomer.population.outlook import deal, look_at, measure
from newcomer.population.record import Population
from newcomer.worlds import Synthetic
from newcomer.worlds.people import People


def people(seed: int = 0, users: int = 240, items: int = 30, taste: float = 1.0) -> People:
    rng = np.random.default_rng(seed)
    shared = taste * rng.standard_normal((users, 2)) @ rng.standard_normal((2, items))
    answers = rng.standard_normal(items) + shared + rng.standard_normal((users, items))
    return People(answers, tuple(f"q{i:02d}" for i in range(items)), seed=seed)


def population_of(model: nc.Model, share: float) -> Population:
    return Population(model.mean, model.factor, model.noise_variance, by_action=model.residual_variance, share=share)


@pytest.mark.parametrize("repeats", [False, True])
def test_choices_are_those_of_the_policy(repeats):
    world = people()
    model = nc.fit(world.logs(steps=12), null=False, calibrate=False)
    rng = np.random.default_rng(3)
    who = np.repeat(world.newcomers, 16)
    which = rng.integers(8 if repeats else 30, size=(len(world.newcomers), 16)) if repeats else None
    asked = which if which is not None else np.stack([rng.permutation(30)[:16] for _ in world.newcomers])
    reward = world.table[who, asked.ravel()] + 0.1 * rng.standard_normal(len(who))
    logs = nc.Logs.from_arrays(user=who, action=np.array(world.questions)[asked.ravel()], reward=reward)
    share = 0.4 if repeats else 0.0
    ours = replace(model, persistence=share)
    # The logs name the actions in their own order: the population has to follow it.
    place = [model.action_ids.index(name) for name in logs.action_ids]
    known = population_of(model, share)
    known = Population(
        known.mean[place],
        known.factor[place],
        known.noise_variance,
        by_action=known.by_action[place],
        share=share,
        uncertainty=model.uncertainty[place],
    )
    by_policy = served(
        {"ours": nc.PriorUCB(ours, width=0.0, level=0.0), "mean": nc.PopulationMean(ours)},
        logs,
        steps=5,
        choices=6,
        deals=2,
    )
    buckets = np.ones(64, dtype=np.bool_)
    found = reduce(logs, partial(look_at, held_out=((known, buckets),), choices=6, deals=2, every=1), operator.add)
    count, gain = found.sums[1, :2]
    assert count == len(by_policy["ours"]) == len(world.newcomers)
    assert gain / count == pytest.approx(float((by_policy["ours"] - by_policy["mean"]).mean()), abs=1e-12)
    assert (found.again[1] > 0) == repeats


def test_a_deal_depends_on_the_person_alone():
    world = people(users=60)
    logs = world.logs(steps=12)
    (batch,) = list(logs.batches())
    whole = deal(batch, np.arange(len(batch.users)), 4, 3, number=1)
    for user in (0, 7):
        alone = deal(batch, np.array([user]), 4, 3, number=1)
        np.testing.assert_array_equal(alone.candidates[0], whole.candidates[user])
        np.testing.assert_array_equal(alone.known[0], whole.known[user])
    rows = np.concatenate([whole.candidates, whole.known], axis=1)
    assert all(len(set(one)) == 7 for one in rows.tolist())
    assert (rows >= batch.offsets[:-1, None]).all() and (rows < batch.offsets[1:, None]).all()
    longer = deal(batch, np.arange(len(batch.users)), 4, 6, number=1)
    np.testing.assert_array_equal(longer.candidates, whole.candidates)  # so that numbers of steps are comparable
    assert (deal(batch, np.arange(len(batch.users)), 4, 3, number=2).candidates != whole.candidates).any()


def test_batches_do_not_change_it():
    world = people(seed=2)
    logs = world.logs(steps=12)
    model = nc.fit(logs, null=False, calibrate=False)
    held_out = [(population_of(model, 0.0), np.ones(64, dtype=np.bool_))]
    one, many = (
        measure(lambda m, add, rows=rows: reduce(logs, m, add, rows=rows), held_out, people=168, rows=2016)
        for rows in (None, 100)
    )
    assert one == measure(lambda m, add: reduce(logs, m, add), held_out, people=168, rows=2016)
    assert [s.gain for s in one.steps] == pytest.approx([s.gain for s in many.steps], abs=1e-12)


def test_fit_keeps_it_and_says_so(tmp_path):
    model = nc.fit(people(seed=4).logs(steps=12), null=False, calibrate=False)
    found = model.evidence.population.outlook
    assert found.choices == 6 and [step.interactions for step in found.steps] == [2, 5]
    assert found.steps[1].clear and "Worth it" in found.sentences()[-1]
    assert any("these logs cannot tell" in line for line in found.sentences())
    assert Evidence.from_json(model.evidence.to_json()).population.outlook == found
    model.save(tmp_path / "m.newcomer")
    assert nc.load(tmp_path / "m.newcomer").evidence.population.outlook == found


def test_where_nobody_differs_nobody_is_promised_anything():
    model = nc.fit(people(seed=5, taste=0.0).logs(steps=12), null=False, calibrate=False)
    assert not model.factor.any()
    found = model.evidence.population.outlook
    assert all(step.gain == 0 == step.shared for step in found.steps)
    assert found.verdict().startswith("Do not bother")
    assert "cannot be told" in found.verdict("5 rewards far from the others")


def test_features_without_actions_have_an_outlook_and_few_people_have_none():
    logs = Synthetic.learnable(dim=8, seed=1).logs(300, 12, seed=1)
    assert nc.fit(logs, null=False, calibrate=False).evidence.population.outlook.steps[0].gain > 0
    few = nc.fit(Synthetic.learnable(dim=8, seed=1).logs(12, 12, seed=1), null=False, calibrate=False)
    assert few.evidence.population.outlook is None


def test_memory_is_told_where_actions_come_again():
    rng = np.random.default_rng(0)
    own = rng.standard_normal((300, 5))
    user, action = np.repeat(np.arange(300), 20), rng.integers(5, size=6000)
    reward = own[user, action] + 0.3 * rng.standard_normal(6000)
    found = nc.fit(nc.Logs.from_arrays(user=user, action=action, reward=reward), null=False, calibrate=False)
    last = found.evidence.population.outlook.steps[-1]
    assert last.lasting > 0.3 and "by memory of actions" in " ".join(found.evidence.population.outlook.sentences())


def test_the_interval_of_a_hopeless_gain_is_not_called_clear():
    step = OutlookStep(5, 100, 0.1, -0.1, 0.3, 0.1, None, 1.0, 0.5)
    assert not step.clear and "Not clear" in Outlook(5, (step,)).verdict()

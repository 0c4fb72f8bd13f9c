"""The held-out gain: that of the policies themselves, blind to order and batches, honest where there is nothing."""

from __future__ import annotations

import numpy as np
import pytest

import newcomer as nc
from newcomer.evaluation.off_policy import off_policy_choice_rewards
from newcomer.evidence import Evidence
from newcomer.gain import best_actions
from newcomer.gain.deals import deal_choices, deal_lengths, deal_rows, usual_deal_length
from newcomer.gain.heldout_gain import GainPass, measure_heldout_gain
from newcomer.gain.verdict import decide_verdict
from newcomer.interval import Interval
from newcomer.logs.reduce import reduce
from newcomer.users import user_folds
from newcomer.worlds import Synthetic
from newcomer.worlds.people import People

EVERYBODY = np.ones(64, dtype=np.bool_)


def people(seed: int = 0, users: int = 240, items: int = 30, taste: float = 1.0) -> People:
    rng = np.random.default_rng(seed)
    shared = taste * rng.standard_normal((users, 2)) @ rng.standard_normal((2, items))
    answers = rng.standard_normal(items) + shared + rng.standard_normal((users, items))
    return People(answers, tuple(f"q{i:02d}" for i in range(items)), seed=seed)


def again_and_again(users: int = 120, seed: int = 0) -> nc.Logs:
    """People with opinions of single actions, which they meet several times."""
    rng = np.random.default_rng(seed)
    own = rng.standard_normal((users, 6))
    user, action = np.repeat(np.arange(users), 20), rng.integers(6, size=20 * users)
    reward = own[user, action] + 0.3 * rng.standard_normal(20 * users)
    return nc.Logs.from_arrays(user=user, action=action, reward=reward)


def by_own(logs: nc.Logs):
    """A pass over logs, as a fit makes it."""
    return lambda look, join, rows=None: reduce(logs, look, join, rows=rows)


@pytest.mark.parametrize("repeats", [False, True])
def test_what_is_measured_is_what_is_served(repeats: bool) -> None:
    """Oracle: the policies themselves, told all rows known at once, choose among the same candidates."""
    logs = again_and_again() if repeats else people().logs(steps=12)
    model = nc.fit(logs, null=False, calibrate=False)
    length = 20 if repeats else 12
    found = measure_heldout_gain(by_own(logs), [(model, EVERYBODY)], people=5 * logs.summary.users, length=length)
    assert found is not None and found.choices == deal_choices(length)
    policies = {"ours": nc.PriorUCB(model), "mean": nc.PopulationMean(model), "arms": nc.EmpiricalArms(model)}
    for step in found.steps:
        got = off_policy_choice_rewards(policies, logs, steps=step.interactions, choices=found.choices)
        wanted = Interval.of(got["ours"] - got["mean"])
        assert (step.people, step.gain, step.low, step.high) == pytest.approx(
            (wanted.people, wanted.value, wanted.low, wanted.high), abs=1e-12
        )
        assert step.over_arms.value == pytest.approx(float((got["ours"] - got["arms"]).mean()), abs=1e-12)
        assert step.mean == pytest.approx(float(got["mean"].mean()), abs=1e-12)
        assert (step.lasting is not None) == repeats
    best = found.everybody
    assert best.by == "own rows" and best.gain.value == pytest.approx(found.steps[0].mean - found.steps[0].chance)


def test_a_deal_depends_on_the_person_alone() -> None:
    world = people(users=60)
    logs = world.logs(steps=12)
    (batch,) = list(logs.batches())
    whole = deal_rows(batch, np.arange(len(batch.users)), 4, 3, number=1)
    for user in (0, 7):
        alone = deal_rows(batch, np.array([user]), 4, 3, number=1)
        np.testing.assert_array_equal(alone.candidates[0], whole.candidates[user])
        np.testing.assert_array_equal(alone.known[0], whole.known[user])
    rows = np.concatenate([whole.candidates, whole.known], axis=1)
    assert all(len(set(one)) == 7 for one in rows.tolist())
    assert (rows >= batch.offsets[:-1, None]).all() and (rows < batch.offsets[1:, None]).all()
    longer = deal_rows(batch, np.arange(len(batch.users)), 4, 6, number=1)
    np.testing.assert_array_equal(longer.candidates, whole.candidates)  # so that numbers of steps are comparable
    np.testing.assert_array_equal(longer.known[:, :3], whole.known)  # what is known of t is known of more
    assert (deal_rows(batch, np.arange(len(batch.users)), 4, 3, number=2).candidates != whole.candidates).any()


def test_the_usual_length_is_the_median_of_those_who_have_two_rows() -> None:
    logs = nc.Logs.from_arrays(user=[1, 2, 2, 3, 3, 3, 4, 4, 4, 4], action=list("abababcabc"), reward=np.zeros(10))
    lengths = sum(deal_lengths(batch) for batch in logs.batches(rows=1))
    assert usual_deal_length(lengths) == 3 and usual_deal_length(0 * lengths) == 0


def test_batches_do_not_change_it() -> None:
    logs = people(seed=2).logs(steps=12)
    model = nc.fit(logs, null=False, calibrate=False)
    apart = [(model, split.judged) for split in user_folds(np.ones(64, dtype=np.int64), every=True)]
    run = by_own(logs)
    one, many = (
        measure_heldout_gain(lambda look, join, rows=rows: run(look, join, rows), apart, people=168, length=12)
        for rows in (None, 100)
    )
    assert one == many and one.steps[0].people == 168


@pytest.mark.parametrize(
    ("users", "length", "looked_at"), [(500_000, 8, 100_000), (3_000_000, 8, 125_000), (9_000, 8, 1_800)]
)
def test_as_many_held_out_users_judge_as_a_few_seconds_allow(users: int, length: int, looked_at: int) -> None:
    model = nc.fit(people(seed=4, users=60).logs(steps=8), rank=1, null=False, calibrate=False)
    asked = GainPass.of([(model, EVERYBODY)], people=users, length=length)
    assert asked is not None and round(users // 5 * asked.share) == looked_at
    many = GainPass.of([(model, EVERYBODY)], people=500_000, length=200)
    assert many is not None and round(500_000 // 5 * many.share) == 33_333, "long histories cost more"


def test_users_outside_the_sample_judge_too(monkeypatch) -> None:
    """Where a sample chooses, the others judge as well: the interval is that of a fifth of all users."""
    monkeypatch.setattr("newcomer.em.fit.SAMPLE", 300)
    monkeypatch.setattr("newcomer.em.large_logs.SURE", np.inf)  # the fit of the sample stands
    logs = people(seed=5, users=1500, taste=2.0).logs(steps=8)
    facts = nc.fit(logs, null=False, calibrate=False).evidence.population
    assert facts.sample.users < 450 and not facts.by_all
    assert facts.outlook.steps[0].people > 250


def test_fit_keeps_it_and_says_so(tmp_path) -> None:
    model = nc.fit(people(seed=4).logs(steps=12), null=False, calibrate=False)
    found = model.evidence.population.outlook
    assert found.choices == 6 and [step.interactions for step in found.steps] == [1, 2, 5] and found.rows == 12
    assert found.steps[2].clear and decide_verdict(model.evidence).personal == "yes"
    assert [one.name for one in found.everybody.best] == [
        model.action_ids[a] for a in np.argsort(-model.mean, kind="stable")[:5]
    ]
    assert Evidence.from_json(model.evidence.to_json()).population.outlook == found
    model.save(tmp_path / "m.newcomer")
    assert nc.load(tmp_path / "m.newcomer").evidence.population.outlook == found


def test_where_nobody_differs_nobody_gains() -> None:
    model = nc.fit(people(seed=5, taste=0.0).logs(steps=12), null=False, calibrate=False)
    assert not model.factor.any()
    found = model.evidence.population.outlook
    assert all(step.gain == 0 == step.shared for step in found.steps)


def test_features_without_actions_have_an_outlook_and_few_people_have_none() -> None:
    logs = Synthetic.learnable(dim=8, seed=1).logs(300, 12, seed=1)
    found = nc.fit(logs, null=False, calibrate=False).evidence.population.outlook
    assert found.steps[-1].gain > 0 and found.steps[-1].over_arms is None and found.everybody.best == ()
    few = nc.fit(Synthetic.learnable(dim=8, seed=1).logs(12, 12, seed=1), null=False, calibrate=False)
    assert few.evidence.population.outlook is None


def test_memory_is_told_where_actions_come_again() -> None:
    found = nc.fit(again_and_again(users=300), null=False, calibrate=False).evidence.population.outlook
    assert found.steps[-1].lasting > 0.3


# What everybody should get.


def test_sums_by_action_are_those_of_loops() -> None:
    logs = again_and_again(users=30)
    (batch,) = logs.batches()
    wanted = np.zeros((6, 7))
    for user in range(30):
        own = slice(batch.offsets[user], batch.offsets[user + 1])
        for action in range(6):
            rewards = batch.rewards[own][batch.actions[own] == action]
            if len(rewards):
                n, s = len(rewards), rewards.sum()
                wanted[action] += [n, 1, s, s**2, s * n, n**2, (rewards**2).sum()]
    np.testing.assert_allclose(best_actions.best_action_sums_by_action(batch, 6), wanted, atol=1e-9)


@pytest.mark.parametrize("listed", [False, True])
def test_serving_the_best_is_weighed_row_by_row(listed: bool) -> None:
    """Oracle: q(b) + 1[a = b] / p (r - q(a)) of each row, b the best candidate."""
    rng = np.random.default_rng(1)
    users, rows, actions = 40, 5, 6
    user, action = np.repeat(np.arange(users), rows), rng.integers(actions, size=users * rows)
    offers = [sorted({int(a), *rng.permutation(actions)[:2].tolist()}) for a in action]
    given = {"candidates": offers} if listed else {}
    p = np.array([1 / len(one) for one in offers]) if listed else np.full(len(user), 1 / actions)
    logs = nc.Logs.from_arrays(user=user, action=action, reward=rng.standard_normal(len(user)), propensity=p, **given)
    common = rng.standard_normal(actions)
    (batch,) = logs.batches()
    who = np.array([3, 17, 30])
    found = best_actions.weigh_best_actions(batch, who, common)
    for place, i in enumerate(who):
        total = np.zeros(7)
        for row in range(batch.offsets[i], batch.offsets[i + 1]):
            a, r, p = int(batch.actions[row]), batch.rewards[row], batch.propensities[row]
            some = (
                batch.candidates.actions[batch.candidates.offsets[row] : batch.candidates.offsets[row + 1]]
                if listed
                else range(actions)
            )
            best = max(some, key=lambda one: common[one])
            weight = (a == best) / p
            total += [1, r, weight, weight**2, common[best] + weight * (r - common[a]), 1 / p, len(some)]
        np.testing.assert_allclose(found[place], total, atol=1e-9)


def test_the_best_of_many_is_not_flattered() -> None:
    """200 worlds of 40 actions with 25 rows each: the mean of the best is too large, its interval is not too narrow."""
    naive, inside = [], []
    for seed in range(200):
        rng = np.random.default_rng([seed, 22])
        truth, rows = 0.2 * rng.standard_normal(40), 25
        rewards = truth[:, None] + rng.standard_normal((40, rows))
        n = np.full(40, float(rows))
        sums = np.stack([n, n, rewards.sum(1), (rewards**2).sum(1), rewards.sum(1), n, (rewards**2).sum(1)], axis=1)
        error, _ = best_actions.best_action_spread(sums)
        mean, left = rewards.mean(axis=1), best_actions.best_action_variances(sums)
        tau2 = best_actions.paule_mandel_of_actions(mean, left)
        shrunk = mean.mean() + tau2 / (tau2 + left) * (mean - mean.mean())
        best = int(shrunk.argmax())
        naive.append(mean[best] - truth[best])
        inside.append(abs(shrunk[best] - truth[best]) <= 1.96 * error[best])
    assert np.mean(naive) > 0.1 and np.mean(inside) > 0.92


def test_fits_that_judge_each_others_users_are_not_independent() -> None:
    """Where items pay alike the gain of the best for all varies sqrt(2) times as much as independent users say."""
    rng, scaled = np.random.default_rng(0), []
    for _ in range(400):
        rewards = rng.standard_normal((200, 6))
        folds = np.arange(200) % 5
        best = np.array([rewards[folds != fold].mean(axis=0).argmax() for fold in range(5)])
        gain = Interval.of(rewards[np.arange(200), best[folds]] - rewards.mean(axis=1)).crossed(5)
        scaled.append(gain.value / gain.error)
    assert 0.85 < np.std(scaled) < 1.1 and np.mean(np.array(scaled) > 1.96) < 0.04


def test_actions_that_pay_alike_are_called_so() -> None:
    rng = np.random.default_rng(0)
    n = np.full(20, 50.0)
    rewards = rng.standard_normal((20, 50))
    sums = np.stack([n, n, rewards.sum(1), (rewards**2).sum(1), rewards.sum(1), n, (rewards**2).sum(1)], axis=1)
    assert best_actions.best_action_spread(sums)[1]
    assert not best_actions.best_action_spread(sums + np.outer(np.arange(20), [0, 0, 50, 0, 50, 0, 0]))[1]


def test_a_randomised_test_is_valued_by_its_propensities() -> None:
    """Eight messages drawn by lot, rates known: serving the best pays its rate."""
    rng = np.random.default_rng(4)
    rates = np.array([0.05, 0.06, 0.04, 0.15, 0.05, 0.07, 0.05, 0.06])
    user, action = np.repeat(np.arange(1500), 3), rng.integers(8, size=4500)
    clicks = (rng.random(4500) < rates[action]).astype(float)
    names = np.array([f"message {letter}" for letter in "ABCDEFGH"])
    logs = nc.Logs.from_arrays(user=user, action=names[action], reward=clicks, propensity=np.full(4500, 1 / 8))
    found = nc.fit(logs, null=False, calibrate=False).evidence.population.outlook.everybody
    assert found.by == "propensities" and found.best[0].name == "message D" and not found.alike
    assert found.reward.low < 0.15 < found.reward.high and found.best[0].low < 0.15 < found.best[0].high
    assert found.gain.clear and found.logged == pytest.approx(clicks.mean(), abs=0.02)

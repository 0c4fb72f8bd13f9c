"""Guards the population of reward vectors: likelihood and gradient against dense formulas, climb, and choice."""

from __future__ import annotations

import operator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from newcomer._fit import fit
from newcomer.array_loops import PIVOTS, sweep_pivots
from newcomer.em import optimizer as climbing
from newcomer.em.fit import estimate_population
from newcomer.em.likelihood import (
    Probe,
    Task,
    compare_likelihoods,
    likelihood_posterior,
    likelihood_sums,
    merge_likelihood_sums,
)
from newcomer.em.likelihood_loops import BLOCK
from newcomer.em.optimizer import Gram, Optimizer, Shrinkage
from newcomer.em.pairs import dense_pairs_of, start_from_pairs
from newcomer.em.passes import Ascent, Passes
from newcomer.em.shrinkage import mean_shrinkage_precision
from newcomer.em.variance_components import persistent_variance_share
from newcomer.logs import Logs
from newcomer.population import Population
from newcomer.subspace import subspace_distance, top_eigenvectors
from newcomer.users import Split, mix_user_hashes
from newcomer.worlds import Synthetic
from tests.helpers import batch_of, close, histories
from tests.oracles import prior as oracle

EVERY, NONE = np.ones(64, dtype=bool), np.zeros(64, dtype=bool)


def some_population(rng, dim, rank, noise=0.4):
    return Population(rng.standard_normal(dim), rng.standard_normal((dim, rank)), noise)


def sums_of(prior, parts):
    return likelihood_sums(batch_of(parts), (Task(prior, EVERY, NONE),))[0]


def some_people(rng, *, table, own, rank, share, actions=5, users=15, longest=8):
    """Histories with repeats, as a batch that names actions (and brings `own` features, or takes them from the table),
    as parts for the oracle, and a population with a variance and an offset for each action."""
    lengths = rng.integers(1, longest + 1, users)
    names = rng.integers(0, actions, lengths.sum())
    features = rng.standard_normal((len(names), table.shape[1])) if own else table[names]
    rewards = rng.standard_normal(len(names))
    plain = batch_of([(features, rewards)], [0])
    batch = replace(
        plain,
        users=np.arange(users),
        hashes=mix_user_hashes(np.arange(users, dtype=np.uint64)),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        row_features=features if own else None,
        table=None if own else table,
        actions=names,
    )
    cuts = np.cumsum(lengths)[:-1]
    parts = list(zip(np.split(features, cuts), np.split(rewards, cuts), np.split(names, cuts), strict=True))
    population = replace(
        some_population(rng, table.shape[1], rank),
        by_action=rng.uniform(0.2, 2.0, actions),
        offsets=rng.standard_normal(actions),
        share=share,
        units=rng.uniform(0.5, 2.0, actions),
    )
    return batch, parts, population


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), dim=st.integers(1, 6), rank=st.integers(0, 4))
def test_a_pass_matches_the_dense_expectation_step(seed, dim, rank):
    rng = np.random.default_rng(seed)
    parts, prior = histories(rng, users=15, dim=dim), some_population(rng, dim, rank)
    sums = sums_of(prior, parts)
    cross, system, weights = oracle.expectation(prior, parts)
    close(sums.likelihood, oracle.likelihood(prior, parts))
    close(sums.gradient, cross - (system @ prior.weights.ravel()).reshape(cross.shape))
    close(sums.weights, weights)
    close(sums.residual, oracle.residual(prior, parts))
    assert (sums.users, sums.rows, sums.met.sum()) == (15, sum(len(r) for _, r in parts), sums.rows)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_variances_offsets_and_what_lasts_match_the_dense_likelihood(own, rank, share):
    rng = np.random.default_rng(int(10 * share) + rank)
    for _ in range(5):
        batch, parts, prior = some_people(rng, table=rng.standard_normal((5, 3)), own=own, rank=rank, share=share)
        sums = likelihood_sums(batch, (Task(prior, EVERY, NONE),))[0]
        close(sums.likelihood, oracle.likelihood(prior, parts))
        close(sums.met, np.bincount(batch.actions, minlength=5))
        if share == 0.0:
            cross, system, weights = oracle.expectation(prior, parts)
            close(sums.gradient, cross - (system @ prior.weights.ravel()).reshape(cross.shape))
            close(sums.weights, weights)
            close(sums.residual, oracle.residual(prior, parts))
        judged = likelihood_sums(batch, (Task(prior, NONE, EVERY),))[0]
        close(judged.judged_likelihood, sums.likelihood)
        if share > 0.0 and not own:  # an action with one row of features, whose meetings are left out together
            close(judged.judged_gain, sum(oracle.gain(prior, *part) for part in parts), 1e-8)


@pytest.mark.parametrize("actions", [2, 40])
@pytest.mark.parametrize("share", [0.0, 0.4])
def test_long_histories_are_worked_on_in_blocks(actions, share):
    """Of more rows than a block has, and of actions that were met more often than that, with products by BLAS."""
    rng, table = np.random.default_rng(actions), np.random.default_rng(3).standard_normal((actions, 6))
    settings = {"own": False, "rank": 5, "share": share, "actions": actions, "users": 4, "longest": 2 * BLOCK}
    batch, parts, prior = some_people(rng, table=table, **settings)
    sums, judged = likelihood_sums(batch, (Task(prior, EVERY, NONE), Task(prior, NONE, EVERY)))
    close(sums.likelihood, oracle.likelihood(prior, parts), 1e-8)
    close(judged.judged_likelihood, sums.likelihood, 1e-9)
    if share > 0.0:
        close(judged.judged_gain, sum(oracle.gain(prior, *part) for part in parts), 1e-6)
    else:
        cross, system, weights = oracle.expectation(prior, parts)
        naive = cross - (system @ prior.weights.ravel()).reshape(cross.shape)  # a difference of thousands
        close(sums.gradient, naive, 1e-8 * np.abs(cross).max())
        close(sums.weights, weights, 1e-8)
        close(sums.residual, oracle.residual(prior, parts), 1e-8)


def slope(function, at, h=1e-5):
    """Central differences of a function of an array."""
    out = np.zeros(at.shape)
    for place in np.ndindex(at.shape):
        ends = []
        for step in (h, -h):
            moved = at.copy()
            moved[place] += step
            ends.append(function(moved))
        out[place] = (ends[0] - ends[1]) / (2 * h)
    return out


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.6])
def test_the_gradient_is_that_of_the_likelihood(own, share):
    rng = np.random.default_rng(0)
    batch, parts, prior = some_people(rng, table=rng.standard_normal((5, 3)), own=own, rank=2, share=share)
    sums = likelihood_sums(batch, (Task(prior, EVERY, NONE),))[0]

    def value(**changes):
        return oracle.likelihood(replace(prior, **changes), parts)

    close(sums.gradient, slope(lambda W: value(mean=W[:, 0], factor=W[:, 1:]), prior.weights), 1e-5)
    close(sums.lean, slope(lambda o: value(offsets=o), prior.offsets), 1e-5)
    found = 0.5 * (sums.residual / prior.variances - sums.met)
    close(found, slope(lambda logs: value(by_action=np.exp(logs)), np.log(prior.variances)), 1e-5)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.6])
def test_a_probe_has_the_likelihood_of_a_task_and_nothing_else(own, share):
    rng = np.random.default_rng(12)
    batch, parts, prior = some_people(rng, table=rng.standard_normal((5, 3)), own=own, rank=2, share=share)
    probe, task = likelihood_sums(batch, (Probe(prior, EVERY), Task(prior, EVERY, NONE)))
    assert probe.likelihood == pytest.approx(task.likelihood, rel=1e-14) and probe.gradient.size == 0
    close(probe.likelihood, oracle.likelihood(prior, parts))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_swept_pivots_leave_least_squares_behind(size):
    rng = np.random.default_rng(size)
    count = size * PIVOTS
    rows = rng.standard_normal((30, 1 + count))
    gram = rows.T @ rows
    inverse = np.linalg.inv(gram[1:, 1:])
    mean = inverse @ gram[1:, 0]
    system, room = gram.copy(), (np.empty((PIVOTS, 1 + count)), np.empty((PIVOTS, PIVOTS)))
    assert sweep_pivots(system, 1, *room) == pytest.approx(np.linalg.slogdet(gram[1:, 1:])[1], rel=1e-12)
    close(system[1:, 1:], inverse)
    close(system[1:, 0], mean)
    close(system[0, 1:], -mean)
    assert system[0, 0] == pytest.approx(gram[0, 0] - gram[0, 1:] @ mean, rel=1e-10)
    gram[1, 1] = -1.0
    assert np.isnan(sweep_pivots(gram, 1, *room))


def test_posteriors_match_bayes_rule():
    rng = np.random.default_rng(1)
    parts, prior = histories(rng, users=4, dim=5, lengths=(7, 7)), some_population(rng, 5, 3)
    post = likelihood_posterior(prior, np.stack([X for X, _ in parts]), np.stack([r for _, r in parts]))
    for n, (X, r) in enumerate(parts):
        mean, _ = oracle.posterior(prior, X, r)
        close(post.mean[n], mean)


def test_sums_do_not_depend_on_batches_and_tasks_see_only_their_users():
    rng = np.random.default_rng(2)
    parts, prior = histories(rng, users=120, dim=4), some_population(rng, 4, 2)
    half = np.arange(64) % 2 == 0
    tasks = (Task(prior, half, ~half), Task(prior, ~half, half), Task(prior, EVERY, NONE))
    one = likelihood_sums(batch_of(parts), tasks)
    two = merge_likelihood_sums(
        likelihood_sums(batch_of(parts[:50], range(50)), tasks),
        likelihood_sums(batch_of(parts[50:], range(50, 120)), tasks),
    )
    for a, b in zip(one, two, strict=True):
        close(a.gradient, b.gradient)
        assert a.likelihood == pytest.approx(b.likelihood) and a.users == b.users
    close(one[0].gradient + one[1].gradient, one[2].gradient)
    assert one[0].judged_likelihood == pytest.approx(one[1].likelihood, rel=1e-12)
    assert one[0].judged_users == one[1].users and one[2].judged_users == 0


def climb(parts, prior, penalty, passes):
    batch = batch_of(parts)
    sums = dense_pairs_of(batch).take(EVERY)
    believed = Shrinkage(penalty, np.zeros(len(prior.mean)), prior.variances)
    optimizer = Optimizer(prior, Gram(sums.gram[0] / 0.7, float(sums.rows[0]) / 0.7), believed)
    values = []
    for _ in range(passes):
        optimizer.tell(likelihood_sums(batch, (Task(optimizer.trial, EVERY, NONE),))[0])
        values.append(optimizer.value)
    return optimizer, values


def test_trials_that_are_probed_end_where_those_do_that_are_not():
    """Steps that are too long one after another: their likelihoods are looked at beside the shorter steps."""
    logs = Synthetic.learnable(dim=6, seed=2).logs(120, (2, 9), seed=2)
    rng, split = np.random.default_rng(5), Split(np.arange(64) % 4 > 0, np.arange(64) % 4 == 0)
    start = some_population(rng, 6, 2)
    believed = Shrinkage(np.array([0.1, 5.0, 5.0]), np.zeros(6), start.variances)

    def ascent(**changes):
        optimizer = Optimizer(start, Gram(np.diag(np.full(6, 40.0)), 240.0), believed)
        return Ascent(optimizer, split, 1e-6, 0.0, **changes)

    plain, probed, unjudged = ascent(), ascent(), ascent(judged=False)
    for _ in range(40):
        if not plain.arrived:
            batches = logs.batches()
            task = Task(plain.optimizer.trial, split.fitted, split.judged)
            plain.optimizer.tell(sum_of([likelihood_sums(batch, (task,)) for batch in batches]))
    passes = Passes(logs)
    passes.ascend([probed], stage="", longest=40)
    assert plain.optimizer.passes == probed.optimizer.passes > passes.count
    close(probed.optimizer.best.weights, plain.optimizer.best.weights, 1e-12)
    assert probed.optimizer.sums.judged_gain == pytest.approx(plain.optimizer.sums.judged_gain, rel=1e-12)
    passes.ascend([unjudged], stage="", longest=40)
    assert unjudged.optimizer.sums.judged_users == 0
    passes.judge([unjudged], stage="")
    assert unjudged.optimizer.sums.judged_gain == pytest.approx(plain.optimizer.sums.judged_gain, rel=1e-12)
    few = ascent()
    passes.ascend([few], stage="", longest=7)
    assert few.optimizer.passes == 7


def sum_of(found):
    """The sums of one task over batches."""
    total = found[0]
    for other in found[1:]:
        total = merge_likelihood_sums(total, other)
    return total[0]


@pytest.mark.parametrize("strength", [0.0, 5.0])
def test_climbing_never_descends_passes_exact_em_and_ends_at_a_fixed_point_of_it(strength):
    rng = np.random.default_rng(3)
    parts, start = histories(rng, users=60, dim=4, lengths=(2, 12)), some_population(rng, 4, 2)
    penalty = np.full(3, strength)
    optimizer, values = climb(parts, start, penalty, 150)
    assert all(b >= a for a, b in pairwise(values))
    slow = start
    for _ in range(40):
        W, noise = oracle.em_step(slow, parts, penalty)
        slow = Population(W[:, 0], W[:, 1:], noise)
    assert values[40] > oracle.likelihood(slow, parts) - 0.5 * penalty @ (slow.weights**2).sum(axis=0)
    still, noise = oracle.em_step(optimizer.best, parts, penalty)
    close(still, optimizer.best.weights, 1e-4)
    assert noise == pytest.approx(optimizer.best.noise_variance, rel=1e-4)


def test_the_first_step_is_the_m_step_where_all_users_saw_the_same(monkeypatch):
    """With X_n the same for all users the shared Gram matrix is exact: a step that is not bold is EM's, but for the
    noise."""
    monkeypatch.setattr(climbing, "BOLD", 0.0)
    rng = np.random.default_rng(4)
    X = rng.standard_normal((6, 3))
    parts = [(X, rng.standard_normal(6)) for _ in range(40)]
    start = some_population(rng, 3, 2)
    optimizer, _ = climb(parts, start, np.array([0.3, 0.7, 0.7]), 1)
    W, _ = oracle.em_step(start, parts, np.array([0.3, 0.7, 0.7]))
    shrink = optimizer._step
    close((optimizer.trial.weights - start.weights) / shrink, W - start.weights, 1e-8)


def test_bold_steps_allow_for_what_histories_do_not_tell():
    """Where all users saw the same, what is taken off is the share `BOLD` of the posterior covariance of every user."""
    rng = np.random.default_rng(4)
    X, start = rng.standard_normal((6, 3)), some_population(rng, 3, 2, noise=0.7)
    parts = [(X, X @ start.mean + 3 * rng.standard_normal(6)) for _ in range(40)]
    optimizer, _ = climb(parts, start, np.array([0.3, 0.7, 0.7]), 1)
    covariance = oracle.posterior(start, *parts[0])[1]
    expected = optimizer.sums.weights.copy()
    expected[1:, 1:] -= climbing.BOLD * 40 * 6 / 0.7 * covariance
    assert np.linalg.eigvalsh(expected)[0] > climbing.TOLD * np.linalg.eigvalsh(optimizer.sums.weights)[-1]
    close(optimizer._told(), expected, 1e-8)


def test_what_a_climb_has_learned_holds_for_other_penalties_and_other_numbers_of_users():
    """Twice the users and another penalty: gradients along the steps remembered fall by what a new climb would see."""
    rng = np.random.default_rng(7)
    parts, start = histories(rng, users=60, dim=4, lengths=(4, 12)), some_population(rng, 4, 2)
    optimizer, _ = climb(parts, start, np.array([0.3, 5.0, 5.0]), 12)
    other = replace(optimizer.penalty, weights=np.array([0.3, 50.0, 50.0]))
    again, twice = optimizer.again(other), optimizer.among(optimizer.gram, other, 2.0)
    assert again.sums is optimizer.sums and again.value == optimizer.sums.likelihood + other.of(optimizer.best)
    plain = Optimizer(optimizer.best, optimizer.gram, other)
    plain.tell(optimizer.sums)
    close(again._gradient, plain._gradient)
    bend = np.zeros(optimizer.size)
    bend[:12] = np.tile([0.0, 45.0, 45.0], 4)
    kept = optimizer._memory
    for number in range(int(kept.taken[0]) - len(kept.curves), int(kept.taken[0])):
        row = number % len(kept.curves)
        step, turn = kept.steps[row], kept.turns[row]
        place = int(np.flatnonzero((again._memory.steps == step).all(axis=1))[0])
        close(again._memory.turns[place], turn + bend * step)
        before = np.zeros(optimizer.size)
        before[:12] = np.tile([0.3, 5.0, 5.0], 4)
        close(twice._memory.turns[place], 2 * (turn - before * step) + (before + bend) * step)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), dim=st.integers(1, 5))
def test_all_pairs_match_two_loops_over_rows(seed, dim):
    rng = np.random.default_rng(seed)
    parts = histories(rng, users=30, dim=dim)
    whole = dense_pairs_of(batch_of(parts)).take(EVERY)
    close(whole.products[0] / max(whole.pairable[0], 1), oracle.all_pairs(parts))
    close(whole.gram[0], sum(X.T @ X for X, _ in parts))
    close(whole.means[0], sum(X.T @ r / len(r) for X, r in parts))
    split = dense_pairs_of(batch_of(parts[:11], range(11))) + dense_pairs_of(batch_of(parts[11:], range(11, 30)))
    close(split.take(EVERY).products[0], whole.products[0])


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("actions", [1, 2, 5])
def test_pairs_of_one_action_are_left_out(own, actions):
    rng = np.random.default_rng(actions)
    table, centre = rng.standard_normal((actions, 3)), rng.standard_normal(actions)
    batch, parts, _ = some_people(rng, table=table, own=own, rank=1, share=0.0, actions=actions, users=40)
    for away in (None, centre):
        whole = dense_pairs_of(batch, actions=actions, centre=away).take(EVERY)
        centred = [(X, r if away is None else r - away[a], a) for X, r, a in parts]
        close(whole.products[0] / max(whole.pairable[0], 1), oracle.all_pairs(centred))
        assert whole.pairable[0] == sum(len(np.unique(a)) > 1 for _, _, a in parts)
        close(whole.means[0], sum(X.T @ r / len(r) for X, r, _ in parts))
        close(whole.gram[0], sum(X.T @ X for X, _, _ in parts))
        repeats = [r[a == one] for _, r, a in parts for one in np.unique(a)]
        close(whole.within.sum(), sum(((r - r.mean()) ** 2).sum() for r in repeats))
        assert whole.again.sum() == sum(len(r) - 1 for r in repeats)
        assert whole.met.sum() == whole.rows[0] == len(batch.rewards)


def repeated(share, seed, *, users=400, rows=12, actions=15):
    """Logs of users who meet actions again, with variances that differ between actions and a share that lasts."""
    rng = np.random.default_rng(seed)
    user, action = np.repeat(np.arange(users), rows), rng.integers(0, actions, users * rows)
    variance = rng.uniform(0.3, 1.5, actions)
    lasts = np.sqrt(share * variance) * rng.standard_normal((users, actions))
    taste = rng.standard_normal((users, 1)) @ (0.6 * rng.standard_normal((1, actions)))
    noise = np.sqrt((1 - share) * variance[action]) * rng.standard_normal(len(user))
    reward = rng.standard_normal(actions)[action] + (taste + lasts)[user, action] + noise
    return Logs.from_arrays(user=user, action=action, reward=reward), variance


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.75])
def test_the_share_that_lasts_is_found_where_actions_come_again(share):
    errors = []
    for seed in range(8):
        logs, variance = repeated(share, seed)
        facts = persistent_variance_share(dense_pairs_of(next(logs.batches()), actions=15), variance)
        errors.append((1.0 - facts.ratio - share) / facts.standard_error)
        assert facts.estimate == pytest.approx(max(1.0 - facts.ratio, 0.0))
        assert facts.standard_error < 0.06
    assert np.abs(errors).max() < 3.5
    assert np.sqrt(np.mean(np.square(errors))) < 1.8
    found = estimate_population(Passes(repeated(share, 1)[0]), rank=1)
    assert found.population.share == pytest.approx(share, abs=0.08)


def test_a_share_that_is_given_is_kept_and_one_that_nobody_tells_is_unknown():
    logs = repeated(0.5, 2)[0]
    assert estimate_population(Passes(logs), rank=1, persistence=0.2).population.share == 0.2
    assert fit(logs, rank=1, persistence=0.2, calibrate=False, null=False).persistence == 0.2
    assert fit(logs, rank=1, calibrate=False, null=False).persistence == pytest.approx(0.5, abs=0.08)
    rng = np.random.default_rng(3)
    action = np.concatenate([rng.permutation(15)[:8] for _ in range(200)])
    once = Logs.from_arrays(user=np.repeat(np.arange(200), 8), action=action, reward=rng.standard_normal(1600))
    assert persistent_variance_share(dense_pairs_of(next(once.batches()), actions=15), np.ones(15)) is None
    model = fit(once, rank=1, calibrate=False, null=False)
    assert model.persistence is None and model.evidence.population.persistence is None


def test_the_start_is_the_truth_for_many_users():
    world = Synthetic(dim=8, rank=2, scale=2.0, offset=0.5, seed=3)
    parts = []
    for b in world.logs(40_000, (2, 12), seed=1).batches():
        parts.append(dense_pairs_of(b))
    start = start_from_pairs(sum(parts[1:], parts[0]).take(EVERY), 2)
    close(start.mean, world.mean, 0.1)
    close(start.factor @ start.factor.T, world.covariance, 0.15)
    # A direction's length is what it has beyond the next one's, so that a little of taste counts as noise.
    assert start.noise_variance == pytest.approx(0.25, rel=0.2)


def test_truncation_turns_lost_variance_into_noise_and_revival_brings_directions_back():
    rng = np.random.default_rng(5)
    prior, gram = some_population(rng, 5, 3), np.diag(rng.uniform(1, 2, 5))
    power = np.trace(prior.factor.T @ gram @ prior.factor) + prior.noise_variance
    for rank in range(4):
        cut = prior.truncated(gram, rank)
        assert cut.factor.shape == (5, rank)
        assert np.trace(cut.factor.T @ gram @ cut.factor) + cut.noise_variance == pytest.approx(power)
    dead = Population(prior.mean, prior.factor * [1.0, 1e-9, 1.0], prior.noise_variance)
    back = dead.revived(prior, gram)
    assert np.linalg.svd(back.factor, compute_uv=False)[-1] > 1e-3
    close(prior.principal().factor @ prior.principal().factor.T, prior.factor @ prior.factor.T)


def by_row(prior, most=9):
    """The population with as many actions, all alike, as a history has rows."""
    return replace(prior, by_action=np.full(most, prior.noise_variance))


def test_comparison_gives_paired_errors():
    rng = np.random.default_rng(6)
    parts = histories(rng, users=80, dim=3)
    rivals = tuple(some_population(rng, 3, rank) for rank in (0, 1, 2))
    rows = [(X, r, np.arange(len(r))) for X, r in parts]  # without actions each row is left out by itself
    each = np.array([[oracle.gain(by_row(prior), *part) for part in rows] for prior in rivals])
    deficits, errors = compare_likelihoods(batch_of(parts), (rivals,), (EVERY,)).deficits()
    best = each.sum(axis=1).argmax()
    gap = each[best] - each
    close(deficits, gap.mean(axis=1))
    close(errors, gap.std(axis=1) / np.sqrt(79), 1e-8)


def test_the_mean_is_shrunk_where_there_is_none():
    none = Synthetic(dim=10, seed=1).logs(400, 8, seed=1)
    some = Synthetic(dim=10, offset=1.0, seed=1).logs(400, 8, seed=1)
    weak, strong = (
        mean_shrinkage_precision(
            sum((dense_pairs_of(b) for b in logs.batches()), dense_pairs_of(next(logs.batches()))), EVERY, np.zeros(10)
        )
        for logs in (none, some)
    )
    assert strong < 5
    assert weak > 50


def test_the_rank_and_the_subspace_are_found():
    world = Synthetic.learnable(dim=20, seed=1)
    found = estimate_population(Passes(world.logs(2500, 12, seed=1)))
    assert found.population.factor.shape == (20, 2)
    assert subspace_distance(top_eigenvectors(found.population.second_moment, 2)[1], world.basis) < 0.12
    assert found.population.noise_variance == pytest.approx(0.25, rel=0.05)
    assert found.facts.ranks.chosen == 2


def test_nothing_shared_is_rank_zero():
    rng = np.random.default_rng(0)
    logs = Logs.from_arrays(
        user=np.repeat(np.arange(300), 6), features=rng.standard_normal((1800, 5)), reward=rng.standard_normal(1800)
    )
    assert estimate_population(Passes(logs)).population.factor.shape == (5, 0)


def test_fifty_users_and_single_rows_are_enough_to_run():
    world = Synthetic.learnable(dim=6, seed=2)
    found = estimate_population(Passes(world.logs(50, (1, 9), seed=2)))
    assert np.isfinite(found.facts.likelihood) and found.population.noise_variance > 0.05


def test_every_pass_is_told():
    heard, rows = [], []
    logs = Synthetic.learnable(dim=6, seed=2).logs(100, 6, seed=2)
    passes = Passes(logs, progress=lambda done, total: rows.append(done == total), listen=heard.append)
    found = estimate_population(passes, rank=1)
    assert heard[-1].passes == found.facts.passes == passes.count == sum(rows)
    assert heard[-1].stage == "fitting everybody"
    fitting = [h.likelihood for h in heard if h.stage == "fitting everybody"]
    assert fitting[-1] > fitting[0] and min(np.diff(fitting)) > -1e-3  # it rises but for what the penalty takes


def test_batches_and_order_do_not_matter():
    logs = Synthetic.learnable(dim=5, seed=4).logs(60, 6, seed=4)
    pairs = [dense_pairs_of(b) for b in logs.batches(rows=50)]
    assert len(pairs) > 3
    total = pairs[0]
    for part in pairs[1:]:
        total = operator.add(total, part)
    close(total.products, dense_pairs_of(next(logs.batches())).products)


@pytest.mark.parametrize("intercept", [False, True])
def test_rows_that_name_actions_are_worth_the_features_of_these_actions(intercept):
    """Sums by action of a catalogue are the sums by row, for pairs, passes, and the whole estimate."""
    rng = np.random.default_rng(4)
    items, lengths = rng.standard_normal((40, 6)), rng.integers(1, 12, 300)
    user, action = np.repeat(np.arange(300), lengths), rng.integers(0, 40, lengths.sum())
    tastes = rng.standard_normal((300, 2)) @ rng.standard_normal((2, 6))
    reward = (items[action] * tastes[user]).sum(axis=1) + 0.3 * rng.standard_normal(len(user))
    named = Logs.from_arrays(user=user, action=action, items=items, reward=reward, intercept=intercept)
    given = Logs.from_arrays(user=user, action=action, features=items[action], reward=reward, intercept=intercept)
    one, other = next(named.batches()), next(given.batches())
    assert (one.features == other.features).all() and one.dim == other.dim
    for name, value in vars(dense_pairs_of(one)).items():
        close(value, getattr(dense_pairs_of(other, actions=40), name))
    two, none = (by_row(some_population(rng, one.dim, rank), 40) for rank in (2, 0))
    tasks = (Task(two, EVERY, NONE), Task(none, ~EVERY, EVERY), Task(replace(two, share=0.4), EVERY, EVERY))
    for a, b in zip(likelihood_sums(one, tasks), likelihood_sums(other, tasks), strict=True):
        for name, value in vars(a).items():
            close(value, getattr(b, name))
    # The estimates are not the same to the last digit: only a catalogue has offsets, and climbs end on other sides.
    both = [estimate_population(Passes(logs)).population for logs in (named, given)]
    assert both[0].rank == both[1].rank == 2
    assert subspace_distance(*(np.linalg.qr(one.factor)[0] for one in both)) < 0.05

"""Guards the definitions around the de Finetti theorem: each property decided, each counterexample caught."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations, product
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from newcomer.errors import NewcomerError
from newcomer.paper.theory.de_finetti import (
    distance_bound,
    frequencies,
    latent_bandit,
    mixture_possible,
    sampled_measure,
)
from newcomer.paper.theory.process_examples import (
    Correlated,
    Fading,
    FirstMove,
    FirstMovePrinted,
    FlipAfterRun,
    HeavyFirst,
    LatentBandit,
    LinearFinite,
    LinearLatent,
    Urn,
)
from newcomer.paper.theory.process_sampling import (
    coherent_sampled,
    energy_test,
    exchangeable_sampled,
    features,
    two_sample_test,
    within_rows_test,
)
from newcomer.paper.theory.processes import (
    FiniteProcess,
    Process,
    as_functions,
    coherent,
    coherent_in_law,
    exchangeable,
    law,
    marginal,
    prefix_coherent,
    sequences,
    total_variation,
)
from newcomer.worlds.synthetic import Synthetic

ROOT = Path(__file__).parents[2]
ONE, HALF = Fraction(1), Fraction(1, 2)
LINEAR = LinearFinite(
    features={("x", 0): (HALF, 0 * ONE), ("x", 1): (ONE, 0 * ONE), ("y", 0): (0 * ONE, HALF), ("y", 1): (HALF, HALF)},
    tastes=((ONE, ONE), (-ONE, ONE), (ONE, -ONE)),
)
# coherent, coherent in law, coherent on prefixes, exchangeable
KNOWN = {
    "latent bandit": (LatentBandit(), (True, True, True, True)),
    "linear latent contextual bandit": (LINEAR, (True, True, True, True)),
    "theta XOR a_1": (FirstMove(), (False, True, True, True)),
    "as printed": (FirstMovePrinted(), (False, True, True, False)),
    "fading": (Fading(), (True, True, True, False)),
    "urn": (Urn(), (True, True, True, True)),
}


def coherent_by_definition(process: FiniteProcess, horizon: int) -> bool:
    """The definition word by word: all pairs of sequences, all blocks of equal moves, every omega."""
    every = list(sequences(process, horizon))
    for omega in process.outcomes(horizon):
        for one in every:
            for other in every:
                first, second = process.rewards(omega, one), process.rewards(omega, other)
                for h in range(min(len(one), len(other))):
                    for k in range(h + 1, min(len(one), len(other)) + 1):
                        if one[h:k] == other[h:k] and first[h:k] != second[h:k]:
                            return False
    return True


def exchangeable_by_definition(process: FiniteProcess, horizon: int) -> bool:
    """Laws as sorted lists of (rewards, probability), for every sequence and permutation."""
    for sequence in sequences(process, horizon):
        for order in permutations(range(len(sequence))):
            left: dict[tuple, Fraction] = {}
            right: dict[tuple, Fraction] = {}
            for omega, chance in process.outcomes(len(sequence)).items():
                moved = process.rewards(omega, tuple(sequence[i] for i in order))
                plain = process.rewards(omega, sequence)
                turned = tuple(plain[i] for i in order)
                left[moved] = left.get(moved, Fraction(0)) + chance
                right[turned] = right.get(turned, Fraction(0)) + chance
            if left != right:
                return False
    return True


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("horizon", [1, 2, 3])
def test_each_property_is_decided_as_its_definition_says(name, horizon):
    process, _ = KNOWN[name]
    assert isinstance(process, FiniteProcess)
    if name != "linear latent contextual bandit" or horizon < 3:  # the definition takes all pairs of sequences
        assert coherent(process, horizon).holds == coherent_by_definition(process, horizon)
    assert exchangeable(process, horizon).holds == exchangeable_by_definition(process, horizon)


@pytest.mark.parametrize("name", KNOWN)
def test_each_process_is_caught_by_the_right_check(name):
    process, expected = KNOWN[name]
    checks = (coherent, coherent_in_law, prefix_coherent, exchangeable)
    answers = [check(process, 3) for check in checks]
    assert tuple(answer.holds for answer in answers) == expected
    assert all(bool(answer.witness) != answer.holds for answer in answers)  # a refusal names the case


def test_a_change_of_latent_coordinates_changes_no_law():
    """(theta, U) and (A theta, U A^-1), A invertible, have the same observations: phi turns with A^-T."""
    turned = LinearFinite(  # A = [[2, 1], [0, 1]]
        features={move: (x / 2, y - x / 2) for move, (x, y) in LINEAR.features.items()},
        tastes=tuple((2 * s + t, t) for s, t in LINEAR.tastes),
    )
    for sequence in sequences(LINEAR, 2):
        assert law(turned, sequence) == law(LINEAR, sequence)


def test_the_printed_example_gives_the_two_laws_that_the_errata_name():
    printed = FirstMovePrinted()
    assert law(printed, (1, 0)) == {(0, 1): HALF, (1, 0): HALF}
    assert law(printed, (0, 1)) == {(0, 0): HALF, (1, 1): HALF}


class CoinsOfItsOwn:
    """Fair coins drawn afresh for every sequence of moves: given F, which is constant, rewards are independent."""

    moves = (0, 1)
    longest = 2

    def outcomes(self, horizon):
        """A coin for each step of each sequence of up to two moves, in a fixed order."""
        places = [(a, h) for a in sequences(self, horizon) for h in range(len(a))]
        chance = Fraction(1, 2 ** len(places))
        return {tuple(zip(places, coins, strict=True)): chance for coins in product((0, 1), repeat=len(places))}

    def draw(self, rng, horizon):
        raise AssertionError("everything is enumerated")

    def rewards(self, omega, sequence):
        coins = dict(omega)
        return tuple(coins[tuple(sequence), h] for h in range(len(sequence)))


def test_coins_of_its_own_for_each_sequence_are_a_latent_bandit_and_not_coherent():
    """Definition 5 ties no two sequences together: coherence is sufficient with exchangeability, not necessary."""
    process = CoinsOfItsOwn()
    for sequence in sequences(process, 2):  # independent given a constant F, each with the law F(a) of a fair coin
        each = Fraction(1, 2 ** len(sequence))
        assert law(process, sequence) == {rewards: each for rewards in product((0, 1), repeat=len(sequence))}
    assert exchangeable(process, 2).holds and coherent_in_law(process, 2).holds
    assert not coherent(process, 2).holds


def test_only_the_urn_leaves_no_room_for_a_mixture_among_processes_with_both_properties():
    assert not mixture_possible(Urn()).holds and Urn().longest == 4
    for name in ("latent bandit", "linear latent contextual bandit"):
        assert mixture_possible(KNOWN[name][0]).holds
    with pytest.raises(NewcomerError, match="of this length"):
        exchangeable(Urn(), 5)


@pytest.mark.parametrize("steps", [1, 2, 4, 6])
def test_the_latent_bandit_of_frequencies_tends_to_the_process(steps):
    process = LatentBandit()
    found = latent_bandit(process, steps)
    assert sum(weight for weight, _ in found.states) == 1
    for sequence in [(0,), (1, 0), (0, 0)]:
        apart = total_variation(found.law(sequence), law(process, sequence))
        assert apart <= distance_bound(len(sequence), steps)
    assert total_variation(found.law((0,)), law(process, (0,))) == 0


@pytest.mark.parametrize("steps", [2, 4, 6])
def test_with_contexts_the_latent_contextual_bandit_tends_to_the_process(steps):
    """The construction with moves that are pairs of a context and an action."""
    found = latent_bandit(LINEAR, steps)
    pairs = [(("x", 1),), (("x", 0), ("y", 1)), (("y", 0), ("y", 0)), (("x", 1), ("y", 0), ("x", 1))]
    for sequence in pairs:
        apart = total_variation(found.law(sequence), law(LINEAR, sequence))
        assert apart <= distance_bound(len(sequence), steps) and (apart == 0) == (len(sequence) == 1)


@pytest.mark.parametrize("process", [LatentBandit(), LINEAR], ids=["latent bandit", "with contexts"])
def test_given_all_frequencies_a_reward_has_the_law_of_its_own_move(process):
    """Lemma 3, exactly and for finite n: P(Y_h = y | F_n) = F_n(a_h){y}, whatever the other moves' frequencies are."""
    steps = 3
    for move in process.moves:
        joint: dict[tuple, dict] = {}
        for omega, chance in process.outcomes(steps).items():
            measures = {a: frequencies(process, omega, a, steps) for a in process.moves}
            state = tuple((a, frozenset(own.items())) for a, own in measures.items())
            cell = joint.setdefault(state, {"chance": Fraction(0), "own": measures[move]})
            cell["chance"] += chance
            reward = process.rewards(omega, (move,) * steps)[1]
            cell[reward] = cell.get(reward, Fraction(0)) + chance
        assert len(joint) > 2
        for cell in joint.values():
            for reward, share in cell["own"].items():
                assert cell.get(reward, Fraction(0)) == cell["chance"] * share


def test_the_mixture_of_an_urn_stays_away_from_it():
    """At n = its size the frequencies are all used up: F is constant, and draws with replacement are no urn."""
    urn = Urn(size=4, ones=2)
    found = latent_bandit(urn, 4)
    assert len(found.states) == 1  # F is not random
    assert total_variation(found.law((0, 0)), law(urn, (0, 0))) == Fraction(1, 6)
    assert total_variation(found.law((0, 1, 0, 1)), law(urn, (0, 1, 0, 1))) == Fraction(5, 8)


def test_a_latent_bandit_without_noise_is_its_own_mixture():
    certain = LatentBandit(rates=((ONE, 0 * ONE), (0 * ONE, ONE)))
    found = latent_bandit(certain, 3)
    for sequence in sequences(certain, 3):
        assert found.law(sequence) == law(certain, sequence)


def test_coherent_processes_are_sequences_of_functions_and_adaptive_ones_are_outside():
    for name, (process, (coherence, *_)) in KNOWN.items():
        if not coherence:
            with pytest.raises(NewcomerError, match="no sequence of functions"):
                as_functions(process, 3)
            continue
        functions = as_functions(process, 2 if name.startswith("linear") else 3)
        assert coherent(functions, 2).holds
        for sequence in sequences(process, 2):
            assert marginal(law(functions, sequence), range(len(sequence))) == law(process, sequence)


def test_the_law_of_theta_xor_first_move_is_that_of_a_latent_bandit():
    """What coherence in value adds is about the common omega: in law the example is a mixture."""
    same = LatentBandit(rates=((ONE, ONE), (0 * ONE, 0 * ONE)))
    for sequence in sequences(FirstMove(), 3):
        assert law(FirstMove(), sequence) == law(same, sequence)


# Sampled checks ------------------------------------------------------------------------------------------------------

GAUSSIAN = LinearLatent(Synthetic(dim=5, rank=2, items=4, choices=4, seed=1))


def test_the_linear_latent_contextual_bandit_passes_both_sampled_checks():
    rng = np.random.default_rng(0)
    assert isinstance(GAUSSIAN, Process) and not isinstance(GAUSSIAN, FiniteProcess)
    found = coherent_sampled(GAUSSIAN, 4, rng)
    assert found.holds and not found.exact and "confidence 0.99" in found.witness
    assert exchangeable_sampled(GAUSSIAN, 3, rng, rows=500).holds


@pytest.mark.parametrize("name", KNOWN)
def test_sampled_checks_agree_with_exact_ones(name):
    process, (coherence, _, _, exchange) = KNOWN[name]
    assert coherent_sampled(process, 3, np.random.default_rng(1)).holds == coherence
    runs = [exchangeable_sampled(process, 3, np.random.default_rng(s), draws=150, rows=150).holds for s in range(3)]
    assert runs.count(exchange) >= (2 if exchange else 3)  # at level 0.05 one of three may be refused


def test_the_sampled_check_keeps_its_level():
    """Of 40 runs on an exchangeable process at level 0.2 no more are refused than chance allows (p < 0.001)."""
    runs = [
        exchangeable_sampled(
            LatentBandit(), 2, np.random.default_rng(seed), draws=40, rows=40, level=0.2, comparisons=2
        ).holds
        for seed in range(40)
    ]
    assert runs.count(False) <= stats.binom.ppf(0.999, 40, 0.2)


def test_the_energy_test_tells_laws_apart_and_keeps_equal_ones():
    rng = np.random.default_rng(2)
    same = energy_test(rng.standard_normal((80, 2)), rng.standard_normal((80, 2)), rng)
    other = energy_test(rng.standard_normal((80, 2)), rng.standard_normal((80, 2)) + 1.0, rng)
    assert other <= 1 / 400 < 0.05 < same


@pytest.mark.parametrize("process, horizon", [(Correlated(), 3), (HeavyFirst(), 3), (FlipAfterRun(), 8)])
def test_an_order_that_the_energy_distance_alone_does_not_see_is_seen(process, horizon):
    """Nineteen runs in twenty passed these before; the power is in docs/paper/theory.md."""
    assert coherent_sampled(process, horizon, np.random.default_rng(0)).holds
    for seed in range(2):
        answer = exchangeable_sampled(process, horizon, np.random.default_rng(seed))
        assert not answer.holds and "depend on their order" in answer.witness


def test_the_two_sample_test_keeps_its_level_and_sees_what_energy_does_not():
    """Equal laws 60 times, on fewer rows for the energy than for features; then tails that differ alone."""
    rng = np.random.default_rng(6)
    equal = [two_sample_test(*rng.integers(0, 3, size=(2, 30, 2)).astype(float), rng, draws=20) for _ in range(60)]
    assert np.sum(np.array(equal) <= 0.05) <= stats.binom.ppf(0.999, 60, 0.05)
    one, other = rng.standard_normal((2, 1500, 2))
    other[:, 0] = rng.standard_t(3, size=1500) / np.sqrt(3)
    assert two_sample_test(one, other, rng, draws=100) <= 2 / 400


def test_permuting_rows_keeps_its_level():
    """Rows that differ, and rewards with ties: of 100 samples at level 0.05 no more are refused than chance allows."""
    rng, refused = np.random.default_rng(5), 0
    for _ in range(100):
        rates = rng.random((30, 1))
        refused += within_rows_test((rng.random((30, 4)) < rates).astype(float), rng) <= 0.05
    assert refused <= stats.binom.ppf(0.999, 100, 0.05)


def test_features_are_those_of_an_example_done_by_hand():
    """Ranks 1/8, 3/8, 7/8, 7/8: place by place, then products at lags 1, 2, 3 of orders 1 and 2, then runs."""
    ranks = np.array([[0.125, 0.375, 0.875, 0.875]])
    found = features(ranks)[0]
    cosine = {order: np.sqrt(2) * np.cos(np.pi * order * ranks[0]) for order in (1, 2, 3, 4)}
    expected = [*cosine[1], *cosine[2], *cosine[3], *cosine[4], 0, 0, 0, 0]
    for order in (1, 2):
        c = cosine[order]
        expected += [(c[0] * c[1] + c[1] * c[2] + c[2] * c[3]) / 3, (c[0] * c[2] + c[1] * c[3]) / 2, c[0] * c[3]]
    np.testing.assert_allclose(found, [*expected, 1, 0, 0, 1, 0, 0])  # both runs have two steps


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_rewards_that_are_no_finite_numbers_are_refused_in_a_sentence(value):
    class Missing(Fading):
        def rewards(self, omega, sequence):
            return (float(value),) * len(sequence)

    for check in (coherent_sampled, exchangeable_sampled):
        with pytest.raises(NewcomerError, match="pays rewards that are no finite numbers"):
            check(Missing(), 3, np.random.default_rng(0))


def test_the_page_quotes_the_power_as_measured():
    text = " ".join((ROOT / "docs" / "paper" / "theory.md").read_text(encoding="utf-8").split())
    for row in pl.read_csv(ROOT / "experiments" / "results" / "process-power.csv").iter_rows(named=True):
        assert f"{row['process']} (H = {row['horizon']}) {row['refused']:.0%}" in text


def test_impossible_tests_are_refused():
    with pytest.raises(NewcomerError, match="cannot be tested"):
        exchangeable_sampled(GAUSSIAN, 1, np.random.default_rng(0))
    with pytest.raises(NewcomerError, match="cannot be tested"):
        exchangeable_sampled(GAUSSIAN, 2, np.random.default_rng(0), level=0.001)


def test_the_random_measure_of_a_linear_latent_bandit_is_normal_around_its_mean():
    rng, world = np.random.default_rng(3), GAUSSIAN.world
    beta, noise = GAUSSIAN.draw(rng, 4000)
    for move in range(4):
        measure = sampled_measure(GAUSSIAN, (beta, noise), move, 4000)
        gap = stats.kstest(measure, "norm", args=(float(world.catalogue[move] @ beta), world.noise)).statistic
        assert gap < 1.95 / np.sqrt(4000)  # the 99.9% point of Kolmogorov's statistic

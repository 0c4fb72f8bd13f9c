"""Guards the families of the lower bound, the unit ball as actions, and the study of both."""

from __future__ import annotations

from itertools import product

import numpy as np
import polars as pl
import pytest
from experiments import results_table, theory_page

import newcomer as nc
from newcomer.errors import NewcomerError
from newcomer.model import Model
from newcomer.paper.scale import Setting
from newcomer.paper.studies import hard, rates
from newcomer.paper.theory.ball import Ball, estimated, into_span
from newcomer.paper.theory.hard import Hard
from newcomer.subspace import subspace_distance, top_eigenvectors
from newcomer.worlds.synthetic import Synthetic
from newcomer.worlds.world import World, check_world, world_stream
from tests.oracles.policies import kappas

CELLS = {
    "online": Hard(offline=100, horizon=800),
    "hybrid": Hard(offline=400, horizon=800),
    "offline": Hard(offline=6400),
}


@pytest.mark.parametrize("regime", CELLS)
def test_the_ratio_of_n_and_t_names_the_family(regime):
    assert CELLS[regime].family == regime
    assert Hard(offline=400, regime=regime).family == regime


def test_families_have_the_printed_sizes():
    hybrid = CELLS["hybrid"]
    assert hybrid.sizes[0] == pytest.approx(np.sqrt(2 / 800) / (5 * np.sqrt(3))) and hybrid.sizes[1] == 0
    assert np.allclose(hybrid.sizes[2:], np.sqrt(2 / 400) / (4 * np.sqrt(3)))
    assert np.allclose(CELLS["online"].sizes, np.sqrt(10 / 800) / (4 * np.sqrt(3)))
    offline = CELLS["offline"]
    assert np.allclose(offline.sizes[:2], np.sqrt(2 / 800) / (4 * np.sqrt(3))) and not offline.sizes[2:].any()


def test_printed_bounds_are_the_stated_numbers():
    hybrid = CELLS["hybrid"]
    root = np.sqrt(8 * 800 / (2 * 400))
    assert hybrid.printed == pytest.approx(2 * np.sqrt(800) * (1 + root) / (80 * np.sqrt(6)))
    assert CELLS["online"].printed == pytest.approx(10 * np.sqrt(800) / (16 * np.sqrt(3)))
    assert CELLS["online"].claimed == pytest.approx(10 * np.sqrt(800))  # the first term of the minimum


@pytest.mark.parametrize("regime", CELLS)
def test_offline_users_have_the_stated_second_moment_of_rank_k(regime):
    world = CELLS[regime]
    betas = []
    for signs in product([-1.0, 1.0], repeat=world.flipped):
        beta = world.beta.copy()
        beta[: world.flipped] *= signs
        betas.append(beta)
    moment = np.mean([np.outer(beta, beta) for beta in betas], axis=0)
    assert np.allclose(moment, world.second_moment)
    _, vectors = top_eigenvectors(moment, world.rank)
    assert np.linalg.matrix_rank(moment, tol=1e-14) == world.rank and subspace_distance(vectors, world.basis) < 1e-7
    assert (np.abs(betas - world.beta).max(axis=1) < 1e-15).any()  # the newcomer is in the support


def test_members_differ_by_signs_alone():
    one, other = (Hard(member=member).beta for member in (1, 2))
    assert np.array_equal(np.abs(one), np.abs(other)) and not np.array_equal(one, other)


@pytest.mark.parametrize("regime", CELLS)
def test_logs_are_those_of_the_latent_bandit(regime):
    world = Hard(offline=400, horizon=200, regime=regime, scale=60.0)
    model = nc.fit(world.logs(6000, 6, seed=1), rank=2, estimator="sold", null=False, calibrate=False)
    assert subspace_distance(model.basis, world.basis) < 0.2


def test_conditions_are_named():
    assert all(CELLS["hybrid"].conditions.values())
    wrong = Hard(offline=50, steps=20, horizon=100).conditions
    assert [name for name, holds in wrong.items() if not holds] == ["d^2 H <= 2 T", "d^2 <= N", "H k <= d"]


def test_the_decomposition_holds_in_the_ball_with_the_best_action_of_the_ball():
    """|beta| - a . beta >= |beta| / 2 |a* - a|^2, and the printed best reward is out of reach of unit vectors."""
    world, rng = CELLS["hybrid"], np.random.default_rng(0)
    length = np.linalg.norm(world.beta)
    actions = rng.standard_normal((500, 10))
    actions /= np.maximum(1.0, np.linalg.norm(actions, axis=1))[:, None]
    regret = length - actions @ world.beta
    assert (regret >= length / 2 * ((world.beta / length - actions) ** 2).sum(axis=1) - 1e-12).all()
    best = np.sqrt(1) * np.abs(world.beta[0]) + np.sqrt(8) * np.abs(world.beta[2])  # as the proof prints it
    assert world.horizon * (best - length) > world.printed  # what it takes too much is more than the bound


def test_the_proven_bound_is_above_the_printed_one_and_gives_way_where_logs_tell_too_much():
    assert CELLS["hybrid"].proven > CELLS["hybrid"].printed
    assert CELLS["hybrid"].proven < CELLS["hybrid"].largest
    told = Hard(offline=400, steps=2000)
    assert told.proven < 0.5 * CELLS["hybrid"].proven and not told.conditions["H k <= d"]
    assert Hard(scale=30.0).proven == 0.0


def test_the_proven_bound_is_above_the_printed_one_but_in_one_cell_of_a_grid():
    """Of cells that meet the conditions: at least 4.8 times (hybrid), 1.2 (offline), 0.88 (online) the printed one."""
    sizes = product(
        (3, 4, 6, 10, 20, 50),
        (2, 3, 5, 8, 10, 20),
        (16, 36, 100, 400, 2500, 10_000),
        (8, 16, 50, 200, 800, 5000, 20_000),
        (1, 2, 4),
    )
    cells = [Hard(d, k, n, h, t) for d, k, n, t, h in sizes if k < d]
    cells = [cell for cell in cells if all(cell.conditions.values())]
    ratios: dict[str, list[float]] = {}
    for cell in cells:
        ratios.setdefault(cell.family, []).append(cell.proven / cell.printed)
    least = {family: round(min(own), 2) for family, own in ratios.items()}
    assert least == {"hybrid": 4.77, "offline": 1.2, "online": 0.88} and len(cells) == 631
    below = [cell for cell in cells if cell.proven < cell.printed]
    assert below == [Hard(dim=4, rank=3, offline=16, steps=1, horizon=8)]


@pytest.mark.parametrize("regime", CELLS)
def test_nobody_is_below_the_proven_bound_on_average(regime):
    """LinUCB, and a policy that is told the subspace: mean regret over 24 members less 3 standard errors."""
    sums = {"LinUCB": [], "told": []}
    for member in range(24):
        world = Hard(offline=400, horizon=200, member=member, regime=regime)
        model = Model(world.basis, np.ones(10), np.zeros(10), world.basis, noise_variance=1.0)
        for name, policy in {
            "LinUCB": nc.LinUCB(10, horizon=200),
            "told": nc.ProBALLUCB(model, horizon=200, radius=0.0),
        }.items():
            sums[name].append(Ball(world, 10).serve(policy, world_stream(member, "test"), 200).sum())
    for regrets in sums.values():
        assert (
            np.mean(regrets) + 3 * np.std(regrets) / np.sqrt(24) > Hard(offline=400, horizon=200, regime=regime).proven
        )


@pytest.mark.parametrize(("offline", "horizon"), [(100, 200), (400, 800)])
def test_endless_histories_beat_the_printed_bound_and_not_the_proven_one(offline, horizon):
    """A policy that is told what histories of any length tell, the coordinates that all users share."""
    regrets = []
    for member in range(6):
        world = Hard(offline=offline, horizon=horizon, member=member, regime="hybrid")
        shared = np.where(np.arange(10) < world.flipped, 0.0, world.beta)
        factor = np.ascontiguousarray(np.diag(np.abs(world.beta))[:, : world.flipped])
        model = Model(world.basis, np.ones(10), shared, factor, noise_variance=1.0)
        regrets.append(Ball(world, 10).serve(nc.PriorUCB(model), world_stream(member, "test"), horizon).sum())
    endless = Hard(offline=offline, horizon=horizon, steps=10**6, regime="hybrid")
    assert not endless.conditions["H k <= d"] and not endless.conditions["d^2 H <= 2 T"]
    assert endless.proven <= np.mean(regrets) < 0.5 * endless.printed


@pytest.mark.parametrize("wrong", [{"rank": 1}, {"rank": 10}, {"offline": 0}, {"regime": "odd"}, {"scale": 0.0}])
def test_impossible_families_are_refused(wrong):
    with pytest.raises(NewcomerError, match="cannot be drawn"):
        Hard(**wrong)


# The ball ------------------------------------------------------------------------------------------------------------


def test_the_ball_is_a_world():
    for world in (Ball(Synthetic(dim=5)), Ball(Hard())):
        assert isinstance(world, World)
        check_world(world)
    with pytest.raises(NewcomerError, match="choices"):
        Ball(Hard(), 0)


def test_the_greedy_direction_is_the_policys_own_estimate():
    policy, rng = nc.LinUCB(6, horizon=50), np.random.default_rng(0)
    state = policy.start(1)
    for _ in range(9):
        policy.update(state, rng.standard_normal((1, 6)), rng.standard_normal(1))
    assert np.allclose(estimated(policy, state, 6), state.mean[0])


def test_in_the_ball_proball_chooses_in_the_span():
    """The paper's remark: no action of the ball scores more than its projection, stretched to length 1."""
    world, rng = Synthetic(dim=6, rank=2, seed=1), np.random.default_rng(1)
    model = Model(world.basis, np.ones(6), np.zeros(6), world.basis, noise_variance=1.0)
    policy = nc.ProBALLUCB(model, horizon=50, radius=0.0)
    state = policy.start(1)
    for _ in range(12):
        inside = rng.standard_normal((1, 6))
        policy.update(state, inside / np.linalg.norm(inside), rng.standard_normal(1))
    for _ in range(200):
        action = rng.standard_normal(6) * rng.random()
        action /= max(1.0, np.linalg.norm(action))
        tight = into_span(world.basis, action)
        low, high = (policy.scores(state, one[None])[0, 0] for one in (action, tight))
        assert high >= low - 1e-12 or low < 0  # a negative score grows by turning round, not by stretching
        assert np.allclose(world.basis @ (world.basis.T @ tight), tight)


def test_serving_in_the_ball_learns():
    world = Synthetic(dim=5, rank=2, noise=0.1, seed=1)
    regret = Ball(world, 20).serve(nc.LinUCB(5, horizon=150), world_stream(0, "test"), 150)
    assert (regret >= -1e-12).all() and regret[100:].mean() < 0.2 * regret[:5].mean()


# The study -----------------------------------------------------------------------------------------------------------


def test_the_study_has_every_cell_and_its_bounds():
    setting = Setting("quick", "", "")
    points = hard.sweep(setting.sizes)
    assert {point["steps"] for point in points} == {2, 20} and {point["scale"] for point in points} == {1.0, 10.0}
    chosen = [p for p in points if p["steps"] == 20 and p["users"] == 100]
    rows = pl.concat([hard.run(setting, **point) for point in chosen], how="vertical_relaxed")
    table = hard.table(rows)
    own = table.filter(scale=1.0)
    assert own["policy"].to_list() == [
        "LinUCB",
        "ProBALL-UCB",
        "PriorUCB",
        hard.PROVEN,
        hard.PRINTED,
        hard.BLIND,
    ]
    assert own.filter(policy=hard.PROVEN)["bound"].item() == 1.0 and own["family"].unique().len() == 1
    assert hard.PRINTED not in table.filter(scale=10.0)["policy"]


def test_the_rates_meet_what_they_are_scaled_to():
    setting = Setting("quick", "", "")
    points = rates.sweep(setting.sizes)[:2]
    table = rates.table(pl.concat([rates.run(setting, **point) for point in points]))
    linear, online = (table.filter(policy=name)["value"] for name in (rates.LINEAR, rates.ON))
    assert online.to_list() == pytest.approx([linear.mean()] * 2)
    last = table.filter(users=1000)
    error, rate = (last.filter(policy=name)["value"].item() for name in (rates.ERROR, rates.RADIUS))
    assert error == pytest.approx(rate)
    assert 0 < table.filter(policy=rates.KAPPA)["value"].max() <= rates.ROUNDS / 2


def test_the_mean_square_of_kappa_is_the_oracles():
    rng = np.random.default_rng(0)
    basis, rows = np.linalg.qr(rng.standard_normal((5, 2)))[0], rng.standard_normal((7, 5))
    slow = kappas([(phi, 0.0) for phi in rows], basis)[:-1]  # kappa_1 to kappa_7
    assert rates.mean_square_kappa(rows, basis) == pytest.approx(np.mean(slow**2))


def test_what_the_theory_says_of_the_study_is_in_its_table() -> None:
    """Nobody below the proven bound at the theorem's scale; with longer beta PriorUCB saves most where logs tell."""
    frame = pl.read_csv(results_table.RESULTS / "hard.csv", infer_schema_length=None)
    told, own = theory_page.sentences(frame), frame.filter(pl.col("policy").is_in(hard.policies_in(frame)))
    blind = own.filter(scale=1.0)["blind"]
    assert f"loses {blind.min():.0%} to {blind.max():.0%} of what random actions lose" in told
    limits = frame.filter(policy=hard.PROVEN).select("scale", "steps", "horizon", "users", limit="regret")
    both = own.filter(scale=1.0).join(limits, on=["scale", "steps", "horizon", "users"])
    assert (both["regret"] > both["limit"]).all()
    hybrid = own.filter(scale=theory_page.LONG, family="hybrid")
    shares = {steps: hybrid.filter(policy="PriorUCB", steps=steps)["blind"].max() for steps in (2, 20)}
    assert shares[20] < shares[2] < hybrid.filter(pl.col("policy").is_in(theory_page.LEARNING))["blind"].min()

"""Guards play (same newcomers for all, any batch size, regret counted right) and what is made of its rows."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
import pytest
from scipy import stats

import newcomer as nc
from newcomer.errors import NewcomerError, PolicyError
from newcomer.simulate import simulated_curves, simulated_exits
from newcomer.worlds import Episode, Synthetic, stream

WORLD = Synthetic(dim=5, rank=2, choices=4, seed=2)


@dataclass
class Greedy:
    """Follows the sum of rewarded features with a random perturbation; in the subspace for the first rounds."""

    stay: int = 3
    seen: list[np.ndarray] = field(default_factory=list)

    def start(self, n):
        return {"sum": np.zeros((n, 5)), "rounds": np.zeros(n, dtype=int)}

    def choose(self, state, actions, rng, *, mask=None):
        self.seen.append(actions)
        noise = np.array([own.standard_normal(5) for own in rng])
        scores = np.einsum("nkd,nd->nk", actions, state["sum"] + noise)
        return np.where(True if mask is None else mask, scores, -np.inf).argmax(axis=1)

    def in_subspace(self, state):
        return state["rounds"] < self.stay

    def update(self, state, features, reward):
        state["sum"] += features * reward[:, None]
        state["rounds"] += 1


class Remembering:
    """Takes ids, and writes down what it is told."""

    def __init__(self):
        self.offered, self.learned = [], []

    def start(self, n):
        return None

    def choose(self, state, actions, rng, *, ids=None, mask=None):
        self.offered.append((actions, ids))
        return np.arange(len(actions)) % actions.shape[1]

    def update(self, state, features, reward, *, ids=None):
        self.learned.append((features, ids))


class First:
    """Always the first action; knows no subspace."""

    def start(self, n):
        return None

    def choose(self, state, actions, rng, *, mask=None):
        return np.zeros(len(actions), dtype=np.int64)

    def update(self, state, features, reward):
        pass


def play(policies, **changes):
    return nc.play(policies, WORLD, **{"horizon": 8, "users": 7, "seed": 1, **changes})


def test_policies_that_take_ids_are_told_which_actions_they_see_and_learn_from():
    world, policy = replace(WORLD, items=9), Remembering()
    rows = nc.play({"ids": policy, "none": First()}, world, horizon=6, users=5, seed=1, batch=5)
    for actions, ids in policy.offered:
        assert ids.shape == (5, 4) and np.array_equal(world.catalogue[ids], actions)
    chosen = rows.filter(pl.col("policy") == "ids").sort("t", "user")["action"].to_numpy().reshape(6, 5)
    for (features, ids), (_, offered), choice in zip(policy.learned, policy.offered, chosen, strict=True):
        assert np.array_equal(ids, offered[np.arange(5), choice]) and np.array_equal(world.catalogue[ids], features)


def test_without_a_catalogue_there_are_no_ids():
    policy = Remembering()
    play({"ids": policy})
    assert all(ids is None for _, ids in policy.offered + policy.learned)


def test_ids_that_do_not_go_with_the_candidates_are_refused():
    class Sometimes:
        """Names the candidates of every second user, or too few of them."""

        dim = 5

        def __init__(self, few):
            self.few, self.drawn = few, 0

        def episode(self, rng, horizon):
            self.drawn += 1
            named = replace(WORLD, items=9).episode(rng, horizon)
            ids = named.ids[:, 1:] if self.few else named.ids if self.drawn % 2 else None
            return replace(named, ids=ids)

    for few in (True, False):
        with pytest.raises(NewcomerError, match="ids do not go with the candidates"):
            nc.play({"first": First()}, Sometimes(few), horizon=3, users=4, seed=0)


def test_rows_are_the_outcomes_of_the_choices():
    rows = play({"greedy": Greedy(), "first": First()})
    assert rows.columns == ["policy", "user", "t", "action", "reward", "regret", "in_subspace"]
    assert rows.height == 2 * 7 * 8 and rows["policy"].unique(maintain_order=True).to_list() == ["greedy", "first"]
    for (_, user), own in rows.group_by("policy", "user"):
        episode, chosen = WORLD.episode(stream(1, "newcomer", user), 8), own["action"].to_numpy()
        assert own["t"].to_list() == list(range(1, 9))
        assert np.array_equal(own["reward"], episode.rewards[np.arange(8), chosen])
        assert np.array_equal(own["regret"], episode.means.max(axis=1) - episode.means[np.arange(8), chosen])


def test_all_policies_see_the_same_offers():
    one, two = Greedy(), Greedy()
    play({"one": one, "two": two})
    assert all(np.array_equal(a, b) for a, b in zip(one.seen, two.seen, strict=True))


@pytest.mark.parametrize("batch", [1, 2, 3, 7, 50])
def test_the_result_does_not_depend_on_the_batch_size(batch):
    assert play({"greedy": Greedy(), "first": First()}, batch=batch).equals(
        play({"greedy": Greedy(), "first": First()})
    )


def test_a_policy_is_not_changed_by_its_company_nor_a_user_by_the_others():
    rows = play({"first": First(), "greedy": Greedy()})
    alone = play({"greedy": Greedy()}, users=range(2, 5))
    assert alone.equals(rows.filter(pl.col("policy") == "greedy", pl.col("user").is_between(2, 4)))


def test_names_and_seeds_change_the_draws():
    rows = play({"a": Greedy(), "b": Greedy()})
    a, b = (rows.filter(pl.col("policy") == name)["action"] for name in "ab")
    assert not a.equals(b) and not a.equals(play({"a": Greedy()}, seed=2)["action"])


def test_regret_is_never_negative_and_zero_for_the_best_choice():
    rows = play({"greedy": Greedy(), "first": First()}, horizon=50)
    assert rows["regret"].min() == 0.0


def test_the_phase_is_that_of_the_choice_and_null_without_a_subspace():
    rows = play({"greedy": Greedy(stay=3), "first": First(), "never": Greedy(stay=0)})
    for name in ("first", "never"):
        assert rows.filter(pl.col("policy") == name)["in_subspace"].null_count() == 7 * 8
    greedy = rows.filter(pl.col("policy") == "greedy")
    assert (greedy["in_subspace"] == (greedy["t"] <= 3)).all()
    left = simulated_exits(rows)
    assert left["policy"].unique().to_list() == ["greedy"] and left["left_at"].to_list() == [4] * 7


class Masked:
    """A world whose best action is not on offer in every second round."""

    dim = 5

    def episode(self, rng, horizon):
        means = np.tile([3.0, 2.0, 1.0], (horizon, 1))
        mask = np.ones((horizon, 3), dtype=bool)
        mask[::2, 0] = False
        return Episode(rng.standard_normal((horizon, 3, 5)), means, means, mask)


class Offered(First):
    """The first action that is on offer."""

    def choose(self, state, actions, rng, *, mask=None):
        return mask.argmax(axis=1)


def test_regret_counts_only_what_is_on_offer():
    rows = nc.play({"offered": Offered()}, Masked(), horizon=4, users=2, seed=0)
    assert rows["action"].to_list() == [1, 0, 1, 0] * 2 and rows["regret"].to_list() == [0.0] * 8


def test_progress_is_reported_to_a_callback():
    calls = []
    play({"greedy": Greedy(), "first": First()}, batch=3, progress=lambda done, total: calls.append((done, total)))
    done = [c[0] for c in calls]
    assert calls[-1] == (112, 112) and done == sorted(done)


def test_no_bar_without_a_terminal(capsys):
    play({"first": First()})
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    play({"first": First()})
    assert "playing" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [{"users": 0}, {"horizon": 0}, {"batch": 0}, {"seed": -1}, {"users": range(3, 3)}])
def test_impossible_plays_are_refused(wrong):
    with pytest.raises(NewcomerError):
        play({"first": First()}, **wrong)
    with pytest.raises(NewcomerError, match="no policy"):
        play({})


def test_a_choice_out_of_range_is_refused():
    class Wrong(First):
        def choose(self, state, actions, rng, *, mask=None):
            return np.full(len(actions), 4)

    with pytest.raises(PolicyError, match="one of 4 actions"):
        play({"wrong": Wrong()})


def test_an_episode_of_another_shape_is_refused():
    class Odd(Masked):
        dim = 6

    with pytest.raises(NewcomerError, match="shape"):
        nc.play({"offered": Offered()}, Odd(), horizon=4, users=2, seed=0)


def by_hand():
    """Two policies, three users, two rounds: cumulative regrets 3, 5, 7 and 1, 5, 3."""
    regret = {"a": [[1.0, 2.0], [4.0, 1.0], [0.0, 7.0]], "b": [[1.0, 0.0], [2.0, 3.0], [3.0, 0.0]]}
    return pl.DataFrame(
        [
            {"policy": p, "user": u, "t": t + 1, "action": 0, "reward": 10.0 - r, "regret": r, "in_subspace": None}
            for p, users in regret.items()
            for u, rounds in enumerate(users)
            for t, r in enumerate(rounds)
        ],
        schema_overrides={"in_subspace": pl.Boolean},
    )


def test_summary_of_an_example_done_by_hand():
    a, b = nc.summary(by_hand(), reference="a", window=1).to_dicts()
    assert (a["policy"], a["users"], a["horizon"], a["stayed"]) == ("a", 3, 2, None)
    assert a["regret"] == 5.0 and a["regret_se"] == pytest.approx(2 / np.sqrt(3))
    assert b["regret"] == 3.0 and b["regret_se"] == pytest.approx(2 / np.sqrt(3))
    assert a["reward"] == pytest.approx(10 - 10 / 3) and b["reward"] == 9.0
    # differences b - a: -2, 0, -4: mean -2, standard deviation 2, t quantile with 2 degrees of freedom 4.3027
    half = 4.302652729911275 * 2 / np.sqrt(3)
    assert (b["difference"], b["ratio"]) == (-2.0, pytest.approx(0.6))
    assert (b["difference_low"], b["difference_high"]) == (pytest.approx(-2 - half), pytest.approx(-2 + half))
    assert a["difference"] == a["difference_low"] == a["difference_high"] == 0.0


def test_the_interval_is_that_of_a_paired_t_test():
    rows = play({"greedy": Greedy(), "first": First()}, users=12)
    line = nc.summary(rows, reference="first", level=0.9).row(0, named=True)
    total = {
        n: rows.filter(pl.col("policy") == n).group_by("user", maintain_order=True).agg(pl.col("regret").sum())
        for n in ("greedy", "first")
    }
    interval = stats.ttest_rel(total["greedy"]["regret"], total["first"]["regret"]).confidence_interval(0.9)
    assert (line["difference_low"], line["difference_high"]) == (
        pytest.approx(interval.low),
        pytest.approx(interval.high),
    )


def test_curves_of_an_example_done_by_hand():
    lines = simulated_curves(by_hand(), window=2)
    assert lines["policy"].to_list() == ["a", "a", "b", "b"] and lines["t"].to_list() == [1, 2, 1, 2]
    assert lines["regret"].to_list() == pytest.approx([5 / 3, 5.0, 2.0, 3.0])
    assert lines["reward"].to_list() == pytest.approx([10 - 5 / 3, 7.5, 8.0, 8.5])
    assert lines["regret_se"][1] == pytest.approx(2 / np.sqrt(3))


def test_curves_end_where_the_summary_stands():
    rows = play({"greedy": Greedy(), "first": First()}, horizon=40)
    last = simulated_curves(rows, window=25).filter(pl.col("t") == 40)
    table = nc.summary(rows, window=25)
    for name in ("regret", "regret_se", "reward", "reward_se"):
        assert last[name].to_list() == pytest.approx(table[name].to_list())
    assert table["stayed"].to_list() == [0.0, None]


def test_one_user_has_no_standard_error():
    (line, *_) = nc.summary(by_hand().filter(pl.col("user") == 0), reference="b").to_dicts()
    assert line["regret"] == 3.0 and line["difference"] == 2.0
    assert line["regret_se"] is None and line["difference_low"] is None


def test_bad_summaries_are_refused():
    rows = by_hand()
    with pytest.raises(NewcomerError, match="no policy 'aa'"):
        nc.summary(rows, reference="aa")
    with pytest.raises(NewcomerError, match="different users"):
        nc.summary(rows.filter((pl.col("policy") == "a") | (pl.col("user") > 0)), reference="a")
    with pytest.raises(NewcomerError, match="lack the column 'regret'"):
        nc.summary(rows.drop("regret"))
    with pytest.raises(NewcomerError, match="window must be"):
        nc.summary(rows, window=0)


def model_of(world):
    return nc.fit(world.logs(5000, 20, seed=0), rank=2, estimator="sold", null=False)


@pytest.mark.parametrize("batch", [1, 4])
def test_our_policies_do_not_notice_the_batch_size(batch):
    world = Synthetic(dim=8, rank=2, choices=5, outside=0.5, seed=1)
    model = nc.fit(world.logs(500, 10, seed=0), rank=2, estimator="sold", null=False)
    policies = {
        "LinUCB": nc.LinUCB(8, horizon=40),
        "LinTS": nc.LinTS(8, horizon=40),
        "ProBALL-UCB": nc.ProBALLUCB(model, horizon=40, tau=2.0, radius=1.0),
        "ProBALL-TS": nc.ProBALLTS(model, horizon=40, tau=2.0, radius=1.0),
        "PopulationMean": nc.PopulationMean(model),
        "Uniform": nc.Uniform(),
    }
    settings = {"horizon": 40, "users": 9, "seed": 3}
    rows = nc.play(policies, world, **settings)
    assert rows.equals(nc.play(policies, world, **settings, batch=batch))
    assert (
        simulated_exits(rows).filter(pl.col("policy") == "ProBALL-UCB")["left_at"].to_list() == [17] * 9
    )  # 2 sqrt(17) > 8


def test_in_a_learned_subspace_regret_is_a_fraction_of_linucb_s():
    world = Synthetic.learnable(seed=0)
    policies = {
        "LinUCB": nc.LinUCB(50, horizon=500),
        "ProBALL-UCB": nc.ProBALLUCB(model_of(world), horizon=500, tau=0.0),
    }
    rows = nc.play(policies, world, horizon=500, users=30, seed=0)
    table = nc.summary(rows, reference="LinUCB").row(1, named=True)
    assert table["ratio"] <= 0.15 and table["stayed"] == 1.0


def test_an_early_exit_spares_those_wholly_outside():
    world = Synthetic.learnable(seed=0)
    policies = {
        "LinUCB": nc.LinUCB(50, horizon=2000),
        "ProBALL-UCB": nc.ProBALLUCB(model_of(world), horizon=2000, tau=5.0, radius=1.0),
    }
    rows = nc.play(policies, replace(world, outside=1.0, length=1.0), horizon=2000, users=30, seed=0)
    assert set(simulated_exits(rows)["left_at"]) == {101}
    assert nc.summary(rows, reference="LinUCB")["ratio"][1] <= 1.1

"""Guards the experiments: jobs are plain and their keys complete, ProBALL's exit is what its rule says, results do
not depend on the number of processes and are not made twice, every figure has all the fits it needs, the time left is
told only when it is known, the pages are what the tables say, and `newcomer reproduce` says what is wrong.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from experiments.figure_numbers import read_table
from experiments.figure_verdicts import ANSWERS, VERDICTS
from experiments.markdown import number
from experiments.write_pages import pages
from rich.console import Console
from typer.testing import CliRunner

import newcomer as nc
from newcomer.cli.main import app, execute_command
from newcomer.cli.reproduce import Clock
from newcomer.errors import NewcomerError
from newcomer.logs.workers import WorkerPool
from newcomer.paper import contents
from newcomer.paper.catalogue import (
    APART,
    EVERYTHING,
    FIGURES,
    HOMES,
    STUDIES,
    chosen,
    do,
    modules_behind,
    open_folder,
    reproduce,
)
from newcomer.paper.figures import geometry, insufficiency, readings, reward_seeking_logger
from newcomer.paper.jobs import (
    ExitRule,
    Fit,
    JobFolder,
    Play,
    TableJob,
    from_text,
    guess,
    in_order,
    key,
    kind_of,
    module_behind,
    time_left,
    to_text,
)
from newcomer.paper.jobs import run as run_calls
from newcomer.paper.lines import Line, newcomer_table, proball, sold
from newcomer.paper.named_worlds import Projected, true_basis, world_named
from newcomer.paper.panels import spread
from newcomer.paper.performing import perform_fit, perform_play
from newcomer.paper.players import PLAYERS
from newcomer.paper.scale import BALANCED, FULL, LEARNABLE, LITERAL, QUICK, REPLAY, SCALES, Scale, Setting
from newcomer.worlds import Synthetic
from tests.compare_results import differences

IDS = [
    "eigenvalues",
    "eigenvalues-log",
    "simulation-ablation",
    "simulation-ts",
    "movielens-together",
    "movielens-ucb-regret",
    "movielens-ucb-rating",
    "movielens-ts-regret",
    "movielens-ts-rating",
    "lowdim-regret",
    "lowdim-rating",
    "truth-regret",
    "truth-rating",
    "subspace-error",
    "regret-vs-n-ucb",
    "regret-vs-n-ts",
    "main",
    "geometry",
    "insufficiency",
    "reward-seeking-logger",
    "replay",
    "privacy",
]
HERE = Setting("quick", "nowhere", "nowhere")
TINY = Fit(LEARNABLE, 300, 20, "sold", 2, 1.0)
RULE = ExitRule(radius=331.0, tau=0.02, dim=50)  # leaves in round 58


def test_the_catalogue_has_the_ids_of_the_issue() -> None:
    assert sorted(FIGURES) == sorted(IDS)
    assert all(figure.claim and figure.caption(scale) for figure in FIGURES.values() for scale in SCALES.values())


def test_jobs_are_plain_text_and_back() -> None:
    bare, ruled = Play(LEARNABLE, "LinUCB", 10, 2), Play(LEARNABLE, "ProBALL-UCB", 10, 2, TINY, RULE)
    for job in (TINY, bare, ruled, TableJob("geometry", (("users", 5), ("seed", 1)), "a.module")):
        assert from_text(to_text(job)) == job


def test_every_part_of_a_job_and_the_data_is_in_its_key() -> None:
    play = Play(LEARNABLE, "ProBALL-TS", 100, 2, TINY, RULE)
    others = [
        replace(play, **change)
        for change in (
            {"policy": "LinTS"},
            {"rounds": 101},
            {"trials": 3},
            {"fit": replace(TINY, seed=2)},
            {"exit": replace(RULE, tau=0.01)},
            {"exit": replace(RULE, radius=300.0)},
            {"exit": replace(RULE, dim=40)},
            {"exit": None},
            {"truth": True},
            {"latent": True},
            {"seed": 1},
        )
    ]
    keys = {key(job, "data") for job in (play, *others)} | {key(play, "other data")}
    assert len(keys) == len(others) + 2


def test_settings_that_leave_in_the_same_round_share_a_run_and_say_what_they_are(tmp_path: Path) -> None:
    """The key has the round in place of radius and tau; the job itself keeps both."""
    one = Play(LEARNABLE, "ProBALL-UCB", 100, 2, TINY, RULE)
    same = replace(one, exit=ExitRule(radius=3310.0, tau=0.002, dim=50))
    near = replace(one, exit=replace(RULE, radius=330.9))
    never, ever = (replace(one, exit=replace(RULE, tau=tau)) for tau in (1e-3, 1e-4))
    assert one.left_at == same.left_at == near.left_at == 58 and never.left_at == ever.left_at == 101
    assert key(one, "data") == key(same, "data") == key(near, "data") != key(never, "data") == key(ever, "data")
    assert len({one, same, near, never, ever}) == 5 and len({to_text(job) for job in (one, same, near)}) == 3
    folder = JobFolder(tmp_path, HERE, "data")
    assert folder.missing([one, same, never, near, ever, one]) == [one, never]
    folder.keep(near, pl.DataFrame({"t": [1]}))
    assert folder.missing([one, same, never]) == [never] and folder.rows(same)["t"].to_list() == [1]


def test_runs_of_earlier_code_are_not_taken_for_runs_of_this_code(tmp_path: Path) -> None:
    """The key has the hash of the code that the job rests on, and of no other."""
    play, study = Play(LEARNABLE, "LinUCB", 10, 2), EVERYTHING["prior-users"].jobs(JobFolder(tmp_path, HERE, ""))[0]
    homes = [module_behind(play), module_behind(study)]
    assert homes == ["newcomer.paper.performing", "newcomer.paper.studies.prior_users"]
    before = JobFolder(tmp_path, HERE, "data", dict(zip(homes, ("old", "same"), strict=True)))
    for job in (play, study):
        before.keep(job, pl.DataFrame({"t": [1]}))
    now = replace(before, codes=before.codes | {homes[0]: "new"})
    assert before.missing([play, study]) == [] and now.missing([play, study]) == [play]
    assert JobFolder.from_words(*now.words).missing([play, study]) == [play]


def test_studies_take_as_many_repeats_as_are_asked_for(tmp_path: Path) -> None:
    """The first splits or worlds of the sweep, whose runs are those of a whole study."""
    whole = JobFolder(tmp_path, Setting("full", "nowhere", "nowhere"), "data", {HOMES["people"]: ""})
    some = replace(whole, setting=replace(whole.setting, repeats=2))
    wanted, fewer = EVERYTHING["people"].jobs(whole), EVERYTHING["people"].jobs(some)
    assert [job for job in wanted if dict(job.arguments)["seed"] <= 2] == fewer != []
    assert {whole.place(job) for job in fewer} == {some.place(job) for job in fewer}
    assert JobFolder.from_words(*some.words).setting.repeats == 2


def test_the_code_behind_every_job_is_that_behind_its_figure(tmp_path: Path) -> None:
    folder = JobFolder(tmp_path, HERE, "data")
    for figure in STUDIES.values():
        assert {module_behind(job) for job in figure.jobs(folder)} == set(modules_behind(figure)), figure.name
    job = EVERYTHING["privacy"].jobs(folder)[0]
    assert folder.missing([job]) == [job]
    assert folder.codes == {HOMES["privacy"]: contents.code([HOMES["privacy"]], {"newcomer": contents.PACKAGE})}


@pytest.mark.parametrize("radius, tau", [(331.0, 0.02), (54.0, 0.1), (1.0, 1.0), (1e6, 5.0), (3.0, 3.0), (np.inf, 1.0)])
def test_proball_leaves_when_its_rule_says(radius: float, tau: float) -> None:
    """Delta tau sqrt(t) <= d, asked of the policy itself, round by round; and another setting with that exit plays
    the same.
    """
    model, rounds = perform_fit(TINY, HERE), 120
    leaves = ExitRule(radius, tau, model.dim).first_outside(rounds)
    place = Synthetic.learnable()
    by_rule = nc.ProBALLUCB(model, horizon=rounds, radius=radius, tau=tau)
    by_exit = nc.ProBALLUCB(model, horizon=rounds, radius=model.dim / np.sqrt(leaves - 0.5))
    rows = nc.play({"a": by_rule, "b": by_exit}, place, horizon=rounds, users=2, seed=0, progress=False)
    one, other = rows.partition_by("policy", include_key=False)
    assert one.equals(other)
    inside = one.filter(pl.col("user") == 0)["in_subspace"].fill_null(False)
    assert int(inside.sum()) == leaves - 1


def test_a_play_leaves_by_the_radius_and_tau_of_its_job() -> None:
    rows = perform_play(Play(LEARNABLE, "ProBALL-TS", 70, 2, TINY, RULE), HERE, perform_fit(TINY, HERE))
    inside = rows.group_by("user").agg(pl.col("in_subspace").sum())["in_subspace"]
    assert inside.to_list() == [57, 57]


def test_the_rule_is_exact_where_it_holds_with_equality() -> None:
    """10 * 0.5 * sqrt(t) <= 50 up to t = 100, to the last bit."""
    assert ExitRule(10.0, 0.5, 50).first_outside(200) == 101


def test_a_radius_of_zero_never_leaves() -> None:
    assert ExitRule(0.0, 1.0, 50).first_outside(100) == 101


@pytest.mark.parametrize("policy", sorted(PLAYERS))
def test_every_player_plays(policy: str) -> None:
    rule = ExitRule(50.0, 0.65, 50)  # two rounds inside
    job = Play(LEARNABLE, policy, 5, 2, TINY, rule if policy.startswith("ProBALL") else None)
    if policy == "EmpiricalArms":  # has nothing to average where every action is new
        with pytest.raises(NewcomerError, match="named actions"):
            perform_play(job, HERE, perform_fit(TINY, HERE))
        return
    rows = perform_play(job, HERE, perform_fit(TINY, HERE))
    assert rows.shape == (10, 7) and np.isfinite(rows["regret"].to_numpy()).all()


def test_the_true_basis_and_true_features_are_used() -> None:
    place = world_named(LEARNABLE, HERE)
    model = perform_fit(TINY, HERE)
    given, learned = (
        perform_play(Play(LEARNABLE, "ProBALL-UCB", 30, 3, TINY, replace(RULE, radius=0.0), truth=truth), HERE, model)
        for truth in (True, False)
    )
    assert given["regret"].sum() < learned["regret"].sum()
    view = Projected(place, true_basis(place))
    whole, seen = (one.episode(np.random.default_rng(1), 3) for one in (place, view))
    assert seen.actions.shape == (3, 20, 2) and np.array_equal(whole.rewards, seen.rewards)


def test_an_unknown_policy_or_figure_is_refused_with_the_nearest() -> None:
    with pytest.raises(NewcomerError, match="did you mean 'LinUCB'"):
        perform_play(Play(LEARNABLE, "LinUBC", 5, 2), HERE, None)
    with pytest.raises(NewcomerError, match="did you mean 'movielens-ucb-regret'"):
        chosen(["movielens-ucb-regrets"])
    with pytest.raises(NewcomerError, match="needs a model"):
        perform_play(Play(LEARNABLE, "PopulationMean", 5, 2), HERE, None)


def test_lines_without_a_tau_are_in_every_panel() -> None:
    rows = [("w", None, "LinUCB", 1, None), ("w", 0.1, "M-ProBALL-UCB", 1, 1.0), ("w", 0.2, "M-ProBALL-UCB", 1, None)]
    frame = pl.DataFrame(rows, schema=["world", "tau", "policy", "t", "left_at"], orient="row")
    panels = spread(frame)
    assert panels["panel"].unique(maintain_order=True).to_list() == [
        "w, tau = 0.1\nleft in round: M 1",
        "w, tau = 0.2\nleft in round: M never",
    ]
    assert panels.group_by("panel").len()["len"].to_list() == [2, 2]


def test_sets_of_the_geometry_figure_hold_what_they_should() -> None:
    """Membership by the definitions: V-norm distances to beta_2 and to the projection on the point's own line."""
    rng = np.random.default_rng(3)
    shown, line = rng.standard_normal((6, 2)), np.array([0.6, 0.8])
    gram, moment = np.eye(2) + shown.T @ shown, rng.standard_normal(2)
    sets = geometry.Sets(gram, moment, line, 0.3, 0.7, 1.1)
    outlines, mean = sets.outlines(), np.linalg.solve(gram, moment)
    edge = outlines[geometry.ONLINE] - mean
    np.testing.assert_allclose(np.einsum("nd,de,ne->n", edge, gram, edge), 1.1**2)
    for name in (geometry.OFFLINE, geometry.LOCAL):
        for beta in outlines[name]:
            unit = beta / np.linalg.norm(beta)
            own = unit * (unit @ moment) / (unit @ gram @ unit)
            assert (beta - own) @ gram @ (beta - own) <= 0.7**2 + 1e-9
            assert abs(unit @ line) >= np.cos(0.3) - 1e-9
            if name == geometry.LOCAL:
                assert (beta - mean) @ gram @ (beta - mean) <= 1.1**2 + 1e-9
    centre = line * (line @ moment) / (line @ gram @ line)
    radius = np.linalg.norm(outlines[geometry.BALL] - centre, axis=1)
    np.testing.assert_allclose(radius, np.linalg.norm(outlines[geometry.OFFLINE] - centre, axis=1).max())
    far = np.linalg.norm(outlines[geometry.ONLINE] - centre, axis=1).max()
    assert sets.contained() == (far <= radius[0])


def test_readings_change_coordinates_and_not_rewards() -> None:
    rng = np.random.default_rng(0)
    users, movies = rng.standard_normal((5, 3)), rng.standard_normal((20, 3)) * [1.0, 3.0, 0.1]
    turned, round_ones = readings.isotropic(users, movies)
    np.testing.assert_allclose(turned @ round_ones.T, users @ movies.T)
    np.testing.assert_allclose(round_ones.T @ round_ones / 20, np.eye(3), atol=1e-12)


def test_a_claim_holds_beyond_two_standard_errors_of_paired_newcomers() -> None:
    def said(gaps: list[float]) -> str:
        worse = pl.DataFrame({"regret": [5.0, 50.0, 500.0, 5000.0]})
        better = worse.with_columns(pl.col("regret") + pl.Series(gaps))
        return str(readings._claim("c", better, worse)["holds"])

    assert said([-1.0, -1.2, -0.8, -1.0]) == "holds" and said([1.0, 1.2, 0.8, 1.0]) == "fails"
    assert said([-1.0, 1.2, -0.8, 1.0]) == "open" and said([0.0] * 4) == "is it"


def test_a_logger_that_seeks_reward_finds_it() -> None:
    place = Synthetic.learnable()
    shares = [reward_seeking_logger.seeking_logs(place, 60, 5, strength, 0)[1] for strength in (0.0, 2.0, 50.0)]
    assert abs(shares[0]) < 0.2 < shares[1] < 0.97 < shares[2] <= 1.0


def test_estimators_of_the_insufficiency_figure_agree_without_noise() -> None:
    place = Synthetic(dim=8, rank=2, items=40, noise=0.0)
    logs = place.logs(400, 30, 0)
    for name, estimate in insufficiency.ESTIMATORS.items():
        basis = estimate(logs, place, 0)
        np.testing.assert_allclose(basis.T @ basis, np.eye(2), atol=1e-9, err_msg=name)
        if name != "PCA of raw rewards":
            assert nc_distance(basis, place.basis) < 0.05, name


def nc_distance(one: np.ndarray, other: np.ndarray) -> float:
    """Spectral norm of the difference of projections, straight from the definition."""
    return float(np.linalg.norm(one @ one.T - other @ other.T, 2))


@dataclass(frozen=True)
class Fitted:
    """A folder of jobs in which every fit is done: all have the same small model."""

    scale: Scale
    fitted: nc.Model

    @property
    def setting(self) -> Setting:
        return Setting(self.scale.name, "", "")

    def model(self, job: Fit) -> nc.Model:
        return self.fitted

    def place(self, job: Fit) -> Path:
        return Path(__file__)


@pytest.fixture(scope="module")
def fitted() -> nc.Model:
    return perform_fit(TINY, HERE)


@pytest.mark.parametrize("scale", [FULL, QUICK])
def test_every_figure_alone_has_the_fits_of_all_its_plays(scale: Scale, fitted: nc.Model) -> None:
    """`newcomer reproduce main`, say, must not rely on fits that only another figure asks for."""
    for figure in EVERYTHING.values():
        jobs = figure.jobs(Fitted(scale, fitted))  # type: ignore[arg-type]
        needed = {job.fit for job in jobs if isinstance(job, Play) and job.fit}
        assert needed <= set(figure.fits(scale)), figure.name
        assert {job.figure for job in jobs if isinstance(job, TableJob)} <= {figure.name}
        assert (figure.run is not None) == any(isinstance(job, TableJob) for job in jobs), figure.name


def test_lines_of_proball_say_radius_and_tau(fitted: nc.Model) -> None:
    lines = proball(Fitted(QUICK, fitted), "ProBALL-UCB", TINY)  # type: ignore[arg-type]
    radius = fitted.radius("hoeffding", norm="frobenius", clip=False, simplified=True)
    assert [line.tau for line in lines] == [tau for tau in QUICK.taus[LEARNABLE] for _ in range(3)]
    assert lines[0].label == "H-ProBALL-UCB" and lines[0].play.exit == ExitRule(radius, 5.0, 50)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> JobFolder:
    """A folder of jobs at the quick scale."""
    folder = tmp_path_factory.mktemp("jobs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        return open_folder(QUICK, data=None, work=folder)


def test_of_real_people_only_differences_are_kept() -> None:
    """Newcomers of the replay are people: what they rated is taken off, what tells policies apart is not."""

    class Played:
        def rows(self, play: Play) -> pl.DataFrame:
            rewards = {"LinUCB": [4.0, 2.0], "mUCB": [3.0, 2.5]}[play.policy]
            rows = {"policy": [play.policy] * 2, "user": [0, 1], "t": [1, 1], "reward": rewards}
            return pl.DataFrame(rows).with_columns(regret=5 - pl.col("reward"), in_subspace=pl.lit(None))

    for world, centre in ((REPLAY, [1.5, 2.75]), (LITERAL, [0.0, 0.0])):
        lines = [Line(name, Play(world, name, 1, 2)) for name in ("LinUCB", "mUCB")]
        found = newcomer_table(Played(), lines)  # type: ignore[arg-type]
        assert found.select("policy", "value").rows() == [("LinUCB", "regret"), ("mUCB", "regret")]
        np.testing.assert_allclose(found.select("n1", "n2").to_numpy(), np.array([[1, 3], [2, 2.5]]) - centre)


def test_reproduce_makes_pictures_resumes_and_ignores_the_number_of_workers(tiny: JobFolder, tmp_path: Path) -> None:
    figures, told = chosen(["simulation-ts"]), []

    def progress(stage: str):  # type: ignore[no-untyped-def]
        return lambda done, total, left: told.append((stage, done, total))

    made = reproduce(figures, tiny, out=tmp_path / "one", workers=2, progress=progress)
    assert made[0].picture.read_bytes()[:4] == b"\x89PNG" and {"fits", "runs", "pictures"} == {
        stage for stage, *_ in told
    }
    rows = contents.read(tmp_path / "one")
    assert list(rows) == ["simulation-ts-newcomers.csv", "simulation-ts.csv"]
    assert {row.command for row in rows.values()} == {"newcomer reproduce simulation-ts --quick"}
    assert all(float(row.seconds) > 0 for row in rows.values())
    table = read_table(made[0].table)
    assert {"H-ProBALL-UCB", "LinUCB", "PopulationMean", "PriorUCB"} <= set(table["policy"])
    newcomers = read_table(tmp_path / "one" / "simulation-ts-newcomers.csv")
    ends = table.filter(pl.col("t") == pl.col("t").max())
    assert newcomers.select("world", "tau", "policy").equals(ends.select("world", "tau", "policy"))
    means = newcomers.select(pl.mean_horizontal(f"n{i}" for i in range(1, QUICK.trials + 1))).to_series()
    np.testing.assert_allclose(means, ends["regret"], rtol=1e-4)
    told.clear()
    reproduce(figures, tiny, out=tmp_path / "two", workers=1, progress=progress)
    assert {stage for stage, *_ in told} == {"pictures"}
    assert (tmp_path / "two" / made[0].table.name).read_bytes() == made[0].table.read_bytes()
    here = JobFolder(tmp_path / "alone", tiny.setting, tiny.identity)
    for job in (sold(QUICK, LEARNABLE), Play(LEARNABLE, "LinUCB", QUICK.rounds, QUICK.trials)):
        do(job, here)
    play = Play(LEARNABLE, "LinUCB", QUICK.rounds, QUICK.trials)
    assert here.rows(play).equals(tiny.rows(play))


def test_the_command_lists_refuses_and_speaks_json() -> None:
    listed = CliRunner().invoke(app, ["reproduce", "--list", "--json"])
    assert set(IDS) <= set(json.loads(listed.stdout)["figures"])
    assert "subspace-error" in CliRunner().invoke(app, ["reproduce", "--list"]).stdout


def test_the_command_names_the_nearest_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute_command(["reproduce", "replai"]) == 2
    assert "did you mean 'replay'" in capsys.readouterr().err


def test_data_that_is_not_there_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute_command(["reproduce", "replay", "--data", str(tmp_path), "--work", str(tmp_path)]) == 3
    assert "MovieLens-1M was not found" in capsys.readouterr().err


def test_a_table_job_is_done_by_the_figure_it_names(tiny: JobFolder, tmp_path: Path) -> None:
    here = JobFolder(tmp_path, tiny.setting, tiny.identity)
    [job] = FIGURES["geometry"].jobs(here)
    do(job, here)
    assert here.rows(job)["time"].unique(maintain_order=True).to_list() == [
        *(f"LOCAL-UCB, after {t} rounds" for t in (3, 30, 300)),
        *(f"ProBALL-UCB, after {t} rounds, ellipse not in the ball: stay" for t in (3, 30)),
        "ProBALL-UCB, after 300 rounds, ellipse in the ball: leave",
    ]


def test_jobs_begin_with_the_slow_ones_then_one_of_each_kind() -> None:
    seeds = [TableJob("prior-users", (("users", users), ("seed", seed))) for users in (50, 150) for seed in (1, 2)]
    slow = Play(LEARNABLE, "LOCAL-UCB", 10, 2)
    assert in_order([*seeds, slow]) == [slow, seeds[0], seeds[2], seeds[1], seeds[3]]
    assert kind_of(seeds[0]) == kind_of(seeds[1]) != kind_of(seeds[2])
    play = Play(LEARNABLE, "ProBALL-UCB", 10, 2, TINY, RULE)
    same = replace(play, exit=replace(RULE, tau=1.0), fit=replace(TINY, seed=2))
    assert kind_of(play) == kind_of(same) != kind_of(replace(play, policy="ProBALL-TS"))


def test_the_time_left_follows_guesses_until_a_kind_was_timed() -> None:
    """Ten jobs of a second after one of ten minutes: the mean of what is done would promise hours."""
    jobs, taken, guesses = ["slow", *["quick"] * 10], {"slow": [600.0]}, {"slow": 300.0, "quick": 1.0}
    assert time_left(jobs[1:], taken, 2, guesses, elapsed=300.0) == 10.0  # guesses are half of what it takes here
    assert time_left(jobs[2:], {**taken, "quick": [1.0]}, 2, guesses, elapsed=300.5) == 4.5
    assert time_left(["quick"], {"quick": [1.0, 3.0]}, 1, {}, later=10.0, elapsed=4.0) == 22.0  # guesses of one second
    assert time_left([], {}, 1, {}) == 0.0
    assert time_left(["quick"], {"quick": [1.0]}, 1, {}, elapsed=50.0) == pytest.approx(0.1)  # late, and not yet done


def test_the_estimate_is_within_a_factor_of_two_from_the_first_tenth_on(tiny: JobFolder) -> None:
    """`main` in full on two workers that take as long as scaled runs did, fits and plays in turn, on a fake clock."""
    scale = FULL
    kept = JobFolder(tiny.folder / "none", Setting("full", "nowhere", "nowhere"), "none")
    stages = [kept.missing(jobs) for jobs in (FIGURES["main"].fits(scale), FIGURES["main"].jobs(kept))]
    real = [[(job, _measured(job)) for job in in_order(jobs)] for jobs in stages]
    later, now, told = sum(map(guess, stages[1])), 0.0, []
    for jobs, after in zip(real, (later, 0.0), strict=True):
        guesses = {kind_of(job): guess(job) for job, _ in jobs}
        ends, free = [], [now, now]
        for job, seconds in jobs:  # the next job goes to the worker that is free first
            begun = free.pop(free.index(min(free)))
            free.append(begun + seconds)
            ends.append((begun + seconds, kind_of(job), seconds))
        taken: dict[str, list[float]] = {}
        waiting = [kind for _, kind, _ in ends]
        for end, kind, seconds in sorted(ends):
            taken.setdefault(kind, []).append(seconds)
            waiting.remove(kind)
            told.append((end, time_left(waiting, taken, 2, guesses, later=after, elapsed=end - now)))
        now = max(free)
    late = [(end, left) for end, left in told if 0.1 * now < end < 0.9 * now]
    assert len(late) > 10 and 60 < now < 900  # of two cores
    assert [(end, left) for end, left in late if not 0.5 < left / (now - end) < 2.0] == []


def _measured(job: Fit | Play | TableJob) -> float:
    """Seconds by scaled runs: fits of 1,000 users and plays of two newcomers, times five and fifteen."""
    if isinstance(job, Fit):
        films = job.world in (BALANCED, LITERAL)
        plain, em, sure = (1.0, 9.4, 13.8) if films else (0.3, 2.2, 1.0)
        return job.users / 1000 * (sure if job.calibrate else em if job.estimator == "em" else plain)
    assert isinstance(job, Play)
    if job.policy == "LOCAL-UCB":
        return 15 * (11.7 if job.world == LEARNABLE else 7.7)
    return 15 * (0.4 if (job.policy, job.world) == ("PriorUCB", LEARNABLE) else 0.1)


def wait_seconds(seconds: float) -> None:
    """A job of known length."""
    time.sleep(seconds)


def test_a_crew_tells_what_is_left_when_it_can() -> None:
    told: list[tuple[int, int, float | None]] = []
    calls, kinds = [(0.2,), (0.01,), (0.01,)], ["long", "short", "short"]
    with WorkerPool(1) as crew:
        run_calls(crew, wait_seconds, calls, kinds, progress=lambda *now: told.append(now))
    assert [now[:2] for now in told] == [(1, 3), (2, 3), (3, 3)]
    lefts = [left for *_, left in told if left is not None]
    assert len(lefts) == 3 and lefts[0] > lefts[2] == 0.0 and lefts[1] < 0.1


def test_the_clock_gives_no_estimate_before_it_can() -> None:
    """A fake clock, without a terminal: a line every half minute, and one at the end."""
    now, out = [0.0], StringIO()
    clock = Clock("runs", console=Console(file=out, width=100), clock=lambda: now[0])
    for seconds, done, left in ((10.0, 1, None), (31.0, 2, None), (40.0, 3, 95.0), (62.0, 10, 180.0), (70.0, 40, 0.0)):
        now[0] = seconds
        clock.tick(done, 40, left)
    assert out.getvalue().splitlines() == [
        "runs: 2 of 40, 31 s so far",
        "runs: 10 of 40, about 3.0 min left",
        "runs: 40 of 40, 70 s",
    ]


def test_every_figure_has_a_verdict_and_the_pages_are_what_the_tables_say() -> None:
    assert set(VERDICTS) == set(FIGURES) | set(APART)
    assert {verdict.answer for verdict in VERDICTS.values()} <= ANSWERS
    root = Path(__file__).parents[2]
    written = pages()
    places = ("docs/paper/figures.md", "docs/paper/results.md", "docs/explanation/radius.md", "README.md")
    places += (
        "docs/paper/measured-check.md",
        "docs/paper/measured-evaluate.md",
        "docs/paper/measured-people.md",
        "docs/paper/measured-samples.md",
    )
    places += ("docs/paper/measured-attributes.md", "docs/paper/measured-clicks.md", "docs/paper/measured-loop.md")
    places += ("experiments/README.md", "docs/paper/theory.md", "docs/explanation/related-work.md")
    places += ("docs/how-to/attributes.md",)
    assert set(written) == {root / place for place in places}
    for path, text in written.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python -m experiments.write_pages"
    results = root / "experiments" / "results"
    assert all((results / f"{name}.{end}").is_file() for name in IDS for end in ("csv", "png"))


def test_what_writes_pages_is_not_installed() -> None:
    """The wheel is the package alone, and no module of its experiments imports the pages or writes text."""
    root = Path(__file__).parents[2]
    assert 'packages = ["src/newcomer"]' in (root / "pyproject.toml").read_text()
    sources = {path.name: path.read_text() for path in (root / "src/newcomer/paper").rglob("*.py")}
    assert len(sources) > 30
    assert not [name for name, text in sources.items() if "write_text(" in text or "from experiments" in text]


def test_results_are_compared_number_by_number(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    frame = pl.DataFrame({"policy": ["a", "b"], "regret": [1.0, None]})
    for folder in (old, new):
        folder.mkdir()
        frame.write_csv(folder / "main.csv")
    assert differences(old, new) == []
    frame.with_columns(regret=pl.Series([1.0 + 2e-9, None])).write_csv(new / "main.csv")
    assert "1 of 2 rows differ" in differences(old, new)[0]
    frame.reverse().write_csv(new / "main.csv")
    assert "column policy" in differences(old, new)[0]
    frame.write_csv(new / "extra.csv")
    assert "extra.csv: not in" in differences(old, new)[0]


def test_numbers_are_told_with_the_digits_their_error_deserves() -> None:
    assert number(84.61, 2.13) == "84.6 ± 2.1"
    assert number(752.3, 228.1) == "752 ± 228"
    assert number(0.12345, 0.0123) == "0.123 ± 0.012"
    assert number(1e-30, 0.0) == "0" and number(3.14159, None) == "3.14"


def sleep_and_say_who(path: str) -> None:
    """A job that outlasts any parent."""
    Path(path).write_text(str(os.getpid()))
    time.sleep(120)


def test_workers_end_with_the_process_that_started_them(tmp_path):
    """Also when that is killed: workers would go on computing for nobody."""
    place = tmp_path / "worker"
    code = (
        "from newcomer.paper.jobs import run\n"
        "from newcomer.logs.workers import WorkerPool\n"
        "from tests.paper.test_figures import sleep_and_say_who\n"
        "if __name__ == '__main__':\n"
        f"    run(WorkerPool(1), sleep_and_say_who, [({str(place)!r},)], ['sleep'], progress=print)\n"
    )
    script = tmp_path / "parent.py"
    script.write_text(code)
    root = Path(__file__).resolve().parents[2]
    parent = subprocess.Popen([sys.executable, str(script)], env=_here(root), cwd=root, stderr=subprocess.DEVNULL)
    try:
        _until(lambda: place.is_file() and place.read_text() != "")
    finally:
        parent.kill()
        parent.wait()
    _until(lambda: not _runs(int(place.read_text())))


def _here(root: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}


def _until(happens: Callable[[], bool]) -> None:
    for _ in range(600):
        if happens():
            return
        time.sleep(0.1)
    raise AssertionError("it did not happen within a minute")


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{process}/stat")
    return not state.is_file() or state.read_text().rsplit(")", 1)[1].split()[0] != "Z"

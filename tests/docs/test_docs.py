"""Guards every page: its Python runs and prints what it says, its commands exist, its links and headings are there.

Commands that need neither data nor minutes are run, on logs made here under the names that the pages use; the others
are parsed by the command line itself, which refuses what it does not know. Examples in docstrings run too, of every
module.
"""

from __future__ import annotations

import ast
import doctest
import io
import json
import re
import runpy
import shlex
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import polars as pl
import pytest
from typer.main import get_command

from newcomer.cli import main
from newcomer.cli.output import BROKEN
from newcomer.worlds import Synthetic

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    str(page.relative_to(ROOT)): page.read_text(encoding="utf-8")
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "experiments" / "README.md"]
}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
COMMAND = r"(?:newcomer|make|python -m|python(?= examples/)) "
EXAMPLES = [
    ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
    for root, folder in ((ROOT / "src", "newcomer"), (ROOT, "experiments"))
    for path in sorted((root / folder).rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


def python_of(page: str) -> str:
    return "\n".join(code for language, code in FENCE.findall(PAGES[page]) if language == "python")


def commands_of(page: str) -> list[str]:
    """What a page tells people to type: lines of blocks without a language, indented lines, and code within a line."""
    blocks = "\n".join(code for language, code in FENCE.findall(PAGES[page]) if not language)
    lines = re.findall(rf"^({COMMAND}.*)", blocks, flags=re.MULTILINE)
    lines += re.findall(rf"^    ({COMMAND}.*)", prose_of(page), flags=re.MULTILINE)
    return lines + re.findall(rf"`({COMMAND}[^`\n]*)`", prose_of(page))


def prose_of(page: str) -> str:
    return FENCE.sub("", PAGES[page])


def anchors_of(page: str) -> set[str]:
    """The anchors of a page's headings, made as GitHub makes them; a heading that comes again is numbered."""
    seen: Counter[str] = Counter()
    anchors = set()
    for heading in re.findall(r"^#+ +(.*?) *$", prose_of(page), flags=re.MULTILINE):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        anchors.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return anchors


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small logs under the names that the pages use: as features, and as actions with other names for the columns."""
    place = tmp_path_factory.mktemp("docs")
    Synthetic(dim=6, seed=1).write_logs(place / "logs.parquet", 300, 8, 1)
    Synthetic(dim=6, seed=1).write_logs(place / "new.parquet", 200, 8, 2)
    others = pl.read_parquet(place / "new.parquet").with_columns(pl.col("user") + 10_000)
    others.write_parquet(place / "new.parquet")
    ages = pl.DataFrame({"user": range(300), "age": [20 + i % 50 for i in range(300)], "plan": ["free", "paid"] * 150})
    ages.write_csv(place / "people.csv")
    world = Synthetic(dim=5, items=30, seed=2)
    world.write_items(place / "items.parquet")
    world.write_logs(place / "raw.parquet", 300, 6, 2)
    (place / "logs").mkdir()
    renamed = pl.read_parquet(place / "raw.parquet").rename({"user": "uid", "reward": "stars"})
    renamed.write_csv(place / "logs" / "one.csv")
    contextual(place)
    rng = np.random.default_rng(5)
    ratings = {
        "user": np.repeat(np.arange(200), 6),
        "movie": rng.integers(1, 13, 1200),
        "rating": rng.integers(1, 6, 1200),
    }
    pl.DataFrame(ratings).with_columns(timestamp=pl.int_range(978_300_000, 978_301_200)).write_csv(
        place / "ratings.csv"
    )
    films = pl.DataFrame({"movie": range(1, 13), "name": [f"Film {i}" for i in range(1, 13)]})
    films.write_csv(place / "movies.csv", separator="|")
    return place


def contextual(place: Path) -> None:
    """Logs whose features are columns: numbers, and a choice of device beside the action."""
    rng, rows = np.random.default_rng(4), 2400
    user, numbers = np.repeat(np.arange(300), 8), rng.standard_normal((rows, 3))
    reward = numbers @ [1.0, -1.0, 0.5] + rng.standard_normal(300)[user] * numbers[:, 0]
    names = ("taxrate1", "taxrate2", "taxrev")
    frame = pl.DataFrame({"user": user, "reward": reward + 0.5 * rng.standard_normal(rows)})
    frame.with_columns(**{name: numbers[:, k] for k, name in enumerate(names)}).write_parquet(place / "choices.parquet")
    clicks = {"action": rng.integers(0, 6, rows), "hour": rng.integers(0, 24, rows) / 24}
    devices = np.array(["phone", "tablet", "desktop"])[rng.integers(0, 3, rows)]
    frame.with_columns(**clicks, device=devices).write_csv(place / "clicks.csv")
    pl.DataFrame({"action": range(6), "price": rng.uniform(1, 2, 6)}).write_csv(place / "items.csv")


@pytest.mark.parametrize("page", [page for page in PAGES if python_of(page)])
def test_the_python_of_a_page_runs_and_prints_what_it_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blocks of a page run one after another; a comment behind a print is what it prints."""
    monkeypatch.chdir(tmp_path)
    code = python_of(page)
    exec(compile(code, page, "exec", dont_inherit=True), {"__name__": "__main__"})  # noqa: S102 - our own page
    printed = capsys.readouterr().out.splitlines()
    told = [line.partition("  # ") for line in code.splitlines() if line.startswith("print")]
    if all(comment for _, _, comment in told):
        assert printed == [comment for _, _, comment in told]


def test_the_readme_shows_python_with_its_output() -> None:
    assert re.search(r"^print.*  # .", python_of("README.md"), flags=re.MULTILINE)


@pytest.fixture(scope="module")
def ran() -> dict[tuple[object, ...], dict[str, bytes]]:
    """The files that each command wrote."""
    return {}


def run_once(ran: dict[tuple[object, ...], dict[str, bytes]], words: list[str], work: Callable[[], None]) -> None:
    """Do the work of a command in this folder; where an earlier page has the same words and files, its results are put
    there."""

    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in Path().iterdir() if path.is_file()}

    before = files()
    key = (*words, *(before.get(word) for word in words))
    if key not in ran:
        work()
        ran[key] = {name: text for name, text in files().items() if before.get(name) != text}
    for name, text in ran[key].items():
        Path(name).write_bytes(text)


@pytest.mark.parametrize("page", [page for page in PAGES if commands_of(page)])
def test_commands_exist_with_their_options_and_run(
    page: str, folder: Path, ran: dict[tuple[object, ...], dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for line in commands_of(page):
        program, *words = shlex.split(line, comments=True)
        if program == "make":
            assert words[0] in targets, line
            measured = [
                name for word in words[1:] if words[0] == "bench" for name in word.removeprefix("ARGS=").split()
            ]
            assert all((ROOT / "benchmarks" / f"{name}.py").exists() for name in measured), line
        elif program == "python" and words[0].endswith(".py"):
            monkeypatch.setattr("sys.argv", words)
            monkeypatch.delenv("NEWCOMER_DATA", raising=False)  # what takes minutes with real people is tried without
            run_once(ran, words, partial(runpy.run_path, str(ROOT / words[0]), run_name="__main__"))
        elif program == "python":
            assert find_spec(words[1]), line
        else:
            check_newcomer(words, line, ran)


def check_newcomer(words: list[str], line: str, ran: dict[tuple[object, ...], dict[str, bytes]]) -> None:
    """Parse a command as it stands, options and figures included; run it, quickly where it can be, if it reads a
    file."""
    name, *arguments = words
    program = get_command(main.app)
    known = program.commands  # type: ignore[attr-defined]
    assert name in known or name in {"--help", *(word for option in program.params for word in option.opts)}, line
    if not arguments:  # the page speaks of the command
        return
    if {"--json-schema", "--help"} & set(arguments):  # which print and leave, whatever else is there
        assert main.execute_command(words) == 0, line
        return
    parsed = known[name].make_context(name, list(arguments))  # raises for options that are not there
    if name == "reproduce":
        assert {figure for figure in parsed.params["figures"] if not figure.isupper()} <= {"all", *figures()}, line
    if any(word.isupper() for word in arguments):  # LOGS stands for whatever somebody has
        return
    Path({"report": "report.html", "fit": "model.newcomer"}.get(name, "nothing")).unlink(missing_ok=True)
    if name in ("report", "evaluate") and "--quick" not in words:
        words = [*words, "--quick"]

    def work() -> None:
        assert main.execute_command(words) in ((0, BROKEN) if name in ("check", "report") else (0,)), line

    if name in ("check", "report", "fit", "inspect", "evaluate"):
        run_once(ran, words, work)


@cache
def figures() -> set[str]:
    """Ids of the figures that can be reproduced."""
    with redirect_stdout(io.StringIO()) as told:
        assert main.execute_command(["reproduce", "--list", "--json"]) == 0
    return set(json.loads(told.getvalue())["figures"])


@pytest.mark.parametrize("page", PAGES)
def test_links_and_pictures_and_headings_are_there(page: str) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose_of(page)):
        if re.match(r"[a-z]+:", link):  # the pages of others
            continue
        path, _, heading = unquote(link).partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        name = str(target.resolve().relative_to(ROOT))
        if not target.exists() or (heading and heading not in anchors_of(name)):
            broken.append(link)
    assert broken == []


def test_the_checks_find_what_is_there() -> None:
    """Were a pattern to miss everything, nothing above could fail."""
    assert sum(bool(python_of(page)) for page in PAGES) >= 4
    assert {line.split()[0] for page in PAGES for line in commands_of(page)} == {"newcomer", "make", "python"}
    assert sum("](#" in text or ".md#" in text for text in PAGES.values()) >= 4
    assert "how-the-code-reads" in anchors_of("CONTRIBUTING.md")
    assert len(EXAMPLES) >= 15


def definitions(file: Path) -> set[str]:
    """Functions, classes and methods (`Class.method`) that a file defines, and the names it assigns at the top."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            found |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return found


def test_files_that_the_pages_for_programmers_name_exist() -> None:
    """A `file.py` is a file of the package or of the repository; a `folder/` is a folder of them."""
    package, missing = ROOT / "src" / "newcomer", []
    for page in ("docs/explanation/architecture.md", "docs/how-to/own-policy.md", "CONTRIBUTING.md"):
        named = re.findall(r"`([\w/*]+\.py|[\w/]+/)`", prose_of(page))
        assert named, page
        homes = (package, package / "paper", ROOT, ROOT / "src")
        missing += [name for name in named if not any(any(home.glob(name.rstrip("/"))) for home in homes)]
    assert [name for name in missing if name != "*_loops.py"] == []


def test_functions_that_the_architecture_names_exist() -> None:
    """In its tables a row names one file, and behind it functions, classes and methods that are defined there."""
    missing, seen = [], 0
    for row in re.findall(r"^\|.*\|$", PAGES["docs/explanation/architecture.md"], flags=re.MULTILINE):
        cells = [re.findall(r"`([^`]+)`", cell) for cell in row.strip("|").split("|")]
        if len(cells) == 3 and cells[1]:
            (file,) = cells[1]
            known = definitions(ROOT / "src" / "newcomer" / file)
            missing += [f"{file}: {name}" for name in cells[2] if name not in known]
            seen += len(cells[2])
    assert missing == []
    assert seen >= 40


def test_names_in_the_text_of_the_architecture_exist() -> None:
    """A single word in code font is a module, a definition of the package, or of the CSV that the page begins with."""
    files = sorted((ROOT / "src" / "newcomer").rglob("*.py"))
    known = {name for file in files for whole in definitions(file) for name in (whole, whole.rpartition(".")[2])}
    known |= {file.stem for file in files} | {"newcomer", "ann", "tea", "action"}
    named = set(re.findall(r"`([A-Za-z_]\w*)`", prose_of("docs/explanation/architecture.md")))
    assert {"init", "score", "draws", "_HOME"} <= named
    assert named - known == set()


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_in_docstrings(module: str) -> None:
    found = doctest.testmod(import_module(module))
    assert found.attempted and not found.failed

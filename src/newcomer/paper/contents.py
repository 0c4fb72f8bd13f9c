"""The table of contents of a folder of results: which command made each table, at which commit, from which code.

`contents.csv` has a row for each table: `table`, `command`, `commit` (with a + if the code had changes that were not
committed), `code` and `seconds` (of the processor, of all jobs behind the table, however many tables share them). It is
written by whatever writes a table.

`code` is a hash of the modules that the table rests on: those that its module imports, and theirs, within the packages
that are given, also where an import stands in a function and where a public name is taken from the package itself
(`nc.fit`). Of each module the syntax tree counts, without docstrings, types of arguments, and the sentences of errors,
warnings and prints: comments, layout and documentation do not make a table old. Modules that cannot move a number are
left out (`ASIDE`, and `OF_SERVICE` where no service runs), and so is the list of public names.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import io
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path

import newcomer
from newcomer.files import write_file

NAME = "contents.csv"
PACKAGE = Path(newcomer.__file__).parent
ASIDE = (
    "newcomer.charts",  # pictures are drawn from tables
    "newcomer.paper.panels",  # the same
    "newcomer.reporting",  # pages of HTML
    "newcomer.errors",  # what errors and warnings say: where one is raised is in the module that raises it
    "newcomer.records",  # how records are shown, compared and frozen
    "newcomer.logs.advice",  # sentences about logs
    "newcomer.logs.faults",  # collects what is wrong with a table of logs, and ends in an error
    "newcomer.logs.workers",  # who carries out a pass or a job: the answer is tested to be the same
    "newcomer.run_settings",  # workers, checkpoints, progress: the same
    "newcomer.paper.worlds.download",  # finds the ratings, whose hash is part of every finished job
    "newcomer.paper.contents",  # this file
    "experiments.contents",
    "experiments.markdown",  # tables of pages
    "experiments.results_table",  # writes what it is given
)
SERVICE = "newcomer.serve"
OF_SERVICE = ("newcomer.logs.service_store", "newcomer.linear.state_file")  # only a service has stores and saved states
SPEAKING = {"print", "warn", "warn_caller"}


@dataclass(frozen=True)
class Row:
    """One table."""

    table: str
    command: str
    commit: str
    code: str
    seconds: str


def read(folder: Path) -> dict[str, Row]:
    """The rows of a folder by table; none if there is no table of contents yet."""
    path = folder / NAME
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8", newline="") as lines:
        return {row["table"]: Row(**row) for row in csv.DictReader(lines)}


def record(
    folder: Path, table: str, *, command: str, modules: Sequence[str], seconds: float, packages: Mapping[str, Path]
) -> None:
    """Note that `command` has just written a table of this folder."""
    row = Row(table, command, commit(), code(modules, packages), f"{seconds:.1f}")
    write(folder, read(folder) | {table: row})


def write(folder: Path, rows: Mapping[str, Row]) -> None:
    """Write the table of contents of a folder, tables by name."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(rows[name]) for name in sorted(rows))
    write_file(folder / NAME, out.getvalue().encode())


def commit() -> str:
    """The commit of this code, with a + if files of code differ from it; empty for an installed package."""
    try:
        _git(PACKAGE, "ls-files", "--error-unmatch", "__init__.py")
        head = _git(PACKAGE, "rev-parse", "--short=12", "HEAD")
        changed = _git(PACKAGE, "status", "--porcelain", "--untracked-files=no", ":/*.py")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head + ("+" if changed else "")


def _git(folder: Path, *words: str) -> str:
    found = subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True)
    return found.stdout.strip()


def code(modules: Sequence[str], packages: Mapping[str, Path]) -> str:
    """The hash of the code behind some modules; `packages` are the folders of the packages that count, by name."""
    digest = hashlib.sha256()
    for name in sorted(behind(modules, packages) - {"newcomer"}):  # the version and public names move no number
        path = _file(name, packages)
        assert path is not None
        digest.update(f"{name} {_look(path.read_text(encoding='utf-8')).code}\n".encode())
    return digest.hexdigest()[:16]


def behind(modules: Sequence[str], packages: Mapping[str, Path]) -> set[str]:
    """These modules and all that they import, directly or not, within the packages."""
    found: set[str] = set()
    waiting = [name for name in modules if _file(name, packages)]
    while waiting:
        name = waiting.pop()
        if name in found or _among(name, ASIDE):
            continue
        found.add(name)
        path = _file(name, packages)
        if path is not None and name != "newcomer":  # its public names are imported as they are used
            waiting += _look(path.read_text(encoding="utf-8")).within(packages)
    if any(_among(name, (SERVICE,)) for name in found):
        return found
    return {name for name in found if not _among(name, OF_SERVICE)}


def _among(name: str, rooms: Sequence[str]) -> bool:
    """Whether a module is one of these, or stands in a package that is."""
    return any(name == room or name.startswith(f"{room}.") for room in rooms)


@dataclass(frozen=True)
class _Look:
    """What counts of a file: the hash of its bare syntax tree, its imports, and the names that it takes from there."""

    code: str
    imports: tuple[str, ...]
    names: tuple[tuple[str, str], ...]

    def within(self, packages: Mapping[str, Path]) -> Iterator[str]:
        """The modules of the packages that it imports; of `newcomer` itself those that define the names taken."""
        yield from (name for name in self.imports if _file(name, packages))
        for module, name in self.names:
            home = newcomer._HOME.get(name) if module == "newcomer" else None
            found = f"newcomer.{home}" if home else f"{module}.{name}"
            if _file(found, packages):
                yield found


@cache
def _look(text: str) -> _Look:
    tree = _bare(text)
    imports, names, aliases = list[str](), list[tuple[str, str]](), {"newcomer"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [one.name for one in node.names]
            aliases |= {one.asname for one in node.names if one.name == "newcomer" and one.asname}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imports.append(node.module)
            names += [(node.module, one.name) for one in node.names]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            names.append(("newcomer", node.attr))
    return _Look(hashlib.sha256(_dumped(tree).encode()).hexdigest(), tuple(imports), tuple(names))


def _file(module: str, packages: Mapping[str, Path]) -> Path | None:
    """The file of a module, if it is in one of the packages."""
    first, *rest = module.split(".")
    if first not in packages:
        return None
    path = packages[first].joinpath(*rest)
    return next((one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()), None)


def _dumped(tree: ast.Module) -> str:
    """A tree as text, the same by every Python."""
    if sys.version_info >= (3, 13):
        return ast.dump(tree, show_empty=True).replace(", type_params=[]", "")
    return ast.dump(tree).replace(", type_params=[]", "")


def _bare(text: str) -> ast.Module:
    """The syntax tree of a file without docstrings, what it says to people, and what is for the type checker alone."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            node.exc = node.exc.func
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _name(node.value.func) in SPEAKING:
            node.value = node.value.func
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [one for one in node.body if not _aside(one)] or [ast.Pass()]
    return tree


def _name(called: ast.expr) -> str:
    """The last name of what is called."""
    return called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""


def _aside(node: ast.stmt) -> bool:
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)

"""Guards the shape of the code: imports go down the flow and in no circle, lines are short.

Every import counts, also those inside functions; those for the type checker alone do not. A public name taken from
the package (`from newcomer import fit`, or `nc.fit` after `import newcomer as nc`) counts as an import of the module
that defines it. The package's own `__init__` is the table of these names and no part of the flow.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

import newcomer
from tests.helpers import HANDED_OVER

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "newcomer"
FILES = sorted(SOURCE.rglob("*.py"))

# The flow, a stage a line; a module may import from its own stage and from earlier ones. A stage names folders and
# top-level modules of the package.
FLOW = (
    ("errors", "arrays", "validate", "records", "one_hot", "transforms"),
    ("files", "serialize", "users", "array_loops", "logistic_loops", "encoding"),
    ("subspace", "radius", "interval", "confidence_sequence", "findings", "evidence", "population"),  # no learning
    ("run_settings",),  # who passes over the logs, and what is kept on the way
    ("logs",),
    ("linear",),
    ("sold",),
    ("em",),
    ("catalogue", "model", "_transform"),  # where users are: a model asks for it, and knows nothing of logs itself
    ("local",),
    ("policies",),
    ("gain",),  # what policies would have been worth to held-out users, and what that decides
    ("_warm_start", "outcome", "_fit", "checks"),  # fit makes the cheap checks; the others make fits
    ("compile_cache",),
    ("worlds",),
    ("simulate", "testing"),
    ("evaluation",),
    ("rivals",),  # policies of other authors, for comparison; nothing else imports them
    ("charts",),
    ("reporting",),
    ("serve",),
    ("adapters",),
    ("paper",),
    ("cli", "__main__"),
)
STAGE = {room: stage for stage, rooms in enumerate(FLOW) for room in rooms}
# Beyond the flow: what a saved model is read and asked with must not load what learned it.
APART = {"radius", "evidence", "catalogue", "model", "subspace"}, {"logs", "sold", "em", "_fit", "array_loops"}


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {module_name(path): path for path in FILES}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """Everything in a file but what stands there for the type checker alone."""
    found: list[ast.AST] = [tree_of(path)]
    for node in found:
        typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        found += node.orelse if typing and isinstance(node, ast.If) else ast.iter_child_nodes(node)
    return found


def room(module: str) -> str:
    return module.split(".")[0]


def resolved(name: str) -> str:
    """The module that a dotted name below `newcomer` is, or is defined in."""
    if name in newcomer._HOME:
        name = newcomer._HOME[name]
    return name if name in MODULES else name.rpartition(".")[0]


def imports(path: Path) -> Iterator[str]:
    """The modules of the package that a file imports, wherever in the file and however."""
    aliases = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "newcomer":
                    aliases.add(alias.asname or alias.name)
                elif alias.name.startswith("newcomer."):
                    yield resolved(alias.name.removeprefix("newcomer."))
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: imports are written out from the package down"
            if node.module and room(node.module) == "newcomer":
                for alias in node.names:
                    yield resolved(f"{node.module}.{alias.name}".removeprefix("newcomer."))
    for node in nodes_of(path):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            yield resolved(node.attr)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            texts = [part.value for part in node.args if isinstance(part, ast.Constant)]
            yield from (resolved(text.removeprefix("newcomer.")) for text in texts if text.startswith("newcomer."))


@cache
def edges() -> set[tuple[str, str]]:
    """Pairs of modules of which the first imports the second."""
    return {
        (importer, imported)
        for importer, path in MODULES.items()
        for imported in imports(path)
        if importer and imported not in ("", importer)
    }


def test_the_walk_sees_lazy_imports_and_public_names(tmp_path: Path) -> None:
    file = tmp_path / "walked.py"
    file.write_text(
        "import newcomer as nc\n"
        "from newcomer import fit, __version__\n"
        "from newcomer.cli import options\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from newcomer.model import Model\n"
        "def late():\n    from newcomer.logs.batch import Batch\n    import newcomer.charts.pictures\n"
        "    return nc.play\n"
    )
    seen = {"", "_fit", "cli.options", "logs.batch", "charts.pictures", "simulate"}
    assert set(imports(file)) == seen


def test_every_room_has_its_place_in_the_flow() -> None:
    assert {room(module) for module in MODULES if module} <= STAGE.keys()


def test_imports_go_down_the_flow() -> None:
    up = {(a, b) for a, b in edges() if STAGE[room(a)] < STAGE[room(b)]}
    assert up == set()


def test_what_reads_a_model_loads_nothing_that_learns() -> None:
    readers, learners = APART
    assert {(a, b) for a, b in edges() if room(a) in readers and room(b) in learners} == set()


def test_no_module_imports_itself_by_a_detour() -> None:
    graph: dict[str, set[str]] = defaultdict(set)
    for importer, imported in edges():
        graph[importer].add(imported)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as found:
        ring = found.args[1][::-1]
        pytest.fail("a ring of imports: " + ", ".join(f"{a} -> {b}" for a, b in pairwise(ring)))


def test_only_the_command_reproduce_imports_what_only_the_paper_needs() -> None:
    assert {a for a, b in edges() if room(b) == "paper" and room(a) != "paper"} == {"cli.reproduce"}


def test_no_top_level_module_has_the_name_of_a_public_function() -> None:
    """Importing the module would put it in the place of the function."""
    assert {path.stem for path in SOURCE.glob("*.py")} & set(newcomer.__all__) == set()
    assert {path.name for path in SOURCE.iterdir() if path.is_dir()} & set(newcomer.__all__) == set()


def test_loops_are_compiled_in_their_own_files_only() -> None:
    def compiles(path: Path) -> bool:
        nodes = list(ast.walk(tree_of(path)))
        named = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        named += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        marks = [
            ast.unparse(mark) for node in nodes if isinstance(node, ast.FunctionDef) for mark in node.decorator_list
        ]
        return any(room(name) == "numba" for name in named) or any("jit" in m or "compiled" in m for m in marks)

    elsewhere = {module_name(path) for path in FILES if compiles(path) and not path.stem.endswith("_loops")}
    assert elsewhere == set()


def compiled(node: ast.AST) -> bool:
    """Whether a definition is a compiled loop."""
    marks = [ast.unparse(mark) for mark in node.decorator_list] if isinstance(node, ast.FunctionDef) else []
    return any(mark in ("compiled", "fast") or "jit" in mark for mark in marks)


def calls_of_loops(path: Path) -> Iterator[tuple[str, int]]:
    """The compiled loops that a file calls, or hands to somebody who may, outside of compiled loops; and the lines."""
    tree = tree_of(path)
    names = {node.name: f"{module_name(path)}.{node.name}" for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and room(node.module) == "newcomer":
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}".removeprefix("newcomer.")
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        if compiled(node):
            continue
        left += ast.iter_child_nodes(node)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
            yield names[node.id], node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            yield f"{names[node.value.id]}.{node.attr}", node.lineno


def test_compiled_loops_hand_numbers_to_python_and_nothing_else() -> None:
    """To hand over an array, a tuple or a record Numba runs Python within the call, where Ctrl-C crashes it."""
    returns = {
        f"{module}.{node.name}": ast.unparse(node.returns) if node.returns else ""
        for module, path in MODULES.items()
        for node in tree_of(path).body
        if isinstance(node, ast.FunctionDef) and compiled(node)
    }
    assert {"em.likelihood_loops.likelihood_expectations", "local.tilt_loops.evaluate_tilt_loop"} <= returns.keys()
    unsafe = [
        f"{path.name}:{line} {loop} -> {returns[loop]}"
        for path in FILES
        for loop, line in calls_of_loops(path)
        if returns.get(loop, "None") not in HANDED_OVER
    ]
    assert unsafe == []


def test_every_kind_of_array_has_one_name() -> None:
    """An alias such as `Floats = NDArray[np.float64]` is defined once, where everybody can import it."""
    homes = defaultdict(list)
    for module, path in MODULES.items():
        for node in tree_of(path).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("NDArray[np."):
                homes[ast.unparse(node.value)].append(module)
    assert {"NDArray[np.float64]", "NDArray[np.int64]", "NDArray[np.bool_]"} <= homes.keys()
    assert {kind: places for kind, places in homes.items() if len(places) > 1} == {}


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "tools", "experiments"])
def test_lines_end_within_120_columns(folder: str) -> None:
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        if ".venv" not in path.parts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if len(line) > 120
    ]
    assert long == []


def test_no_test_imports_another() -> None:
    """What several tests share has a file of its own, so that each can be read, run and removed alone."""
    shared = re.compile(
        r"^(?:from|import) tests\.(?:\w+\.)*test_\w+|^from tests[\w.]* import .*\btest_\w+", re.MULTILINE
    )
    assert [
        path.name for path in (ROOT / "tests").rglob("*.py") if shared.search(path.read_text(encoding="utf-8"))
    ] == []

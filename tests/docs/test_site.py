"""Guards the site: every page is in its contents, and what `make docs` asks of the built pages finds what it should."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import newcomer as nc

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def check_site() -> ModuleType:
    return loaded(ROOT / "tools" / "check_site.py")


@pytest.fixture
def generated() -> ModuleType:
    return loaded(DOCS / "_extensions" / "generated.py")


def entries(page: Path) -> set[Path]:
    """The pages that the contents of a page name."""
    lines = "\n".join(TOCTREE.findall(page.read_text(encoding="utf-8"))).splitlines()
    named = [line for line in lines if line and not line.startswith(":")]
    return {(page.parent / f"{name}.md").resolve() for name in named}


def test_every_page_is_in_the_contents_once() -> None:
    """A page that no contents name is not found by a reader, and Sphinx refuses it."""
    pages = sorted(DOCS.rglob("*.md"))
    named = [entry for page in pages for entry in entries(page)]
    assert sorted(named) == sorted(set(pages) - {DOCS / "index.md"})


def test_every_public_name_is_in_the_reference() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("api*.md"))
    told = re.findall(
        r"(?:autofunction|autoclass|autoexception):: newcomer\.(\w+)$|`newcomer\.(__version__)`", pages, re.MULTILINE
    )
    assert sorted("".join(names) for names in told) == sorted(nc.__all__)


def test_members_that_the_reference_names_exist() -> None:
    for page in (DOCS / "reference").glob("api*.md"):
        for name, members in re.findall(r"autoclass:: newcomer\.(\w+)\n   :members: (.*)", page.read_text("utf-8")):
            missing = [one for one in members.split(", ") if not hasattr(getattr(nc, name), one)]
            assert missing == [], name


def test_commands_and_operations_are_written_from_the_package(generated: ModuleType) -> None:
    commands, http = generated.commands(), generated.http()
    assert "### newcomer fit" in commands and "`--reward-transform log1p`" in commands
    assert "### POST /v1/decide" in http and "### Decision" in http
    assert generated.kind({"type": "array", "items": {"type": "number"}}) == "list of (number)"


def test_pages_outside_the_site_are_named(generated: ModuleType) -> None:
    text = "[a](../../experiments/README.md#b) [c](../how-to/check.md) [d](../../examples/whole_life.py)"
    told = generated.named_outside(text, DOCS / "paper", DOCS)
    assert told == "a (`experiments/README.md`) [c](../how-to/check.md) [d](../../examples/whole_life.py)"


def test_docstrings_become_restructured_text(generated: ModuleType) -> None:
    lines = ["Learn `x` of |a| * b.", "", "Parameters", "----------", "logs : a path", "    or `y`.", "", ">>> 1", "1"]
    told = generated.restructured(lines)
    assert told[0] == r"Learn ``x`` of \|a\| \* b."
    assert "``logs``" in told and "    a path" in told and "    or ``y``." in told
    assert told[-4:] == [".. code-block:: pycon", "", "    >>> 1", "    1"]


def test_assets_of_other_hosts_are_found(check_site: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "good.html").write_text('<a href="https://example.org">read</a><img src="a.png"><script src="b.js">')
    (tmp_path / "bad.html").write_text('<script defer src="https://cdn.example.org/x.js"></script>')
    (tmp_path / "worse.css").write_text(
        "@import '//example.org/y.css'; p { background: url(https://example.org/z.png) }"
    )
    found = check_site.outside_assets(tmp_path)
    assert found == [
        "bad.html: https://cdn.example.org/x.js",
        "worse.css: //example.org/y.css",
        "worse.css: https://example.org/z.png",
    ]

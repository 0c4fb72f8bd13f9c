"""Guards the site: every page is in its contents, and what `make docs` asks of the built pages finds what it should."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def check_site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_site", ROOT / "tools" / "check_site.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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

"""Guards the pages of docs/: their Python runs from top to bottom, their links and pictures are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
RUNNABLE = ["your-own.md"]


@pytest.mark.parametrize("name", RUNNABLE)
def test_the_python_of_a_page_runs(name: str) -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), flags=re.DOTALL))
    exec(compile(code, name, "exec", dont_inherit=True), {"__name__": "__main__"})  # noqa: S102 - our own page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_local_links_and_pictures_are_there(page: Path) -> None:
    local = [link for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()) if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []

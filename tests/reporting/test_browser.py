"""The page in a real browser: nothing is loaded, nothing complains, all can be read, also on a phone and on paper."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.browser import CONTRAST, TEXTS, WIDE
from tests.pages import page

KINDS = ["tastes", "broken", "few"]
OPEN = "() => document.querySelectorAll('details').forEach(one => { one.open = true; })"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {kind: page(kind, folder).path for kind in KINDS}


def opened(browser: Any, file: Path, width: int, *, unfold: bool = True) -> Any:
    """The file in a window of this width, everything that folds unfolded."""
    shown = browser.new_page(viewport={"width": width, "height": 800})
    shown.goto(file.as_uri())
    if unfold:
        shown.evaluate(OPEN)
    return shown


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_complains_and_nothing_is_asked_for(browser: Any, pages: dict[str, Path], kind: str) -> None:
    shown = browser.new_page()
    said: list[str] = []
    asked: list[str] = []
    shown.on("console", lambda message: said.append(message.text))
    shown.on("pageerror", lambda error: said.append(str(error)))
    shown.on("request", lambda request: asked.append(request.url))
    shown.goto(pages[kind].as_uri())
    shown.evaluate(OPEN)
    shown.wait_for_load_state("networkidle")
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [pages[kind].as_uri()]
    assert shown.title().startswith("What should newcomers get?"), "nothing that was logged ran"
    assert shown.locator("script, img, iframe, object, embed").count() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_headings_are_in_order_and_pictures_have_words(browser: Any, pages: dict[str, Path], kind: str) -> None:
    shown = opened(browser, pages[kind], 1200)
    levels = shown.evaluate("[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(one => +one.tagName[1])")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    pictures = shown.locator("svg[role=img]")
    for i in range(pictures.count()):
        picture = pictures.nth(i)
        assert (picture.get_attribute("aria-label") or "").strip()
        assert picture.locator("title").first.text_content().strip()
        assert picture.locator("desc").first.text_content().strip()
    assert shown.locator("svg:not([role=img]):not([aria-hidden=true])").count() == 0
    assert shown.evaluate("document.documentElement.lang") == "en"
    links = shown.evaluate("[...document.querySelectorAll('nav a')].map(one => one.getAttribute('href'))")
    assert links and all(link.startswith("#") and shown.locator(link).count() == 1 for link in links)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out(browser: Any, pages: dict[str, Path], kind: str, scheme: str) -> None:
    shown = opened(browser, pages[kind], 1200)
    shown.emulate_media(color_scheme=scheme)
    texts = shown.evaluate(TEXTS)
    assert len(texts) > 20
    assert [one for one in texts if one["ratio"] < CONTRAST] == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [360, 1200])
def test_nobody_scrolls_sideways(browser: Any, pages: dict[str, Path], kind: str, width: int) -> None:
    shown = opened(browser, pages[kind], width)
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    assert shown.evaluate(WIDE) == []


@pytest.mark.parametrize("kind", KINDS)
def test_tables_are_whole_on_a_phone(browser: Any, pages: dict[str, Path], kind: str) -> None:
    """Nothing of a table is cut off, or has to be scrolled to, and every cell says what it is."""
    shown = opened(browser, pages[kind], 360)
    cut = "[...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth + 1).length"
    assert shown.evaluate(cut) == 0
    unnamed = "[...document.querySelectorAll('td, tbody th')].filter(one => !one.dataset.head).length"
    assert shown.evaluate(unnamed) == 0


def test_letters_of_charts_are_of_reading_size_on_a_phone(browser: Any, pages: dict[str, Path]) -> None:
    shown = opened(browser, pages["tastes"], 360)
    heights = shown.evaluate(
        "[...document.querySelectorAll('svg text')].map(one => parseFloat(getComputedStyle(one).fontSize)"
        " * one.ownerSVGElement.getBoundingClientRect().width / one.ownerSVGElement.viewBox.baseVal.width)"
    )
    assert heights and min(heights) >= 10


def test_the_verdict_is_read_first_and_without_scripts(browser: Any, pages: dict[str, Path]) -> None:
    alone = browser.new_context(java_script_enabled=False).new_page()
    for kind, first in (("tastes", "Yes"), ("broken", "No"), ("few", "No")):
        alone.goto(pages[kind].as_uri())
        assert alone.locator("main p").first.inner_text().startswith(first)
        assert alone.locator("header p").count() == 5  # the decision in four sentences, and of which logs


def test_on_paper(browser: Any, pages: dict[str, Path]) -> None:
    shown = opened(browser, pages["tastes"], 1200)
    assert shown.pdf(format="A4").startswith(b"%PDF")
    shown.emulate_media(media="print")
    assert not shown.locator("nav").is_visible()
    styles = "name => [...document.querySelectorAll(name)].map(one => getComputedStyle(one))"
    for name in ("h2", "h3", "caption"):
        assert set(shown.evaluate(f"({styles})('{name}').map(one => one.breakAfter)")) == {"avoid"}, name
    for name in ("table", "figure", "tr"):
        assert set(shown.evaluate(f"({styles})('{name}').map(one => one.breakInside)")) == {"avoid"}, name

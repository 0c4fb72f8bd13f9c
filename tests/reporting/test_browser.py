"""The page in a real browser: nothing is loaded, nothing complains, all can be read, also on a phone and on paper.

Needs Debian's chromium, or another; without one nothing is run, unless NEWCOMER_REQUIRE says that it must be.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.optional import REQUIRED, optional
from tests.pages import page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None and "browser" not in REQUIRED:
    pytest.skip("not run: no chromium", allow_module_level=True)
if "browser" not in REQUIRED:
    optional("playwright")

QUIET = ["--no-sandbox", "--headless", "--disable-gpu", "--disable-quic", "--no-first-run"]
QUIET += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
KINDS = ["tastes", "broken", "few"]
CONTRAST = 4.5

# Every text that is seen, with its colour, that of what is behind it, and the contrast of the two by WCAG's formula.
TEXTS = """() => {
  const parts = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92
    : Math.pow((v + 0.055) / 1.055, 2.4)).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = node => {
    for (; node; node = node.parentElement) {
      const found = parts(getComputedStyle(node).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), seen = [];
  while (walker.nextNode()) {
    const node = walker.currentNode, holder = node.parentElement;
    if (!node.textContent.trim() || ['TITLE', 'DESC'].includes(holder.tagName.toUpperCase())) continue;
    const style = getComputedStyle(holder), drawn = holder.closest('svg') !== null;
    const ink = light(parts(drawn ? style.fill : style.color)), paper = light(behind(holder));
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    seen.push({text: node.textContent.trim().slice(0, 40), ratio, size: parseFloat(style.fontSize)});
  }
  return seen;
}"""
OPEN = "() => document.querySelectorAll('details').forEach(one => { one.open = true; })"
WIDE = """() => [...document.querySelectorAll('body *')].filter(one => !one.closest('.scroll') && !one.closest('svg')
  && one.getBoundingClientRect().right > innerWidth + 0.5).map(one => one.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    assert CHROMIUM is not None, "NEWCOMER_REQUIRE has browser, and there is no chromium"
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield opened
        opened.close()


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

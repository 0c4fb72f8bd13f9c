"""A real browser for tests of pages, and what is asked of every page: contrast, and nothing wider than the window.

Needs Debian's chromium, or another; without one nothing is run, unless NEWCOMER_REQUIRE says that it must be.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.optional import REQUIRED, optional

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = ["--no-sandbox", "--headless", "--disable-gpu", "--disable-quic", "--no-first-run"]
QUIET += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
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
WIDE = """() => [...document.querySelectorAll('body *')].filter(one => !one.closest('.scroll') && !one.closest('svg')
  && one.getBoundingClientRect().right > innerWidth + 0.5).map(one => one.outerHTML.slice(0, 80))"""


def open_browser() -> Iterator[Any]:
    """A browser, closed in the end: what a fixture yields."""
    if CHROMIUM is None and "browser" not in REQUIRED:
        pytest.skip("not run: no chromium")
    if "browser" not in REQUIRED:
        optional("playwright")
    from playwright.sync_api import sync_playwright

    assert CHROMIUM is not None, "NEWCOMER_REQUIRE has browser, and there is no chromium"
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield opened
        opened.close()

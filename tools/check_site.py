"""What `make docs` asks of the built site: no page loads anything from another host, and no page is wider than a phone.

    python tools/check_site.py build/site

The files are read first. Where chromium is installed, every page is opened in it at 360 and 1200 pixels as well, and
requests that are not for files of the site, errors of scripts, text beyond the edge and formulas that are shown as TeX
are failures too.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

LOADS = re.compile(
    r"<(?:script|link|img|iframe|source|object|embed)\b[^>]*?\b(?:src|href|data)=[\"']?([^\"' >]+)", re.IGNORECASE
)
STYLED = re.compile(r"(?:url\(|@import\s+)[\"']?((?:https?:)?//[^\"')\s]+)", re.IGNORECASE)
WIDTHS = (360, 1200)
WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
RAW = r"""() => {
    const text = document.querySelector("article")?.cloneNode(true);
    text?.querySelectorAll("pre, code, script, mjx-container, .math").forEach(one => one.remove());
    return text?.textContent.match(/\\[a-zA-Z]{3,}|\$[^\s$]/)?.[0] ?? "";
}"""  # formulas that were not read as such


def outside_assets(site: Path) -> list[str]:
    """Addresses of other hosts from which a page or a style sheet would load something, with the file that would."""
    found = []
    for path in sorted(site.rglob("*")):
        if path.suffix == ".html":
            loaded = LOADS.findall(path.read_text(encoding="utf-8"))
            loaded += STYLED.findall(path.read_text(encoding="utf-8"))
        elif path.suffix == ".css":
            loaded = STYLED.findall(path.read_text(encoding="utf-8"))
        else:
            continue
        found += [f"{path.relative_to(site)}: {url}" for url in loaded if re.match(r"(https?:)?//", url)]
    return found


def seen_in_browser(site: Path, chromium: str) -> list[str]:
    """What is wrong with pages when a browser shows them: requests elsewhere, errors of scripts, overflowing text."""
    from playwright.sync_api import sync_playwright

    wrong = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: wrong.append(f"{page.url}: {error}"))
        for path in sorted(site.rglob("*.html")):
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                page.goto(path.as_uri())
                beyond = page.evaluate(WIDE)
                if beyond > 0:
                    wrong.append(f"{path.relative_to(site)}: {beyond} pixels too wide at {width}")
            raw = page.evaluate(RAW)
            if raw:
                wrong.append(f"{path.relative_to(site)}: shows {raw!r} outside of a formula")
        wrong += [f"a page asked for {url}" for url in asked if not url.startswith(("file:", "data:", "blob:"))]
        browser.close()
    return wrong


def main(arguments: list[str]) -> int:
    """The command; returns its exit code."""
    site = Path(arguments[0]).resolve()
    wrong = outside_assets(site)
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium:
        wrong += seen_in_browser(site, chromium)
    else:
        print("No chromium here: the pages were read, and not looked at in a browser")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

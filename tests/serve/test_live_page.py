"""The live page: bundled, closed to the outside, and in a real browser, with traffic, at two widths, light and dark."""

from __future__ import annotations

import re
import time
from pathlib import Path

import httpx2
import numpy as np
import pytest

import newcomer as nc
from newcomer.serve.page import FILES, POLICY
from newcomer.serve.recent import Recent
from newcomer.serve.service import Config
from newcomer.serve.shapes import Problem
from newcomer.serve.store_memory import MemoryStore
from tests.browser import CONTRAST, TEXTS, WIDE
from tests.serve.running import model_of, running

ADMIN = "a" * 20
TOKENS = [f"decide {'d' * 20}", f"admin {ADMIN}"]
NAMES = ("<script>document.title='taken'</script>", "A" * 200, '"><img src=https://example.com/x.png>', *"bcdefgh")
SHOWN = "document.querySelector('#curve path.line') !== null && document.querySelector('#rate').textContent !== '–'"


def traffic(client, users=240, steps=3, seed=0):
    """Newcomers whose treated decisions bring more each time."""
    rng = np.random.default_rng(seed)
    for step in range(steps):
        made = client.decide_batch([{"user": f"u{seed}-{i}"} for i in range(users)])
        gain = {"treated": 1.0 + 0.5 * step, "control": 0.8, "random": 0.0}
        rewards = [{"decision": d["decision"], "reward": gain[d["arm"]] + 0.4 * rng.normal()} for d in made]
        client.reward_batch(rewards)


# Without a browser.


def test_files_are_bundled_and_closed_to_the_outside():
    with running(MemoryStore(), tokens=TOKENS) as one, httpx2.Client(base_url=one.url) as http:
        for path, name in FILES.items():
            answer = http.get(path)
            assert answer.status_code == 200 and answer.headers["content-security-policy"] == POLICY, name
            assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", answer.text), name
            assert answer.headers["x-content-type-options"] == "nosniff"
        assert 'data-token="needed"' in http.get("/").text
        assert "unsafe" not in POLICY and POLICY.startswith("default-src 'none'")
        assert http.get("/page/__init__.py").status_code == 404
        style = re.compile(r"\sstyle=|\son\w+=")
        assert not style.search(http.get("/").text), "the policy would refuse it"


def test_the_wheel_has_the_files(tmp_path):
    folder = Path(nc.__file__).parent / "serve" / "page"
    assert {path.name for path in folder.iterdir() if path.suffix in (".html", ".css", ".js")} == set(FILES.values())
    config = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text()
    assert 'packages = ["src/newcomer"]' in config  # hatchling packs every file below, whatever its kind


def test_status_tells_what_happened_lately():
    with running(MemoryStore(), Config(random=0.0, control=0.0)) as one, nc.Client(one.url, tries=1) as client:
        for i in range(5):
            client.decide(f"u{i}", candidates=[3])
        client.decide("slate", candidates=[3, 4], top=2)
        for _ in range(2):
            with pytest.raises(nc.StoreError):
                client.decide("u", candidates=[])
        staged = client.stage(model_of(seed=3).to_bytes())
        told = client.status()
        assert told.served[0].action == 3 and told.served[0].share == pytest.approx(6 / 7)
        assert sum(told.speed.last_minute) in range(7) and len(told.speed.last_minute) == 60
        assert 0 < told.speed.p50 <= told.speed.p99
        assert [(e.route, e.status, e.code, e.count) for e in told.errors] == [("post_decide", 422, "no_candidates", 2)]
        assert {model.id: model.status for model in told.models} == {told.model: "serving", staged.id: "staged"}
        assert told.shares.treated == 1.0 and told.users == 6 and told.arms == {"treated": 6}


def test_slow_counts_are_told_again_for_a_while(monkeypatch):
    with running(MemoryStore()) as one, nc.Client(one.url) as client:
        client.decide("a")
        assert client.status().users == 1
        client.decide("b")
        assert client.status().users == 2
        monkeypatch.setattr("newcomer.serve.status.WORTH", -1.0)
        monkeypatch.setattr("newcomer.serve.status.PAUSE", 1e6)
        assert client.status().users == 2
        client.decide("c")
        assert client.status().users == 2


def test_the_last_minute():
    now = [100.0]
    recent = Recent(lambda: now[0])
    assert recent.speed().per_second == 0 and recent.speed().p50 is None and recent.served() == []
    for second in range(300):
        now[0] = 100.0 + second
        recent.decided([second % 3])
        recent.decided(["x"])
    now[0] = 400.5
    assert recent.speed().last_minute == [2] * 60 and recent.speed().per_second == 2.0
    assert recent.served()[0].action == "x" and len(recent.seconds) <= 121
    for i in range(30):
        recent.refused("r", 422, Problem(f"c{i}", ""))
    assert len(recent.errors) == 20 and recent.errors[0].code == "c29"


# In a browser.


@pytest.fixture(scope="module")
def busy():
    """A service with traffic, errors, and names that would break a page which takes them as they are."""
    config = Config(random=0.3, control=0.3)
    model = model_of(len(NAMES), ids=NAMES)
    with running(MemoryStore(), config, model) as one, nc.Client(one.url, tries=1) as client:
        traffic(client)
        client.decide("alone")
        client.stage(model_of(len(NAMES), ids=NAMES, seed=4).to_bytes())
        with pytest.raises(nc.StoreError):
            client.reward("none", 1.0)
        one.client = client
        yield one


def wait(page, condition, seconds=120.0):
    """Until the condition holds; the browser's own waiting would need `eval`, which the page's policy refuses."""
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        page.wait_for_timeout(50)


def opened(browser, url, *, width=1200, scheme="light"):
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.said, page.asked = [], []
    page.on("console", lambda message: page.said.append(message.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.on("request", lambda request: page.asked.append(request.url))
    page.goto(url)
    wait(page, SHOWN)
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_it_is_read_at_any_width_and_in_any_light(browser, busy, width, scheme):
    page = opened(browser, busy.url, width=width, scheme=scheme)
    assert page.said == []
    assert all(url.startswith((busy.url, "data:")) for url in page.asked)
    assert page.evaluate("document.documentElement.scrollWidth") <= width and page.evaluate(WIDE) == []
    texts = page.evaluate(TEXTS)
    assert len(texts) > 40 and [one for one in texts if one["ratio"] < CONTRAST] == []
    assert min(one["size"] for one in texts) >= 12
    assert page.title() == "newcomer", "nothing that was logged ran"
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(one => +one.tagName[1])")
    assert levels[0] == 1 and levels.count(1) == 1
    unnamed = "[...document.querySelectorAll('svg[role=img]')].filter(one => !one.getAttribute('aria-label')).length"
    assert page.evaluate(unnamed) == 0
    page.close()


def test_numbers_are_those_of_the_service(browser, busy):
    page, lift = opened(browser, busy.url), busy.client.lift()
    assert page.inner_text("#lift-words") == lift.words[0]
    assert page.locator("#forest .row").count() == len(lift.lift) == 2
    assert page.locator("#curve path.line").count() == 3 and page.locator("#gain path.band").count() == 1
    assert page.locator("#arms .row").count() == 3 and "staged" in page.inner_text("#models")
    assert "404 unknown_decision" in page.inner_text("#errors")
    served = [str(one.action) for one in busy.client.status().served]
    assert page.locator("#actions .what span:first-child").all_text_contents() == served
    page.close()


def test_it_is_refreshed_in_place(browser, busy):
    page = opened(browser, busy.url)
    page.evaluate("""() => {
      window.kept = [...document.querySelectorAll('#curve path.line, #forest .row, #arms .row')];
    }""")
    before = page.inner_text("#users")
    traffic(busy.client, users=60, seed=1)
    wait(page, f"document.querySelector('#users').textContent !== '{before}'")
    page.wait_for_timeout(4_500)
    assert page.evaluate("window.kept.every(one => one.isConnected)")
    assert page.said == []
    page.close()


def test_the_shell_asks_for_the_token_and_says_when_the_service_is_away(browser):
    with running(MemoryStore(), Config(random=0.3, control=0.3), tokens=TOKENS) as one:
        with nc.Client(one.url, token=ADMIN) as client:
            traffic(client, users=80)
        page = browser.new_page()
        said = []
        page.on("console", lambda message: said.append(message.text))
        page.goto(one.url)
        page.wait_for_selector("#ask:not([hidden])")
        assert not page.locator("#main").is_visible() and said == []
        page.fill("#token", ADMIN)
        page.click("button")
        page.wait_for_selector("#main:not([hidden])")
        assert ADMIN not in page.url and page.input_value("#token") == ""
        wait(page, SHOWN)
    wait(page, "document.querySelector('#state').textContent.includes('does not answer')")
    assert page.locator("#main").is_visible(), "what was known stays"
    page.close()

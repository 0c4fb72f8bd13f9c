"""Every curl line of docs/service.md, sent in the order of the page; answers have the keys that it shows."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import httpx2

from newcomer.serve.service import Config
from newcomer.serve.store_memory import MemoryStore
from tests.serve.running import model_of, running

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "service.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(sh|json)\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)


def test_the_page_is_true(tmp_path):
    model_of().save(tmp_path / "model.newcomer")
    known = {"DECISION": "", "MODEL": ""}
    with running(MemoryStore(), Config()) as one, httpx2.Client() as http:
        answer, sent = None, 0
        for language, text in BLOCKS:
            if language == "json":
                assert set(json.loads(text)) <= set(answer), text
                continue
            for line in text.splitlines():
                for word, value in known.items():
                    line = line.replace(word, value)
                response = curl(http, line, one.url, tmp_path)
                assert response.status_code == 200, (line, response.text)
                sent += 1
                if response.headers["content-type"] == "application/json":
                    answer = response.json()
                    known["DECISION"] = answer.get("decision", known["DECISION"])
                    known["MODEL"] = answer.get("id", known["MODEL"])
        assert sent >= 12


def curl(http, line, url, folder):
    """Send what a curl line would."""
    words = iter(shlex.split(line)[1:])
    method, content, address = None, None, ""
    for word in words:
        if word == "-X":
            method = next(words)
        elif word in ("-d", "--data-binary"):
            given = next(words)
            content = (folder / given[1:]).read_bytes() if given.startswith("@") else given.encode()
        else:
            address = word.replace("http://127.0.0.1:8321", url)
    return http.request(method or ("GET" if content is None else "POST"), address, content=content)

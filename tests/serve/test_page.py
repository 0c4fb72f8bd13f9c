"""Every curl line of docs/how-to/serve.md, sent in the order of the page; answers have the keys that it shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx2

from newcomer.serve.service import Config
from newcomer.serve.store_memory import MemoryStore
from tests.serve.running import curl, model_of, running

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "serve.md").read_text(encoding="utf-8")
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

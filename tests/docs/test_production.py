"""docs/production.md: its loop is run as it stands; metrics, tables, files of containers and options are there."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import httpx2
import numpy as np
import pytest
import yaml
from typer.main import get_command

import newcomer as nc
from newcomer.cli import main
from newcomer.model import load
from newcomer.serve.migrations import STEPS
from newcomer.serve.routes import OPERATIONS
from newcomer.serve.service import Config
from newcomer.serve.store_sqlite import SqliteStore
from tests.serve.running import running
from tests.serve.test_page import curl

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "production.md").read_text(encoding="utf-8")
LINES = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]


def some_logs(path: Path) -> None:
    rng = np.random.default_rng(0)
    factor, lines = rng.standard_normal((10, 2)), ["user,step,action,reward"]
    for user in range(200):
        z = rng.standard_normal(2)
        for step, action in enumerate(rng.integers(0, 10, 8)):
            lines.append(f"u{user},{step},a{action},{3 + factor[action] @ z + 0.5 * rng.standard_normal():.3f}")
    path.write_text("\n".join(lines) + "\n")


def test_once_around_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command of the page, in order; between the first decision and the export a few hundred users come."""
    monkeypatch.chdir(tmp_path)
    some_logs(tmp_path / "logs.csv")
    before = LINES[: LINES.index("newcomer serve model.newcomer")]
    for line in before:
        assert main.execute(shlex.split(line)[1:]) in (0, 5), line
    model, known = load(tmp_path / "model.newcomer"), {"DECISION": "", "MODEL": ""}
    config = Config(random=0.5, control=0.1)
    with running(SqliteStore(tmp_path / "model.newcomer.store"), config, model) as one, httpx2.Client() as http:
        for line in LINES[len(before) + 1 :]:
            for word, value in known.items():
                line = line.replace(word, value)
            if line.startswith("newcomer "):
                assert main.execute(shlex.split(line)[1:]) in (0, 5), line
                continue
            if "/v1/lift" in line:
                come(one.url)
            line, _, kept = line.partition(" -o ")
            answer = curl(http, line, one.url, tmp_path)
            assert answer.status_code == 200, (line, answer.text)
            if kept:
                (tmp_path / kept).write_bytes(answer.content)
            else:
                known["DECISION"] = answer.json().get("decision", known["DECISION"])
                known["MODEL"] = answer.json().get("id", known["MODEL"])
        with nc.Client(one.url) as client:
            assert client.models().serving == load(tmp_path / "next.newcomer").id != model.id
            assert client.models().generation == 2


def come(url: str) -> None:
    """Users of a service."""
    rng = np.random.default_rng(1)
    with nc.Client(url) as client:
        for _ in range(4):
            made = client.decide_batch([{"user": f"new-{i}"} for i in range(200)])
            client.reward_batch([{"decision": d["decision"], "reward": 3 + rng.normal()} for d in made])


def test_metrics_and_tables_of_the_page_are_those_of_the_service(tmp_path: Path) -> None:
    with running(SqliteStore(tmp_path / "s")) as one, nc.Client(one.url) as client:
        client.reward(client.decide("u").decision, 1.0)
        there = httpx2.get(f"{one.url}/metrics").text
    named = set(re.findall(r"newcomer_[a-z_]+", PAGE))
    assert len(named) >= 7 and not [name for name in named if name not in there]
    tables = set(re.findall(r"CREATE TABLE (\w+)", "".join(statement for step in STEPS for statement in step)))
    section = PAGE.split("## What is kept about people")[1]
    told = set(
        re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `")))
    )
    assert told < tables
    about_nobody = {"meta", "counter", "models", "generations", "shares", "repeatabilities", "lift"}
    assert tables - told == about_nobody


def test_a_back_up_is_made_while_the_service_runs(tmp_path: Path) -> None:
    command = re.search(r"`python -m apsw (\S+) \"(\.backup (\S+))\"`", PAGE)
    assert command
    with running(SqliteStore(tmp_path / "model.newcomer.store")) as one, nc.Client(one.url) as client:
        client.reward(client.decide("u").decision, 1.0)
        subprocess.run([sys.executable, "-m", "apsw", command[1], command[2]], cwd=tmp_path, check=True, timeout=60)
    with running(SqliteStore(tmp_path / command[3])) as one, nc.Client(one.url) as client:
        assert client.user("u").outcomes == 1 and client.lift().arms[0].mean == 1.0


# Containers.


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile."""
    joined = re.sub(r"\\\n\s*", " ", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]  # type: ignore[misc]


def test_the_dockerfile_copies_what_there_is_and_starts_what_exists() -> None:
    found = instructions((ROOT / "Dockerfile").read_text())
    known = {"FROM", "ENV", "WORKDIR", "COPY", "RUN", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert found[0][0] == "FROM" and {name for name, _ in found} == known
    ignored = (ROOT / ".dockerignore").read_text().split()
    for name, rest in found:
        if name == "COPY":
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists() and f"!{source}" in ignored, source
    one = dict(found)
    assert found.index(("USER", "newcomer")) < [name for name, _ in found].index("CMD"), "not as root"
    check_command([*json.loads(one["ENTRYPOINT"]), *json.loads(one["CMD"])])
    assert one["EXPOSE"] == "8321" and "http://127.0.0.1:8321/healthz" in one["HEALTHCHECK"]
    pinned = re.search(r"-c (\S+) '\.\[(\S+)\]'", " ".join(rest for name, rest in found if name == "RUN"))
    assert pinned and (ROOT / pinned[1]).exists()
    extras = (ROOT / "pyproject.toml").read_text()
    assert all(re.search(rf"^{extra} = \[", extras, flags=re.MULTILINE) for extra in pinned[2].split(","))


def check_command(words: list[str]) -> None:
    """A command of the command line, with options that it has."""
    assert words[0] == "newcomer"
    command = get_command(main.app).commands[words[1]]  # type: ignore[attr-defined]
    options = {name for one in command.params for name in one.opts}
    assert {word for word in words if word.startswith("--")} <= options


def test_the_compose_file_is_sound() -> None:
    found = yaml.safe_load((ROOT / "compose.yaml").read_text())
    service, store = found["services"]["newcomer"], found["services"]["store"]
    check_command(["newcomer", *service["command"]])
    assert service["build"] == "." and service["depends_on"] == {"store": {"condition": "service_healthy"}}
    address = service["environment"]["NEWCOMER_STORE"]
    user, database = (store["environment"][f"POSTGRES_{name}"] for name in ("USER", "DB"))
    assert re.fullmatch(rf"postgresql://{user}:\$\{{POSTGRES_PASSWORD:\?.*\}}@store:5432/{database}", address)
    assert service["environment"]["NEWCOMER_TOKENS"] == "/run/secrets/tokens" and "tokens" in found["secrets"]
    assert service["ports"] == ["127.0.0.1:8321:8321"], "a proxy stands before it"
    for one in (service, store):
        for volume in one["volumes"]:
            source = volume.split(":")[0]
            assert source in found["volumes"] or source.startswith("./")
    assert "healthz" in {operation.path.strip("/") for operation in OPERATIONS}
    source = (ROOT / "src" / "newcomer" / "cli" / "serve.py").read_text()
    assert all(name in source for name in service["environment"])


def test_containers_are_built_where_a_daemon_answers() -> None:
    """Elsewhere the files were read above."""
    with suppress(FileNotFoundError, subprocess.TimeoutExpired):
        if subprocess.run(["docker", "info"], capture_output=True, timeout=10, check=False).returncode == 0:
            subprocess.run(["docker", "build", "-q", str(ROOT)], check=True, timeout=1800)

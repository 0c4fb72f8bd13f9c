"""docs/how-to/production.md: metrics and tables are those of the service, back-ups are made, files of containers are
sound."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import httpx2
import yaml
from typer.main import get_command

import newcomer as nc
from newcomer.cli import main
from newcomer.serve.migrations import STEPS
from newcomer.serve.routes import OPERATIONS
from newcomer.serve.store_sqlite import SqliteStore
from tests.serve.running import running

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "production.md").read_text(encoding="utf-8")


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
    runs = " ".join(rest for name, rest in found if name == "RUN")
    pins = re.findall(r"requirements/\w+\.txt", runs)
    assert len(pins) == 2 and all((ROOT / one).exists() for one in pins)
    given = (ROOT / re.findall(r"-c (requirements/\S+)", runs)[0]).read_text()
    assert not re.search("^-r", given, flags=re.MULTILINE), "pip would install all of it"
    installed = re.search(r"'\.\[(\S+)\]'", runs)
    extras = (ROOT / "pyproject.toml").read_text()
    assert installed and all(re.search(rf"^{one} = \[", extras, flags=re.MULTILINE) for one in installed[1].split(","))


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

"""Guards the benchmark of scale: every section runs at a tiny size, and its page says what its rows say."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from benchmarks import processes, scale, scale_page
from benchmarks.scale_summary import with_summary

from tests.optional import optional


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "SIZES", (200,))
    monkeypatch.setattr(scale, "DIMS", (10, 50))
    monkeypatch.setattr(scale, "CATALOGUES", (50, 1000))
    monkeypatch.setattr(scale, "SHARE", 1)


def test_a_process_is_measured_from_outside_with_its_workers() -> None:
    took = processes.run("tests.busy", [])
    assert took.told["asked"] == 0.6
    assert took.cpu >= 0.6 and took.wall > 0.2 and took.peak > 5


def test_sections_run_and_the_page_is_written_from_what_is_kept(tmp_path: Path, monkeypatch, capsys) -> None:
    scale.main(["--users", "400", "--out", str(tmp_path), "local"])
    rows = pl.read_csv(tmp_path / "scale.csv")
    fits = rows.filter(pl.col("what").is_in(["SOLD", "default fit"]))
    assert (fits["cpu"] > 0).all() and (fits["peak_mb"] > 50).all() and (fits["passes"] >= 1).all()
    monkeypatch.setattr(scale, "BOTH", ("sold",))
    scale.main(["--users", "400", "--out", str(tmp_path), "growth", "dimension", "actions", "shuffle", "workers"])
    again = scale_page.load(tmp_path)
    assert again.filter(pl.col("section") == "local").equals(scale_page.load(tmp_path)[: len(rows)])
    assert set(again["section"]) == set(scale.SECTIONS) - {"cluster", "ratings"}
    page = (tmp_path / "scale.md").read_text()
    assert page in capsys.readouterr().out
    assert "of the three bare steps" in page and "Times as fast with two workers" in page and "exponents" in page
    with pytest.raises(SystemExit):
        scale.main(["nothing"])


def test_a_cluster_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    optional("distributed", name="dask")
    monkeypatch.setattr(scale, "BOTH", ("sold",))
    scale.main(["--users", "400", "--out", str(tmp_path), "cluster"])
    assert "Times the CPU of one process" in (tmp_path / "scale.md").read_text()


def test_ratings_are_measured_without_the_peer_where_it_is_not_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    data = tmp_path / "ml-1m"
    data.mkdir()
    lines = [f"{u}::{f}::{1 + (u * f) % 5}::{978300000 + u * f % 97}" for u in range(40) for f in range(1, 12)]
    (data / "ratings.dat").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("NEWCOMER_DATA", str(data))
    monkeypatch.setattr(scale, "PEERS", tmp_path / "nowhere")
    scale.main(["--films", "8", "--out", str(tmp_path), "ratings"])
    rows = scale_page.load(tmp_path)
    assert rows["rows"].to_list() == [40 * 8] and "left out: implicit" in capsys.readouterr().err


def test_the_page_says_what_was_measured() -> None:
    """docs/how-to/scale.md stands in the repository with the numbers of docs/benchmarks/scale.csv."""
    page = (processes.ROOT / "docs" / "how-to" / "scale.md").read_text()
    kept = scale_page.load(processes.ROOT / "docs" / "benchmarks")
    assert with_summary(page, kept, scale_page.VERDICTS) == page
    assert with_summary("no marks", kept, scale_page.VERDICTS) == "no marks"

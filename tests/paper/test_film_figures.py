"""Guards figures on MovieLens, at the quick scale, on made-up ratings: eigenvalues with their ranks, and readings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from experiments.figure_numbers import SAY, read_table

from newcomer.paper.catalogue import APART, FIGURES, do, open_folder
from newcomer.paper.figures import eigenvalues, readings
from newcomer.paper.jobs import JobFolder
from newcomer.paper.scale import FILMS, QUICK


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> JobFolder:
    folder = tmp_path_factory.mktemp("jobs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        return open_folder(QUICK, data=None, work=folder)


def test_the_table_of_eigenvalues_says_what_the_rank_test_answers(kept: JobFolder, tmp_path: Path) -> None:
    figure = FIGURES["eigenvalues"]
    for job in figure.fits(QUICK):
        do(job, kept)
    frame = figure.table(kept)
    for world in FILMS:
        own = {series: frame.filter(world=world, series=series) for series in frame["series"].unique()}
        model = kept.model(eigenvalues.open_rank(QUICK, world))
        shown = own[eigenvalues.ESTIMATE]
        np.testing.assert_allclose(shown["eigenvalue"], model.spectrum[: len(shown)])
        found, true = (own[name].row(0, named=True) for name in (eigenvalues.ESTIMATE, eigenvalues.TRUTH))
        assert (found["rank"], true["rank"]) == (model.rank, QUICK.rank)
        assert true["rank_covariance"] in (QUICK.rank, QUICK.rank - 1)
    frame.write_csv(tmp_path / "eigenvalues.csv")
    assert "| of the second moment | of the covariance |" in SAY["eigenvalues"](
        read_table(tmp_path / "eigenvalues.csv")
    )


def test_a_reading_has_every_claim_and_the_range_of_its_radius(kept: JobFolder) -> None:
    run, name = APART["readings"].run, readings.AFTERWARDS
    assert run is not None
    rows = run(kept.setting, reading=name, seed=1)
    other = rows.with_columns(seed=pl.lit(2, dtype=rows["seed"].dtype), radius=3 * pl.col("radius"))
    table = readings.table(pl.concat([rows, other]))
    assert len(table) == len(readings.BOUNDS) * len(readings.TAUS) * 8 and set(table["reading"]) == {name}
    assert np.allclose(table["radius_most"], 3 * table["radius_least"])
    assert np.allclose(table["radius"], 2 * table["radius_least"])
    assert "3 data sets" in APART["readings"].caption(QUICK) and "ridge 2" in APART["readings"].caption(QUICK)


def test_the_first_readings_are_those_that_were_fixed_and_one_came_afterwards(kept: JobFolder) -> None:
    assert list(readings.READINGS) == [*readings.FIXED, readings.AFTERWARDS]
    together = readings.FIXED["all together"]
    assert replace(readings.READINGS[readings.AFTERWARDS], ridge=12.0, evenly=False) == together


def test_a_logger_uniform_over_movies_shows_each_equally_often(kept: JobFolder) -> None:
    place = readings.world_of(readings.Reading(), kept.setting)
    (batch,) = readings.uniform_over_movies(place).logs(2000, 20, 0).batches(10**6)
    counts = np.bincount(batch.actions, minlength=len(place.catalogue))
    mean = 2000 * 20 / len(counts)
    assert np.abs(counts - mean).max() < 6 * np.sqrt(mean)
    assert place.factors is readings.uniform_over_movies(place).factors

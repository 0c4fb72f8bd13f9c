"""Guards that files written by earlier versions are read: models, moments, states of every policy, a checkpoint."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import newcomer as nc
from tests import saved_files
from tests.saved_files import FOLDER, MODELS

EXPECTED = json.loads((FOLDER / "expected.json").read_text())


@pytest.fixture(scope="module")
def models():
    return {name: nc.load(FOLDER / f"{name}.newcomer") for name in MODELS}


@pytest.mark.parametrize("name", MODELS)
def test_models_are_read_and_keep_their_id(models, name):
    said, model = EXPECTED["models"][name], models[name]
    assert model.id == said["id"] and model.rank == said["rank"]
    np.testing.assert_array_equal(model.mean, said["mean"])


@pytest.mark.parametrize("name", EXPECTED["states"])
def test_states_are_read_and_decide_as_they_did(models, name):
    policy = saved_files.policies(models)[name]
    state = type(policy.start(0)).from_bytes((FOLDER / f"{name}.state").read_bytes())
    said = EXPECTED["states"][name]
    np.testing.assert_allclose(saved_files.said(name, policy, state, models), said["probabilities"], atol=1e-12)
    scores = saved_files.scores(name, policy, state, models)
    assert (scores is None) == (said["scores"] is None)
    if scores is not None:
        np.testing.assert_allclose(scores, said["scores"], rtol=1e-9, atol=1e-12)
    assert type(state).from_bytes(state.to_bytes()) == state


def test_moments_are_read_and_added_to():
    again = nc.fit(saved_files.logs(), rank=2, estimator="sold", start=FOLDER / "sold.moments")
    assert again.evidence.logs.users == EXPECTED["again"]["users"]
    np.testing.assert_allclose(again.spectrum, EXPECTED["again"]["spectrum"], rtol=1e-9)


def test_a_checkpoint_is_resumed(tmp_path):
    folder = tmp_path / "checkpoint"
    shutil.copytree(FOLDER / "checkpoint", folder)
    made = []
    options = {"rank": 1, "null": False, "calibrate": False}
    found = nc.fit(
        saved_files.logs(), **options, run=nc.Run(checkpoint=folder, resume=True, progress=lambda *_: made.append(1))
    )
    every = []
    alone = nc.fit(saved_files.logs(), **options, run=nc.Run(progress=lambda *_: every.append(1)))
    # The passes that were kept added up in another order: the last digits are theirs.
    np.testing.assert_allclose(found.mean, alone.mean, rtol=1e-9)
    np.testing.assert_allclose(found.factor, alone.factor, rtol=1e-7, atol=1e-9)
    # Its first pass was made by a map that has another name today: from there on all passes are made again.
    assert len(made) <= len(every)

"""Guards the model file: what is read is what was written, and what cannot be trusted is refused in one sentence."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

import newcomer as nc
from newcomer.errors import ModelError
from newcomer.files import pack, unpack
from newcomer.worlds import Synthetic


@pytest.fixture(scope="module")
def model():
    return nc.fit(Synthetic.learnable(dim=8, seed=0).logs(400, 10, seed=0), estimator="sold")


def header_of(data):
    size = int.from_bytes(data[:8], "little")
    return json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["newcomer"])


def test_a_saved_model_is_the_same_model(model, tmp_path):
    path = tmp_path / "deep" / "m.newcomer"
    model.save(path)
    again = nc.load(path)
    for name in ("basis", "spectrum", "mean", "factor"):
        np.testing.assert_array_equal(getattr(again, name), getattr(model, name))
    assert again.noise_variance == model.noise_variance and again.rank == model.rank
    assert again.evidence == model.evidence and again.parameters == model.parameters
    assert again.radius("martingale", clip=False, simplified=True) == model.radius(
        "martingale", clip=False, simplified=True
    )
    assert [p.name for p in path.parent.iterdir()] == ["m.newcomer"]


def test_the_header_says_what_the_file_is(model):
    header = header_of(model.to_bytes())
    assert header["format"] == 1 and header["kind"] == "model" and header["dim"] == 8
    for key in ("rank", "estimator", "parameters", "evidence", "fingerprint", "versions", "created", "sha256"):
        assert key in header


def test_action_ids_and_arrays_that_are_not_contiguous_survive(model):
    logs = nc.Logs.from_arrays(
        user=[1, 1, 2, 2, 3, 3], action=["a", "b", "b", "a", "a", "b"], reward=[1, 0, 1, 0, 2, 1]
    )
    fitted = nc.fit(logs, rank=1, estimator="sold")
    assert nc.Model.from_bytes(fitted.to_bytes()).action_ids == ("a", "b")
    turned = nc.Model(basis=model.basis[::-1], spectrum=model.spectrum[::-1], mean=model.mean[::-1],
                      factor=model.factor.T.copy().T, noise_variance=1.0)  # fmt: skip
    again = nc.Model.from_bytes(turned.to_bytes())
    np.testing.assert_array_equal(again.basis, turned.basis)
    np.testing.assert_array_equal(again.factor, turned.factor)


def test_every_truncation_is_refused(model, tmp_path):
    data = model.to_bytes()
    path = tmp_path / "m.newcomer"
    for size in [0, 4, 8, 50, len(data) // 2, len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(ModelError) as error:
            nc.load(path)
        assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_altered_bytes_are_refused(model):
    data = bytearray(model.to_bytes())
    data[-3] ^= 1
    with pytest.raises(ModelError, match="checksum"):
        nc.Model.from_bytes(bytes(data))


def test_newer_formats_and_other_kinds_are_refused(model):
    data = model.to_bytes()
    header = header_of(data) | {"format": 2}
    newer = save_tensors(load_tensors(data), metadata={"newcomer": json.dumps(header)})
    with pytest.raises(ModelError, match="upgrade newcomer"):
        nc.Model.from_bytes(newer)
    with pytest.raises(ModelError, match="kind 'state'"):
        nc.Model.from_bytes(pack("state", {"x": np.zeros(2)}, {}))
    with pytest.raises(ModelError, match="not a newcomer file"):
        nc.Model.from_bytes(save_tensors({"x": np.zeros(2)}))
    with pytest.raises(ModelError, match="lacks"):
        nc.Model.from_bytes(pack("model", {"basis": np.zeros((2, 1))}, {}))


def test_a_missing_file_and_a_folder_are_said(tmp_path):
    with pytest.raises(ModelError, match="No such file"):
        nc.load(tmp_path / "none")
    with pytest.raises(ModelError, match="cannot be read"):
        nc.load(tmp_path)


def test_an_interrupted_write_leaves_the_old_file(model, tmp_path, monkeypatch):
    path = tmp_path / "m.newcomer"
    model.save(path)
    before = path.read_bytes()

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr("newcomer.files.os.fsync", broken)
    with pytest.raises(OSError, match="disk full"):
        model.save(path)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_pack_keeps_types_and_shapes():
    arrays = {"a": np.arange(6, dtype=np.int32).reshape(2, 3).T, "b": np.array(True), "c": np.empty((0, 4))}
    back, facts = unpack(pack("test", arrays, {"x": [1, None]}), "test")
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == array.dtype
    assert facts["x"] == [1, None]

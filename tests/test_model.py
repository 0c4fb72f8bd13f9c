"""Guards the model file: what is read is what was written, and what cannot be trusted is refused in one sentence."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numba.types import Array
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

import newcomer as nc
from newcomer.errors import ModelError, OutputError
from newcomer.evidence import Evidence
from newcomer.files import pack_file, unpack_file
from newcomer.worlds import Synthetic
from tests.helpers import plain_model

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def model():
    return nc.fit(Synthetic.learnable(dim=8, seed=0).logs(400, 10, seed=0), estimator="sold")


@pytest.fixture(scope="module")
def with_items():
    rng = np.random.default_rng(0)
    user, action = np.repeat(np.arange(40), 6), rng.integers(0, 5, 240)
    items = pl.DataFrame(
        {"action": list("edcba"), "name": [f"item {i}" for i in range(5)], "x": rng.standard_normal(5), "y": range(5)}
    )
    reward = items["x"].to_numpy()[action] + rng.standard_normal(240)
    logs = nc.Logs.from_arrays(user=user, action=items["action"].to_numpy()[action], reward=reward, items=items,
                               intercept=True)  # fmt: skip
    return nc.fit(logs, rank=1, estimator="sold")


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
    assert header["format"] == 3 and header["kind"] == "model" and header["dim"] == 8
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


def outcome(read, data):
    """What reading these bytes gives, as something that can be compared; or that they were refused in one sentence."""
    try:
        return read(data)
    except ModelError as error:
        assert "\n" not in str(error)
        return "refused"


def flips_are_refused_or_harmless(read, data, seed):
    whole, refused = read(data), 0
    for bit in np.random.default_rng(seed).integers(0, 8 * len(data), 500).tolist():
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        found = outcome(read, bytes(flipped))
        assert found == whole or found == "refused"
        refused += found == "refused"
    assert refused > 450  # a flip may be harmless, as in the last digit of a number that is read as the same number


def contents(model):
    arrays = (model.basis, model.spectrum, model.mean, model.factor, model.action_features)
    shown = tuple(None if array is None else (array.shape, array.tobytes()) for array in arrays)
    facts = (model.noise_variance, model.estimator, model.parameters, model.evidence, model.fingerprint)
    return shown + facts + (model.action_ids, model.action_names, model.intercept, model.one_hot, model.id)


@pytest.mark.parametrize("seed", [0, 1])
def test_no_bit_of_a_model_changes_unnoticed(model, with_items, seed):
    chosen = (model, with_items)[seed]
    flips_are_refused_or_harmless(lambda data: contents(nc.Model.from_bytes(data)), chosen.to_bytes(), seed)


@pytest.mark.parametrize(
    "policy", [nc.LinUCB(3, horizon=20), nc.PriorUCB(plain_model(3, 1))], ids=["LinUCB", "PriorUCB"]
)
def test_no_bit_of_a_state_changes_unnoticed(policy):
    state = policy.start(2)
    policy.update(state, [[1.0, 0.0, 2.0]], [0.5], users=[1])
    kind = type(state)

    def read(data):
        return [(name, array.tobytes()) for name, array, *_ in kind.from_bytes(data).arrays()]

    flips_are_refused_or_harmless(read, state.to_bytes(), 2)


def test_altered_facts_are_refused(model):
    data = model.to_bytes()
    for change in ({"noise_variance": 2.0}, {"fingerprint": "0"}, {"new": 1}, {"sha256": "0" * 64}):
        header = header_of(data) | change
        with pytest.raises(ModelError, match="checksum"):
            nc.Model.from_bytes(save_tensors(load_tensors(data), metadata={"newcomer": json.dumps(header)}))


def test_newer_formats_and_other_kinds_are_refused(model):
    data = model.to_bytes()
    for version, message in (
        (4, "upgrade newcomer"),
        (0, "format"),
        (None, "format"),
        ("2", "format"),
        (True, "format"),
    ):
        header = header_of(data) | {"format": version}
        with pytest.raises(ModelError, match=message):
            nc.Model.from_bytes(save_tensors(load_tensors(data), metadata={"newcomer": json.dumps(header)}))
    header = header_of(data)
    del header["format"]
    with pytest.raises(ModelError, match="does not say its format"):
        nc.Model.from_bytes(save_tensors(load_tensors(data), metadata={"newcomer": json.dumps(header)}))
    with pytest.raises(ModelError, match="kind 'state'"):
        nc.Model.from_bytes(pack_file("state", {"x": np.zeros(2)}, {}))
    with pytest.raises(ModelError, match="not a newcomer file"):
        nc.Model.from_bytes(save_tensors({"x": np.zeros(2)}))
    with pytest.raises(ModelError, match="lacks"):
        nc.Model.from_bytes(pack_file("model", {"basis": np.zeros((2, 1))}, {}))


def test_files_of_format_2_from_before_the_radii_changed_keep_their_numbers_and_their_id():
    """A state belongs to a model by its id: an old file that is loaded must not become another model."""
    said = json.loads((DATA / "format2.json").read_text())
    model = nc.load(DATA / "format2-sold.newcomer")
    np.testing.assert_array_equal(model.basis, said["basis"])
    assert model.id == said["id"] and model.radius("calibrated") == pytest.approx(said["calibrated"], rel=1e-12)
    for kind, by_norm in said["radius"].items():
        for norm, value in by_norm.items():
            assert model.radius(kind, norm=norm, clip=False, simplified=True) == pytest.approx(value, rel=1e-12)
    assert contents(nc.Model.from_bytes(model.to_bytes())) == contents(model)
    with pytest.raises(ModelError, match="nothing for the printed formulas"):
        model.radius("bernstein", printed=True)


@pytest.mark.parametrize("estimator", ["em", "sold"])
def test_files_of_format_1_still_load_with_the_same_numbers(estimator):
    path, said = DATA / f"format1-{estimator}.newcomer", json.loads((DATA / "format1.json").read_text())[estimator]
    assert header_of(path.read_bytes())["format"] == 1
    model = nc.load(path)
    for name in ("basis", "spectrum", "mean", "factor"):
        np.testing.assert_array_equal(getattr(model, name), said[name])
    for name in ("rank", "dim", "noise_variance", "estimator", "intercept", "fingerprint", "parameters"):
        assert getattr(model, name) == said[name]
    assert model.action_ids == (tuple(said["action_ids"]) if said["action_ids"] else None)
    for kind, by_norm in said["radius"].items():
        for norm, value in by_norm.items():
            assert model.radius(kind, norm=norm, clip=False, simplified=True) == pytest.approx(value, rel=1e-12)
    assert model.radius() == pytest.approx(said["default"], rel=1e-12)
    names = {"population": "prior"}
    for part, kept in model.evidence.to_json().items():
        old = said["evidence"][names.get(part, part)]
        if part == "population":
            old["forecast"]["noise_variance"] = old["forecast"].pop("noise")
            kept = {name: value for name, value in kept.items() if value is not None}
            kept["ranks"] = {name: value for name, value in kept["ranks"].items() if name in old["ranks"]}
            for gone in ("interactions", "mean_value", "early_value"):  # read, and not kept
                del old["forecast"][gone]
            kept["forecast"] = {name: value for name, value in kept["forecast"].items() if value is not None}
        new = {
            name: value
            for name, value in kept.items()
            if name not in old and part in ("logs", "coverage", "population")
        }
        assert not any(new.values())  # what was not counted then is 0 or nothing
        assert json.loads(json.dumps({name: value for name, value in kept.items() if name not in new})) == old
    assert set(model.evidence.to_json()) == {{"prior": "population"}.get(name, name) for name in said["evidence"]}
    again = nc.Model.from_bytes(model.to_bytes())
    assert contents(again) == contents(model) and header_of(model.to_bytes())["format"] == 3
    with pytest.raises(ModelError, match="without actions|no features of its actions"):
        model.features(["ash"])


def test_a_damaged_array_of_format_1_is_refused():
    data = bytearray((DATA / "format1-em.newcomer").read_bytes())
    data[-3] ^= 1
    with pytest.raises(ModelError, match="checksum"):
        nc.Model.from_bytes(bytes(data))


def test_files_have_the_permissions_that_the_process_gives_and_their_folder_is_synced(model, tmp_path, monkeypatch):
    synced = []
    sync = os.fsync
    monkeypatch.setattr(
        "newcomer.files.os.fsync", lambda handle: (synced.append(os.fstat(handle).st_mode), sync(handle))
    )
    for mask, mode in ((0o022, 0o644), (0o077, 0o600), (0o002, 0o664)):
        before = os.umask(mask)
        try:
            model.save(tmp_path / "m.newcomer")
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / "m.newcomer").stat().st_mode) == mode
    assert [stat.S_ISDIR(mode) for mode in synced] == [False, True] * 3


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
    with pytest.raises(OutputError, match="disk full"):
        model.save(path)
    assert path.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_pack_keeps_types_and_shapes():
    arrays = {"a": np.arange(6, dtype=np.int32).reshape(2, 3).T, "b": np.array(True), "c": np.empty((0, 4))}
    back, facts = unpack_file(pack_file("test", arrays, {"x": [1, None]}), "test")
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == array.dtype
    assert facts["x"] == [1, None]


def test_the_catalogue_of_an_items_table_is_in_the_file(with_items, tmp_path):
    with_items.save(tmp_path / "m.newcomer")
    for model in (with_items, nc.load(tmp_path / "m.newcomer")):
        assert model.action_ids == tuple("edcba") and not model.one_hot
        assert model.action_names == tuple(f"item {i}" for i in range(5))
        rows = model.features(["a", "e", "a"])
        assert rows.shape == (3, 3) and rows.dtype == np.float64 and rows.flags.writeable
        np.testing.assert_array_equal(rows[0], rows[2])
        np.testing.assert_array_equal(rows[:, 1:], [[4.0, 1.0], [0.0, 1.0], [4.0, 1.0]])  # y and the constant
        np.testing.assert_array_equal(model.features(np.array(["d"])), model.action_features[1:2])
        assert model.features([]).shape == (0, 3)


@pytest.mark.parametrize("intercept", [False, True])
def test_one_hot_rows_are_made_on_demand_and_never_stored(intercept):
    rng = np.random.default_rng(1)
    action = rng.permutation(np.repeat([3, 5, 9], 40))
    logs = nc.Logs.from_arrays(user=np.repeat(np.arange(20), 6), action=action, reward=rng.standard_normal(120),
                               intercept=intercept)  # fmt: skip
    model = nc.Model.from_bytes(nc.fit(logs, rank=1, estimator="sold").to_bytes())
    assert model.one_hot and model.action_features is None
    expected = np.hstack([np.eye(3), np.ones((3, int(intercept)))])
    np.testing.assert_array_equal(model.features(model.action_ids), expected)
    np.testing.assert_array_equal(model.features(np.array([9, 3])), expected[[2, 0]])
    batch = next(logs.batches())
    np.testing.assert_array_equal(batch.features, model.features(np.array(model.action_ids)[batch.actions]))


def test_unknown_ids_and_models_without_actions_get_one_sentence(model, with_items):
    for wrong in (["a", "zebra"], [7], [None], [("a",)], [1.5]):
        with pytest.raises(ModelError, match="is not among the 5 actions"):
            with_items.features(wrong)
    for wrong in ("a", 7, None):
        with pytest.raises(ModelError, match="list of action ids"):
            with_items.features(wrong)
    with pytest.raises(ModelError, match="without actions"):
        model.features(["a"])


def test_the_id_is_of_what_policies_read_and_of_nothing_else(model, with_items):
    assert len(model.id) == 64 and int(model.id, 16) >= 0
    logs = Synthetic.learnable(dim=8, seed=0).logs(400, 10, seed=0)
    assert nc.fit(logs, estimator="sold").id == model.id == nc.Model.from_bytes(model.to_bytes()).id
    for chosen in (model, with_items):
        evidence = replace(chosen.evidence, logs=None, ridge=None, rank=None, coverage=None)
        blind = replace(chosen, spectrum=2 * chosen.spectrum, parameters={}, evidence=evidence, fingerprint="",
                        action_names=None)  # fmt: skip
        assert blind.id == chosen.id
    radius = replace(model.evidence.radius, reward_bound=9.0)
    draws = replace(model.evidence.calibrated, hopeless=True)
    bare = {"action_features": None, "action_names": None, "residual_variance": None, "offsets": None}
    featureless = replace(with_items, **bare, action_ids=tuple("ab"))
    others = [
        featureless,
        replace(featureless, one_hot=True),
        replace(model, basis=-model.basis),
        replace(model, mean=model.mean + 1e-15),
        replace(model, factor=2 * model.factor),
        replace(model, noise_variance=2.0),
        replace(model, estimator="em"),  # another radius is the default
        replace(model, evidence=replace(model.evidence, radius=radius)),
        replace(model, evidence=replace(model.evidence, calibrated=draws)),
        replace(model, intercept=True),
        replace(with_items, action_ids=tuple("abcde")),
        replace(with_items, action_features=with_items.action_features + 1.0),
    ]
    assert len({model.id, with_items.id, *(other.id for other in others)}) == len(others) + 2


def test_arrays_of_a_model_cannot_be_written_and_those_given_stay_writable(model):
    basis = np.eye(3, 1)
    made = nc.Model(basis, np.ones(3), np.zeros(3), np.eye(3, 1), 1.0)
    basis[0, 0] = 1.0
    for one in (model, made, nc.Model.from_bytes(model.to_bytes())):
        for name in ("basis", "spectrum", "mean", "factor", "covariance"):
            with pytest.raises(ValueError, match="read-only"):
                getattr(one, name)[0] = 5.0


def test_radii_and_features_need_no_learning_code(model, tmp_path):
    fitted = nc.fit(Synthetic.learnable(dim=8, seed=0).logs(300, 8, seed=0), rank=2)
    fitted.save(tmp_path / "em.newcomer")
    code = (
        "import sys, newcomer as nc; model = nc.load(sys.argv[1]);"
        "kinds = (None, 'calibrated', 'hoeffding', 'bernstein', 'martingale');"
        "print([model.radius(kind, norm=norm) for kind in kinds for norm in ('spectral', 'frobenius')], model.id);"
        "rooms = ('em', 'sold', 'logs', 'fitting', 'array_loops', 'linear', 'policies');"
        "learning = tuple(f'newcomer.{room}' for room in rooms) + ('polars', 'numba', 'scipy.stats');"
        "bad = [name for name in sys.modules if name.startswith(learning)];"
        "assert not bad, bad"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "em.newcomer")], check=True, capture_output=True, text=True
    )
    radii = [fitted.radius(kind, norm=norm) for kind in (None, "calibrated", "hoeffding", "bernstein", "martingale")
             for norm in ("spectral", "frobenius")]  # fmt: skip
    assert done.stdout == f"{radii} {fitted.id}\n"


def test_evidence_becomes_json_and_comes_back(model):
    fitted = nc.fit(Synthetic.learnable(dim=6, seed=1).logs(200, 6, seed=1))
    for one in (model, fitted, replace(model, evidence=Evidence())):
        assert Evidence.from_json(json.loads(json.dumps(one.evidence.to_json()))) == one.evidence
    assert fitted.evidence.population.ranks.chosen == fitted.evidence.population.directions
    for wrong in ({"ridge": {"value": 1.0}}, {"moon": 1}, {"radius": [1]}, {"rank": {"chosen": "auto", "size": 3}}):
        with pytest.raises(ModelError, match="evidence of the model is not understood"):
            Evidence.from_json(wrong)


def compiled_for_read_only():
    """The loops of the package, each with the types that it was compiled for, where one is a read-only array."""
    modules = [module for name, module in sys.modules.items() if name.startswith("newcomer.")]
    loops = [loop for module in modules for loop in vars(module).values() if hasattr(loop, "nopython_signatures")]
    found = [(loop, one) for loop in loops for one in loop.nopython_signatures]
    return {
        (loop.__name__, str(one))
        for loop, one in found
        if any(isinstance(t, Array) and not t.mutable for t in one.args)
    }


def test_read_only_models_make_no_loop_compile_again():
    world = Synthetic.learnable(dim=6, seed=2)
    fitted = nc.fit(world.logs(300, 8, seed=2), rank=2)
    before = compiled_for_read_only()
    for model in (fitted, nc.Model.from_bytes(fitted.to_bytes())):
        policies = {
            "PriorUCB": nc.PriorUCB(model),
            "PriorTS": nc.PriorTS(model),
            "ProBALLUCB": nc.ProBALLUCB(model, horizon=5, radius=1.0, tau=2.0),
            "LocalUCB": nc.LocalUCB(model, horizon=5),
            "PopulationMean": nc.PopulationMean(model),
        }
        nc.play(policies, world, horizon=5, users=3, seed=0, progress=False)
    assert compiled_for_read_only() == before

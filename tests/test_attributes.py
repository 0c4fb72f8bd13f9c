"""Attributes of users from the file to the page: commands, refits, resumed fits, transform, play, check and report."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import newcomer as nc
from newcomer import _fit
from newcomer.cli.main import app
from newcomer.encoding import Column
from newcomer.errors import LogsError
from newcomer.evaluation.predictors import regression_predictor
from newcomer.evidence import OutcomeFacts
from newcomer.gain.deals import start_dealt_users
from newcomer.linear.ridge import ridge_precision
from newcomer.model import Model
from newcomer.worlds.world import Episode

USERS, ACTIONS = 300, 8


def tables(seed: int = 0, *, treated: bool = False) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Logs of actions, and people whose age and plan tell what they like; `treated`: plans are shown other actions."""
    rng = np.random.default_rng(seed)
    age, plan = rng.normal(40, 10, USERS).round(1), rng.choice(["free", "paid"], USERS)
    L = np.random.default_rng(1).normal(size=(ACTIONS, 2)) * 0.6
    x = np.column_stack([(age - 40) / 10, np.where(plan == "paid", 0.9, -0.9)])
    beta = 3.0 + (0.7 * x + 0.7 * rng.normal(size=(USERS, 2))) @ L.T
    action = np.stack([rng.permutation(ACTIONS)[:6] for _ in range(USERS)])
    if treated:
        action = np.where((plan == "paid")[:, None], rng.integers(4, 8, action.shape), rng.integers(0, 5, action.shape))
    user = np.repeat(np.arange(USERS), 6)
    reward = beta[user, action.ravel()] + 0.4 * rng.normal(size=len(user))
    logs = pl.DataFrame({"user": user, "action": action.ravel(), "reward": reward.round(3)})
    people = pl.DataFrame({"user": np.arange(USERS), "age": age, "plan": plan, "luck": rng.normal(size=USERS).round(2)})
    return logs, people


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attributes")
    logs, people = tables()
    logs.write_csv(folder / "logs.csv")
    people.write_csv(folder / "people.csv")
    return folder


def run(*words: str) -> Any:
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


def test_commands_take_a_table_of_users(files: Path) -> None:
    read = ["--users", str(files / "people.csv")]
    model = files / "m.newcomer"
    found = run("fit", str(files / "logs.csv"), *read, "--out", str(model), "--force", "--json")
    assert found.exit_code == 0, found.output
    said = json.loads(found.stdout)["attributes"]
    assert any(one.startswith("age is used") for one in said) and any("luck is left out" in one for one in said)
    fitted = nc.load(model)
    assert {one.name for one in fitted.attributes} == {"age", "plan"}
    shown = run("inspect", str(model))
    assert "age is used" in " ".join(shown.stdout.split())
    some = run("fit", str(files / "logs.csv"), *read, "--attributes", "plan", "--out", str(files / "p.newcomer"))
    assert some.exit_code == 0 and [one.name for one in nc.load(files / "p.newcomer").attributes] == ["plan"]
    with pytest.raises(LogsError, match="no attribute 'plann'.*did you mean 'plan'"):
        run("fit", str(files / "logs.csv"), *read, "--attributes", "plann", "--out", str(files / "q.newcomer"))


def test_check_evaluate_and_report_say_what_attributes_are_worth(files: Path) -> None:
    logs = nc.read_logs(files / "logs.csv", users=files / "people.csv")
    page = nc.report(logs, files / "report.html", quick=True)
    found = page.evaluation
    assert found is not None and page.findings is not None
    assert [step.interactions for step in found.attributes][:3] == [0, 1, 2]
    assert found.attributes[0].gain.value > 0.05 and found.attributes[0].over_regression is not None
    assert found.attributes[0].without.value < found.attributes[0].gain.value
    assert any("Before the first interaction attributes are worth" in said for said in found.sentences())
    assert page.findings["attributes and logging"].verdict == "fine"
    text = page.path.read_text()
    assert "What you know before the first interaction" in text and "age is used" in text
    assert "gain with attributes" in text


def test_regression_on_attributes_is_ridge_regression_on_products() -> None:
    logs, people = tables()
    read = nc.Logs.from_frame(logs, users=people, attributes=["age"])
    model = nc.fit(read, calibrate=False)
    made = regression_predictor(read, model)
    assert made is not None
    x = ((people["age"] - people["age"].mean()) / people["age"].std(ddof=0)).to_numpy()[logs["user"].to_numpy()]
    action, left = logs["action"].to_numpy(), logs["reward"].to_numpy() - model.mean[logs["action"].to_numpy()]
    spread = read.summary.reward_deviation
    for tau in (0.01, 0.03, 0.1, 0.3):
        squares, products = (np.bincount(action, weights=x * one, minlength=ACTIONS) for one in (x, left))
        wanted = products / (squares + 1.0 / tau**2)  # one deviation of rewards for noise and for the unit of effects
        if np.allclose(made.effects[:, 0], wanted, atol=1e-8):
            break
    else:
        pytest.fail(f"effects {made.effects[:, 0]} are those of no ridge that was tried (spread {spread})")


def test_attributes_that_tell_what_was_logged_are_pointed_out() -> None:
    logs, people = tables(treated=True)
    apart = nc.check(nc.Logs.from_frame(logs, users=people, attributes=["plan"]), fit=False)["attributes and logging"]
    assert apart.verdict == "doubtful" and "never met 7 of 8 actions" in apart.what
    rng = np.random.default_rng(9)
    some = rng.random(len(logs)) < 0.3  # where all actions are shown to some of everybody, the attribute is enough
    mixed = logs.with_columns(action=pl.Series(np.where(some, rng.integers(0, ACTIONS, len(logs)), logs["action"])))
    read = nc.Logs.from_frame(mixed, users=people, attributes=["plan"])
    found = nc.check(read, fit=False)["attributes and logging"]
    assert (
        found.verdict == "fine"
        and (found.p_value or 1) < 0.01
        and "harmless if the model has these attributes" in found.what
    )


def test_logging_by_an_attribute_is_doubtful_only_where_the_attribute_is_left_out() -> None:
    logs, people = tables(1, treated=True)
    known, blind = (nc.check(nc.Logs.from_frame(logs, **given), fit=False) for given in ({"users": people}, {}))
    assert blind["contexts"].verdict in ("doubtful", "broken") and "beyond" not in blind["contexts"].what
    assert known["contexts"].verdict == "fine" and "beyond attributes" in known["contexts"].what
    for name in ("adaptive logging", "preference-dependent logging", "self-selection"):
        assert known[name].verdict in ("fine", "unknowable"), known[name].what
    # Attributes that have nothing to do with it take nothing away.
    luck = nc.check(nc.Logs.from_frame(logs, users=people, attributes=["luck"]), fit=False)
    assert luck["contexts"].verdict == blind["contexts"].verdict


def test_a_resumed_fit_and_a_refit_have_the_attributes_of_a_fit(tmp_path: Path) -> None:
    logs, people = tables()
    read = nc.Logs.from_frame(logs, users=people)
    model = nc.fit(read, calibrate=False)
    kept = tmp_path / "journal"

    def stop(done: Any) -> None:
        if done.passes >= 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nc.fit(read, calibrate=False, run=nc.Run(checkpoint=kept, listen=stop))
    assert nc.fit(read, calibrate=False, run=nc.Run(checkpoint=kept, resume=True)).id == model.id
    with pytest.raises(KeyboardInterrupt):
        nc.fit(read, calibrate=False, run=nc.Run(checkpoint=kept, listen=stop))
    with pytest.raises(LogsError, match="logs have changed"):
        nc.fit(
            read.with_users(people.with_columns(pl.col("age").reverse())),
            run=nc.Run(checkpoint=kept, resume=True),
            calibrate=False,
        )
    again = nc.fit(read, start=model, calibrate=False)
    assert {one.name for one in again.attributes} == {one.name for one in model.attributes}
    first, second = model.prior({"age": 60.0, "plan": "paid"})[0], again.prior({"age": 60.0, "plan": "paid"})[0]
    np.testing.assert_allclose(first, second, atol=0.3)


def test_coordinates_of_users_begin_with_the_prior_given_attributes() -> None:
    logs, people = tables()
    model = nc.fit(nc.Logs.from_frame(logs, users=people), calibrate=False)
    model = replace(model, uncertainty=np.zeros(0), persistence=0.0)
    some = pl.DataFrame({"user": [0, 1], "action": [0, 1], "reward": [3.0, 3.0]})
    known = pl.DataFrame({"user": [0, 1], "age": [20.0, 60.0], "plan": ["free", "paid"]})
    found = model.transform(nc.Logs.from_frame(some, users=known, attributes=["age"]))
    policy = nc.PriorUCB(model, level=0.0)
    state = policy.start(2, attributes={"age": [20.0, 60.0]})
    policy.update(state, ids=[0, 1], reward=[3.0, 3.0])
    np.testing.assert_allclose(found.mean, state.small.mean, atol=1e-9)
    np.testing.assert_allclose(np.linalg.inv(found.covariance), ridge_precision(state.small), atol=1e-8)


@dataclass(frozen=True)
class TwoKinds:
    """Newcomers of two kinds, known by an attribute."""

    dim: int = 1

    def episode(self, rng: np.random.Generator, horizon: int) -> Episode:
        kind = rng.choice(["free", "paid"])
        actions = np.tile([[[1.0], [-1.0]]], (horizon, 1, 1))
        means = np.tile([1.0, -1.0] if kind == "paid" else [-1.0, 1.0], (horizon, 1))
        return Episode(actions, means, means, attributes={"plan": kind})


def test_play_passes_attributes_on_to_policies_that_take_them() -> None:
    plan = Column("plan", "level", levels=("free", "paid"), shares=(0.5, 0.5))
    model = Model(
        np.eye(1), np.ones(1), np.zeros(1), np.eye(1), 1.0, attributes=(plan,),
        attribute_effects=np.array([[-0.9, 0.9]]), attribute_covariance=np.array([[0.25, -0.25], [-0.25, 0.25]]),
    )  # fmt: skip
    policies = {"ours": nc.PriorUCB(model), "mean": nc.PopulationMean(model), "Uniform": nc.Uniform()}
    rows = nc.play(policies, TwoKinds(), horizon=3, users=12, seed=0, progress=False)
    regret = dict(rows.group_by("policy").agg(pl.col("regret").sum()).iter_rows())
    assert regret["ours"] == 0.0 and regret["mean"] == 0.0 and regret["Uniform"] > 0


def test_evaluate_and_report_of_clicks_say_what_attributes_are_worth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model of both, as `auto` may choose it: judged beside the model without attributes, and beside regression."""
    monkeypatch.setattr(_fit, "compare_outcomes", lambda *_, **__: OutcomeFacts("binary", "auto"))
    logs, people = tables()
    clicked = logs.with_columns(reward=(pl.col("reward") > 3.0).cast(pl.Float64))
    read = nc.Logs.from_frame(clicked, users=people)
    model = nc.fit(read, calibrate=False)
    assert model.outcome == "binary" and {one.name for one in model.attributes} <= {"age", "plan"} and model.attributes
    page = nc.report(read, tmp_path / "report.html", quick=True)
    assert page.evaluation is not None
    first = page.evaluation.attributes[0]
    assert first.interactions == 0 and first.added.value > 0 and first.over_regression is not None
    assert abs(first.over_regression.value) < 0.1
    assert "What you know before the first interaction" in page.path.read_text(encoding="utf-8")


def test_many_held_out_users_start_with_their_attributes() -> None:
    """Newcomers of a large state share a row until something is known of them."""
    plan = Column("plan", "level", levels=("free", "paid"), shares=(0.5, 0.5))
    model = Model(
        np.eye(1), np.ones(1), np.zeros(1), np.eye(1), 1.0, attributes=(plan,),
        attribute_effects=np.array([[-0.9, 0.9]]), attribute_covariance=np.array([[0.25, -0.25], [-0.25, 0.25]]),
    )  # fmt: skip
    n = 3000
    people = pl.DataFrame({"user": np.arange(n), "plan": np.random.default_rng(0).choice(["free", "paid"], n)})
    logs = nc.Logs.from_arrays(
        user=np.repeat(np.arange(n), 2), features=np.ones((2 * n, 1)), reward=np.ones(2 * n), users=people
    )
    (batch,) = logs.batches()
    policy = nc.PriorUCB(model)
    state = start_dealt_users(policy, batch, batch.offsets[:-1, None])
    told = people.sort("user")["plan"].to_numpy()[np.asarray(batch.users, dtype=np.int64)]
    wanted = policy.start(n, attributes={"plan": told})
    actions = np.array([[1.0], [-1.0]])
    np.testing.assert_allclose(policy.scores(state, actions), policy.scores(wanted, actions))

"""The page without a browser: what it says first, that nothing logged becomes markup, that no logs are too bad."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import newcomer as nc
from newcomer.checks import quick, residuals
from newcomer.checks.descriptive import describe_spellings
from newcomer.cli import main
from newcomer.errors import NewcomerError, OutputError
from newcomer.evaluation.results import Evaluation, HeadlineStep, Interval, LearningStep, OffPolicyRow, PolicyRow
from newcomer.evidence import evidence_percents
from newcomer.findings import Finding, Findings, Picture
from newcomer.paper.worlds.biased_logs import BiasedLogs
from newcomer.reporting.contents import ColumnsSeen, ReportContents, Trouble, collect_contents
from newcomer.reporting.markup import (
    Bar,
    Markup,
    SvgAxis,
    SvgLine,
    bar_chart_markup,
    line_chart_markup,
    markup_tag,
    round_ticks_of_markup,
    share_chart_markup,
)
from newcomer.reporting.report import page_commands, report_page
from newcomer.reporting.sections_model import model_section_directions
from newcomer.worlds.synthetic import Synthetic
from tests.pages import NAMES, logs_of, page, tasteful, too_few

VOID = {"meta", "link", "br"}


class Strict(HTMLParser):
    """Refuses elements that are not closed in order, and collects what a page would load or run."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.loads: list[tuple[str, str | None]] = []
        self.ids: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        self.loads += [(tag, value) for name, value in attrs if name in ("src", "href", "srcset") or name[:2] == "on"]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [(tag, value) for name, value in attrs if name in ("src", "href", "srcset") or name[:2] == "on"]

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes something else"


def parsed(text: str) -> Strict:
    parser = Strict()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    return parser


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def contents() -> ReportContents:
    return collect_contents(logs_of("tastes"), called="films.csv", quick=True)


@pytest.mark.parametrize("kind", ["tastes", "broken", "few"])
def test_pages_stand_alone(folder: Path, kind: str) -> None:
    found = page(kind, folder)
    text = found.path.read_text(encoding="utf-8")
    assert len(text.encode()) < 2_000_000
    parser = parsed(text)
    assert all(value and (value.startswith("#") or value == "data:,") for _, value in parser.loads)
    assert len(set(parser.ids)) == len(parser.ids)
    for never in ("<script", "@import", "url(", "<img", "<iframe"):
        assert never not in text
    assert text.index(found.sentences[0].split("'")[0]) < text.index("<section")


def test_what_the_logs_call_things_is_text(contents: ReportContents) -> None:
    text = report_page(replace(contents, called="<i>films.csv</i> && rm"))
    parsed(text)
    for name in NAMES[:2]:
        assert name not in text
    assert "<b>treated" not in text and "<i>films" not in text and "&lt;b&gt;treated" in text


def test_a_page_of_everything_has_every_section(contents: ReportContents) -> None:
    text = report_page(contents)
    for part in ("everybody", "checks", "people", "policies", "model", "directions", "parts", "radii", "data", "next"):
        assert f'<section id="{part}"' in text and f'href="#{part}"' in text
    assert "By propensities" in text and "doubly robust" in text
    assert "newcomer fit films.csv --out model.newcomer" in text


def test_two_thousand_actions_with_long_names_stay_below_two_megabytes(contents: ReportContents) -> None:
    assert contents.model is not None
    ids = tuple(f"{i} " + "x" * 300 for i in range(2000))
    rng = np.random.default_rng(0)
    wide = replace(
        contents.model,
        basis=np.linalg.qr(rng.normal(size=(2000, 6)))[0],
        factor=rng.normal(size=(2000, 6)),
        mean=np.zeros(2000),
        spectrum=np.zeros(2000),
        action_ids=ids,
        residual_variance=np.ones(2000),
        offsets=np.zeros(2000),
        uncertainty=np.zeros(2000),
    )
    assert len(report_page(replace(contents, model=wide)).encode()) < 300_000


# What the page does with a decision; how one is made: tests/gain/test_verdict.py.

STEP = HeadlineStep(
    5, 400, Interval.around(1.0, 0.1, 400), Interval.around(0.5, 0.1, 400), None, Interval.around(0.6, 0.1, 400)
)


def evaluation(gain: float, error: float = 0.05) -> Evaluation:
    """An evaluation whose gain over the population mean is this."""
    step = replace(STEP, population_mean=Interval.around(gain, error, 400))
    return Evaluation(500, 5000, 400, 5, 10, (step,), (), (), None, "No propensities.", (), ())


def findings(verdict: str) -> Findings:
    one = Finding("drift", verdict, "Rewards drift.", "log in random order", effect=0.3, unit="sd", p_value=0.01)
    return Findings((one, Finding("coverage", "fine", "Covered.", "Nothing to do.")), users=500, rows=5000)


def gaining(contents: ReportContents, gain: float) -> ReportContents:
    """The same contents, had held-out people gained this much."""
    assert contents.model is not None and contents.model.evidence.population is not None
    facts = contents.model.evidence.population
    assert facts.outlook is not None
    steps = [replace(one, gain=gain, low=gain - 0.1, high=gain + 0.1, error=0.05) for one in facts.outlook.steps]
    assert facts.outlook.everybody is not None
    alike = replace(facts.outlook.everybody, gain=Interval.around(0.5, 0.05, 400))
    outlook = replace(facts.outlook, steps=tuple(steps), everybody=alike)
    kept = replace(contents.model.evidence, population=replace(facts, heldout_gain=outlook))
    return replace(contents, model=replace(contents.model, evidence=kept))


ANSWERS = {
    ("broken", 0.5): ("no", "no promise", "No: these logs are broken"),
    ("broken", -0.5): ("no", "no promise", "No: these logs are broken"),
    ("fine", 0.5): ("yes", "personalise", "Yes: personalise from 1 interaction on"),
    ("doubtful", 0.5): ("with care", "personalise, with care", "Only with care"),
    ("fine", 0.02): ("best for all", "the best for everybody", "Serve everybody the best action;"),
    ("fine", -0.5): ("best for all", "the best for everybody", "Serve everybody the best action;"),
}


@pytest.mark.parametrize(("verdict", "gain"), ANSWERS)
def test_the_badge_and_the_sentences(contents: ReportContents, verdict: str, gain: float) -> None:
    found = gaining(replace(contents, findings=findings(verdict)), gain)
    decision = found.decision
    answer, badge, first = ANSWERS[verdict, gain]
    assert decision.answer == answer and decision.sentences[0].startswith(first), decision
    text = report_page(found)
    parsed(text)
    assert f">{badge}</span>" in text and "not yet" not in text[: text.index("<nav")]
    if verdict == "broken":
        assert "These logs are broken: what was learned" in text and "newcomer fit" not in text
        assert "promise nothing" in text and "personalise from" not in text
        assert all("report" in command or "check" in command for command, _ in page_commands(found, decision))
    elif answer == "best for all":
        assert any("PopulationMean" in command for command, _ in page_commands(found, decision))


def test_the_best_actions_are_named_first(contents: ReportContents) -> None:
    text = report_page(contents)
    section = text[text.index('<section id="everybody"') : text.index('<section id="checks"')]
    assert contents.everybody is not None and contents.everybody.best
    for one in contents.everybody.best:
        assert f"{one.mean:.4g}" in section and f"{one.low:.4g} to {one.high:.4g}" in section
    assert "pays" in section and "logged (by propensities, doubly robust)" in section


def test_without_a_model_or_checks_it_says_so(contents: ReportContents) -> None:
    trouble = {"fit": Trouble("all features are zero", "log features"), "check": Trouble("nobody", "")}
    bare = replace(contents, model=None, findings=None, evaluation=None, trouble=trouble)
    decision = bare.decision
    assert decision.answer == "no" and decision.sentences[0].endswith("from these logs: all features are zero.")
    assert decision.sentences[3] == "Log features." and "All features are zero: log features." in report_page(bare)
    unchecked = replace(contents, findings=None)
    assert unchecked.decision.answer == "not yet" and "It was not tried." in report_page(unchecked)


def test_every_record_of_an_evaluation_is_shown(contents: ReportContents) -> None:
    some = Interval.around(0.1, 0.02, 100)
    nothing = Interval.of(np.array([np.nan]))
    full = replace(
        evaluation(0.5),
        replay=(PolicyRow("PriorUCB", 10, 100, some, some), PolicyRow("<Uniform>", 10, 100, some, nothing)),
        simulation=(PolicyRow("PriorUCB", 20, 100, some, some),),
        off_policy=(OffPolicyRow("PriorUCB", 5, 100, some, some, some, some, 80.0, 3.0),),
        learning=(LearningStep(100, 5, some, some), LearningStep(200, 5, some, some)),
    )
    text = report_page(replace(contents, evaluation=full))
    parsed(text)
    assert "not users" in text and 'id="learning"' in text and "&lt;Uniform&gt;" in text and "nan" not in text.lower()


# No logs are too bad.

HOSTILE: dict[str, Any] = {
    "one user": {"user": [1] * 5, "action": list("abcab"), "reward": [1, 0, 1, 0, 1]},
    "one row": {"user": [1], "action": ["a"], "reward": [1.0]},
    "one action": {"user": np.repeat(np.arange(50), 4), "action": ["a"] * 200, "reward": np.arange(200) % 5},
    "constant rewards": {
        "user": np.repeat(np.arange(50), 4), "action": list("abcd") * 50, "reward": np.ones(200)},
    "single rows": {"user": np.arange(3000), "action": ["a", "b", "c"] * 1000, "reward": np.arange(3000) % 2},
    "zero features": {"user": [1, 1, 2, 2], "features": np.zeros((4, 2)), "reward": [1, 0, 1, 0]},
    "two users": {"user": [1, 1, 2, 2], "action": list("abba"), "reward": [1, 0, 1, 0]},
    "a wild reward": {
        "user": np.repeat(np.arange(60), 4), "action": list("abcd") * 60,
        "reward": np.append(np.random.default_rng(0).normal(size=239), 1e12)},
}  # fmt: skip


def test_people_who_all_answer_alike_get_the_best_for_everybody(folder: Path) -> None:
    rows = {"user": np.repeat(np.arange(60), 4), "action": list("abcd") * 60, "reward": np.tile([1.0, 2, 3, 4], 60)}
    found = nc.report(nc.Logs.from_arrays(**rows), folder / "alike.html", quick=True)
    assert found.answer == "best for all" and "d at 4" in " ".join(found.sentences)


@pytest.mark.parametrize("name", HOSTILE)
def test_bad_logs_get_a_page_without_hope(name: str, folder: Path) -> None:
    found = nc.report(nc.Logs.from_arrays(**HOSTILE[name]), folder / "hostile.html", quick=True)
    text = found.path.read_text(encoding="utf-8")
    parsed(text)
    assert found.answer in ("no", "not yet"), found.sentences
    assert "Traceback" not in text and found.sentences[0].startswith(("No", "Not yet"))


@pytest.mark.parametrize(("bias", "strength"), [("taste", 4.0), ("adaptive", 0.9), ("drift", 1.0), ("lengths", 0.9)])
def test_logs_that_break_an_assumption_never_get_a_yes(bias: Any, strength: float, folder: Path) -> None:
    logs = BiasedLogs(Synthetic.learnable(dim=5, seed=1), bias, strength).logs(1000, 16, seed=1)
    found = nc.report(logs, folder / "biased.html", quick=True)
    assert found.answer == ("with care" if bias == "lengths" else "no")
    assert "Yes" not in found.sentences[0] and "hidden causes" in found.path.read_text(encoding="utf-8")


def test_nothing_shared_is_said(folder: Path) -> None:
    rng = np.random.default_rng(3)
    user = np.repeat(np.arange(150), 8)
    logs = nc.Logs.from_arrays(user=user, action=rng.integers(0, 5, size=1200), reward=rng.normal(size=1200))
    found = nc.report(logs, folder / "noise.html", quick=True)
    assert found.model is not None and found.answer in ("no", "not yet")
    assert "There are none to name." in found.path.read_text() or found.model.factor.shape[1] > 0


def test_what_is_asked_for_wrongly_is_one_sentence(folder: Path) -> None:
    logs = logs_of("few")
    with pytest.raises(OutputError):
        nc.report(logs, folder)
    with pytest.raises(NewcomerError, match="seed"):
        nc.report(logs, folder / "x.html", seed=-1)
    with pytest.raises(NewcomerError, match="quick"):
        nc.report(logs, folder / "x.html", quick="yes")  # type: ignore[arg-type]
    assert not (folder / "x.html").exists()


def test_the_checks_are_made_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    take = residuals.take_residual_sample
    counted = lambda *given, **named: made.append(1) or take(*given, **named)
    monkeypatch.setattr(quick, "take_residual_sample", counted)
    logs = Synthetic.learnable(dim=6, seed=1).logs(80, 6, seed=1)
    page = nc.report(logs, folder / "once.html", quick=True)
    assert len(made) == 1 and page.findings is not None and page.evaluation is not None


def test_progress_rises_to_the_end(folder: Path) -> None:
    told: list[tuple[int, int]] = []
    nc.report(logs_of("broken"), folder / "p.html", quick=True, run=nc.Run(progress=lambda a, b: told.append((a, b))))
    done = [a / b for a, b in told]
    assert done == sorted(done) and done[-1] == 1.0 and len(done) > 10


# The command.


def test_the_command_writes_the_page_and_says_broken(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = folder / "few.csv", folder / "by command.html"
    too_few().write_csv(path)
    asked = ["report", str(path), "--out", str(out), "--quick", "--workers", "1"]
    assert main.execute_command(asked) == 5
    assert capsys.readouterr().out.startswith("No: nothing can be learned") and out.exists()
    assert main.execute_command(asked) == 2 and "--force" in capsys.readouterr().err
    assert main.execute_command([*asked, "--force", "--json"]) == 5
    told = json.loads(capsys.readouterr().out)
    assert told["answer"] == "no" and told["out"] == str(out) and len(told["sentences"]) == 4
    assert main.execute_command(["report", "--json-schema"]) == 0
    assert set(json.loads(capsys.readouterr().out)["required"]) == set(told)


def test_the_command_says_yes_and_names_the_options_it_was_given(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = folder / "my films.parquet", folder / "films.html"
    tasteful(users=160).rename({"user": "person"}).write_parquet(path)
    asked = ["report", str(path), "--out", str(out), "--quick", "--workers", "1", "--column", "user=person"]
    assert main.execute_command(asked) == 0
    assert capsys.readouterr().out.startswith("Yes")
    assert f"newcomer fit &#x27;{path}&#x27; --column user=person --out model.newcomer" in out.read_text()


def test_logs_that_cannot_be_read_are_exit_code_three(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.execute_command(["report", str(folder / "nowhere.csv"), "--out", str(folder / "n.html")]) == 3
    assert not (folder / "n.html").exists() and capsys.readouterr().err.startswith("error:")


# The parts.


def test_directions_are_what_a_deviation_changes() -> None:
    """Oracle: move z by one along a direction of the right singular vectors, and see which rewards change how much."""
    rng = np.random.default_rng(1)
    factor = rng.normal(size=(12, 2))
    model = nc.Model(np.eye(12, 2), np.ones(12), np.zeros(12), factor, 1.0, action_ids=tuple(range(12)), one_hot=True)
    turned = np.linalg.svd(factor)[2]
    for found, axis in zip(model_section_directions(model), turned, strict=True):
        change = {str(a): float(factor[a] @ axis) for a in range(12)}
        sign = np.sign(change[found.front[0][0]])
        for end in (found.front, found.back):
            np.testing.assert_allclose([sign * change[name] for name, _ in end], [value for _, value in end])
        assert found.front[0][1] == pytest.approx(max(abs(value) for value in change.values()))
        assert not found.level and len(found.front) == len(found.back) == 5
    assert sum(one.share for one in model_section_directions(model)) == pytest.approx(1.0)


def test_directions_of_features_levels_and_nothing() -> None:
    bare = nc.Model(np.eye(3, 1), np.ones(3), np.zeros(3), np.ones((3, 1)), 1.0, feature_names=("a", "b", "c"))
    (one,) = model_section_directions(bare)
    assert one.level and one.front[0][0] == "a"
    items = nc.Model(
        np.eye(2, 1), np.ones(2), np.zeros(2), np.array([[1.0], [0.0]]), 1.0,
        action_ids=(7, 8), action_names=("tea", "milk"), action_features=np.array([[1.0, 0.0], [-2.0, 1.0]]),
    )  # fmt: skip
    (one,) = model_section_directions(items)
    assert [end[0][0] for end in (one.front, one.back)] == ["milk", "tea"]
    assert [end[0][1] for end in (one.front, one.back)] == pytest.approx([2.0, -1.0])
    nothing = nc.Model(np.zeros((3, 0)), np.ones(3), np.zeros(3), np.zeros((3, 0)), 1.0)
    assert model_section_directions(nothing) == ()


def test_text_is_escaped_and_markup_is_not() -> None:
    assert (
        markup_tag("p", "<&>", markup_tag("b", "x"), given={"title": '"<'})
        == '<p title="&quot;&lt;">&lt;&amp;&gt;<b>x</b></p>'
    )
    assert isinstance(markup_tag("p"), Markup)


@pytest.mark.parametrize("seed", range(20))
def test_axes_hold_their_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = (rng.normal(size=5) * 10.0 ** rng.integers(-18, 19)).tolist()
    axis = SvgAxis.over([*values, float("nan"), float("inf")], 10.0, 100.0)
    assert all(10.0 <= axis(value) <= 100.0 for value in values)
    assert axis.low <= min(values) and axis.high >= max(values) and 2 <= len(axis.ticks) <= 8
    assert round_ticks_of_markup(min(values), max(values))[0] <= min(values)


def test_charts_take_whatever_numbers_there_are() -> None:
    odd = [float("nan"), float("inf"), 1.0, -1e300, 1e-300]
    drawn = [
        line_chart_markup("t", "d", [SvgLine("a", range(5), odd, "#000", odd, odd)], x_label="x", y_label="y"),
        line_chart_markup("t", "d", [], x_label="x", y_label="y"),
        line_chart_markup(
            "t", "d", [SvgLine("a", [1.0], [2.0], "#000")], x_label="x", y_label="y", x_ticks=[(1.0, "one")]
        ),
        bar_chart_markup("t", "d", [Bar("a", value, low=value, high=float("inf")) for value in odd], x_label="x"),
        bar_chart_markup("t", "d", [], x_label="x"),
        share_chart_markup("t", "d", [Bar("a", 0.0)]),
    ]
    for one in drawn:
        parsed(one)
        assert "nan" not in one and "inf" not in one


def test_pictures_of_findings_are_drawn(contents: ReportContents) -> None:
    band = Picture("T", "x", "y", (1.0, 2.0), (3.0, 4.0), (2.0, 2.0), (5.0, 5.0), band="chance")
    bars = Picture("T", "x", "y", (1.0, 2.0), (3.0, 4.0), labels=("<a>", "b"), kind="bars")
    long = Picture("T", "x", "y", tuple(map(float, range(5000))), tuple(map(float, range(5000))))
    several = [
        replace(findings("doubtful")["drift"], name=f"n{i}", picture=p) for i, p in enumerate((band, bars, long))
    ]
    text = report_page(replace(contents, findings=Findings(tuple(several), users=5, rows=5)))
    parsed(text)
    assert "<a>" not in text and len(text) < 400_000


def test_lengths_of_histories_are_counted_by_octave() -> None:
    logs = nc.Logs.from_arrays(user=[1, 2, 2, 3, 3, 3, 4, 4, 4, 4], action=list("abababcabc"), reward=np.zeros(10))
    seen = [ColumnsSeen.of(batch) for batch in logs.batches(rows=1)]
    assert sum(seen[1:], seen[0]).lengths.tolist()[:4] == [1, 2, 1, 0]


def test_a_report_is_shown_in_short(folder: Path) -> None:
    assert len(repr(page("few", folder))) < 700


def test_the_page_tells_no_more_than_the_logs_show(contents: ReportContents) -> None:
    """Nothing detectable is not "everybody is best served the same"; percents add up to 100."""
    assert contents.model is not None and contents.model.evidence.population is not None
    facts = replace(contents.model.evidence.population, directions=0)
    alike = replace(contents.model, evidence=replace(contents.model.evidence, population=facts))
    text = report_page(replace(contents, model=alike))
    assert "best served the same" not in text and "No differences in preferences are detectable" in text
    assert sum(evidence_percents((("a", 0.335), ("b", 0.335), ("c", 0.33)))) == 100


def test_directions_are_told_on_the_scale_that_is_learned(contents: ReportContents) -> None:
    assert contents.model is not None and contents.model.evidence.logs is not None
    assert "change of the expected reward" in report_page(contents)
    logs = replace(contents.model.evidence.logs, reward_transform="log1p")
    counts = replace(contents.model, reward_transform="log1p", evidence=replace(contents.model.evidence, logs=logs))
    text = report_page(replace(contents, model=counts))
    assert "change of the expected log(1 + reward)" in text and "change of the expected reward" not in text
    assert "+0.69 doubles 1 + reward" in text and "Variance of log(1 + reward):" in text


def test_steps_of_a_few_long_histories_stand_in_the_table_alone(contents: ReportContents) -> None:
    found = contents.evaluation
    assert found is not None and "in the tables alone" not in report_page(contents)
    last = max(one.interactions for one in found.curves)
    rare = [replace(one, people=1) if one.interactions == last else one for one in found.curves]
    assert "in the tables alone" in report_page(replace(contents, evaluation=replace(found, curves=tuple(rare))))


def test_commands_of_the_page_join_spellings_and_serve(contents: ReportContents) -> None:
    assert contents.findings is not None
    spelled = replace(contents.findings, findings=(*contents.findings, *describe_spellings(["Tea", "tea "])))
    told = page_commands(replace(contents, findings=spelled), replace(contents.decision, answer="yes"))
    assert all("--tidy-ids" in one for one, _ in told if one.startswith(("newcomer fit", "newcomer report")))
    (code,) = [(one, why) for one, why in told if "PriorUCB" in one]
    assert "policy.update(" in code[0] and "starts from the population mean" in code[1]


def test_a_direction_that_is_nearly_all_positive_is_a_level() -> None:
    factor = np.array([[1.0], [0.9], [0.8], [-0.05]])
    model = nc.Model(np.eye(4, 1), np.ones(4), np.zeros(4), factor, 1.0, action_ids=tuple("abcd"), one_hot=True)
    assert model_section_directions(model)[0].level

"""Guards the parts of the command line that need no data: option parsing, plots, tables, progress, JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
import typer
from rich.console import Console, RenderableType

from newcomer.charts.terminal import (
    ASCII,
    BLOCKS,
    terminal_count,
    terminal_glyphs,
    terminal_number,
    terminal_scree,
    terminal_scree_bar,
)
from newcomer.cli import options, output
from newcomer.cli.model_summary import (
    ModelSummary,
    RadiusFindings,
    RankFindings,
    model_summary_bounds,
    model_summary_coverage_line,
    model_summary_logs_line,
    model_summary_method_line,
    model_summary_parts,
    model_summary_radius_verdict,
    model_summary_rank_line,
)
from newcomer.cli.output import Meter
from newcomer.em.passes import Progress
from newcomer.evidence import CoverageFacts, RidgeChoice, SampleFacts, Summary


def printed(*parts: RenderableType, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    for part in parts:
        console.print(part)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def radius(kind: str, value: float, raw: float) -> RadiusFindings:
    return RadiusFindings(kind, value, raw, value, raw, value, raw)


def logs_facts(*, users: int, rows: int, too_short: int = 0, ties: int = 0) -> Summary:
    return Summary(users, rows, 50, users - too_short, too_short, ties, "0f", 1.0, 0.0, 1.0, 1.0)


def findings(**changes: object) -> ModelSummary:
    usual: dict[str, object] = {
        "estimator": "sold",
        "dim": 50,
        "rank": 2,
        "logs": logs_facts(users=5000, rows=100_000),
        "ridge": RidgeChoice(1.0, "given"),
        "evidence": RankFindings("auto", (9.0, 4.0, 0.5, 0.4), (1.0, 0.9, 0.8, 0.7), 1 / 64, 2, 2),
        "coverage": CoverageFacts(0.09, 0.5, 0, ()),
        "delta": 0.05,
        "radius": (radius("bernstein", 1.0, np.inf), radius("martingale", 0.3, 0.3)),
        "calibrated": None,
        "outlook": (),
        "noise_variance": 0.25,
        "intercept": False,
        "fingerprint": "0f",
    }
    return ModelSummary(**{**usual, **changes})  # type: ignore[arg-type]


def test_a_rank_is_auto_or_a_number_from_one() -> None:
    assert options.parse_rank("auto") == "auto" and options.parse_rank("3") == 3
    for wrong in ("0", "-1", "two", "1.5", ""):
        with pytest.raises(typer.BadParameter, match="'auto' or a whole number"):
            options.parse_rank(wrong)


@pytest.mark.parametrize(
    ("text", "size"), [("500MB", 500_000_000), ("2 GiB", 2**31), ("1.5kb", 1500), ("1024", 1024), ("7B", 7)]
)
def test_sizes_have_units(text: str, size: int) -> None:
    assert options.parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "5 parsecs", "-5MB", "5MBMB"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="a size is a number"):
        options.parse_size(text)


def test_columns_are_renamed_in_pairs() -> None:
    assert options.parse_columns(["user=uid", "reward=r=1"]) == {"user": "uid", "reward": "r=1"}
    assert options.parse_columns(["features=a,b", "step="]) == {"features": ["a", "b"], "step": None}
    for wrong in ("user", "user=", "=uid"):
        with pytest.raises(typer.BadParameter, match="such as user=uid"):
            options.parse_columns([wrong])


def test_delta_is_a_probability() -> None:
    assert options.parse_delta(0.05) == 0.05
    for wrong in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(typer.BadParameter, match="probability"):
            options.parse_delta(wrong)


def test_outputs_are_not_overwritten_by_accident(tmp_path: Path) -> None:
    taken = tmp_path / "m.newcomer"
    taken.touch()
    with pytest.raises(typer.BadParameter, match="--force"):
        options.free_path_option(taken, force=False)
    assert options.free_path_option(taken, force=True) == taken
    with pytest.raises(typer.BadParameter, match="is a folder"):
        options.free_path_option(tmp_path, force=True)
    with pytest.raises(typer.BadParameter, match="does not exist"):
        options.free_path_option(tmp_path / "no" / "m.newcomer", force=False)


def test_a_bar_shades_what_chance_gives() -> None:
    assert terminal_scree_bar(6, 2, kept=True, glyphs=ASCII).plain == "==####"
    assert terminal_scree_bar(2, 5, kept=False, glyphs=ASCII).plain == "==..."
    assert terminal_scree_bar(0, 0, kept=False, glyphs=ASCII).plain == ""


def test_the_scree_plot_draws_square_roots_and_marks_what_is_kept() -> None:
    lines = printed(terminal_scree([16.0, 4.0, -1.0], [1.0, 1.0, 1.0], rank=2, total=50, glyphs=ASCII)).splitlines()
    assert [line.count("#") + line.count("=") for line in lines[:3]] == [40, 20, 0]
    assert [line.count("=") + line.count(".") for line in lines[:3]] == [
        11,
        11,
        11,
    ]  # ten cells and the point of the number
    assert [line.rstrip().endswith("kept") for line in lines[:3]] == [True, True, False]
    assert "and 47 more" in lines[3]


def test_a_plot_of_nothing_at_all_is_a_plot() -> None:
    assert "0" in printed(terminal_scree([0.0, 0.0], [], rank=0, total=2))


def test_terminals_without_blocks_get_ascii() -> None:
    assert (
        terminal_glyphs("utf-8") is BLOCKS and terminal_glyphs("UTF8") is BLOCKS and terminal_glyphs("ascii") is ASCII
    )
    assert all(ord(letter) < 128 for letter in printed(*model_summary_parts(findings(), glyphs=ASCII)))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.00"), (27.931, "27.9"), (5168.2, "5,168"), (1e-9, "1.0e-09"), (0.0898, "0.0898")]
    + [(np.inf, "infinite"), (np.nan, "unknown"), (123.4, "123")],
)
def test_numbers_have_three_figures(value: float, text: str) -> None:
    assert terminal_number(value) == text


def test_one_of_a_thing_is_singular() -> None:
    assert (terminal_count(1, "user"), terminal_count(5000, "user")) == ("1 user", "5,000 users")


def test_the_story_fits_eighty_columns_and_says_the_essentials() -> None:
    text = printed(*model_summary_parts(findings()))
    assert max(len(line) for line in text.splitlines()) <= 80
    for part in (
        "5,000 users",
        "rank 2",
        "largest of 63 draws",
        "includes the population mean",
        "inspect --bounds",
    ):
        assert part in text
    for part in ("martingale", "lambda_A", "vacuous", "sign flips"):  # they are asked for, `inspect --bounds`
        assert part not in text
    bounds = printed(model_summary_bounds(findings()))
    assert "lambda_A" in bounds and "martingale" in bounds and "0.300" in bounds and "probability 0.95" in bounds


def test_users_left_out_and_ties_are_told() -> None:
    line = model_summary_logs_line(findings(logs=logs_facts(users=5, rows=9, too_short=1, ties=2)))
    assert "1 user with a single row left out" in line and "2 rows at equal times" in line


def test_the_reason_for_the_rank_is_told() -> None:
    def evidence(chosen: str, stand_out: int | None, differing: int = 2) -> RankFindings:
        return RankFindings(chosen, (9.0, 4.0), (1.0, 1.0), 1 / 64, stand_out, differing)

    assert "they stand out from chance" in model_summary_rank_line(findings())
    assert "it stands out" in model_summary_rank_line(findings(rank=1, evidence=evidence("auto", 1)))
    assert "no differences between users" in model_summary_rank_line(
        findings(rank=1, evidence=evidence("auto", 1, differing=0))
    )
    assert "no direction stands out" in model_summary_rank_line(findings(rank=0, evidence=evidence("auto", 0)))
    assert model_summary_rank_line(findings(evidence=evidence("given", 1))).endswith(
        "as asked; 1 stands out from chance"
    )
    assert model_summary_rank_line(findings(evidence=evidence("given", 0))).endswith(
        "as asked; none stands out from chance"
    )
    assert model_summary_rank_line(findings(evidence=evidence("given", 2))).endswith("as asked")
    assert model_summary_rank_line(findings(evidence=RankFindings("given", (9.0, 4.0)))).endswith("as asked")


def test_uncovered_directions_are_counted_and_named() -> None:
    assert "2 directions never seen" in model_summary_coverage_line(
        findings(coverage=CoverageFacts(0.1, 0.5, 2, (3, 7)))
    )
    names = {"never_features": ("a", "b"), "collinear_groups": (("red", "blue"),), "one_half_features": ("film-7",)}
    line = model_summary_coverage_line(
        findings(coverage=CoverageFacts(0.1, 0.5, 4, (), never=2, collinear=1, one_half=1, **names))
    )
    for part in ("2 directions never seen (a, b)", "always move together (red, blue)", "one half", "only (film-7)"):
        assert part in line


def test_the_pseudo_inverse_has_no_ridge_to_show() -> None:
    assert (
        model_summary_method_line(findings(estimator="sold-pinv", ridge=RidgeChoice(None, "none")))
        == "sold-pinv (none)"
    )
    many = model_summary_method_line(findings(passes=13, sample=SampleFacts(20_012, 400_240, 41)))
    assert "estimated on a sample of 20,012 users, then all users fitted in 13 passes over all rows" in many


def test_vacuous_bounds_are_called_vacuous() -> None:
    assert model_summary_radius_verdict([radius("bernstein", 1.0, np.inf)]).startswith("All vacuous")
    assert model_summary_radius_verdict(findings().radius) == "A bound of 1 or more is vacuous."


def test_the_calibrated_radius_comes_first_where_there_is_one() -> None:
    em = findings(estimator="em", outlook=("A newcomer is quick.", "Expect much."))
    told = printed(*model_summary_parts(em))
    assert "Rewards   A newcomer is quick." in told and "the number that predicts" in told
    assert "the subspace is within 0.0700 of the true one" in printed(*model_summary_parts(findings(calibrated=0.07)))
    assert "within 0" not in printed(*model_summary_parts(findings()))


def test_directions_of_preference_are_not_confused_with_the_population_mean() -> None:
    em = {"estimator": "em", "rank": 3}
    told = model_summary_rank_line(findings(**em, directions=2))
    assert "differ along 2 directions, the number that" in told and "the subspace has rank 3 of 50)" in told
    assert "in the spectrum below, which includes the population mean, 2 eigenvalues stand out" in told
    none = model_summary_rank_line(findings(estimator="em", rank=1, directions=0))
    assert "show no differences in preferences" in none and "the population mean alone" in none


@pytest.mark.parametrize("rank", [0, 50])
def test_no_subspace_or_the_whole_space_has_no_error(rank: int) -> None:
    assert "none: the" in printed(*model_summary_parts(findings(rank=rank, radius=())))


def test_the_program_is_called_as_it_can_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "env" / "bin"
    home.mkdir(parents=True)
    monkeypatch.setattr("sys.executable", str(home / "python"))
    monkeypatch.setenv("PATH", str(home))
    monkeypatch.chdir(tmp_path)
    assert output.printed_program() == f"{home / 'python'} -m newcomer"
    (home / "newcomer").touch(mode=0o755)
    assert output.printed_program() == "newcomer"
    monkeypatch.setenv("PATH", "/nowhere")
    assert output.printed_program() == "env/bin/newcomer"


def test_json_is_one_object_of_plain_values(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json("fit", {"a": np.float64(1.5), "b": np.arange(2), "c": float("inf"), "d": (1, None), "e": "å"})
    text = capsys.readouterr().out
    assert text.count("\n") == 1
    assert json.loads(text) == {
        "version": 1,
        "command": "fit",
        "a": 1.5,
        "b": [0, 1],
        "c": None,
        "d": [1, None],
        "e": "å",
    }


def meter_output(seconds: list[float], *, terminal: bool) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=100, color_system=None, legacy_windows=False)
    clock = iter([0.0, *(moment for second in seconds for moment in [second] * (2 if terminal else 1))])
    with Meter("Fitting", console=console, clock=lambda: next(clock, seconds[-1])) as meter:
        for step, _ in enumerate(seconds, start=1):
            meter(1000 * step, 1000 * len(seconds))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_quick_work_shows_no_progress() -> None:
    assert meter_output([0.2, 0.9], terminal=False) == meter_output([0.2, 0.9], terminal=True) == ""


def test_without_a_terminal_progress_is_a_line_now_and_then() -> None:
    lines = meter_output([2.0, 10.0, 31.0, 33.0], terminal=False).splitlines()
    assert lines[:2] == ["Fitting: 25%, 500 rows/s, 6 s left", "Fitting: 100%, 121 rows/s, 0 s left"]
    assert lines[2:] == ["Fitting: done in 33 s"]


def test_stages_of_unequal_length_tell_no_time_left() -> None:
    meter = Meter("Evaluating", unit="", console=Console(file=io.StringIO()), clock=lambda: 0.0)
    assert meter.line(20, 100, 55.0) == "Evaluating: 20%, 55 s so far"


def test_a_second_pass_is_not_called_the_first() -> None:
    meter = Meter("Checking", first=", first pass", console=Console(file=io.StringIO()), clock=lambda: 0.0)
    meter(52, 100)
    assert meter.line(52, 100, 10.0).startswith("Checking, first pass: 52%")
    meter(26, 100)
    assert meter.line(26, 100, 20.0).startswith("Checking, pass 2: 26%")


def test_in_a_terminal_progress_has_a_rate() -> None:
    shown = meter_output([2.0, 4.0], terminal=True)
    assert "Fitting" in shown and "50%" in shown and "500 rows/s" in shown


def test_a_fit_of_many_passes_shows_the_pass_the_stage_and_the_likelihood() -> None:
    console = Console(file=io.StringIO(), width=200, color_system=None)
    clock = iter([0.0, 2.0, 100.0, 110.0, 111.0])
    with Meter("Fitting", console=console, clock=lambda: next(clock)) as meter:
        meter(1000, 1000)
        meter.hear(Progress(7, "choosing shrinkage", -0.78125, -0.79))
        meter(0, 1000)
        meter.spoken = 0.0
        meter(500, 1000)
    likelihood = "log-likelihood -0.7812 a row, held out -0.7900"
    told = f"Fitting, pass 7 (choosing shrinkage; {likelihood}): 1 min 50 s so far"
    assert console.file.getvalue().splitlines()[-2] == told  # type: ignore[attr-defined]
    meter.hear(Progress(7, "choosing shrinkage", -0.5, 0.0, sampled=True))
    told = "Fitting, pass 7 over a sample of the users (choosing shrinkage; log-likelihood -0.5000 a row)"
    assert meter.line(5, 10, 20.0) == f"{told}: 20 s so far"
    meter.hear(Progress(5, "fitting everybody", -0.5, 0.0, most=14))
    meter.each = 3.0
    told = "Fitting, pass 7 of about 16 (fitting everybody; log-likelihood -0.5000 a row)"
    assert meter.line(5, 10, 20.0) == f"{told}: 20 s so far, about 27 s left"


def test_the_number_of_a_pass_never_falls() -> None:
    """Checks, moments, a sample's passes and everybody's are counted on: a share that falls has another number."""
    console, now = Console(file=io.StringIO(), width=200, color_system=None), [0.0]
    said = []
    with Meter("Fitting", first=", first pass", console=console, clock=lambda: now[0]) as meter:

        def one_pass(*heard: Progress) -> None:
            for done in (260, 520, 1000):
                now[0] += 40.0
                said.append(meter.line(done, 1000, now[0]).split(":")[0].split(" (")[0])
                meter(done, 1000)
            for progress in heard:
                meter.hear(progress)

        one_pass()
        one_pass()
        one_pass(Progress(1, "choosing the rank", -0.5, 0.0, sampled=True))
        one_pass(Progress(2, "choosing the rank", -0.5, 0.0, sampled=True))
        one_pass(Progress(1, "fitting everybody", -0.5, 0.0, most=4))
        one_pass(Progress(2, "fitting everybody", -0.5, 0.0, most=4))
        one_pass(Progress(5, "how sure: parts", -0.5, 0.0, most=4))
        one_pass()
    first = dict.fromkeys(one.removeprefix("Fitting, ") for one in said)
    assert list(first) == [
        "first pass",
        "pass 2",
        "pass 3",
        "pass 3 over a sample of the users",
        "pass 4 over a sample of the users",
        "pass 5 of about 8",
        "pass 6 of about 8",
        "pass 7 of about 7",
    ]

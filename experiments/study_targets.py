"""What was asked of each study past the paper, beforehand, and whether its results meet it.

For each study one function of its table gives the verdicts, and another the details: the numbers that go on the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import polars as pl

from newcomer.paper.studies import check_rates, hard, kept, people, persistence, rates, repeatability
from newcomer.paper.studies import local_regret as local
from newcomer.paper.studies import prior_calibration as calibration
from newcomer.paper.studies import prior_movielens as movielens
from newcomer.paper.studies import prior_robust as robust
from newcomer.paper.studies import prior_users as users

REPORTED = "reported"  # the target of what was only to be measured


@dataclass(frozen=True)
class Verdict:
    """One target: what was asked, what came out, and whether it holds (None: the interval leaves it open)."""

    what: str
    target: str
    measured: str
    holds: bool | None


def at_most(what: str, value: float, most: float, error: float | None = None) -> Verdict:
    """A value that should be at most `most`."""
    spread = "" if error is None else f" (se {error:.2g})"
    return Verdict(what, f"at most {most:g}", f"{value:.3g}{spread}", bool(value <= most))


def at_least(what: str, value: float, least: float) -> Verdict:
    """A value that should be at least `least`."""
    return Verdict(what, f"at least {least:g}", f"{value:.3g}", bool(value >= least))


def last_round(frame: pl.DataFrame, *by: str) -> pl.DataFrame:
    """The rows of the last round, of the whole table or of each group."""
    return frame.filter(pl.col("t") == (pl.col("t").max().over(*by) if by else pl.col("t").max()))


def with_error(column: str, digits: int) -> pl.Expr:
    """A mean and its standard error in one cell."""
    return pl.format("{} (se {})", pl.col(column).round(digits), pl.col(f"{column}_se").round(digits)).alias("told")


def subspace_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """EM against SOLD at each signal strength."""
    found = []
    for entry, most in {1.25: 0.45, 0.5: 0.7, 0.25: 1.0}.items():
        cell = frame.filter(scale=entry, estimator="SOLD").row(0, named=True)
        found.append(at_most(f"EM / SOLD, entries up to {entry:g}", cell["ratio"], most, cell["ratio_se"]))
    return found


def subspace_details(frame: pl.DataFrame) -> pl.DataFrame:
    """Mean errors of all estimators."""
    return frame.with_columns(with_error("error", 3)).pivot("scale", index="estimator", values="told")


def movielens_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """PriorUCB against the true prior, the best ProBALL, and the population mean."""
    targets = {"true prior": 1.2, "ProBALL-UCB": 0.45, "PopulationMean": 0.65}
    found = [(movielens.best(frame, name), most) for name, most in targets.items()]
    return [at_most(f"PriorUCB / {line['policy']}", line["ratio"], most, line["ratio_se"]) for line, most in found]


def movielens_details(frame: pl.DataFrame) -> pl.DataFrame:
    """Regret after the last round; of ProBALL the best and the paper's two values of tau."""
    best = movielens.best(frame, "ProBALL-UCB")["policy"]
    shown = ~pl.col("policy").str.contains("ProBALL") | pl.col("policy").str.contains("tau 0")
    ratio = pl.col("ratio").alias("PriorUCB / it")
    return (
        movielens.last(frame)
        .filter(shown | (pl.col("policy") == best))
        .select("policy", "regret", "regret_se", ratio, "ratio_se", "low", "high")
    )


def users_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """For every number of users PriorUCB against the better of the two; sizes that were not run are open, not fine."""
    found, target = [], f"at most {users.MARGIN:g}"
    for (name, size), own in frame.group_by("world", "users", maintain_order=True):
        rivals = own.filter(pl.col("policy").is_in(["PopulationMean", "LinUCB"]))
        best = rivals.sort("regret").row(0, named=True)
        low, high = best["over_low"], best["over_high"]
        told = f"ratio {best['ratio']:.3g}; over 1.05: {best['over']:.3g}, 99% [{low:.3g}, {high:.3g}]"
        holds = True if high <= 0 else False if low > 0 else None
        found.append(Verdict(f"{name}, N = {size:,}: PriorUCB / {best['policy']}", target, told, holds))
    done = set(frame.select("world", "users").iter_rows())
    wanted = [(name, size) for name, sizes in users.SIZES.items() for size in sizes if (name, size) not in done]
    return found + [Verdict(f"{name}, N = {size:,}", target, "not run yet", None) for name, size in wanted]


def users_details(frame: pl.DataFrame) -> pl.DataFrame:
    """Regret of every policy, and over how many worlds (synthetic) or newcomers (MovieLens)."""
    told = frame.with_columns(with_error("regret", 2))
    return told.pivot("policy", index=["world", "users", "units"], values="told")


def robust_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """No target was set: what each case costs PriorUCB."""
    end = frame.filter(pl.col("t") == robust.ROUNDS, pl.col("case") != robust.PLAIN)
    ours = end.filter(pl.col("measure").is_in(["PriorUCB", "EM error"]))
    return [
        Verdict(
            f"{line['measure']}, {line['case']}, entries up to {line['scale']:g}: ratio to well-specified",
            REPORTED,
            f"{line['ratio']:.3g} (se {line['ratio_se']:.2g}, {line['worlds']} of {robust.SEEDS} worlds)",
            None,
        )
        for line in ours.iter_rows(named=True)
    ]


def robust_details(frame: pl.DataFrame) -> pl.DataFrame:
    """Everything after the last round, with the ratio to the well-specified case."""
    end = frame.filter(pl.col("t") == robust.ROUNDS)
    value, ratio = pl.col("value").round_sig_figs(3), pl.col("ratio").round_sig_figs(3)
    told = pl.when(ratio.is_finite()).then(pl.format("{} (x {})", value, ratio)).otherwise(pl.format("{}", value))
    return end.with_columns(told=told).pivot("case", index=["scale", "measure"], values="told").fill_null("")


def calibration_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """Coverage in every cell of both norms, tightness where the subspace is found, candour where it is not.

    A verdict is open until all worlds are done.
    """
    found = []
    for line in frame.filter(kind="calibrated").iter_rows(named=True):
        what, worlds = f"{line['strength']}, {line['norm']}", line["worlds"]
        own = [at_least(f"{what}: coverage at delta = 0.1", line["covered"], 0.86)]
        if line["loose"] is not None:
            own.append(at_most(f"{what}: median radius / error ({line['found']} with error < 0.5)", line["loose"], 2.0))
        if what == "hopeless, spectral":
            own.append(at_least(f"{what}: share with radius at least 0.99", line["unknown"], 0.95))
        done = worlds >= calibration.WORLDS
        found += [
            Verdict(
                v.what, v.target, f"{v.measured} ({worlds} of {calibration.WORLDS} worlds)", v.holds if done else None
            )
            for v in own
        ]
    return found


def calibration_details(frame: pl.DataFrame) -> pl.DataFrame:
    """Coverage, medians and looseness of all radii."""
    return frame.select(
        "strength", "norm", "kind", "worlds", "covered", "covered_se", "error", "radius", "loose", "unknown"
    )


def ratings_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """Slope of rewards on predictions, and the largest distance of a bin from the diagonal."""
    found, (low, high) = [], (0.9, 1.1)
    for (name, seen), own in frame.group_by("rewards", "seen", maintain_order=True):
        first = own.row(0, named=True)
        gap = float((own["predicted"] - own["actual"]).abs().max())  # type: ignore[arg-type]
        told = (
            f"slope {first['slope']:.3g}, bias {first['bias']:.2g}, worst bin {gap:.2g} off; "
            f"explains {first['gain']:.1%} of the variance; "
            f"predictions from {first['lowest']:.2g} to {first['highest']:.2g}"
        )
        holds = low <= first["slope"] <= high
        found.append(Verdict(f"{name}, after {seen} rewards", f"slope {low:g} to {high:g}", told, holds))
    return found


def ratings_details(frame: pl.DataFrame) -> pl.DataFrame:
    """The bins: predicted and actual reward."""
    told = pl.format("{}: {}", pl.col("predicted").round(2), pl.col("actual").round(2))
    return frame.with_columns(told=told).pivot("bin", index=["rewards", "seen"], values="told")


def local_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """LOCAL-UCB against both exits of ProBALL-UCB; the target is set for newcomers."""
    whole, found = frame.filter(pl.col("users").is_null()), []
    for name in local.WORLDS:
        for policy in (local.LITERAL, local.SAVINGS):
            what = f"{name}: (LOCAL-UCB - {policy}) / LinUCB, all N pooled, upper 95% limit"
            own = whole.filter(world=name, policy=policy).row(0, named=True)
            found.append(at_most(f"{what} over newcomers", own["share_upper"], 0.05))
            told = f"{own['share_upper_worlds']:.3g}; the difference itself {own['share']:.3g}"
            found.append(Verdict(f"{what} over worlds", REPORTED, told, None))
    return found


def local_details(frame: pl.DataFrame) -> pl.DataFrame:
    """Regret of every policy at every N, and pooled."""
    label = pl.col("users").cast(pl.String).fill_null("all")
    own = frame.filter(pl.col("policy") != local.RATE).with_columns(with_error("regret", 2), users=label)
    return own.pivot("policy", index=["world", "users"], values="told")


def people_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """The way to the limit, EmpiricalArms, and whoever assumed a fixed share; no target for actions met once."""
    end, found = people.last(frame), []
    for answers, (way, arms) in {20: (0.75, 1.01), 60: (0.85, 0.97)}.items():
        own = end.filter(policy=people.OURS, answers=answers)
        for line in own.filter(case=people.AGAIN).iter_rows(named=True):
            what = f"{line['case']}, {answers} answers: PriorUCB"
            found.append(at_least(f"{what}, way from PopulationMean to the limit", line["way"], way))
            found.append(at_most(f"{what} / EmpiricalArms", line["arms"], arms, line["arms_se"]))
        for line in own.filter(case=people.WAVERING).iter_rows(named=True):
            what = f"{line['case']}, {answers} answers: PriorUCB"
            found.append(at_least(f"{what}, way from PopulationMean to the limit", line["way"], 0.6))
        assumed = end.filter(pl.col("policy").str.contains("assumed"), answers=answers, case=people.WAVERING)
        for best in assumed.sort("regret").head(1).iter_rows(named=True):
            what = f"{best['case']}, {answers} answers: PriorUCB / the best fixed share, afterwards ({best['policy']})"
            found.append(at_most(what, best["ratio"], 1.03, best["ratio_se"]))
    found += [_no_worse(end, f"{table}, {case}") for table in people.LIKED for case in (people.AGAIN, people.WAVERING)]
    rivals = end.filter(policy=people.MEAN).filter(pl.col("case").is_in([people.ONCE, people.FILMS]))
    return found + [
        Verdict(
            f"{_case(line)}: PriorUCB / PopulationMean",
            REPORTED,
            f"{line['ratio']:.3g} (se {line['ratio_se']:.2g})",
            None,
        )
        for line in rivals.iter_rows(named=True)
    ]


def _no_worse(end: pl.DataFrame, case: str) -> Verdict:
    """Where 0/1 answers come back and earlier users told, PriorUCB against EmpiricalArms."""
    what = f"{case}: PriorUCB / EmpiricalArms, told by earlier users"
    found = end.filter(case=case, policy=people.OURS + people.HEARD)
    if not len(found):
        return Verdict(what, "upper 95% limit at most 1.03", "not run yet", None)
    line = found.row(0, named=True)
    return _upper(what, line["arms"], line["arms_se"], 1.03)


def _upper(what: str, value: float, error: float, most: float) -> Verdict:
    """A ratio whose upper 95% limit should be at most `most`."""
    upper = value + 1.96 * error
    return Verdict(what, f"upper 95% limit at most {most:g}", f"{value:.3f}, limit {upper:.3f}", bool(upper <= most))


def repeatability_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """Told by earlier users and alone, against EmpiricalArms where 0/1 answers come back; the rest is reported."""
    found = []
    for told in (repeatability.TOLD, "0.5"):
        own = frame.filter(policy=f"PriorUCB, start {told}, curiosity 0.25")
        for line in own.filter(pl.col("people").str.ends_with("0/1")).iter_rows(named=True):
            size = f", {line['size']} questions" if line["size"] else ""
            what = f"{line['people']}{size}, {line['case']}: PriorUCB / EmpiricalArms, {told}"
            verdict = _upper(what, line["arms"], line["arms_se"], 1.03)
            asked = told == repeatability.TOLD and line["case"] in (people.AGAIN, people.WAVERING)
            found.append(verdict if asked else replace(verdict, target=REPORTED, holds=None))
    return found


def repeatability_details(frame: pl.DataFrame) -> pl.DataFrame:
    """Regret of every candidate over that of the first, by table, size and case."""
    alone = pl.format("{} (one table)", pl.col("ratio").round(3))  # starts that one sub-table alone had to try
    told = frame.with_columns(with_error("ratio", 3), people=pl.format("{} {}", "people", "size"))
    told = told.with_columns(pl.col("told").fill_null(alone))
    return told.pivot("case", index=["people", "policy"], values="told")


def people_details(frame: pl.DataFrame) -> pl.DataFrame:
    """Regret after the last round, the way to the limit, and ratios."""
    end = people.last(frame).sort("case", "answers", maintain_order=True)
    ratio, arms = pl.col("ratio").alias("PriorUCB / it"), pl.col("arms").alias("it / EmpiricalArms")
    return end.select(
        "case", "answers", "units", "policy", "regret", "regret_se", "way", "way_se", arms, ratio, "ratio_se"
    )


def persistence_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """No target was set: the unknown share beside the right and the worst assumed one."""
    found = []
    own = frame.filter(pl.col("assumed").is_in([f"{share:g}" for share in persistence.ASSUMED]), policy="PriorUCB")
    for (actions, true), lines in own.group_by("actions", "true", maintain_order=True):
        right = lines.filter(assumed=f"{true:g}").row(0, named=True)
        worst = lines.sort("regret").row(-1, named=True)
        told = (
            f"{right['ratio']:.3g} (se {right['ratio_se']:.2g}); / the worst ({worst['assumed']}): {worst['ratio']:.3g}"
        )
        what = f"{actions} actions, true share {true:g}: PriorUCB, share unknown / share known"
        found.append(Verdict(what, REPORTED, told, None))
    return found


def persistence_details(frame: pl.DataFrame) -> pl.DataFrame:
    """Regret by method, true share (rows) and assumed share (columns)."""
    told = frame.with_columns(with_error("regret", 2), assumed=pl.col("assumed").fill_null(""))
    named = told.with_columns(assumed=pl.when(pl.col("assumed") == "").then(pl.lit("nothing")).otherwise("assumed"))
    return named.pivot("assumed", index=["actions", "policy", "true"], values="told").fill_null("")


def exploration_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """The defaults against the best fixed width or scale, and against no personalisation where nothing comes again."""
    found = []
    for policy in ("PriorUCB", "PriorTS"):
        for line in frame.filter(policy=f"{policy}, curiosity 0.5").iter_rows(named=True):
            case = _case(line)
            told = f"{line['ratio']:.3f} (se {line['ratio_se']:.2g}; best: {line['best'].split(', ')[1]})"
            fine = bool(line["ratio"] <= 1.03 or line["ratio"] - 2 * line["ratio_se"] <= 1)
            found.append(Verdict(f"{case}: {policy} / the best fixed", "at most 1.03, or two se", told, fine))
            if line["case"] in (people.ONCE, people.FILMS):
                upper = line["mean"] + 1.96 * line["mean_se"]
                told = f"{line['mean']:.3f}, upper 95% limit {upper:.3f}"
                found.append(Verdict(f"{case}: {policy} / PopulationMean", "limit at most 1.01", told, upper <= 1.01))
    return found


def _case(line: Mapping[str, object]) -> str:
    """The case of a line, and the answers in its logs."""
    answers = f", {line['answers']} answers" if line["answers"] else ""
    return f"{line['case']}{answers}"


def exploration_details(frame: pl.DataFrame) -> pl.DataFrame:
    """Regret of every candidate in every case."""
    answers = pl.when(pl.col("answers") > 0).then(pl.format(", {} answers", "answers")).otherwise(pl.lit(""))
    told = frame.with_columns(with_error("regret", 2), case=pl.col("case") + answers)
    return told.pivot("case", index="policy", values="told")


def weak_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """What `fit` keeps must not be worse by more than 1% anywhere; the rivals are reported."""
    kept, others = frame.filter(policy="average"), frame.filter(pl.col("policy").is_in(["always", "ranks", "entries"]))
    asked = [
        at_most(f"{_table(line)}: average / clear directions", line["ratio"], 1.01, line["ratio_se"])
        for line in kept.iter_rows(named=True)
    ]
    rest = others.group_by("policy", maintain_order=True).agg(
        pl.col("ratio").log().mean().exp(), pl.col("ratio").max().alias("worst")
    )
    return asked + [
        Verdict(f"{name}: mean ratio, and the worst", REPORTED, f"{ratio:.3f}, {worst:.3f}", None)
        for name, ratio, worst in rest.rows()
    ]


def _table(line: Mapping[str, object]) -> str:
    return f"{line['people']}, {line['answers']} answers, {line['case']}"


def outlook_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """Splits whose interval has what happened."""
    return [
        Verdict(
            f"{line['people']}, after {line['interactions']} interactions: intervals that have what happened",
            "at least 17 of 20",
            f"{line['covered']} of {line['splits']}",
            bool(20 * line["covered"] >= 17 * line["splits"]),
        )
        for line in frame.iter_rows(named=True)
    ]


def hard_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """Whether anybody is below a bound on the mean regret, and how much of the loss of knowing nothing is saved."""
    own = frame.filter(pl.col("policy").is_in(hard.policies_in(frame)))
    found = []
    for name in (hard.PROVEN, hard.PRINTED):
        limits = frame.filter(policy=name).select("scale", "steps", "horizon", "users", limit="regret")
        both = own.join(limits, on=["scale", "steps", "horizon", "users"])
        ratios = both.with_columns(ratio=(pl.col("regret") + 2 * pl.col("regret_se")) / pl.col("limit"))
        least = ratios.sort("ratio").row(0, named=True)
        what = f"least mean regret + 2 se, over the {name} ({least['policy']}, {_cell(least)})"
        found.append(at_least(what, least["ratio"], 1.0))
    for scale in hard.SCALES:
        best = own.filter(scale=scale).sort("blind").row(0, named=True)
        what = f"scale {scale:g}: least regret as a share of knowing nothing ({best['policy']}, {_cell(best)})"
        found.append(Verdict(what, REPORTED, f"{best['blind']:.3g}", None))
    return found


def _cell(line: dict[str, object]) -> str:
    return f"N = {line['users']}, T = {line['horizon']}, H = {line['steps']}"


def hard_details(frame: pl.DataFrame) -> pl.DataFrame:
    """Mean regret of everybody in every cell, with the bounds."""
    told = frame.with_columns(with_error("regret", 2))
    return told.pivot("policy", index=["scale", "steps", "horizon", "users", "family"], values="told").fill_null("")


def rates_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """How measured quantities fall from the smallest to the largest N, as a share of how their rate falls."""
    ends = frame["users"].min(), frame["users"].max()

    def falls(policy: str) -> tuple[float, float]:
        """The ratio of the first to the last value, and its standard error (the values taken as independent)."""
        first, last = (frame.filter(policy=policy, users=users).row(0, named=True) for users in ends)
        ratio = first["value"] / last["value"]
        return ratio, ratio * math.hypot(first["value_se"] / first["value"], last["value_se"] / last["value"])

    found = []
    for what, policy, rate in (("the subspace error", rates.ERROR, rates.RADIUS), ("regret", rates.OURS, rates.WORST)):
        (fall, error), (own, _) = falls(policy), falls(rate)
        low, high = ((fall + sign * 2 * error) / own for sign in (-1, 1))
        told = f"{fall / own:.3g} (se {error / own:.2g})"
        target = "at least 1" if policy == rates.ERROR else REPORTED
        holds = None if target == REPORTED or low < 1 < high else low >= 1
        found.append(Verdict(f"fall of {what} from N = {ends[0]} to {ends[1]} / that of its rate", target, told, holds))
    kappa = frame.filter(policy=rates.KAPPA)["value"].max() / (rates.ROUNDS / 2)  # type: ignore[operator]
    return [*found, at_most("mean kappa^2 / its bound T / 2", kappa, 1.0)]


def rates_details(frame: pl.DataFrame) -> pl.DataFrame:
    """Measured values and rates at every N."""
    return frame.with_columns(with_error("value", 3)).pivot("users", index="policy", values="told")


def kept_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """What staying in the subspace costs more than LinUCB, at the end."""
    last = last_round(frame).filter(policy=kept.KEPT)
    return [
        Verdict(
            f"{line['world']}: regret of {kept.KEPT}, kept in the subspace, beyond {kept.PLAIN}'s",
            REPORTED,
            f"{line['more']:.3g} (se {line['more_se']:.2g}, {line['newcomers']} newcomers)",
            None,
        )
        for line in last.iter_rows(named=True)
    ]


Verdicts = Callable[[pl.DataFrame], list[Verdict]]
Details = Callable[[pl.DataFrame], pl.DataFrame]


def check_rates_verdicts(frame: pl.DataFrame) -> list[Verdict]:
    """Alarms of clean sets, of each test and of all; power at the effects that were named beforehand."""
    clean = frame.filter(design=check_rates.TOGETHER)
    found = [
        _alarms(line["test"], line["alarm"], line["sets"]) for line in clean.filter(test="any").iter_rows(named=True)
    ]
    found += [
        _alarms(line["test"], line["alarm"], line["sets"])
        for line in clean.filter(pl.col("test") != "any").iter_rows(named=True)
    ]
    named = (("all rewards drift", 0.25), ("a direction drifts", 0.25), ("logger knows taste", 1.0))
    for fault, strength in (*named, ("people log what they like", 1.0)):
        line = frame.filter(pl.col("test") != "any", design=fault, strength=strength)
        if len(line):
            found.append(at_least(f"power: {fault}, {strength:g}", line["alarm"][0], 0.9))
    return found


def _alarms(test: str, share: float, sets: int) -> Verdict:
    """Alarms of an exact test are neither too many nor too few; those of all together are not too many."""
    low = 0.0 if test == "any" else 0.03
    what = "clean sets accused by any test" if test == "any" else f"alarms on clean sets: {test}"
    measured = f"{share:.3f} of {sets:,}"
    return Verdict(what, "at most 0.07" if test == "any" else "0.03 to 0.07", measured, bool(low <= share <= 0.07))


TARGETS: Mapping[str, tuple[Verdicts, Details]] = {
    "prior-subspace": (subspace_verdicts, subspace_details),
    "prior-movielens": (movielens_verdicts, movielens_details),
    "prior-users": (users_verdicts, users_details),
    "prior-robust": (robust_verdicts, robust_details),
    "prior-calibration": (calibration_verdicts, calibration_details),
    "prior-ratings": (ratings_verdicts, ratings_details),
    "local-regret": (local_verdicts, local_details),
    "people": (people_verdicts, people_details),
    "persistence": (persistence_verdicts, persistence_details),
    "exploration": (exploration_verdicts, exploration_details),
    "outlook": (outlook_verdicts, lambda frame: frame),
    "weak-directions": (weak_verdicts, lambda frame: frame),
    "hard": (hard_verdicts, hard_details),
    "rates": (rates_verdicts, rates_details),
    "kept": (kept_verdicts, last_round),
    "check-rates": (check_rates_verdicts, lambda frame: frame),
    "repeatability": (repeatability_verdicts, repeatability_details),
}

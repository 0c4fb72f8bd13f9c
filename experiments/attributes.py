"""What are attributes of users worth, before the first interaction and after some?

`python -m experiments.attributes [taxes bfi young movielens emails]` (NEWCOMER_DATA names the folder that holds taxes/,
bfi/, young-people/ and ml-1m/) writes experiments/results/attributes.csv. Users are dealt into folds; those of a fold
are newcomers of fits to the others. Each newcomer's rows are dealt ten times: eight are candidates, others are known.
All rules choose among the same candidates with the same rows known; the table tells the mean reward over the population
mean's, averaged over deals and then over users, its standard error over users, and the paired difference of PriorUCB
with attributes to PriorUCB without ("added").

What is tried was listed before any of it was looked at:

    taxes      five folds; 16 rows of each person; known and candidate rows come from different tasks, since the two
               rows of a task sum to one; attributes party, two attitudes
    bfi        three folds; 12 of 25 answers of each person logged; gender, education (levels), age
    young      three folds; 20 of 134 answers logged; all ten facts of the survey
    movielens  three folds; 20 ratings of each person, of films with 1,000 ratings or more; gender, age group and
               occupation (levels); the zip code is offered and has to be left out
    emails     simulated: 12,000 users got six of twelve templates at random; log-odds of clicks: -2 (deviation 0.4 by
               template) plus effects of four segments and a device (deviation 0.6 by template) and nothing else that
               users share; 2,000 newcomers get five e-mails at random and then the one that each rule chooses of all
               twelve; gains are in true click rates. Rewards are fresh draws, so that nothing lasts, which logs without
               repeats cannot tell: the same models told so (persistence 0) are a table of their own
    rules      PriorUCB with the attributes, PriorUCB fitted without, attributes permuted among people, plain ridge
               regression of attribute x feature ("regression"; where it is small enough), all after 0, 1, 2, 5 and,
               where histories allow, 10 interactions. All these are Gaussian; where rewards are 0 and 1, also
               outcome="binary" with attributes and without
    joint      m, L and the variances found together with the effects of attributes (`newcomer.em.joint`) in 3 rounds,
               as `fit` does ("attributes"), in 1, and in none: effects given the fit without attributes ("given the
               fit"). The rule: three rounds are the default unless they are worse than none by more than two standard
               errors of the paired difference ("joined") in any table after any number of interactions

Folds are made one by one, and kept: `python -m experiments.attributes taxes/0` makes the first of `taxes`, `... taxes`
those that are missing, and the table. All rules of a fold share one fit without attributes, which does not depend on
them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from experiments import markdown
from experiments.results_table import Command
from newcomer._fit import FitSettings, Fitting, fit, fit_by_em, fit_with_attributes
from newcomer.arrays import Bools, Floats, Ints
from newcomer.charts.pictures import Axis, draw_lines
from newcomer.em.passes import Passes
from newcomer.encoding import encode_columns, table_to_encode
from newcomer.evaluation.predictors import regression_predictor
from newcomer.logs.logs import Logs
from newcomer.model import Model
from newcomer.outcome import as_binary_outcome, fit_binary_outcome, has_binary_outcome
from newcomer.policies.baselines import PopulationMean
from newcomer.policies.prior import PriorUCB
from newcomer.population import AttributePrior

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "attributes.png"
OUT = "attributes.csv"
DEALS, CHOICES, STEPS = 10, 8, (0, 1, 2, 5, 10)
WITH, WITHOUT, PERMUTED, REGRESSION = "attributes", "without", "permuted", "regression"
GIVEN, ONCE, BINARY, BINARY_WITHOUT = "given the fit", "one round", "binary", "binary, without"
JOINED = {GIVEN: 0, ONCE: 1, WITH: 3}  # rounds in which everything is found together
AFTER = [f"after {t}" for t in STEPS]
TOLD = (WITH, WITHOUT, PERMUTED, REGRESSION, GIVEN, ONCE, BINARY, BINARY_WITHOUT)
HEADS = ["table", "interactions", "users", "with attributes", "without", "permuted", "regression"]
HEADS += ["effects given the fit", "one round", "binary, with", "binary, without", "added", "joined"]
START = "| table | interactions |"


@dataclass(frozen=True)
class Table:
    """Rows of users, all of them in `frame` (user, action or features, reward, group), and what is known of users.

    Rows of one `group` of a user are never known and candidate at once. `logged` rows of each user are in the logs.
    """

    name: str
    frame: pl.DataFrame
    people: pl.DataFrame
    folds: int
    features: Floats | None = None
    logged: int | None = None


def folder() -> Path:
    """Where the data are."""
    return Path(os.environ.get("NEWCOMER_DATA", "data"))


def taxes() -> Table:
    """Choices between two tax plans, 2,000 people, eight tasks each."""
    frame = pl.read_parquet(folder() / "taxes" / "choices.parquet").sort("user", "step")
    names = [name for name in frame.columns if name not in ("user", "task", "step", "reward")]
    people = pl.read_csv(folder() / "taxes" / "people.csv")
    return Table("taxes", frame.select("user", "reward", group="task"), people, 5, frame.select(names).to_numpy())


def answers(name: str, table: pl.DataFrame, people: pl.DataFrame, logged: int) -> Table:
    """A table of answers, people by questions, as rows."""
    numbers = table.with_columns(pl.all().cast(pl.Float64, strict=False)).with_row_index("user")
    rows = numbers.unpivot(index="user", variable_name="action", value_name="reward").drop_nulls()
    rows = rows.with_columns(pl.col("user").cast(pl.Int64), group="action").sort("user", "action")
    return Table(name, rows, people, 3, logged=logged)


def bfi() -> Table:
    """25 answers of 2,800 people."""
    people = pl.read_csv(folder() / "bfi" / "people.csv").with_row_index("user")
    people = people.with_columns(pl.col("gender", "education").cast(pl.String), pl.col("user").cast(pl.Int64))
    return answers("bfi", pl.read_csv(folder() / "bfi" / "answers.csv"), people, 12)


def young() -> Table:
    """134 answers of 1,010 people, and ten facts."""
    table = pl.read_csv(folder() / "young-people" / "responses.csv", infer_schema_length=None)
    facts = ["Age", "Height", "Weight", "Number of siblings", "Gender", "Left - right handed", "Education"]
    facts += ["Only child", "Village - town", "House - block of flats"]
    rated = [name for name in table.columns if name not in facts and table[name].dtype.is_numeric()]
    people = table.select(facts).with_row_index("user").with_columns(pl.col("user").cast(pl.Int64))
    return answers("young", table.select(rated), people, 20)


def movielens() -> Table:
    """Ratings of films that 1,000 people or more have rated."""

    def read(file: str, names: list[str]) -> pl.DataFrame:
        text = (folder() / "ml-1m" / file).read_text(encoding="latin-1").splitlines()
        return pl.DataFrame([line.split("::") for line in text], schema=names, orient="row")

    rows = read("ratings.dat", ["user", "action", "reward", "time"]).select(
        pl.col("user", "action").cast(pl.Int64), pl.col("reward").cast(pl.Float64)
    )
    often = rows.group_by("action").len().filter(pl.col("len") >= 1000)["action"]
    people = read("users.dat", ["user", "gender", "age", "occupation", "zip"]).with_columns(
        pl.col("user").cast(pl.Int64)
    )
    rows = rows.filter(pl.col("action").is_in(often.to_list())).with_columns(group="action").sort("user", "action")
    return Table("movielens", rows, people, 3, logged=20)


TABLES: dict[str, Callable[[], Table]] = {"taxes": taxes, "bfi": bfi, "young": young, "movielens": movielens}
QUICK, FEW = ("taxes", "bfi"), 300  # tables of a quick run, and how many of their people are logged


def first_people(table: Table, count: int) -> Table:
    """The table of its first people alone."""
    rows = table.frame["user"].is_in(table.frame["user"].unique().sort()[:count].to_list())
    features = None if table.features is None else table.features[rows.to_numpy()]
    return replace(table, frame=table.frame.filter(rows), features=features)


def folds_of(table: Table) -> Iterator[tuple[Bools, Bools]]:
    """Rows of the logs and rows of the newcomers, fold by fold."""
    rng = np.random.default_rng(2026)
    users, place = np.unique(table.frame["user"].to_numpy(), return_inverse=True)
    fold = rng.permutation(len(users)) % table.folds
    lottery = rng.random(len(place))
    order = np.lexsort((lottery, place))
    number = np.empty(len(place), dtype=np.int64)
    starts = np.searchsorted(place[order], np.arange(len(users)))
    number[order] = np.arange(len(place)) - starts[place[order]]
    logged = number < (table.logged or len(place))
    for one in range(table.folds):
        yield (fold[place] != one) & logged, fold[place] == one


def logs_of(table: Table, rows: Bools, people: pl.DataFrame | None) -> Logs:
    """Logs of some rows, with attributes or without."""
    some = table.frame.filter(pl.Series(rows))
    given: dict[str, Any] = {"user": some["user"], "reward": some["reward"]}
    given |= {"action": some["action"]} if table.features is None else {"features": table.features[rows]}
    return Logs.from_arrays(**given, users=people)


def permuted(people: pl.DataFrame, seed: int) -> pl.DataFrame:
    """The same attributes of other people."""
    order = np.random.default_rng(seed).permutation(len(people))
    return people.with_columns(people["user"].gather(order))


def deal(groups: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Candidates and known rows of one user; groups are never cut."""
    kinds = rng.permutation(np.unique(groups))
    order = np.concatenate([rng.permutation(np.flatnonzero(groups == kind)) for kind in kinds])
    ends = np.flatnonzero(np.diff(groups[order], append=-1) != 0) + 1
    cut = int(ends[np.searchsorted(ends, CHOICES)])
    return order[:CHOICES], rng.permutation(order[cut:])


def judge(table: Table, rows: Bools, models: dict[str, Model], regression: Any, seed: int) -> dict[str, Floats]:
    """Rewards (n, steps) of every rule, averaged over deals, less the population mean's; NaN beyond the rows."""
    places = np.flatnonzero(rows)
    users, start = np.unique(table.frame["user"].to_numpy()[places], return_index=True)
    bounds = np.append(start, len(places))
    codes = (
        table.frame["group"].cast(pl.String).cast(pl.Categorical).to_physical()
        if table.features is None
        else table.frame["group"]
    )
    groups, reward = codes.to_numpy().astype(np.int64), table.frame["reward"].to_numpy()
    known_people = table.people.join(pl.DataFrame({"user": users}), on="user", how="right").sort("user")
    # The longest step that nearly everybody has the rows for; the others do not judge.
    usual = float(np.quantile(np.diff(bounds), 0.1))
    least = CHOICES + max(t for t in STEPS if t <= max(usual - CHOICES, 1))
    able = [i for i in range(len(users)) if bounds[i + 1] - bounds[i] >= least]
    found = {name: np.zeros((len(able), len(STEPS))) for name in (*models, REGRESSION)}
    told = known_people[able]
    for number in range(DEALS):
        rng = np.random.default_rng([seed, number])
        dealt = [deal(groups[places[bounds[i] : bounds[i + 1]]], rng) for i in able]
        most = min(max(STEPS), min(len(known) for _, known in dealt))
        candidates = np.stack([places[bounds[i]] + one for i, (one, _) in zip(able, dealt, strict=True)])
        known = np.stack([places[bounds[i]] + one[:most] for i, (_, one) in zip(able, dealt, strict=True)])
        mean = PopulationMean(models[WITHOUT])
        common = _paid(reward, candidates, mean.choose(mean.start(len(able)), **_asked(table, candidates)))
        for name, model in models.items():
            policy = PriorUCB(model)
            given = {} if not model.attributes else {"attributes": _of(model, told, name, seed)}
            state = policy.start(len(able), **given)
            for t in range(most + 1):
                if t in STEPS:
                    chosen = policy.choose(state, **_asked(table, candidates))
                    found[name][:, STEPS.index(t)] += (_paid(reward, candidates, chosen) - common) / DEALS
                if t < most:
                    row = known[:, t]
                    ids = {} if table.features is not None else {"ids": table.frame["action"].to_numpy()[row]}
                    features = None if table.features is None else table.features[row]
                    policy.update(state, features, reward[row], **ids)
        if regression is not None:
            chosen = regression(candidates, told).argmax(axis=1)
            found[REGRESSION] += (_paid(reward, candidates, chosen) - common)[:, None] / DEALS
        for values in found.values():
            values[:, [i for i, t in enumerate(STEPS) if t > most]] = np.nan
    if regression is None:
        del found[REGRESSION]
    return found


def _of(model: Model, told: pl.DataFrame, name: str, seed: int) -> pl.DataFrame:
    """What newcomers are known by: their own attributes, or, permuted, those of others."""
    told = told if name != PERMUTED else told.sample(fraction=1.0, shuffle=True, seed=seed)
    return told.select([one.name for one in model.attributes])


def _asked(table: Table, rows: Ints) -> dict[str, Any]:
    """Candidates as policies take them."""
    if table.features is not None:
        return {"actions": table.features[rows]}
    return {"ids": table.frame["action"].to_numpy()[rows]}


def _paid(reward: Floats, rows: Ints, chosen: Ints) -> Floats:
    return np.asarray(reward[rows[np.arange(len(rows)), chosen]])


def regressed(table: Table, logs: Logs, model: Model) -> Any:
    """The scores of plain regression on attributes; None where it is too large."""
    made = regression_predictor(logs, model)
    if made is None or logs.people is None:
        return None
    position = {one: i for i, one in enumerate(model.action_ids or ())}

    def scores(rows: Ints, told: pl.DataFrame) -> Floats:
        given, count = table_to_encode(told.select([one.name for one in made.columns]))
        x = AttributePrior(np.zeros((0, len(made.covariance))), made.covariance).completed(
            encode_columns(made.columns, given, count)
        )
        beta = made.mean + x @ made.effects.T
        if table.features is not None:
            return np.asarray(np.einsum("mad,md->ma", table.features[rows], beta))
        codes = np.vectorize(position.__getitem__)(table.frame["action"].to_numpy()[rows])
        return np.asarray(np.take_along_axis(beta, codes, axis=1))

    return scores


def models_of(table: Table, logged: Bools, number: int) -> dict[str, Model]:
    """The models of a fold. All begin with the same fit without attributes; nobody is held out of these."""
    own, other = logs_of(table, logged, table.people), logs_of(table, logged, permuted(table.people, number))
    plain = fit(logs_of(table, logged, None), calibrate=False, null=False, outcome="gaussian")
    passes = Passes(own)
    _, people = fit_by_em(passes, FitSettings(calibrate=False, null=False).checked(own), None)
    people = replace(people, held_out=(), before=replace(people.before or people, held_out=()))

    def known(passes: Passes, population: Any, model: Model, rounds: int) -> Model:
        found = replace(people, population=population)
        return fit_with_attributes(passes, found, Fitting(model), rounds=rounds).model

    models = {name: known(passes, people.population, plain, rounds) for name, rounds in JOINED.items()}
    models |= {WITHOUT: plain, PERMUTED: known(Passes(other), people.population, plain, JOINED[WITH])}
    if has_binary_outcome(own.summary):
        clicks = fit_binary_outcome(passes, people, None).population
        models[BINARY_WITHOUT] = as_binary_outcome(plain, clicks)
        models[BINARY] = known(passes, clicks, models[BINARY_WITHOUT], 0)
    if not number:  # what is shared changes nothing
        assert fit(own, calibrate=False, null=False, outcome="gaussian").id == models[WITH].id
    print(table.name, number, models[WITH].evidence.joint, flush=True)
    return models


def fold(name: str, number: int, *, quick: bool = False) -> pl.DataFrame:
    """A fold of a table: of every rule and newcomer the gains after some interactions, and the attributes kept."""
    table = first_people(TABLES[name](), FEW) if quick else TABLES[name]()
    logged, newcomers = next(islice(folds_of(table), number, None))
    models = models_of(table, logged, number)
    own = logs_of(table, logged, table.people)
    kept = ",".join(one.name for one in models[WITH].attributes)
    print(name, number, kept, "permuted:", [one.name for one in models[PERMUTED].attributes], flush=True)
    found = judge(table, newcomers, models, regressed(table, own, models[WITHOUT]), number)
    frames = [pl.DataFrame(gains, schema=AFTER).with_columns(rule=pl.lit(rule)) for rule, gains in found.items()]
    return pl.concat(frames).with_columns(kept=pl.lit(kept))


def run(name: str, command: Command) -> list[dict[str, Any]]:
    """All folds of a table, as rows of the results; one fold of few people where it must be quick."""
    table, quick = TABLES[name](), command.quick
    folds = range(1 if quick else table.folds)
    pieces = [command.piece(f"{name}/{one}", partial(fold, name, one, quick=quick)) for one in folds]
    kept, rules = [one["kept"][0] for one in pieces], pieces[0]["rule"].unique(maintain_order=True)
    values = [{rule: one.filter(rule=rule).select(AFTER).to_numpy() for rule in rules} for one in pieces]
    found = {rule: np.concatenate([one[rule] for one in values]) for rule in values[0]}
    reward = float(table.frame["reward"].mean())  # type: ignore[arg-type]
    rows = []
    for rule, gains in found.items():
        for place, t in enumerate(STEPS):
            own = gains[:, place]
            if np.isnan(own).any():
                continue
            added = own - found[WITHOUT][:, place]
            row = {"table": name, "rule": rule, "interactions": t, "people": len(own), "mean reward": reward}
            row |= {"gain": own.mean(), "error": own.std() / np.sqrt(len(own))}
            row |= {"added": added.mean(), "error of added": added.std() / np.sqrt(len(own))}
            joined = own - found[GIVEN][:, place] if rule in JOINED else np.zeros(1)
            row |= {"joined": joined.mean(), "error of joined": joined.std() / np.sqrt(len(own))}
            rows.append(row | {"kept": "; ".join(kept) if rule == WITH else ""})
    return rows


def draw(results: pl.DataFrame) -> Path:
    """The gain before the first interaction and after some, on `taxes`."""
    named = {WITH: "with attributes", WITHOUT: "without", REGRESSION: "regression on attributes alone"}
    rows = results.filter(pl.col("table") == "taxes", pl.col("rule").is_in(list(named)))
    rows = rows.with_columns(line=pl.col("rule").replace(named))
    x, y = Axis("interactions", "interactions with the newcomer"), Axis("gain", "gain over the population mean")
    return draw_lines(rows, PICTURE, x=x, y=y, series="line", error="error", marked=True)


def emails() -> pl.DataFrame:
    """The simulated test of e-mails, as rows of the results."""
    rng = np.random.default_rng(2026)
    base, effects = rng.normal(-2.0, 0.4, 12), rng.normal(0.0, 0.6, (12, 5))
    segment, device = rng.integers(0, 4, 14_000), rng.integers(0, 2, 14_000)
    x = np.column_stack([np.eye(4)[segment], device])
    rates = 1.0 / (1.0 + np.exp(-base - (x - x.mean(axis=0)) @ effects.T))
    sent = np.argsort(rng.random((14_000, 12)), axis=1)[:, :6]
    clicked = (rng.random(sent.shape) < np.take_along_axis(rates, sent, axis=1)).astype(np.float64)
    names = pl.Series("segment", [f"segment {one}" for one in segment])
    people = pl.DataFrame([pl.Series("user", np.arange(14_000)), names, pl.Series("device", device == 1)])
    given = {"user": np.repeat(np.arange(12_000), 6), "action": sent[:12_000].ravel()}
    reward, new = clicked[:12_000].ravel(), np.arange(12_000, 14_000)
    plain = Logs.from_arrays(**given, reward=reward)
    own, other = plain.with_users(people), plain.with_users(permuted(people, 0))
    models = {WITH: own, WITHOUT: plain, PERMUTED: other}
    fitted = {name: fit(logs, calibrate=False, outcome="gaussian") for name, logs in models.items()}
    fitted |= {BINARY: fit(own, calibrate=False, outcome="binary")}
    fitted |= {BINARY_WITHOUT: fit(plain, calibrate=False, outcome="binary")}
    why = fit(own, calibrate=False).evidence.outcome
    best = rates[new, int(np.argmax(rates[:12_000].mean(axis=0)))]
    print("emails: best for all", best.mean(), "auto:", why.sentence if why else "")
    made = regression_predictor(own, fitted[WITHOUT])
    assert made is not None
    encoded = encode_columns(made.columns, *table_to_encode(people[new].drop("user")))
    regression = rates[new, (made.mean + encoded @ made.effects.T).argmax(axis=1)] - best
    rows = []
    for table, changed in (("emails", {}), ("emails, nothing lasts", {"persistence": 0.0})):
        gains = {(REGRESSION, t): regression for t in STEPS[:4]} | {("oracle", 0): rates[new].max(axis=1) - best}
        for name, model in fitted.items():
            policy, told = PriorUCB(replace(model, **changed)), [one.name for one in model.attributes]
            state = policy.start(len(new), **({"attributes": people[new].select(told)} if told else {}))
            for t in range(6):
                if t in STEPS:
                    chosen = policy.choose(state, ids=np.arange(12))
                    gains[name, t] = rates[new, chosen] - best
                policy.update(state, ids=sent[new, t], reward=clicked[new, t])
        for (rule, t), gain in gains.items():
            added = gain - gains[WITHOUT, t]
            row = {"table": table, "rule": rule, "interactions": t, "people": len(new), "mean reward": best.mean()}
            row |= {"gain": gain.mean(), "error": gain.std() / np.sqrt(len(new)), "added": added.mean()}
            kept = ",".join(one.name for one in fitted[rule].attributes) if rule in fitted else ""
            row |= {"error of added": added.std() / np.sqrt(len(new)), "joined": 0.0, "error of joined": 0.0}
            rows.append(row | {"kept": kept})
    return pl.DataFrame(rows)


def with_table(page: str, results: Path) -> str:
    """The page with its table of gains made anew from attributes.csv, if there is such a file."""
    if not (results / OUT).is_file():
        return page
    found = pl.read_csv(results / OUT, infer_schema_length=None)
    rows = []
    for table in found["table"].unique(maintain_order=True):
        for t in found.filter(table=table)["interactions"].unique(maintain_order=True):
            at = {row["rule"]: row for row in found.filter(table=table, interactions=t).iter_rows(named=True)}
            told = [markdown.number(at[one]["gain"], at[one]["error"]) if one in at else "" for one in TOLD]
            added = markdown.number(at[WITH]["added"], at[WITH]["error of added"])
            joined = markdown.number(at[WITH]["joined"], at[WITH]["error of joined"]) if GIVEN in at else ""
            rows.append([table, str(t), f"{at[WITH]['people']:,}", *told, added, joined])
    return markdown.replaced(page, START, markdown.table(HEADS, rows))


def main(command: Command) -> None:
    """Run tables, and write those that were run; others of the same code stay."""
    parts = []
    for name, number in command.pieces:
        command.piece(f"{name}/{number}", emails if name == "emails" else partial(fold, name, int(number)))
    if command.pieces:
        return
    for name in QUICK if command.quick else command.parts:
        parts.append(command.piece("emails/0", emails) if name == "emails" else pl.DataFrame(run(name, command)))
        with pl.Config(tbl_rows=100, tbl_cols=20):
            print(parts[-1].drop("kept", "mean reward"), flush=True)
    rows = command.with_other_parts(pl.concat(parts, how="vertical_relaxed"), OUT, pl.col("table"))
    command.write(rows.sort("table", maintain_order=True), OUT, float_precision=5)
    if not command.quick and "taxes" in rows["table"]:
        draw(rows)


if __name__ == "__main__":
    main(Command.read(*TABLES, "emails"))

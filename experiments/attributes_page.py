"""What the pages say of attributes before the first interaction, and of their joint fit, from attributes.csv."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from experiments import markdown
from experiments.attributes import OUT, REGRESSION, TABLES, WITH, WITHOUT

TOGETHER, TAXES = "Fitted together,", "On `taxes`,"  # how the paragraphs begin
EXPLORES, EMAILS = "PriorUCB explores", "**E-mails** (simulated"


def with_sentence(page: str, results: Path) -> str:
    """The page with its paragraph on the joint fit made anew, if there is such a table.

    A case is a table after a number of interactions; it is worse, or better, where the paired difference of a choice to
    that by effects given the fit without attributes is beyond two standard errors.
    """
    if not (results / OUT).is_file():
        return page
    found = pl.read_csv(results / OUT, infer_schema_length=None).filter(pl.col("table").is_in(list(TABLES)), rule=WITH)
    told = [(f"{row['table']} after {row['interactions']}", row["joined"], row["error of joined"])
            for row in found.iter_rows(named=True)]  # fmt: skip
    worse = _named([name for name, value, error in told if value < -2 * error])
    better = _named([name for name, value, error in told if value > 2 * error])
    mean = sum(value for _, value, _ in told) / len(told)
    text = f"{TOGETHER} attributes and the distribution of users are compared with effects given the fit without "
    text += f"attributes, in {len(told)} cases (a table of real people after some interactions): a choice pays "
    text += f"{mean:+.4f} on average; the paired difference is below zero by more than two standard errors in {worse}, "
    text += f"above in {better}."
    return markdown.replaced(page, TOGETHER, text)


def with_taxes(page: str, results: Path) -> str:
    """The page with its paragraph on the gain before the first interaction and after some made anew."""
    if not (results / OUT).is_file():
        return page
    found = pl.read_csv(results / OUT, infer_schema_length=None).filter(table="taxes")
    at = {(row["rule"], row["interactions"]): row for row in found.iter_rows(named=True)}

    def gain(rule: str, t: int) -> str:
        return markdown.number(at[rule, t]["gain"], at[rule, t]["error"])

    text = f"{TAXES} a choice among eight of a person's own rows gains {gain(WITH, 0)} over the population mean before "
    text += f"the first interaction ({gain(WITHOUT, 0)} without attributes, {gain(REGRESSION, 0)} by plain regression "
    text += (
        f"on them) and {gain(WITH, 5)} after five ({gain(WITHOUT, 5)} without): mean and standard error over people, "
    )
    text += "five folds, ten deals, known and candidate rows of different tasks."
    return markdown.replaced(page, TAXES, text)


def with_remarks(page: str, results: Path) -> str:
    """The page with its paragraphs on exploration and on e-mails made anew."""
    if not (results / OUT).is_file():
        return page
    found = pl.read_csv(results / OUT, infer_schema_length=None)
    at = {(row["table"], row["rule"], row["interactions"]): row for row in found.iter_rows(named=True)}
    first, rate = at["bfi", WITHOUT, 0]["gain"], at["emails", WITH, 0]["mean reward"]
    text = (
        f"{EXPLORES} from the first choice on, which costs something there: without attributes its first choice on bfi "
    )
    text += f"pays {first:+.3f} beside the population mean's, which regression, that never explores, does not lose."
    page = markdown.replaced(page, EXPLORES, text)
    email = {key[1:]: f"{row['gain']:.3f}" for key, row in at.items() if key[0] == "emails"}
    told = {key[1:]: f"{row['gain']:.3f}" for key, row in at.items() if key[0] == "emails, nothing lasts"}
    sentences = [
        f"{EMAILS}: 12,000 users got six of twelve templates at random; clicks depend on a segment and a device and on",
        "nothing else that users share; gains in true click rates, 2,000 newcomers). Here attributes are nearly all",
        f"there is: before the first e-mail they earn {email[WITH, 0]} over the best template for all (which has a",
        f"rate of {rate:.3f}), the binary link {email['binary', 0]}, and knowing every rate would earn",
        f"{email['oracle', 0]}. Logs without repeats cannot show whether a click on a template comes again. Where it",
        "may ([repeatability](../explanation/prior.md#serving-priorucb-and-priorts)), the gain after five e-mails is",
        f"{email[WITH, 5]} ({email['binary', 5]} by the binary link); where it is given that nothing comes again",
        f"(`--persistence 0`) it is {told[WITH, 5]}, and {told[WITHOUT, 5]} without attributes.",
    ]
    text = " ".join(sentences)
    return markdown.replaced(page, EMAILS, text)


def _named(cases: list[str]) -> str:
    return f"{len(cases)} ({', '.join(cases)})" if cases else "none"

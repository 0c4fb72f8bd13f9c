"""`python -m experiments.write_pages`: write the pages that tell results, from the tables in experiments/results.

What it writes comes from the csv files; other numbers of the pages do not. A page is written from the tables that
exist, and writing the pages twice changes nothing.
"""

from __future__ import annotations

from pathlib import Path

from experiments import (
    attributes,
    attributes_page,
    binary_outcome,
    check_page,
    contents_page,
    evaluate_coverage,
    evaluate_promise,
    figure_page,
    film_means,
    large_worlds,
    link_choice,
    outlier_test,
    people_page,
    radius_sweep,
    rare_clicks,
    readme_numbers,
    remarks_page,
    rivals_page,
    self_selection,
    service_loop,
    study_page,
    theory_page,
)

ROOT = Path(__file__).resolve().parents[1]


def pages(root: Path = ROOT) -> dict[Path, str]:
    """The text of each page, by its place in the repository."""
    results, docs = root / "experiments" / "results", root / "docs"
    paper = docs / "paper"
    figures, measured, theory = paper / "figures.md", paper / "results.md", paper / "theory.md"
    rivals = docs / "explanation" / "related-work.md"
    radius, people = docs / "explanation" / "radius.md", paper / "measured-people.md"
    scale, known, clicks = paper / "measured-samples.md", paper / "measured-attributes.md", paper / "measured-clicks.md"
    advice = docs / "how-to" / "attributes.md"
    enough, helps, loop = paper / "measured-check.md", paper / "measured-evaluate.md", paper / "measured-loop.md"
    return {
        root / "experiments" / "README.md": contents_page.page(results),
        figures: figure_page.page(results, figures),
        measured: study_page.page(results, measured),
        theory: theory_page.with_numbers(theory.read_text(encoding="utf-8"), results),
        radius: radius_sweep.with_table(radius.read_text(encoding="utf-8"), results),
        scale: remarks_page.with_no_taste(large_worlds.with_table(scale.read_text(encoding="utf-8"), results), results),
        people: outlier_test.with_table(people_page.with_numbers(people.read_text(encoding="utf-8"), results), results),
        rivals: film_means.with_sentence(rivals_page.with_tables(rivals.read_text(encoding="utf-8"), results), results),
        enough: check_page.with_rates(self_selection.with_table(enough.read_text(encoding="utf-8"), results), results),
        helps: evaluate_promise.with_table(
            evaluate_coverage.with_tables(helps.read_text(encoding="utf-8"), results), results
        ),
        known: attributes_page.with_remarks(
            attributes_page.with_sentence(attributes.with_table(known.read_text(encoding="utf-8"), results), results),
            results,
        ),
        advice: attributes_page.with_taxes(
            attributes_page.with_sentence(advice.read_text(encoding="utf-8"), results), results
        ),
        loop: service_loop.with_table(loop.read_text(encoding="utf-8"), results),
        clicks: remarks_page.with_rare_clicks(
            rare_clicks.with_table(
                link_choice.with_table(
                    binary_outcome.with_tables(clicks.read_text(encoding="utf-8"), results), results
                ),
                results,
            ),
            results,
        ),
        root / "README.md": readme_numbers.with_numbers((root / "README.md").read_text(encoding="utf-8"), results),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
    results, pictures = ROOT / "experiments" / "results", ROOT / "docs" / "pictures"
    readme_numbers.draw_people(results, pictures / "people.png")
    readme_numbers.draw_promise(results, pictures / "promise.png")

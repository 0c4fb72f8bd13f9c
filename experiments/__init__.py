"""What writes the pages of this repository that tell results; nothing here is part of the installed package.

`python -m experiments.write_pages` writes docs/paper/figures.md, docs/paper/results.md and the table of
docs/explanation/radius.md from the tables in experiments/results, which `newcomer reproduce` makes.
"""

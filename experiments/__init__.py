"""What writes the pages of this repository that tell results; nothing here is part of the installed package.

`python -m experiments.write_pages` writes experiments/README.md, docs/prior-measured.md and the table of
docs/radius.md from the tables in experiments/results, which `newcomer reproduce` makes.
"""

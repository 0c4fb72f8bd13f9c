"""What writes the pages of this repository that tell results: experiments/README.md, docs/prior-measured.md,
docs/radius.md.

Nothing here is part of the installed package. `python -m experiments.write_pages` writes all pages from the tables in
experiments/results, which `newcomer reproduce` makes.
"""

"""The paper's figures and the studies past it, each reproducible by its id with `newcomer reproduce ID`.

The modules depend on each other in one direction:

* `scale` holds sizes, `named_worlds` worlds, `players` policies, `jobs` the records of work, `performing` how fits
  and plays are done, `pool` the workers, `job_folder` the folder of finished work, `figure`, `lines` and
  `panels` what the figures share;
* `fig_*.py` holds the paper's figures: one file for each family of runs, named after the ids of its figures;
* `studies/study_*.py` holds the measurements past the paper, one file for each id;
* `catalogue` lists them all, and is the only module from which work is started.

Everything that a figure is, is in its file: which parameters are swept, what is computed at each of them, the table
that is kept, and how that table is drawn.
"""

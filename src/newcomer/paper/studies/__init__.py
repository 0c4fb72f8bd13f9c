"""Past the paper: what the distribution of users, its uncertainty and its policies are worth, measured.

The targets that were set beforehand, and whether the results meet them, are in `experiments/study_targets.py` of the
repository, from which docs/paper/results.md is written.
"""

"""Policies: one algorithm family of the paper, or of its baselines, a file; `base` and `state` are what they share."""

"""Advice: plain sentences about logs that can be used, but perhaps better otherwise.

A mean reward far from zero has to be carried by the features. It can be if the constant lies in their span, that is if
min_w sum (1 - w.x)^2 = n - s' G^+ s is 0, with G = sum x x' and s = sum x. Otherwise an intercept is worth having.
"""

from __future__ import annotations

import numpy as np

from newcomer.evidence import Summary
from newcomer.logs.batch import Floats

FAR = 0.25  # of a standard deviation
SAMPLE = 20_000  # rows that are looked at


def intercept_advice(summary: Summary, sample: Floats) -> list[str]:
    """Advise an intercept from the features (n, d) of some rows."""
    if abs(summary.mean_reward) <= FAR * summary.reward_deviation or constant_in_span(sample):
        return []
    found = f"The mean reward is {summary.mean_reward:.3g} and no combination of the features is constant"
    return [f"{found}: consider intercept=True (--intercept), or subtract the mean from the rewards."]


def short_advice(summary: Summary) -> list[str]:
    """Say how many users cannot be split, and how many rows have no order of their own."""
    said = []
    if summary.too_short:
        said.append(f"{summary.too_short:,} of {summary.users:,} users have a single row, too short to learn from.")
    if summary.ties:
        said.append(f"{summary.ties:,} of {summary.rows:,} rows share user and time with another; file order decides.")
    return said


def constant_in_span(sample: Floats, tolerance: float = 1e-6) -> bool:
    """Whether some combination of the columns of (n, d) is 1 in every row."""
    total = sample.sum(axis=0)
    explained = total @ np.linalg.lstsq(sample.T @ sample, total, rcond=None)[0]
    return bool(len(sample) - explained <= tolerance * len(sample))

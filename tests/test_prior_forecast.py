"""Guards what `fit` says in plain words: variances, interactions needed, and the gain over the population mean."""

from __future__ import annotations

import numpy as np
import pytest

from newcomer.expectation import Prior
from newcomer.fitting import fit
from newcomer.forecast import forecast, sentences
from newcomer.worlds import Synthetic


def test_one_direction_by_hand():
    """v = 1, noise 1, nothing in common: value sqrt(t / (1 + t)) reaches 0.9 at t = 0.81 / 0.19 = 4.26."""
    found = forecast(Prior(np.zeros(2), np.array([[1.0], [0.0]]), 1.0), np.eye(2), 0.0)
    assert found.interactions == 5
    assert found.mean_value == 0.0
    assert found.early_value == pytest.approx(np.sqrt(20 / 21))
    assert (found.common, found.personal, found.noise) == (0.0, 1.0, 1.0)


def test_a_strong_mean_needs_no_interaction_and_a_constant_one_is_worth_nothing():
    strong = forecast(Prior(np.array([10.0, 0.0]), np.array([[0.0], [1.0]]), 1.0), np.eye(2), 0.0)
    assert strong.interactions == 0 and strong.mean_value > 0.9
    # phi = (1, x): a mean along the constant feature changes no choice.
    constant = forecast(Prior(np.array([10.0, 0.0]), np.array([[0.0], [1.0]]), 1.0), np.eye(2), 10.0)
    assert constant.common == 0.0 and constant.interactions == 5


def test_the_sentences_say_when_there_is_nothing_to_gain():
    alike = forecast(Prior(np.ones(2), np.zeros((2, 0)), 1.0), np.eye(2), 0.0)
    words = sentences(alike.to_dict())
    assert "67% is common" in words[0] and "no gain" in words[1]
    differ = forecast(Prior(np.zeros(2), np.array([[1.0], [0.0]]), 1.0), np.eye(2), 0.0)
    words = sentences(differ.to_dict())
    assert "after about 5 interactions" in words[1] and "far above" in words[2]


def test_fit_keeps_the_forecast():
    logs = Synthetic.learnable(dim=10, seed=1).logs(600, 10, seed=1)
    facts = fit(logs, rank=2, null=False, calibrate=False).evidence["prior"]["forecast"]
    total = facts["common"] + facts["personal"] + facts["noise"]
    assert total == pytest.approx(logs.summary.reward_deviation**2, rel=0.1)
    assert 1 <= facts["interactions"] < 100
    assert len(sentences(facts)) == 3

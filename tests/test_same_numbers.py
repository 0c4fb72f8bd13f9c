"""The fixed fits and games give the numbers on record.

The record is made on one machine. Another processor's BLAS adds in another order, and climbs that end at a tolerance
pass that on: hence 1e-6 here; `python -m tests.same_numbers` compares to 1e-9 on the machine that made it.
"""

from __future__ import annotations

import json

import pytest

from tests import same_numbers


@pytest.mark.parametrize("name", same_numbers.CASES)
def test_numbers_on_record(name):
    recorded = json.loads(same_numbers.FILE.read_text())
    assert same_numbers.moved(recorded[name], same_numbers.CASES[name](), 1e-6) == []


def test_the_record_holds_these_cases_and_no_others():
    assert set(json.loads(same_numbers.FILE.read_text())) == set(same_numbers.CASES)

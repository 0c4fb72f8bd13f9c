"""Guards the results: no table is older than the code that it rests on, unless a waiver says why that is no matter."""

from __future__ import annotations

from experiments.contents import states


def test_no_table_is_older_than_its_code() -> None:
    """Make those named here again, or `python -m experiments.contents waive TABLE --reason ...`."""
    assert {table: state for table, state in states().items() if state not in ("fresh", "waived")} == {}

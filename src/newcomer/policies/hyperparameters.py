"""Checking the settings of a policy when it is made: each is refused in one sentence that names it."""

from __future__ import annotations

import numpy as np

from newcomer.errors import PolicyError


def whole(value: int, name: str, *, least: int = 1) -> None:
    """Refuse a setting that is not a whole number of at least `least`.

    >>> whole(0, "horizon")
    Traceback (most recent call last):
        ...
    newcomer.errors.PolicyError: horizon must be a whole number of at least 1, not 0
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise PolicyError(f"{name} must be a whole number of at least {least}, not {value!r}")


def number(value: float, name: str, *, least: float = 0.0, finite: bool = True) -> None:
    """Refuse a setting that is not a number of at least `least`; an infinite one passes if it need not be finite."""
    fits = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not fits or not value >= least or (finite and value == np.inf):
        raise PolicyError(f"{name} must be a number of at least {least:g}, not {value!r}")


def positive(value: float, name: str) -> None:
    """Refuse a setting that is not a finite number above zero."""
    number(value, name)
    if value == 0:
        raise PolicyError(f"{name} must be above zero")

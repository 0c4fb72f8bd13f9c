"""Checks: may these logs be learned from? One pass gathers what the checks need; permutations tell it from chance."""

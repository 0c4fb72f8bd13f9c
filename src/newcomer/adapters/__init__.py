"""Adapters: the same things in the manners of other libraries, each behind an extra of its own."""

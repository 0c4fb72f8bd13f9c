"""Engines: ways to run one reduction over logs. The contract is `reduce(logs, map, merge)`; see `local`."""

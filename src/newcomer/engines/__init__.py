"""Engines beyond one machine; the local ones are in `newcomer.logs` (`engine`, `crew`)."""

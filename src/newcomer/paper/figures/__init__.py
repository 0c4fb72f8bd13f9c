"""The figures of the paper, one family of runs a file."""

"""`python -m newcomer` is the command line."""

from newcomer.cli.main import run

run()

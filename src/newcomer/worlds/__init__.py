"""Worlds that newcomers come from. `world` says what a world is, and writes its logs to files; then one world a file.

synthetic    Definition 1 of the paper, with known truth
fitted       newcomers drawn from a fitted model
people       made-up people with ratings, or the rows of real ones

Worlds that only the paper needs (MovieLens, replay, biased logs) are in `newcomer.paper.worlds`.
"""

from newcomer.worlds.synthetic import Synthetic
from newcomer.worlds.world import Episode, Newcomers, World
from newcomer.worlds.world import world_stream as stream

__all__ = ["Episode", "Newcomers", "Synthetic", "World", "stream"]

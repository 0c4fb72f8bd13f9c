"""Worlds that newcomers come from: the protocol, and one world a file."""

from newcomer.worlds.episodes import Episode, Newcomers, World, stream
from newcomer.worlds.synthetic import Synthetic

__all__ = ["Episode", "Newcomers", "Synthetic", "World", "stream"]

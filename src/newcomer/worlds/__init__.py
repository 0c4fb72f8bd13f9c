"""Worlds that newcomers come from. `world` says what a world is; then one world a file.

synthetic           Definition 1 of the paper, with known truth
movielens           users and movies of a factorisation of real ratings (ratings, factorise, matrix_completion)
replay              real ratings of users who were kept apart, nothing simulated
confounded          pairs of worlds with equal logs and orthogonal subspaces (Lemma 1)
biased_logs         logs that break what learning from logs assumes, each in one way
processes           decision processes: coherence and exchangeability as checks (process_sampling: by draws)
process_examples    processes that have both, one or neither; de_finetti: the latent bandit behind a process
log_files           a world's logs on disk
download, movielens_standin     the MovieLens files: found, fetched, or made up where they may not be had
"""

from newcomer.worlds.synthetic import Synthetic
from newcomer.worlds.world import Episode, Newcomers, World
from newcomer.worlds.world import world_stream as stream

__all__ = ["Episode", "Newcomers", "Synthetic", "World", "stream"]

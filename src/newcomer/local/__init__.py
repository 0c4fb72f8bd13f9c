"""LOCAL-UCB's inner problem: optimism over every subspace near the estimated one, solved and certified.

`problem` states it, and checks an answer from the definitions; `tilt_loops` evaluates a subspace and `ascent_loops`
finds better ones; `upper_bounds` bounds every value from above; `tilts` says where to begin, and goes on where the
ascent gets stuck; `rounds` puts a round together. The reductions and their proofs are in docs/paper/local-ucb.md.
"""

"""LOCAL-UCB's inner problem: optimism over every subspace near the estimated one, solved and certified.

`problem` states it, `tilts` and `loops` climb, `pencil` bounds from above, `rounds` puts a round together, `certificate`
proves it. The reductions and their proofs are in docs/local-ucb.md.
"""

"""LOCAL-UCB's inner problem: optimism over every subspace near the estimated one, solved and certified.

`problem` states it; `tilt_loops` evaluates a subspace and `ascent_loops` finds better ones; `upper_bounds` (with
`dual_loops`) bounds every value from above; `tilts` says where to begin and `polish` helps where ascending gets stuck;
`rounds` puts a round together; `certificate` checks it from the definitions. The reductions and their proofs are in
docs/local-ucb.md.
"""

"""The worlds of the paper's experiments: MovieLens, its factorisation, the replay of real ratings, biased logs."""

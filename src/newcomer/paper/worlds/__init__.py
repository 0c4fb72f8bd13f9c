"""The worlds of the paper's experiments: MovieLens, its factorisation, and the replay of real ratings."""

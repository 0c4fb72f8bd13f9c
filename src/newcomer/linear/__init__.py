"""The one linear system: ridge regression per user, its state, and the compiled loops that score and learn."""

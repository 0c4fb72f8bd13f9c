"""Past the paper: what the distribution of users, its uncertainty and its policies are worth, measured."""

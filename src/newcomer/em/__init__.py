"""The distribution of users: start, likelihood, optimizer, rank and shrinkage, how sure it is, what to expect."""

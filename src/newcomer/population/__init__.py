"""The distribution of users: its start from all pairs, its likelihood, the climb, the choice of rank and shrinkage, how sure it is."""

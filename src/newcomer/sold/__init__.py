"""SOLD, the offline half of the paper: half estimates of each user, sums over users, their correction, rank, radius."""

"""SOLD, the offline half of the paper: half estimates of each user, mergeable moments, their correction, the rank and the radius."""

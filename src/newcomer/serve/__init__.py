"""The decision service: `newcomer serve MODEL` decides for each user, learns from rewards, and keeps what happened."""

"""What held-out users gain, and what that decides."""

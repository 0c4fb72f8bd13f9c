"""Did it help, will it help? What held-out users say; measured, not computed from the model."""

"""Did it help, will it help? What people who were kept out of the fit say; measured, not computed from the model."""

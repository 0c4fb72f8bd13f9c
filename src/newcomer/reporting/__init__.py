"""The page that says whether to trust it and whether it will help, for those who decide."""

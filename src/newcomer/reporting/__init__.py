"""The page that says whether to trust it and whether it will help, for the people who decide."""

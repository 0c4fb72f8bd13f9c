"""The page that says whether to trust it and whether it will help, to be sent to whoever decides."""

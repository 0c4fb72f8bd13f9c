"""The distribution of users: its record, its start, its likelihood, the climb, the search, how sure, what to expect."""

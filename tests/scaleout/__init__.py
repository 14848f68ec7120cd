"""Several real processes on one database and one broker."""

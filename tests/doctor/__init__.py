"""The doctor's checks: each is shown to find what it looks for."""

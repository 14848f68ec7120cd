"""Commands for people and for cron."""

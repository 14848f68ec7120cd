"""One file per command; each parses, calls one verb and prints."""

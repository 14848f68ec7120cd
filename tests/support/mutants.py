"""Seeded mutants."""

MUTANTS: dict[str, object] = {}

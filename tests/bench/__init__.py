"""Benchmarks: measured in one run, as ratios; `python -m tests.bench` writes docs/benchmarks.md."""

"""Whole clusters of the real engine in virtual time, from a seed, under faults: `python -m tests.simulation`."""

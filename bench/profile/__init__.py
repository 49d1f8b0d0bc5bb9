"""The account: what a run and an effect cost, by cause.

`python -m bench.profile` counts, samples, and writes `docs/internals/budget.md` again, with its drawings.
"""

"""Who takes part. Each module is a program: `python -m bench.contenders.<name> <workload> ...`.

A contender offers the verbs of `bench.workloads.Contender` and nothing else, so that every one of them is
driven by the same code; it runs in a process of its own and prints its figures as one JSON line.
"""

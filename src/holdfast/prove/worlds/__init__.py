"""One world with faults: its hosts, its caller, its effects, its store and what happened in it."""

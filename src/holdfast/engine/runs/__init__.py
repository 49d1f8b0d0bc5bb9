"""One run in memory: its activation, its effects in flight, and how they are performed."""

"""Events out: logs, metrics, traces."""

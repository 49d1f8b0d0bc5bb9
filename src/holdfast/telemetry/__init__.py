"""Events out: logs."""

"""Effects that are performed by workers in other languages."""

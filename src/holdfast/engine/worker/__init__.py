"""Which runs this process holds: slots, claims, mail, the lease."""

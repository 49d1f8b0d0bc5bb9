"""Real processes, killed, stopped and starved; and a ledger outside the engine that says what really happened."""

"""The gate: proves on real processes that nothing is lost, and nothing recorded twice, whatever is killed.

    scenarios ──▶ nemesis ──▶ processes are killed, stopped, restarted      (faults)
        │
        └──────▶ load ──▶ gateways ──▶ workers ──▶ ledger, a process outside of the engine
                  │                                   │
               starts         finals, journals      calls
                  └───────────────┴───────────────────┴──▶ checker (pure) ──▶ violations, proofs ──▶ report, page

Rules
- What happened is read from outside: the ledger, what clients were told, the journals at the end.
- A scenario that met no violation but did not see what it was for is "not proved", and never "passed".
"""

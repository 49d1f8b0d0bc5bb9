"""Seeds that are known to show something, so that tests are quick. They change when plans are drawn in another way.

`python -m tests.simulation --plants` searches for those of the planted bugs.
"""

from __future__ import annotations

# The first seed, from 0 on, that finds each planted bug.
FOUND_BY = {
    "adopted though unknown": 44,
    "cancel lost": 0,
    "child started twice": 1,
    "claim ignores the lease": 158,
    "continue-as-new drops the key": 3,
    "dedupe forgotten at takeover": 57,
    "double adoption": 0,
    "ends over unread messages": 189,
    "fence not checked": 323,
    "holder of the key not looked at": 0,
    "key freed at the end": 0,
    "length not checked": 120,
    "lost wake-up": 274,
    "message delivered twice": 1,
    "message without wake-up": 0,
    "neither fence nor length checked": 29,
    "outcome of a child lost": 0,
    "recorded after what follows": 0,
    "recorded before the fence": 29,
    "relay drops messages": 61,
    "rescue without raising the epoch": 5,
    "retention frees a live key": 0,
    "retry count reset": 0,
    "signal to an ended run accepted": 4,
    "supersede without cancel": 0,
    "the dead are never rescued": 17,
    "timer fired early": 0,
    "timer fired twice": 0,
    "undo in order": 63,
}

# A seed in which each of what must sometimes happen does.
HAPPENS_IN = {
    "cancel met end": 23,
    "effect repeated": 17,
    "key taken over": 0,
    "late write refused": 2,
    "lease stolen": 17,
    "outbox relayed": 61,
    "unknown applied": 1,
    "unknown lost": 2,
}

"""Seeds that are known to show something, so that tests are quick. They change when plans are drawn in another way.

`python -m tests.simulation --plants` searches for those of the planted bugs.
"""

from __future__ import annotations

# The first seed, from 0 on, that finds each planted bug.
FOUND_BY = {
    "adopted though unknown": 0,
    "cancel lost": 0,
    "child started twice": 1,
    "claim ignores the lease": 44,
    "continue-as-new drops the key": 3,
    "dedupe forgotten at takeover": 57,
    "double adoption": 0,
    "ends over unread messages": 38,
    "fence not checked": 2,
    "holder of the key not looked at": 0,
    "key freed at the end": 0,
    "length not checked": 78,
    "lost wake-up": 274,
    "message delivered twice": 1,
    "message without wake-up": 0,
    "neither fence nor length checked": 2,
    "none becomes active in a lane": 13,
    "outcome of a child lost": 0,
    "recorded after what follows": 0,
    "recorded before the fence": 2,
    "relay drops messages": 56,
    "rescue without raising the epoch": 2,
    "retention frees a live key": 20,
    "retry count reset": 0,
    "signal to an ended run accepted": 4,
    "supersede without cancel": 0,
    "the dead are never rescued": 2,
    "timer fired early": 0,
    "timer fired twice": 0,
    "two become active in a lane for one": 48,
    "undo in order": 63,
}

# A seed in which each of what must sometimes happen does.
HAPPENS_IN = {
    "cancel met end": 2,
    "effect repeated": 2,
    "key taken over": 0,
    "late write refused": 2,
    "lease stolen": 2,
    "outbox relayed": 56,
    "unknown applied": 1,
    "unknown lost": 0,
}

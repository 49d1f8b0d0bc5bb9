"""What tests of workflows need, ours and yours: a ledger outside the engine, events to wait on, temporary stores.

Also the replay of exported journals. It needs no test framework; of Holdfast, the command line and the lab alone import
it.
"""

from __future__ import annotations

from holdfast.testing.events import EventRecorder
from holdfast.testing.journals import replay_exported
from holdfast.testing.ledger import Ledger, Line
from holdfast.testing.stores import temporary_holdfast, temporary_store
from holdfast.testing.waiting import PATIENCE_SECONDS, eventually

__all__ = [
    "PATIENCE_SECONDS",
    "EventRecorder",
    "Ledger",
    "Line",
    "eventually",
    "replay_exported",
    "temporary_holdfast",
    "temporary_store",
]

"""What tests of workflows need, ours and yours: a ledger outside the engine, events to wait on, temporary stores.

It needs no test framework, and nothing of Holdfast imports it.
"""

from __future__ import annotations

from holdfast.testing.events import EventRecorder
from holdfast.testing.ledger import Ledger, Line
from holdfast.testing.stores import temporary_holdfast, temporary_store
from holdfast.testing.waiting import PATIENCE_SECONDS, eventually

__all__ = [
    "PATIENCE_SECONDS",
    "EventRecorder",
    "Ledger",
    "Line",
    "eventually",
    "temporary_holdfast",
    "temporary_store",
]

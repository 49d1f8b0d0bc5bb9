"""NATS as the bus: hints by core NATS, topics by JetStream."""

from __future__ import annotations

from holdfast.buses.nats.bus import NatsBus

__all__ = ["NatsBus"]

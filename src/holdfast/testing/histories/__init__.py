"""Histories of what happened to a cluster, simulated or real, and the checker that judges them."""

from __future__ import annotations

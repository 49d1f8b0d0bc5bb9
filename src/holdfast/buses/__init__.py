"""Buses: adapters of ports/bus.py."""

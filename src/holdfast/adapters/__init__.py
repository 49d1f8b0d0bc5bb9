"""Adapters of the small ports: the machine's clock and chance, and the JSON codec."""

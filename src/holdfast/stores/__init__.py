"""Adapters of the ports. No store knows another; `assembly` alone names them."""

"""Simulated worlds: the real engine in virtual time, from a seed. What `Simulated` and `holdfast prove` are made of."""

"""Connections to Redis: single, Sentinel or Cluster."""

"""Clusters on this machine, and the gate that breaks them on purpose. Needs the extra `lab`."""

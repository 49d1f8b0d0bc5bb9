"""Real servers and whole topologies on this machine, from their binaries: for `holdfast cluster`, gate and tests."""

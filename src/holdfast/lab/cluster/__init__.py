"""Real servers and whole clusters on this machine, from their binaries: for `holdfast cluster`, gate and tests."""

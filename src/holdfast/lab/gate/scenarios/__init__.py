"""The scenarios, one to a file. Each does its harm, and comes back with what it has seen."""

"""The command line: what the verbs of `holdfast.client` are for programs, `holdfast ...` is for people and scripts."""

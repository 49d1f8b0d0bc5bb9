"""Mistakes that people make in workflows, each in a module of its own. The line that is wrong says so."""

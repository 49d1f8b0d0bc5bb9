"""Holdfast against its peers and against a bare writer: the numbers we publish, and how to repeat them.

`python -m bench` runs it; README.md says what is measured and what is fair about it.
"""

"""What docs/concepts/guarantees.md promises is proved by tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.examples.pages import ROOT

PAGE = ROOT / "docs" / "concepts" / "guarantees.md"
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE.read_text(encoding="utf-8"))))


@cache
def functions(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {
        node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_test_that_the_page_names_exists(path, name):
    assert (ROOT / path).is_file(), path
    assert name in functions(path)


def test_every_promise_names_a_test():
    for row in promises():
        assert "`tests/" in row, row


def test_the_page_makes_promises():
    assert len(promises()) > 10
    assert NAMED


def promises():
    """The rows of the tables whose last column is the proof."""
    rows, proving = [], False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            proving = False
        elif line.rstrip(" |").endswith("proved by"):
            proving = True
        elif proving and not set(line) <= set("|- "):
            rows.append(line)
    return rows

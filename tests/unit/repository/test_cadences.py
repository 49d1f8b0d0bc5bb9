"""The page of cadences and limits shows every one: a value that is added to the code is added to the page."""

from __future__ import annotations

import ast

import pytest
from msgspec import Struct

from docs import cadences
from tests.unit.repository.sources import ROOT

PAGE = ROOT / "docs" / "cadences.py"
NO_NUMBERS = {"rate_limits", "require_keys"}


def read_from(name: str) -> set[str]:
    """The fields of this value that the page is made of."""
    return {
        node.attr
        for node in ast.walk(ast.parse(PAGE.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name
    }


@pytest.mark.parametrize("name", ["PACE", "REDIS_PACE", "SQLITE_PACE", "GATEWAY", "CONNECTIONS", "SUPERVISION"])
def test_every_cadence_and_limit_is_on_the_page(name: str) -> None:
    value: Struct = getattr(cadences, name)
    assert set(value.__struct_fields__) - NO_NUMBERS - read_from(name) == set()

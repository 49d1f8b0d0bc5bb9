"""Documents: of two that write at the same instant, a store must be able to tell which one was first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import holdfast
from tests.rivals import ALIKE, ALONE, RIVALRIES, Rivalry

SOURCE = Path(holdfast.__file__).parent


@pytest.mark.parametrize("rivalry", RIVALRIES, ids=lambda each: each.name)
def test_two_rivals_never_write_the_same_bytes_at_the_same_instant(rivalry: Rivalry) -> None:
    one, other = rivalry.rivals
    assert one.document.version == other.document.version  # a version is the millisecond: it tells nothing
    assert one.document.body != other.document.body


@pytest.mark.parametrize("rivalry", RIVALRIES, ids=lambda each: each.name)
def test_whoever_offers_its_document_again_writes_what_it_wrote_before(rivalry: Rivalry) -> None:
    assert rivalry.rivals == rivalry.rivals


@pytest.mark.parametrize("alike", ALIKE, ids=lambda each: each.name)
def test_where_both_want_the_same_both_write_the_same(alike: Rivalry) -> None:
    one, other = alike.rivals
    assert one == other


def test_it_is_said_of_every_kind_of_document_how_its_writers_are_told_apart() -> None:
    """A new kind takes its place in `tests.rivals`, or two of its writers may both believe that they were first."""
    named = {
        kind
        for file in SOURCE.rglob("*.py")
        for kind in re.findall(r'^KIND(?:, \w+)? = "([^"]+)"', file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    kinds = {each.rivals[0].document.kind for each in (*RIVALRIES, *ALIKE)}
    tried = {"task/" if kind.startswith("task/") else kind for kind in kinds}
    assert named == tried | set(ALONE)
    assert not tried & set(ALONE)

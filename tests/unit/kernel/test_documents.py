"""Documents: of two that write at the same instant, a store must be able to tell which one was first."""

from __future__ import annotations

import pytest

from tests.rivals import RIVALRIES, Rivalry


@pytest.mark.parametrize("rivalry", RIVALRIES, ids=lambda each: each.name)
def test_two_rivals_never_write_the_same_bytes_at_the_same_instant(rivalry: Rivalry) -> None:
    one, other = rivalry.rivals
    assert one.document.version == other.document.version  # a version is the millisecond: it tells nothing
    assert one.document.body != other.document.body


@pytest.mark.parametrize("rivalry", RIVALRIES, ids=lambda each: each.name)
def test_whoever_offers_its_document_again_writes_what_it_wrote_before(rivalry: Rivalry) -> None:
    assert rivalry.rivals == rivalry.rivals

from __future__ import annotations

import msgspec
import pytest

from holdfast.engine.values import INLINE_MAX, digest_of, inline, kept
from holdfast.kernel.journal import Value


@pytest.mark.parametrize(("size", "is_inline"), [(2, True), (INLINE_MAX, True), (INLINE_MAX + 1, False)])
def test_small_values_live_in_the_journal_and_large_ones_beside_it(size, is_inline):
    """E14."""
    data = b'"' + b"x" * (size - 2) + b'"'
    value, blobs = kept(data)
    assert (inline(value) == data) is is_inline
    assert [(blob.digest, blob.data) for blob in blobs] == ([] if is_inline else [(digest_of(data), data)])
    assert value.size == (0 if is_inline else size)
    again = msgspec.json.decode(msgspec.json.encode(value), type=Value)
    assert again == value
    assert inline(again) == (data if is_inline else None)


def test_a_digest_names_bytes_for_ever():
    """Stored digests are compared with those of later versions: this one is written down."""
    assert digest_of(b'{"order":"o-1"}') == "349b6616626e06fcc64e98411b40d801"
    assert digest_of(b"a") != digest_of(b"b")

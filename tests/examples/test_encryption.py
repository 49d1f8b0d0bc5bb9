"""The example of a seal: AES-GCM with keys that are rotated."""

from __future__ import annotations

import pytest
from cryptography.exceptions import InvalidTag

from examples.encryption import Keyring
from holdfast.assembly import Sealed

OLD, NEW = b"o" * 32, b"n" * 32


def test_the_current_key_seals_and_each_key_opens_its_own():
    old, both = Keyring({"old": OLD}, current="old"), Keyring({"old": OLD, "new": NEW}, current="new")
    first, second = old.seal(b"secret"), both.seal(b"secret")
    assert first is not None
    assert second is not None
    assert (first.key_id, second.key_id) == ("old", "new")
    assert both.open(first) == both.open(second) == b"secret"
    assert b"secret" not in first.data
    with pytest.raises(LookupError, match="no key 'new'"):
        old.open(second)


def test_what_was_changed_does_not_open():
    ring = Keyring({"old": OLD, "same": OLD}, current="old")
    sealed = ring.seal(b"secret")
    assert sealed is not None
    for changed in (Sealed("same", sealed.data), Sealed("old", sealed.data[:-1] + bytes([sealed.data[-1] ^ 1]))):
        with pytest.raises(InvalidTag):
            ring.open(changed)


def test_a_keyring_that_seals_needs_the_key_and_one_that_does_not_only_opens():
    with pytest.raises(ValueError, match="no key 'new'"):
        Keyring({"old": OLD}, current="new")
    assert Keyring({"old": OLD}, current=None).seal(b"secret") is None

"""How sealed payloads look at rest."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw

from holdfast.kernel import seals
from holdfast.kernel.journal import Value


def test_sealed_bytes_are_json_and_come_back() -> None:
    text = seals.text_of(b"\x00\xff")
    assert isinstance(msgspec.json.decode(text), str)
    assert seals.data_in(bytes(text)) == b"\x00\xff"
    assert seals.data_in(b'"not base64!"') == b""


def test_a_large_value_names_its_key_and_is_never_taken_for_json() -> None:
    blob = seals.blob_of("k1", b"a\x00b")
    assert seals.is_sealed(blob)
    assert seals.parts_of(blob) == ("k1", b"a\x00b")
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(blob)
    assert not seals.is_sealed(b'{"a": 1}')


@pytest.mark.parametrize(
    ("key_id", "fits"),
    [
        ("2026-01", True),
        ("x" * 64, True),
        ("x" * 65, False),
        ("", False),
        ("a b", False),
        ("a\x00", False),
        ("ü", False),
        (7, False),
    ],
)
def test_which_ids_a_key_may_have(key_id: object, fits: bool) -> None:
    assert seals.is_key_id(key_id) is fits


def test_a_refusal_names_the_key() -> None:
    assert seals.refusal("k1").message == "a payload is sealed under key 'k1', and this process cannot open it"


def test_a_sealed_value_is_shown_by_its_key():
    assert repr(Value(Raw(b'"x"'), sealed="k-2")) == "<sealed under key k-2>"

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from holdfast.kernel import apikeys
from holdfast.kernel.apikeys import SCOPES, ApiKey, Kept, Token, allows, digest_of, lasting, parse, standing
from holdfast.kernel.units import utc_of
from tests.builders import NOW_MS

ID = "0123456789abcdef"
SECRET = "s" * 43
TOKEN = Token(ID, SECRET)


def a_key(**fields: Any) -> ApiKey:
    return ApiKey(
        **{"id": ID, "name": "ci", "namespace": "n", "scope": "read", "tail": "ssss", "created_at_ms": NOW_MS} | fields
    )


def kept(token: Token = TOKEN, **fields: Any) -> Kept:
    return Kept(a_key(**fields), digest_of(token))


def test_a_token_is_read_back_as_it_was_made():
    assert parse(TOKEN.text) == TOKEN


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hf_",
        SECRET,
        f"hf_{ID}",
        f"hf_{ID}_",
        f"hf_{ID}_{SECRET[1:]}",
        f"hf_{ID}_{SECRET}s",
        f"hf_{ID[1:]}_{SECRET}",
        f"hf_{ID.upper()}_{SECRET}",
        f"hx_{ID}_{SECRET}",
        f" hf_{ID}_{SECRET}",
        f"hf_{ID}_{SECRET}\n",
        f"hf_{ID}_{SECRET[1:]}é",
        f"hf_{'٣' * 16}_{SECRET}",
    ],
)
def test_what_cannot_be_a_token_is_none(text):
    assert parse(text) is None


@given(st.text())
def test_no_text_at_all_breaks_the_parser(text):
    assert parse(text) is None


def test_neither_a_token_nor_what_is_stored_of_it_shows_the_secret():
    assert SECRET not in f"{TOKEN!r} {TOKEN} {kept()!r} {digest_of(TOKEN)}"


def test_a_digest_belongs_to_one_id():
    assert digest_of(TOKEN) != digest_of(Token("f" * 16, SECRET))


@pytest.mark.parametrize(
    ("stored", "shown", "expected"),
    [
        (kept(), TOKEN, "good"),
        (kept(expires_at_ms=NOW_MS + 1), TOKEN, "good"),
        (kept(expires_at_ms=NOW_MS), TOKEN, "expired"),
        (kept(revoked_at_ms=NOW_MS), TOKEN, "revoked"),
        (kept(revoked_at_ms=NOW_MS, expires_at_ms=NOW_MS - 1), TOKEN, "revoked"),
        (kept(), Token(ID, "t" * 43), "unknown"),
        (None, TOKEN, "unknown"),
        # Whoever does not have the secret learns nothing about the key.
        (kept(revoked_at_ms=NOW_MS), Token(ID, "t" * 43), "unknown"),
        (kept(expires_at_ms=NOW_MS - 1), Token(ID, "t" * 43), "unknown"),
    ],
)
def test_what_a_token_is_worth(stored, shown, expected):
    assert standing(stored, shown, now_ms=NOW_MS) == expected


def test_an_unknown_id_costs_the_work_of_a_wrong_secret(monkeypatch):
    compared = []
    monkeypatch.setattr(apikeys, "compare_digest", lambda one, other: compared.append((len(one), len(other))))

    standing(None, TOKEN, now_ms=NOW_MS)
    standing(kept(), Token(ID, "t" * 43), now_ms=NOW_MS)

    assert compared == [(64, 64), (64, 64)]


def test_a_key_lasts_until_it_expires():
    assert lasting(a_key(expires_at_ms=NOW_MS + 1), now_ms=NOW_MS) == "good"
    assert lasting(a_key(expires_at_ms=NOW_MS + 1), now_ms=NOW_MS + 1) == "expired"


def test_each_scope_contains_the_ones_before_it():
    assert {(has, needs) for has in SCOPES for needs in SCOPES if allows(has, needs)} == {
        ("read", "read"),
        ("write", "read"),
        ("write", "write"),
        ("admin", "read"),
        ("admin", "write"),
        ("admin", "admin"),
    }


def test_a_key_says_its_instants_as_datetimes():
    key = a_key(expires_at_ms=NOW_MS + 1_000)
    assert (key.created_at, key.expires_at, key.revoked_at) == (utc_of(NOW_MS), utc_of(NOW_MS + 1_000), None)

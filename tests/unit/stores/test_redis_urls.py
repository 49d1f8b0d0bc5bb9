"""Redis URLs: what they mean, and what is refused before anything is opened."""

from __future__ import annotations

import pytest

from holdfast.errors import InvalidConfig
from holdfast.stores.redis.net.topologies import slot_of
from holdfast.stores.redis.net.urls import RedisUrl, ServerAddress, parse

HERE = (ServerAddress("h", 6379),)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("redis://h", RedisUrl(kind="single", addresses=HERE)),
        ("redis://h:", RedisUrl(kind="single", addresses=HERE)),
        ("valkey://h:7000/3", RedisUrl(kind="single", addresses=(ServerAddress("h", 7000),), db=3)),
        ("rediss://h", RedisUrl(kind="single", addresses=HERE, tls=True)),
        ("valkeys+cluster://h", RedisUrl(kind="cluster", addresses=HERE, tls=True)),
        ("redis://[::1]:1", RedisUrl(kind="single", addresses=(ServerAddress("::1", 1),))),
        ("redis://:p%40ss@h", RedisUrl(kind="single", addresses=HERE, password="p@ss")),
        ("redis://u:p:q@h", RedisUrl(kind="single", addresses=HERE, user="u", password="p:q")),
        ("redis+cluster://h,i:7000", RedisUrl(kind="cluster", addresses=(*HERE, ServerAddress("i", 7000)))),
        (
            "redis+sentinel://h,i:7000/main",
            RedisUrl(kind="sentinel", addresses=(ServerAddress("h", 26379), ServerAddress("i", 7000)), master="main"),
        ),
        (
            "redis://h?name=shop&shards=256&wait=2&timeout=1500ms",
            RedisUrl(kind="single", addresses=HERE, name="shop", shards=256, wait=2, timeout_ms=1500),
        ),
        ("redis://h?wait=auto", RedisUrl(kind="single", addresses=HERE, wait="auto")),
    ],
)
def test_what_a_url_means(text: str, meant: RedisUrl) -> None:
    assert parse(text) == meant


@pytest.mark.parametrize(
    "text",
    [
        "redis://",
        "redis://h:0x10",
        "redis://h:70000",
        "redis://h:0",
        "redis://h,i",
        "redis://h,",
        "redis://h/one",
        "redis://h/-1",
        "redis://u@h",
        "redis+cluster://h/1",
        "redis+sentinel://h",
        "redis+sentinel://h/a/b",
        "redis+proxy://h",
        "http://h",
        "redis://[::1",
        "redis://h?shards=0",
        "redis://h?shards=257",
        "redis://h?shards=1_6",
        "redis://h?wait=maybe",
        "redis://h?timeout=soon",
        "redis://h?timeout=1ms",
        "redis://h?name=",
        "redis://h?name=a}b",
        "redis://h?nmae=a",
        "redis://h?name=a&name=b",
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would(text: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse(text)
    assert caught.value.hint


def test_a_password_is_never_shown() -> None:
    url = parse("redis://user:secret@h:1/2?name=shop")
    assert (str(url), repr(url)) == ("redis://h:1/2?name=shop", "<redis://h:1/2?name=shop>")
    for nonsense in ("redis://user:secret@h?nope=1", "redis+nope://user:secret@h", "redis://user:secret@h:port"):
        with pytest.raises(InvalidConfig) as caught:
            parse(nonsense)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("character", "/?#[\u2100")
def test_a_password_that_was_not_escaped_is_not_shown_either(character: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse(f"redis://:s3cret{character}hunter2@h:6379")
    assert "s3cret" not in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "%2F" in caught.value.hint


@pytest.mark.parametrize(
    ("key", "slot"),
    [
        (b"123456789", 0x31C3),  # the check value of this CRC
        (b"{123456789}.after", 0x31C3),
        (b"before.{123456789}{other}", 0x31C3),
        (b"foo", 12182),
        (b"", 0),
    ],
)
def test_the_slot_of_a_key(key: bytes, slot: int) -> None:
    assert slot_of(key) == slot


def test_a_key_with_nothing_between_its_braces_counts_as_a_whole() -> None:
    assert slot_of(b"{}foo") != slot_of(b"foo")
    assert slot_of(b"{}foo") != slot_of(b"{}bar")

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from holdfast.buses.nats.addresses import NatsAddress, parse
from holdfast.buses.nats.names import Names, token
from holdfast.errors import InvalidConfig

TEXT = st.text(alphabet=st.characters(), max_size=60) | st.sampled_from(["", ".", "*", ">", "a.>", "_", "__", "A", "a"])


@given(TEXT, TEXT)
def test_two_texts_share_a_token_only_if_they_are_equal(one: str, other: str) -> None:
    assert (token(one) == token(other)) == (one == other)
    # Not even on a file system that takes capitals for small letters.
    assert (token(one).lower() == token(other).lower()) == (one == other)


@given(st.text(alphabet=st.characters(), max_size=400))
def test_a_token_holds_nothing_that_means_something_to_nats(text: str) -> None:
    assert re.fullmatch(r"[a-z0-9_-]+", token(text))
    assert len(token(text)) <= 120


@given(st.lists(TEXT, min_size=4, max_size=4))
def test_stores_and_topics_never_share_a_stream(texts: list[str]) -> None:
    store, topic, other_store, other_topic = texts
    same = Names(store).stream(topic) == Names(other_store).stream(other_topic)
    assert same == ((store, topic) == (other_store, other_topic))


def test_long_texts_that_begin_alike_stay_apart() -> None:
    assert token("x" * 500) != token("x" * 501)


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("nats://localhost", NatsAddress(("localhost:4222",))),
        ("nats://a:1,b:2/", NatsAddress(("a:1", "b:2"))),
        ("nats://a:1,nats://b", NatsAddress(("a:1", "b:4222"))),
        ("tls://[::1]:5", NatsAddress(("[::1]:5",), tls=True)),
        ("nats://u:p%40%2C@a,b", NatsAddress(("a:4222", "b:4222"), user="u", password="p@,")),
        ("nats://u:p@a,nats://u:p@b", NatsAddress(("a:4222", "b:4222"), user="u", password="p")),
        ("nats://token@a", NatsAddress(("a:4222",), user="token")),
    ],
)
def test_what_a_url_means(url: str, meant: NatsAddress) -> None:
    assert parse(url) == meant


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:4222",
        "redis://a",
        "nats://",
        "nats://a,,b",
        "nats://u:secret@",
        "nats://a:port",
        "nats://a:70000",
        "nats://a/path",
        "nats://a?x=1",
        "nats://a b",
        "nats://u:secret@a,nats://u:other@b",
        "nats://a,tls://b",
    ],
)
def test_a_url_that_cannot_work_is_refused_with_what_is_allowed(url: str) -> None:
    with pytest.raises(InvalidConfig, match="nats://") as refused:
        parse(url)
    assert "secret" not in str(refused.value)


def test_a_password_is_never_shown() -> None:
    assert "secret" not in repr(parse("nats://anna:secret@a"))

"""What a request answers that comes again under its key."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.errors import UsageError
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.idempotency import (
    KEY_LENGTH_MAX,
    Proceed,
    Replay,
    Reply,
    RequestBusy,
    RequestMismatch,
    RequestWanted,
    Unkept,
    decide,
    digest_of,
    id_of,
    is_final,
    is_held,
    kept_headers,
    key_of,
    renewed,
    settled,
    until_ms,
)

NOW = 1_000_000
LEASE = 30_000
RETENTION = 3_600_000
DONE = Reply(201, ((b"content-type", b"text/plain"),), b"made")


def a_request(holder="me", digest="d1"):
    return RequestWanted(namespace="ns", id="key", digest=digest, holder=holder, lease_ms=LEASE, retention_ms=RETENTION)


def stored(decision) -> Document:
    assert isinstance(decision, Proceed)
    return decision.writing.document


def working() -> Document:
    return stored(decide(None, a_request("first"), now_ms=NOW))


def answered(reply: Reply) -> Document:
    return settled(working(), a_request("first"), reply, now_ms=NOW + 5).document


STATES = {
    "nothing": None,
    "at work": working(),
    "failed": answered(Reply(503)),
    "answered": answered(DONE),
    "not kept": answered(Reply(200)),
}


@pytest.mark.parametrize(
    ("state", "later_ms", "answer"),
    [
        ("nothing", 0, Proceed),
        ("at work", 0, RequestBusy),
        ("at work", LEASE - 1, RequestBusy),
        ("at work", LEASE, Proceed),
        ("failed", 5, Proceed),
        ("answered", 5, Replay),
        ("not kept", 5, Unkept),
    ],
)
def test_what_the_same_request_answers(state, later_ms, answer):
    assert isinstance(decide(STATES[state], a_request("second"), now_ms=NOW + later_ms), answer)


@pytest.mark.parametrize("state", STATES.keys() - {"nothing"})
@pytest.mark.parametrize("later_ms", [5, LEASE])
def test_a_key_belongs_to_its_first_request_whatever_became_of_it(state, later_ms):
    assert decide(STATES[state], a_request("second", digest="d2"), now_ms=NOW + later_ms) == RequestMismatch()


def test_a_replay_has_the_status_headers_and_body_of_the_first_answer():
    assert decide(STATES["answered"], a_request("second"), now_ms=NOW + 5) == Replay(DONE)


def test_an_empty_body_is_kept_as_well():
    empty = Reply(204, (), b"")
    assert decide(answered(empty), a_request("second"), now_ms=NOW + 5) == Replay(empty)


def test_of_an_answer_that_was_not_kept_the_status_is_known():
    assert decide(STATES["not kept"], a_request("second"), now_ms=NOW + 5) == Unkept(200)


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({"type": "answered", "digest": "d1", "reply": {"status": 204, "headers": [], "body": b""}}, Replay),
        ({"type": "answered", "digest": "d1", "reply": {"status": 200, "headers": [], "body": None}}, Unkept),
        ({"type": "vacant", "digest": "d1"}, Proceed),
    ],
)
def test_what_earlier_versions_settled_without_naming_the_holder_is_still_read(body, answer):
    document = Document("ns", "reply", "key", NOW, msgspec.msgpack.encode(body))
    assert isinstance(decide(document, a_request("second"), now_ms=NOW), answer)


def test_busy_says_how_long_the_lease_still_lasts():
    assert decide(working(), a_request("second"), now_ms=NOW + 10_000) == RequestBusy(20_000)
    assert until_ms(working()) == NOW + LEASE


def test_only_what_was_at_work_is_overdue():
    overdue = {
        state: decide(document, a_request("second"), now_ms=NOW + LEASE).overdue
        for state, document in STATES.items()
        if state in {"nothing", "at work", "failed"}
    }
    assert overdue == {"nothing": False, "at work": True, "failed": False}


@pytest.mark.parametrize("state", ["at work", "failed"])
def test_whoever_proceeds_replaces_what_was_found(state):
    decision = decide(STATES[state], a_request("second"), now_ms=NOW + LEASE)
    assert decision.writing.replaces == STATES[state].version
    assert decision.writing.document.version > STATES[state].version


def test_the_first_one_replaces_nothing():
    assert decide(None, a_request(), now_ms=NOW).writing.replaces is None


def test_a_renewal_lengthens_the_lease_and_replaces_the_version_that_was_held():
    writing = renewed(working(), a_request("first"), now_ms=NOW + 10_000)
    assert writing.replaces == working().version
    assert until_ms(writing.document) == NOW + 10_000 + LEASE


def test_an_answer_is_kept_for_its_retention():
    assert STATES["answered"].expires_at_ms == NOW + 5 + RETENTION
    assert STATES["failed"].expires_at_ms == NOW + 5 + RETENTION


def test_what_is_at_work_outlives_its_lease_by_the_retention():
    assert working().expires_at_ms == NOW + LEASE + RETENTION


def test_an_answer_is_final_unless_trying_again_may_help():
    statuses = (200, 302, 400, 404, 408, 409, 422, 425, 429, 500, 503)
    assert [status for status in statuses if not is_final(status)] == [408, 425, 429, 500, 503]


@pytest.mark.parametrize(("holder", "state", "held"), [
    ("first", "at work", True),
    ("second", "at work", False),
    ("first", "answered", False),
    ("first", "failed", False),
])  # fmt: skip
def test_who_holds_it(holder, state, held):
    assert is_held(STATES[state], a_request(holder)) is held


@pytest.mark.parametrize(
    ("header", "key"),
    [
        (b"8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324"),
        (b'"8e03978e"', "8e03978e"),
        (b' "8e03978e" ', "8e03978e"),
        (rb'"a \"b\" \\ c"', r'a "b" \ c'),
        (b"a b", "a b"),
        (b'a"b', 'a"b'),
        (b"x" * KEY_LENGTH_MAX, "x" * KEY_LENGTH_MAX),
        (b'"' + b"x" * KEY_LENGTH_MAX + b'"', "x" * KEY_LENGTH_MAX),
    ],
)
def test_a_key_may_be_bare_or_quoted(header, key):
    assert key_of(header) == key


@pytest.mark.parametrize(
    "header",
    [
        *(b"", b"  ", b'""', b'"', b'"open', b'"a"b"', b'"a";p=1', b'"\\n"'),
        *("schlüssel".encode(), b"a\x00b", b"a\tb", b"\x7f"),
        *(b"x" * 201, b'"' + b"x" * 201 + b'"'),
    ],
)
def test_what_cannot_be_a_key_is_refused_with_a_hint(header):
    with pytest.raises(UsageError) as refused:
        key_of(header)
    assert "printable ASCII" in refused.value.hint


def test_headers_of_one_connection_or_one_moment_are_not_kept():
    headers = [
        (b"Content-Type", b"application/json"),
        (b"Connection", b"close, X-Only-Here"),
        (b"x-only-here", b"1"),
        (b"Keep-Alive", b"timeout=5"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Date", b"Mon, 16 Nov 2026 04:00:00 GMT"),
        (b"Server", b"uvicorn"),
        (b"Set-Cookie", b"a=1"),
        (b"Set-Cookie", b"b=2"),
        (b"Location", b"/orders/1"),
    ]
    assert kept_headers(headers) == (
        (b"content-type", b"application/json"),
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
        (b"location", b"/orders/1"),
    )


@given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
def test_keys_of_two_callers_never_meet(one, other):
    assert (id_of(*one) == id_of(*other)) is (one == other)


parts = st.tuples(st.sampled_from(["POST", "PATCH"]), st.binary(), st.binary(), st.binary())


@given(parts, parts)
def test_requests_are_the_same_if_method_path_query_and_body_are(one, other):
    assert (digest_of(*one) == digest_of(*other)) is (one == other)


def test_what_moves_from_the_path_to_the_query_makes_another_request():
    assert digest_of("POST", b"/a", b"b", b"") != digest_of("POST", b"/ab", b"", b"")


class OneKey(RuleBasedStateMachine):
    """Any number of processes, one key, a store that compares and sets, and time that passes as it likes.

    A process looks when it wants and writes when it wants, so what it has seen may be long past. One that has been
    admitted may sleep beyond its lease; it does not know.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = NOW
        self.document: Document | None = None
        self.admitted = 0
        self.seen: dict[str, Document | None] = dict.fromkeys("abc")  # what each process saw when it looked last
        self.held: dict[str, Document] = {}  # what each admitted request believes to hold
        self.owner: str | None = None  # who really holds the key, and until when
        self.until_ms = 0
        self.answer: Reply | None = None

    def write(self, writing: Writing) -> bool:
        if writing.replaces != (self.document.version if self.document else None):
            return False
        assert self.document is None or writing.document.version > self.document.version
        self.document = writing.document
        return True

    @rule(process=st.sampled_from("abc"))
    def look(self, process) -> None:
        self.seen[process] = self.document

    @rule(process=st.sampled_from("abc"), looks=st.booleans())
    def act(self, process, looks) -> None:
        """The request arrives: on what the process sees now, or on what it has seen, however long ago that was."""
        seen = self.document if looks else self.seen[process]
        name = f"{process}{self.admitted}"
        match decide(seen, a_request(name), now_ms=self.now_ms):
            case Proceed(writing, overdue):
                is_fresh = seen == self.document
                assert self.write(writing) is is_fresh
                if is_fresh:
                    assert self.answer is None, "it is executed again although it has been answered"
                    assert self.owner is None or self.until_ms <= self.now_ms, "two processes are at it"
                    assert overdue is (self.owner is not None)
                    self.owner, self.until_ms = name, self.now_ms + LEASE
                    self.held[name] = writing.document
                    self.admitted += 1
            case RequestBusy(for_ms):
                assert for_ms > 0
            case Replay(reply):
                assert reply == self.answer
            case other:
                raise AssertionError(other)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def renew(self, data) -> None:
        name = data.draw(st.sampled_from(sorted(self.held)))
        writing = renewed(self.held[name], a_request(name), now_ms=self.now_ms)
        assert self.write(writing) is (name == self.owner)
        if name == self.owner:
            self.held[name], self.until_ms = writing.document, self.now_ms + LEASE

    @precondition(lambda self: self.held)
    @rule(data=st.data(), status=st.sampled_from([500, 503, 429, 404]))
    def settle(self, data, status) -> None:
        name = data.draw(st.sampled_from(sorted(self.held)))
        reply = Reply(status, (), name.encode())
        assert self.write(settled(self.held.pop(name), a_request(name), reply, now_ms=self.now_ms)) is (
            name == self.owner
        )
        if name == self.owner:
            self.owner = None
            self.answer = reply if is_final(status) else None

    @rule(ms=st.sampled_from([1, LEASE // 3, LEASE, 2 * LEASE]))
    def time_passes(self, ms) -> None:
        self.now_ms += ms

    @invariant()
    def the_fence_admits_only_the_owner(self) -> None:
        able = [name for name, held in self.held.items() if self.document and held.version == self.document.version]
        assert able == ([] if self.owner is None else [self.owner])


TestOneKey = OneKey.TestCase
TestOneKey.settings = settings(max_examples=settings().max_examples // 2)

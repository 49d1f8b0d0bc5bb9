"""Documents of every kind, written by two processes in the same millisecond.

RIVALRIES   it matters which of the two was first: the other one must learn that it was too late
ALIKE       it does not: both want the same, and both may take it for their own
ALONE       there is no second writer
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.engine.api import apikeys
from holdfast.kernel import idempotency, leaders, start_requests, takeovers, tasks
from holdfast.kernel.apikeys import ApiKey, Kept
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.idempotency import Proceed, Reply
from holdfast.kernel.leaders import Holder
from tests.builders import NOW_MS, running

LEASE_MS = 1_000
LATER_MS = NOW_MS + 2 * LEASE_MS  # the first lease is over
UNKEPT, KEPT, EMPTY, FAILED = Reply(200), Reply(201, (), b"made"), Reply(204, (), b""), Reply(503)


class Rivalry(NamedTuple):
    """What is stored beforehand, and the two that write afterwards: one of them must learn that it was too late."""

    name: str
    before: Sequence[Writing]
    make: Callable[[], tuple[Writing, Writing]]

    @property
    def rivals(self) -> tuple[Writing, Writing]:
        """The two, made afresh each time. The store's clock may stand at `LATER_MS` or not: none of it has expired."""
        return self.make()


def _wanted(holder: str) -> idempotency.RequestWanted:
    return idempotency.RequestWanted(
        namespace="default", id="key", digest="d", holder=holder, lease_ms=LEASE_MS, retention_ms=10**9
    )


def _proceeds(found: Document | None, holder: str, now_ms: int) -> Writing:
    decision = idempotency.decide(found, _wanted(holder), now_ms=now_ms)
    assert isinstance(decision, Proceed)
    return decision.writing


_FIRST = _proceeds(None, "zombie", NOW_MS)
_SECOND = _proceeds(_FIRST.document, "heir", NOW_MS + LEASE_MS)  # has taken the request over


def _settled(reply: Reply) -> Rivalry:
    def make() -> tuple[Writing, Writing]:
        return (
            idempotency.settled(_SECOND.document, _wanted("heir"), reply, now_ms=LATER_MS),
            idempotency.settled(_FIRST.document, _wanted("zombie"), reply, now_ms=LATER_MS),
        )

    return Rivalry(f"a reply settled with {reply.status}", (_FIRST, _SECOND), make)


def _renewed() -> tuple[Writing, Writing]:
    return (
        idempotency.renewed(_SECOND.document, _wanted("heir"), now_ms=LATER_MS),
        idempotency.renewed(_FIRST.document, _wanted("zombie"), now_ms=LATER_MS),
    )


def _offered(now_ms: int) -> Writing:
    writing = tasks.offer(
        None,
        tasks.TaskPlace("default", "shop.pay", "t-1"),
        tasks.Task("run-1", "pay:1", 1, "{}"),
        in_doubt=False,
        now_ms=now_ms,
    )
    assert isinstance(writing, Writing)
    return writing


_SLOW, _QUICK = (tasks.TaskClaim("w", nonce, LEASE_MS) for nonce in ("n-1", "n-2"))


def _claim(found: Document, by: tasks.TaskClaim, now_ms: int, *, run_lives: bool = True) -> Writing:
    writing = tasks.claim(found, by, run_lives=run_lives, now_ms=now_ms)
    assert writing is not None
    return writing


_TASK = _offered(NOW_MS)
_CLAIM = _claim(_TASK.document, _SLOW, NOW_MS)
_TAKEN = _claim(_CLAIM.document, _QUICK, NOW_MS + LEASE_MS)  # once the lease of the slow one was over
_TAKEN_LATE = _claim(_TASK.document, _SLOW, LATER_MS - 1)


def _beat(held: Document) -> Writing:
    """What its heartbeat makes of a task, as the worker knew it when it began to speak."""
    state = tasks.task_of(held).state
    beat = tasks.heartbeat(held, fence=state.fence, run_lives=True, now_ms=LATER_MS)
    assert beat.writing is not None
    return beat.writing


def _finish(held: Document) -> Writing:
    state = tasks.task_of(held).state
    writing = tasks.finish(held, tasks.TaskReturned('"paid"'), fence=state.fence, now_ms=LATER_MS)
    assert writing is not None
    return writing


def _look(found: Document, *, wanted: bool) -> Writing:
    """What the holder of a run makes of its task; it has a second to be performed."""
    writing = tasks.look(found, wanted=wanted, timeout_ms=LEASE_MS, deadline_at_ms=None, now_ms=LATER_MS)
    assert isinstance(writing, Writing)
    return writing


_FIRST_TERM = leaders.bid("relay", None, Holder("box", "n-1"), now_ms=NOW_MS, ttl_ms=LEASE_MS)
assert _FIRST_TERM is not None


def _renewed_terms() -> tuple[Writing, Writing]:
    """The leader of now, and one whose lease has expired, which does not know it."""
    assert _FIRST_TERM is not None
    one = leaders.bid("relay", None, Holder("box", "n-2"), now_ms=LATER_MS, ttl_ms=LEASE_MS)
    other = leaders.bid("relay", _FIRST_TERM.document, Holder("box", "n-1"), now_ms=LATER_MS, ttl_ms=LEASE_MS)
    assert one is not None
    assert other is not None
    return one, other


def _keys() -> tuple[Writing, Writing]:
    """Two that have drawn the same id: the digest of the secret tells them apart."""
    one, other = (_key_document(Kept(_A_KEY, digest), None) for digest in ("digest-1", "digest-2"))
    return Writing(one), Writing(other)


_A_KEY = ApiKey(id="k-1", name="till", namespace="shop", scope="read", tail="abcd", created_at_ms=NOW_MS)


def _key_document(kept: Kept, replaces: int | None) -> Document:
    return apikeys._document(kept, replaces=replaces, now_ms=LATER_MS)


_KEY = Writing(apikeys._document(Kept(_A_KEY, "digest"), replaces=None, now_ms=NOW_MS))


def _revoked() -> Writing:
    revoked = Kept(replace(_A_KEY, revoked_at_ms=LATER_MS), "digest")
    return Writing(_key_document(revoked, _KEY.document.version), _KEY.document.version)


def _bids() -> tuple[Writing, Writing]:
    one, other = (
        leaders.bid("relay", None, Holder("box", nonce), now_ms=LATER_MS, ttl_ms=10**9) for nonce in ("n-1", "n-2")
    )
    assert one is not None
    assert other is not None
    return one, other


RIVALRIES = (
    Rivalry("a request begun", (), lambda: (_proceeds(None, "one", LATER_MS), _proceeds(None, "other", LATER_MS))),
    Rivalry(
        "a request taken over",
        (_FIRST,),
        lambda: (_proceeds(_FIRST.document, "one", LATER_MS), _proceeds(_FIRST.document, "other", LATER_MS)),
    ),
    Rivalry("a request renewed", (_FIRST, _SECOND), _renewed),
    *map(_settled, (UNKEPT, KEPT, EMPTY, FAILED)),
    Rivalry(
        "a task claimed",
        (_TASK,),
        lambda: (_claim(_TASK.document, _SLOW, LATER_MS), _claim(_TASK.document, _QUICK, LATER_MS)),
    ),
    Rivalry("a task prolonged", (_TASK, _CLAIM, _TAKEN), lambda: (_beat(_TAKEN.document), _beat(_CLAIM.document))),
    Rivalry("a task finished", (_TASK, _CLAIM, _TAKEN), lambda: (_finish(_TAKEN.document), _finish(_CLAIM.document))),
    Rivalry("a duty taken", (), _bids),
    Rivalry("a duty kept", (), _renewed_terms),
    Rivalry("an API key made", (), _keys),
    Rivalry("two starts under one header", (), lambda: (_bound(b"1"), _bound(b"2"))),
)


def _twice(name: str, before: Sequence[Writing], make: Callable[[], Writing]) -> Rivalry:
    return Rivalry(name, before, lambda: (make(), make()))


_OUT = _finish(_CLAIM.document)


def _taken_over() -> Writing:
    writing = takeovers.count(running(), None, now_ms=LATER_MS)
    assert writing is not None
    return writing


def _bound(body: bytes) -> Writing:
    """A header, bound to the start with this body."""
    wanted = start_requests.named("ns", caller="c", header="h", workflow="w", join=True, body=body)
    decision = start_requests.decide(None, wanted, now_ms=NOW_MS)
    assert isinstance(decision, start_requests.BindFirst)
    return decision.writing


def _started() -> Writing:
    wanted = start_requests.named("ns", caller="c", header="h", workflow="w", join=True, body=b"{}")
    return start_requests.started(_bound(b"{}").document, wanted, "r-1", created=True, now_ms=LATER_MS)


ALIKE = (
    # Two gateways that get the same request: both start it under the same id, and there is one run.
    _twice("a header bound", (), lambda: _bound(b"{}")),
    _twice("a header whose run is known", (_bound(b"{}"),), _started),
    # Two processes that both believe that they hold the run: whichever is right, the task is out, and is claimed once.
    _twice("a task put up", (), lambda: _offered(LATER_MS)),
    _twice("a task withdrawn", (_TASK, _CLAIM), lambda: _look(_CLAIM.document, wanted=True)),
    _twice("a task not wanted", (_TASK, _TAKEN_LATE), lambda: _look(_TAKEN_LATE.document, wanted=False)),
    _twice("a task heard", (_TASK, _CLAIM, _OUT), lambda: tasks.heard(_OUT.document, now_ms=LATER_MS)),
    # Two gateways: the worker has said it twice, or this version cannot read it, or the run has ended.
    _twice("a task finished twice", (_TASK, _CLAIM), lambda: _finish(_CLAIM.document)),
    _twice("a task set aside", (_TASK,), lambda: tasks.set_aside(_TASK.document, now_ms=LATER_MS)),
    _twice("a task whose run has ended", (_TASK,), lambda: _claim(_TASK.document, _SLOW, LATER_MS, run_lives=False)),
    # Two rescuers: a run was taken over once, and is counted once.
    _twice("a takeover counted", (), _taken_over),
    # Two people: the key is worthless, and both are told since when.
    _twice("an API key revoked", (_KEY,), _revoked),
)

ALONE = {
    "hangs": "a document under the name of a lease, which one process has, once",
    "running": "a document under the name of a lease, which one process has, once",
    "time_limit": "written by the start of its run, then by the leader; a former leader asks for the same, once more",
    "secret": "32 bytes drawn at random; every process reads what is stored and takes that",
}

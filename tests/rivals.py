"""Documents of every kind for which it matters who wrote them, written by two rivals in the same millisecond.

Where it does not matter they are left out: the tasks that two holders of one run put up or withdraw, and the API key
that two people revoke, come to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.kernel import idempotency, leaders, tasks
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.idempotency import Proceed, Reply
from holdfast.kernel.leaders import Holder
from tests.builders import NOW_MS

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


def _wanted(holder: str) -> idempotency.Wanted:
    return idempotency.Wanted(
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


_TASK = tasks.offer(
    None,
    tasks.Place("default", "shop.pay", "t-1"),
    tasks.Task("run-1", "pay:1", 1, "{}"),
    in_doubt=False,
    now_ms=NOW_MS,
)
assert _TASK is not None


def _claimed() -> tuple[Writing, Writing]:
    assert _TASK is not None
    one, other = (
        tasks.claim(_TASK.document, tasks.Claim("w", nonce, LEASE_MS), run_lives=True, now_ms=LATER_MS)
        for nonce in ("n-1", "n-2")
    )
    assert one is not None
    assert other is not None
    return one, other


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
    Rivalry("a task claimed", (_TASK,), _claimed),
    Rivalry("a duty taken", (), _bids),
)

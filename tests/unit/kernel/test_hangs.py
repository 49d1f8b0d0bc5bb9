from __future__ import annotations

import pytest

from holdfast.kernel import hangs
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.hangs import KEPT_MS
from tests.builders import NOW_MS


def told(threads: int, *, last: Document | None = None, now_ms: int = NOW_MS) -> Writing | None:
    return hangs.tell("default", "w-1", threads, last=last, now_ms=now_ms)


def written(threads: int) -> Document:
    writing = told(threads)
    assert writing is not None
    return writing.document


def test_a_worker_whose_threads_are_fine_writes_nothing():
    assert told(0) is None


def test_threads_that_hang_are_told_under_the_name_of_the_workers_lease():
    writing = told(3)
    assert writing is not None
    assert writing.replaces is None
    assert (writing.document.namespace, writing.document.kind, writing.document.id) == ("default", "hangs", "w-1")
    assert writing.document.expires_at_ms == NOW_MS + KEPT_MS
    assert hangs.threads_in(writing.document) == 3


@pytest.mark.parametrize(
    ("before", "now", "later_ms", "becomes"),
    [
        (3, 3, 0, None),
        (3, 4, 0, 4),
        (3, 3, KEPT_MS // 2, None),
        (3, 3, KEPT_MS // 2 + 1, 3),  # so that it does not expire
        (3, 0, 0, 0),
    ],
)
def test_it_is_told_again_when_it_has_changed_or_would_expire(before, now, later_ms, becomes):
    last = written(before)
    writing = told(now, last=last, now_ms=NOW_MS + later_ms)
    assert (None if writing is None else hangs.threads_in(writing.document)) == becomes
    if writing is not None:
        assert writing.replaces == last.version < writing.document.version


def test_when_none_hangs_any_more_what_was_told_expires():
    writing = told(0, last=written(3), now_ms=NOW_MS + 1)
    assert writing is not None
    assert writing.document.expires_at_ms == NOW_MS + 1
    assert told(0, last=writing.document, now_ms=NOW_MS + KEPT_MS * 2) is None

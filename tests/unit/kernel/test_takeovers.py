from __future__ import annotations

import pytest
from msgspec.structs import replace

from holdfast.kernel import takeovers
from holdfast.kernel.documents import Document
from holdfast.kernel.runs import Run
from holdfast.kernel.takeovers import DEADLY_AT, KEPT_MS, POSTPONED_MS, SUSPECT_AT, Execute, Postpone, SetAside
from tests.builders import NOW_MS, running


def taken_over(run: Run, times: int, last: Document | None = None) -> Document:
    """What is stored after so many takeovers without progress."""
    for n in range(times):
        writing = takeovers.count(replace(run, epoch=run.epoch + 2 * n), last, now_ms=NOW_MS + n)
        assert writing is not None
        assert writing.replaces == (None if last is None else last.version)
        last = writing.document
    assert last is not None
    return last


def treat(*runs: Run, told: dict[str, Document], beside: bool = False) -> list[takeovers.Treatment]:
    return takeovers.treat(runs, told, beside_a_suspect=beside, now_ms=NOW_MS)


def claimed(run_id: str = "run-1", *, length: int = 1) -> Run:
    return replace(running(run_id), epoch=20, length=length)


def test_a_takeover_is_counted_beside_the_run_for_a_while():
    document = taken_over(claimed(), 1)
    assert (document.namespace, document.kind, document.id) == ("default", "takeovers", "run-1")
    assert document.expires_at_ms == NOW_MS + KEPT_MS


def test_one_takeover_is_counted_once_whoever_asks_again():
    run = claimed()
    assert takeovers.count(run, taken_over(run, 1), now_ms=NOW_MS + 5) is None


@pytest.mark.parametrize(
    ("times", "beside", "becomes"),
    [
        (0, False, Execute()),
        (1, True, Execute()),
        (SUSPECT_AT, False, Execute(SUSPECT_AT)),
        (SUSPECT_AT, True, Postpone(NOW_MS + POSTPONED_MS)),
        (DEADLY_AT - 1, False, Execute(DEADLY_AT - 1)),
    ],
)
def test_what_a_worker_does_with_a_run_by_its_takeovers(times: int, beside: bool, becomes: takeovers.Treatment):
    run = claimed()
    told = {run.id: taken_over(run, times)} if times else {}
    assert treat(run, told=told, beside=beside) == [becomes]


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("times", [DEADLY_AT, DEADLY_AT + 3])
def test_the_fifth_takeover_without_progress_blocks_and_says_what_happened(times: int, beside: bool):
    run = claimed()
    [treatment] = treat(run, told={run.id: taken_over(run, times)}, beside=beside)
    assert isinstance(treatment, SetAside)
    assert f"{times} workers in a row" in treatment.message
    assert "w-1" in treatment.message
    assert "retry" in treatment.message


def test_a_journal_that_has_grown_clears_a_run_and_its_count_begins_again():
    stuck, grown = claimed(), claimed(length=2)
    document = taken_over(stuck, DEADLY_AT)
    assert treat(grown, told={stuck.id: document}) == [Execute()]
    again = taken_over(replace(grown, epoch=90), 1, document)
    assert treat(grown, told={stuck.id: again}) == [Execute()]
    again = taken_over(replace(grown, epoch=92), SUSPECT_AT - 1, again)
    assert treat(grown, told={stuck.id: again}) == [Execute(SUSPECT_AT)]


def test_of_several_suspects_one_is_executed_and_the_others_come_one_after_the_other():
    suspects = [claimed(f"run-{n}") for n in range(3)]
    told = {run.id: taken_over(run, SUSPECT_AT) for run in suspects}
    assert treat(claimed("fresh"), *suspects, told=told) == [
        Execute(),
        Execute(SUSPECT_AT),
        Postpone(NOW_MS + POSTPONED_MS),
        Postpone(NOW_MS + 2 * POSTPONED_MS),
    ]


@pytest.mark.parametrize(
    ("epoch", "waits", "may_be"), [(1, None, False), (2, None, True), (2, b"[]", False), (1, b"[]", False)]
)
def test_only_of_a_run_that_was_not_let_go_in_order_a_count_is_looked_for(
    epoch: int,
    waits: bytes | None,
    may_be: bool,
):
    assert takeovers.may_be_counted(replace(claimed(), epoch=epoch, waits=waits)) is may_be

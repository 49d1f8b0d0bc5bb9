from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from holdfast.errors import NotAllowedNow, UsageError
from holdfast.kernel import attributes, forks, markers
from holdfast.kernel.changes import Change, HookOpen, KeyFree, KeyHeldBy
from holdfast.kernel.journal import (
    Closed,
    Completed,
    Entry,
    Failed,
    Forked,
    Marked,
    Opened,
    Other,
    Resumed,
    Retried,
    Started,
    Stopped,
    Tagged,
    to_replay,
)
from holdfast.kernel.runs import ENDED, Run, Status
from tests.builders import (
    CANCELLED,
    NOW_MS,
    STARTED,
    a_failure,
    a_run,
    a_value,
    an_intent,
    attempted,
    cancel_asked,
    continued,
    dropped,
    elapsed,
    gave_up,
    joined,
    late,
    performed,
    received,
    spawned,
    undone,
    with_journal,
)

LATER_MS = NOW_MS + 1_000
DONE = Completed(NOW_MS)
FAILED = Failed(NOW_MS, a_failure(step="charge#1"))


def ended(*entries: Entry, **fields: Any) -> tuple[Run, tuple[Entry, ...]]:
    run = replace(a_run(status=Status.COMPLETED, finished_at_ms=NOW_MS, epoch=2), **fields)
    return with_journal(run, *entries)


def forked(source: Run, journal: tuple[Entry, ...], at: str, *, key: str | None = None) -> Change:
    """As the engine puts it together."""
    prefix = forks.prefix(source, journal, at)
    return forks.fork(
        source,
        prefix,
        fork_id="fork-1",
        step=at,
        key=key,
        origin=forks.origin_of(source, journal),
        void=forks.taken_back_later(journal, len(prefix)),
        now_ms=LATER_MS,
    )


def replayed(change: Change) -> dict[str, str]:
    """What the code of the fork gets from its journal: the last word on each step."""
    return {
        getattr(recorded.entry, "step", ""): recorded.entry.what
        for recorded in to_replay(change.entries)
        if not isinstance(recorded.entry, Marked | Tagged) and hasattr(recorded.entry, "step")
    }


# -- what it begins with

JOURNAL = (attempted(), performed(), elapsed(), performed("ship#1"), received(), performed("ship#2"), DONE)


@pytest.mark.parametrize(("at", "length"), [("charge#1", 1), ("sleep#1", 3), ("ship#1", 4), ("ship#2", 6)])
def test_a_fork_begins_with_all_that_was_recorded_before_the_first_record_of_the_step(at, length):
    source, journal = ended(*JOURNAL)
    assert forks.prefix(source, journal, at) == journal[:length]
    change = forked(source, journal, at)
    assert change.entries[1:-1] == journal[1:length]
    assert change.entries[-1] == Forked(LATER_MS, "run-1", "run-1", at)
    assert change.run is not None
    assert change.run.length == length + 1


def test_a_step_that_was_never_recorded_is_named_with_those_that_were():
    with pytest.raises(UsageError, match="no record of step 'pack#1'") as refused:
        forks.prefix(*ended(*JOURNAL), "pack#1")
    assert str(refused.value.hint) == "Its steps: charge#1, sleep#1, ship#1, ship#2."
    with pytest.raises(UsageError, match="no record of step ''"):
        forks.prefix(*ended(*JOURNAL), "")
    with pytest.raises(UsageError) as refused:
        forks.prefix(*ended(DONE), "charge#1")
    assert str(refused.value.hint) == "Its steps: none."


def test_a_run_that_has_continued_as_new_is_not_forked():
    source, journal = with_journal(a_run(status=Status.COMPLETED), continued(), performed(), DONE, first=40)
    with pytest.raises(NotAllowedNow, match="has continued as new"):
        forks.prefix(source, journal, "charge#1")


def test_a_fork_does_not_begin_in_the_undoing_of_a_failed_run():
    source, journal = ended(performed(), Stopped(NOW_MS, error=a_failure()), undone(), DONE)
    with pytest.raises(NotAllowedNow, match="belongs to the undoing"):
        forks.prefix(source, journal, "undo:charge#1")
    assert forks.prefix(source, journal, "charge#1") == journal[:1]


@pytest.mark.parametrize("step", ["ship#1", "undo:charge#1"])
def test_a_fork_does_not_begin_in_a_cancellation(step):
    source, journal = ended(performed(), cancel_asked(), performed("ship#1"), CANCELLED[0], undone(), CANCELLED[1])
    with pytest.raises(NotAllowedNow, match="belongs to the cancellation"):
        forks.prefix(source, journal, step)
    assert len(forks.prefix(source, journal, "charge#1")) == 1


def test_a_fork_does_not_build_on_what_was_undone():
    source, journal = ended(
        performed(), performed("ship#1"), cancel_asked(), CANCELLED[0], undone(), CANCELLED[1], status=Status.CANCELLED
    )
    with pytest.raises(NotAllowedNow, match="would build on what was taken back: performed undo:charge#1"):
        forks.prefix(source, journal, "ship#1")
    assert forks.prefix(source, journal, "charge#1") == journal[:1]  # it is done anew


def test_hooks_that_were_open_are_open_in_the_fork_too():
    def opened(name: str, token: str, holder: Other | None = None) -> Opened:
        return Opened(NOW_MS, f"hook:{name}#1", an_intent(name, kind="hook", key=token), holder)

    entries = (
        *(STARTED, opened("approval", "token-1"), opened("items", "token-2"), performed()),
        *(opened("coins", "token-3", Other("run-9", "shop.other")), Closed(NOW_MS, "close#1", "items")),
        Closed(NOW_MS, "close#2", "never opened"),
    )
    assert forks.open_hooks(entries) == (HookOpen("approval", "token-1"),)
    assert forks.open_hooks(entries[:3]) == (HookOpen("approval", "token-1"), HookOpen("items", "token-2"))


@pytest.mark.parametrize(("key", "beside"), [(None, False), ("order:1", False), ("order:2", True)])
def test_whose_work_the_copied_part_is(key, beside):
    """If the source keeps its key, what was copied is its own work, and not the fork's to undo."""
    last = forked(*ended(performed(), DONE), "charge#1", key=key).entries[-1]
    assert last == Forked(LATER_MS, "run-1", "run-1", "charge#1", beside=beside)


# -- what was taken back in the source


def test_what_was_done_beside_a_failure_is_not_done_again_by_the_fork():
    """Both were under way; one failed, the other one was performed after it, and then the run was retried."""
    source, journal = ended(
        gave_up(), performed("ship#1"), FAILED, Retried(NOW_MS, (1,)), performed(), performed("last#1"), DONE
    )
    assert replayed(forked(source, journal, "last#1")) == {"charge#1": "performed", "ship#1": "performed"}


def test_what_a_later_retry_has_taken_back_is_taken_back_in_the_fork():
    source, journal = ended(
        performed("pack#1"), gave_up(), performed("ship#1"), FAILED, Retried(NOW_MS, (2,)), performed(), DONE
    )
    change = forked(source, journal, "ship#1")
    assert replayed(change) == {"pack#1": "performed"}
    assert change.run is not None
    assert change.run.length == len(change.entries)


def test_an_effect_that_came_late_in_a_cancellation_is_not_called_again_by_the_fork():
    source, journal = ended(
        *(cancel_asked(), dropped(), late(), *CANCELLED, Resumed(NOW_MS, (1, 2, 3, 4, 5))),
        *(performed("ship#1"), performed("last#1"), DONE),
    )
    assert replayed(forked(source, journal, "last#1")) == {"charge#1": "performed", "ship#1": "performed"}


def test_nothing_is_taken_back_twice():
    assert forks.taken_back_later((STARTED, gave_up(), FAILED, Retried(NOW_MS, (1,)), performed()), 4) == ()
    assert forks.taken_back_later((STARTED, gave_up(), FAILED, Retried(NOW_MS, (1,)), performed()), 2) == (1,)


# -- the run itself


def test_a_fork_is_a_run_like_its_source_that_has_not_begun():
    source, journal = ended(
        performed(), DONE, owner=None, queue="gpu", priority=3, version="2", started_at_ms=7, retention_ms=99
    )
    run = forked(source, journal, "charge#1").run
    assert run is not None
    assert (run.id, run.status, run.epoch, run.nonce, run.owner) == ("fork-1", Status.PENDING, 0, "", None)
    assert (run.wake_at_ms, run.created_at_ms, run.finished_at_ms, run.output) == (LATER_MS, LATER_MS, None, None)
    assert (run.workflow, run.queue, run.priority, run.version) == (source.workflow, "gpu", 3, "2")
    assert (run.digest, run.retention_ms, run.input) == (source.digest, 99, STARTED.input)
    assert run.started_at_ms == 7  # the code sees the time that its source saw
    assert run.request_id != source.request_id  # or a repeated start would be answered with the fork


@pytest.mark.parametrize("key", [None, "order:1"])
def test_a_fork_takes_over_the_key_of_a_source_that_has_ended(key):
    source, journal = ended(performed(), DONE)
    change = forked(source, journal, "charge#1", key=key)
    assert change.guard == KeyHeldBy("run-1", source.fence)  # so a retry of the source cannot land beside it
    assert change.run is not None
    assert (change.run.key, change.run.holds_key) == ("order:1", True)


@pytest.mark.parametrize("status", [status for status in Status if status not in ENDED])
def test_a_live_source_keeps_its_key(status):
    source, journal = ended(performed(), status=status, finished_at_ms=None)
    with pytest.raises(NotAllowedNow, match=f"run-1 is {status} and needs its key 'order:1'"):
        forked(source, journal, "charge#1")
    change = forked(source, journal, "charge#1", key="order:1 again")
    assert change.guard == KeyFree()
    assert change.run is not None
    assert (change.run.key, change.run.holds_key) == ("order:1 again", True)


@pytest.mark.parametrize("fields", [{"key": None, "holds_key": False}, {"holds_key": False}])
def test_the_fork_of_a_run_that_has_no_key_any_more_has_none(fields):
    source, journal = ended(performed(), DONE, **fields)
    change = forked(source, journal, "charge#1")
    assert change.guard == KeyFree()
    assert change.run is not None
    assert (change.run.key, change.run.holds_key) == (None, False)


def test_a_key_that_another_run_holds_is_not_to_be_had():
    source = a_run("run-1")
    forks.check_key(source, None, None)
    forks.check_key(source, None, source)  # it has moved meanwhile: try again
    with pytest.raises(NotAllowedNow, match="key 'order:1' belongs to run run-2"):
        forks.check_key(source, None, a_run("run-2"))
    with pytest.raises(NotAllowedNow, match="key 'order:2' belongs to run run-2"):
        forks.check_key(source, "order:2", a_run("run-2"))


def test_a_fork_of_a_fork_goes_back_to_the_first_of_them():
    """Its id seeds chance and the keys of effects in the part that all of them share."""
    source, journal = ended(performed(), Forked(NOW_MS, "run-0", "run-00", "ship#1"), performed("ship#1"), DONE)
    assert forked(source, journal, "ship#1").entries[-1] == Forked(LATER_MS, "run-1", "run-00", "ship#1")
    assert forked(source, journal, "charge#1").entries[-1] == Forked(LATER_MS, "run-1", "run-00", "charge#1")


def test_a_fork_shows_what_its_source_showed_at_that_point():
    first = Started(NOW_MS, a_value(), Raw(attributes.encode({"customer": "c-1", "stage": "new"})))
    tags = [Tagged(NOW_MS, f"set_attributes#{n}", Raw(attributes.encode_changes(c))) for n, c in enumerate(CHANGES)]
    marks = [Marked(NOW_MS + 1, "mark#1", "charged"), Marked(NOW_MS + 2, "mark#2", "shipped")]
    journal = (first, tags[0], marks[0], performed(), tags[1], marks[1], performed("ship#1"), DONE)
    source = a_run(status=Status.COMPLETED, length=len(journal))

    def shown(at: str) -> tuple[dict[str, Any], markers.Reached]:
        run = forked(source, journal, at).run
        assert run is not None
        return attributes.decode(run.attributes), markers.decode(run.markers)

    lineage = {attributes.FORKED_FROM: "run-1"}
    assert shown("set_attributes#0") == ({"customer": "c-1", "stage": "new"} | lineage, ())
    assert shown("charge#1") == ({"customer": "c-1", "stage": "paid"} | lineage, (("charged", NOW_MS + 1),))
    assert shown("ship#1") == (
        {"customer": "c-1", "total": 3} | lineage,
        (("charged", NOW_MS + 1), ("shipped", NOW_MS + 2)),
    )


CHANGES: list[dict[str, Any]] = [{"stage": "paid"}, {"stage": None, "total": 3}]


def test_the_attributes_of_a_fork_outlast_a_replay():
    """The code begins with those of the first entry."""
    source, journal = ended(performed(), DONE)
    first = forked(source, journal, "charge#1").entries[0]
    assert isinstance(first, Started)
    assert first.input == STARTED.input
    assert attributes.decode(bytes(first.attributes)) == {attributes.FORKED_FROM: "run-1"}  # pyright: ignore[reportArgumentType]


def test_the_children_of_the_source_are_not_those_of_the_fork():
    source, journal = ended(spawned(), joined("pay.result#1"), performed("ship#1"), DONE)
    assert forked(source, journal, "ship#1").entries[1] == replace(spawned(), created=False)


def test_every_value_of_the_copied_part_goes_along():
    entries = (
        STARTED,
        *(performed(value=1), joined(value=2), received(value=3), late(value=4)),
        *(replace(joined(), value=None, error=a_failure()), gave_up(), elapsed()),
        *(replace(late(), value=None, run_id="child-1"), continued(value=5)),
    )
    assert forks.values(entries) == [STARTED.input, *(a_value(value) for value in (1, 2, 3, 4, 5))]

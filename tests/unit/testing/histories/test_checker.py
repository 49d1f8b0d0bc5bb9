"""Every rule of the checker by a legal history and an illegal one, which no other rule finds."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from holdfast.kernel import hooks, ids
from holdfast.kernel.journal import (
    TIMED_OUT,
    Attempted,
    Cancelled,
    Completed,
    Dropped,
    Elapsed,
    Failed,
    Failure,
    Forked,
    KeyReleased,
    Performed,
    Received,
    Resumed,
    Retried,
    Spawned,
)
from holdfast.kernel.waits import Wait
from holdfast.testing.histories import checker, files
from holdfast.testing.histories.checker import HISTORY_RULES, check, examine
from holdfast.testing.histories.history import ReceiptSeen
from tests.builders import STARTED, a_failure, a_value, an_intent, continued, joined
from tests.unit.testing.histories.told import LEASE_MS, Told, done

END = Completed(0)
SIGNAL = hooks.signal_id("go", "d1")
OTHER_SIGNAL = hooks.signal_id("go", "d2")
KEY_SIGNAL = hooks.key_signal_id("go", "d1")


def received(id: str = SIGNAL, **fields) -> Received:
    return replace(Received(0, "go", id, a_value()), **fields)


def failed(attempt: int, step: str = "a", *, run: str = "r1", at_ms: int = 0, type: str = "ValueError") -> Attempted:
    return Attempted(at_ms, step, done(step, run=run).intent, attempt, Failure(type, "no"), 0)


def undone(step: str) -> Performed:
    return done(f"undo:{step}", at_ms=90)


def a_plain_run() -> Told:
    """Started, called once, recorded, ended; with all that a simulation sees."""
    told = Told().call("s1").admit().moved("claimed", at=(1, "n1")).back("s1", run="r1", created=True)
    return told.effect(epoch=1).write(done()).write(END, status="completed")


SUCCESSOR = ids.derived_beside("r1", "successor")

LEGAL: dict[str, Told] = {
    "a plain run": a_plain_run().final("r1", done(), END).key("r1"),
    "a plain run without writes": Told(slack_ms=50).start("s1", "r1").effect().final("r1", done(at_ms=30), END),
    "a key is taken over": Told()
    .admit()
    .admit("r2", took_key_from="r1")
    .final("r1", END, holds_key=False)
    .final("r2", END)
    .key("r2"),
    "a key is free again after its run is removed": Told().admit().moved("pruned").admit("r2"),
    "a request is told twice": Told().start("s1", "r1", request="q").start("s2", "r1", request="q").final("r1", END),
    "a run is gone when its retention is over": Told()
    .start("s1", "r1")
    .moved("pruned")
    .final("r2", END, key="k2", workflow="shop.other"),
    "a start that nobody heard of has created a run": Told()
    .call("s1", key="")
    .back("s1", "unknown")
    .final("r1", END, key=""),
    "a child": Told()
    .start("s1", "r1")
    .final("r1", Spawned(0, "c", an_intent("shop.checkout", kind="spawn"), "r2"), END)
    .final("r2", END, key="c"),
    "a run waits": Told()
    .start("s1", "r1")
    .final("r1", status="waiting", waits=(Wait("hook", "go"), Wait("timer", until_ms=10_000))),
    "a run waits for a child": Told()
    .final("r1", status="waiting", waits=(Wait("child", "r2"),))
    .final("r2", status="waiting", key="c"),
    "a run is blocked with mail": Told()
    .start("s1", "r1")
    .signal("o", "r1", "d1")
    .final("r1", status="blocked", unread=1),
    "a cancellation": Told()
    .start("s1", "r1")
    .call("c", "cancel", run="r1")
    .back("c")
    .final("r1", Cancelled(0), status="cancelled"),
    "a cancellation whose end was forgotten": Told()
    .call("s1")
    .admit()
    .back("s1", run="r1", created=True)
    .call("c", "cancel", run="r1")
    .write(Cancelled(0), write="w", status="cancelled")
    .back("c")
    .fault("forgot", lost=("w",), runs=("r1",))
    .final("r1", status="blocked"),
    "a cancellation is taken back": Told()
    .start("s1", "r1")
    .call("c", "cancel", run="r1")
    .back("c")
    .final("r1", Cancelled(0), Resumed(0), status="waiting"),
    "a failed run is retried, and called again": Told()
    .start("s1", "r1")
    .effect(returned=False)
    .effect()
    .final("r1", Failed(0, a_failure()), Retried(35), done(at_ms=60), END),
    "an ended run loses its key": Told().start("s1", "r1").final("r1", END, KeyReleased(0), holds_key=False),
    "a forked run": Told().final("r2", done(run="r1"), Forked(0, "r1", "r1", "b"), END),
    "generations": Told()
    .admit()
    .write(continued(1), replaces_journal=True)
    .write(continued(2), replaces_journal=True)
    .final("r1", continued(2), status="waiting", length=3),
    "a timer": Told(slack_ms=5).start("s1", "r1").final("r1", Elapsed(100, "t", 104), END),
    "a delayed run": Told().start("s1", "r1", delay_ms=50).wait(50).effect().final("r1", done(at_ms=100), END),
    "a repeated call after a kill": Told()
    .began()
    .fault("killed", "h1")
    .effect(host="h2")
    .final("r1", done(at_ms=50), END),
    "a repeated call after an orderly end": Told()
    .began()
    .fault("ended", "h1")
    .effect(host="h2")
    .final("r1", done(at_ms=50), END),
    "a repeated call after a pause": Told()
    .began()
    .fault("paused", "h1")
    .effect(host="h2")
    .final("r1", done(at_ms=50), END),
    "a repeated call after a lapse": Told()
    .began()
    .lease("lapsed", "h1")
    .effect(host="h2")
    .final("r1", done(at_ms=50), END),
    "a repeated call after a lost write": Told()
    .effect()
    .fault("write lost", "h1")
    .effect(host="h2")
    .final("r1", done(at_ms=60), END),
    "a repeated call after a loss of memory": Told()
    .effect()
    .fault("forgot", runs=("r1",))
    .effect(host="h2")
    .final("r1", done(at_ms=60), END),
    "a retried attempt": Told()
    .effect(returned=False)
    .effect(attempt=2)
    .final("r1", failed(1, at_ms=30), done(attempt=2, at_ms=50), END),
    "a late call by a paused host": a_plain_run()
    .fault("paused", "h0")
    .fault("continued", "h0")
    .effect(host="h0", epoch=0),
    "what was forgotten is called again": Told()
    .admit()
    .effect(epoch=1)
    .write(done(), write="w")
    .fault("forgot", lost=("w",), runs=("r1",))
    .moved("claimed", at=(2, "n2"))
    .effect(epoch=2, host="h2")
    .write(done(), at=(2, "n2"), length_before=1),
    "an undo": Told()
    .effect("a")
    .effect("b")
    .effect("undo:b")
    .effect("undo:a")
    .final(
        "r1",
        done("a", at_ms=20),
        done("b", at_ms=40),
        undone("b"),
        undone("a"),
        Cancelled(0),
        status="cancelled",
        receipt=ReceiptSeen("compensated", undone=("r1/a", "r1/b")),
    ),
    "an attempt that failed was forgotten": (
        Told()
        .admit()
        .effect(epoch=1, returned=False)
        .write(failed(1), write="w")
        .effect(epoch=1, attempt=2)
        .fault("forgot", lost=("w",), runs=("r1",))
        .effect(host="h2", epoch=1)
        .write(done(), length_before=1)
    ),
    "steps that the world does not know": (
        Told()
        .effect("")
        .effect("", key="charge:o-1")
        .final("r1", done(key="r1/", at_ms=20), done("b", key="charge:o-1", at_ms=40), END)
    ),
    "an undo of what may have happened": Told().final(
        "r1",
        failed(1, type=TIMED_OUT),
        done("b"),
        Dropped(0, "c", done("c").intent),
        undone("c"),
        undone("b"),
        undone("a"),
        Cancelled(0),
        status="cancelled",
    ),
    "a receipt that knows that it does not know": Told()
    .effect()
    .final("r1", Cancelled(0), status="cancelled", receipt=ReceiptSeen("unknown")),
    "fences": Told()
    .admit()
    .moved("claimed", at=(1, "n1"))
    .write(done())
    .moved("rescued", at=(2, ""))
    .write(END, outcome="refused")
    .moved("claimed", at=(3, "n3"))
    .write(END, at=(3, "n3")),
    "a fence goes back with what was forgotten": Told()
    .admit()
    .moved("claimed", at=(2, "n2"))
    .fault("forgot", runs=("r1",))
    .write(done(), at=(1, "n1")),
    "messages": Told().admit().write(at=None, messages=(SIGNAL,)).delivered("r1", SIGNAL).final("r1", received(), END),
    "a message to a run that has ended": Told()
    .admit()
    .write(at=None, messages=("m1", "m2"))
    .delivered("r1", "m1")
    .final("r1", END),
    "a lane, one after the other": Told()
    .lane("r1")
    .lane("r1", parked=("r2", "r3"))
    .lane("r2", parked=("r3",))
    .lane("r3"),
    "a higher priority goes first": Told()
    .lane("r1")
    .lane("r1", parked=("r2", "r3"), first=("r3",))
    .lane("r3", parked=("r2",), first=("r3",)),
    "a lane becomes narrower": Told()
    .lane("r1", "r2", parked=("r3",), width=2)
    .lane("r1", "r2", parked=("r3",))
    .fault("forgot")
    .lane("r1", "r2", parked=("r3",)),
    "a paused lane": Told().lane(parked=("r1",), paused=True).final("r1", status="pending", lane="x", parked=True),
    "a run of a lane is called, ends and is retried": Told()
    .admit()
    .lane("r1", parked=("r2",))
    .began()
    .write(status="failed")
    .lane("r2")
    .write(status="pending")
    .lane("r2", parked=("r1",))
    .began("b"),
    "a run waits for one that is blocked": Told()
    .final("r1", status="blocked", lane="x")
    .final("r2", status="pending", key="c", lane="x", parked=True),
    "what was forgotten has not ended in its lane": Told()
    .admit()
    .write(END, status="completed")
    .fault("forgot", runs=("r1",))
    .lane("r1"),
    "terms": Told().elected("h1", 1).elected("h2", 2),
    "signals": Told()
    .start("s1", "r1")
    .signal("o1", "r1", "d1")
    .signal("o2", "r1", "d1")
    .signal("o3", "r1", "d3", "refused")
    .final("r1", received(), END),
    "an unknown signal that was received": Told()
    .start("s1", "r1")
    .call("o", "signal", run="r1", hook="go", dedupe="d1")
    .final("r1", received(), END),
    "a signal to a key goes on to the successor": Told()
    .start("s1", "r1", hook="go", dedupe="d1")
    .final("r1", received(KEY_SIGNAL), END, holds_key=False)
    .final(SUCCESSOR, received(KEY_SIGNAL), END),
    "signals in order": Told()
    .start("s1", "r1")
    .signal("o1", "r1", "d1", sender="s", number=1)
    .signal("o2", "r1", "d2", sender="s", number=2)
    .final("r1", received(), received(OTHER_SIGNAL), END),
    "acknowledged when it is kept": Told()
    .admit()
    .call("o", "signal", run="r1", hook="go", dedupe="d1")
    .write(at=None, messages=(SIGNAL,))
    .back("o")
    .call("x", "release", run="r1")
    .write(at=None, took_key_from="r1")
    .back("x"),
}

ILLEGAL: dict[str, Told | list[Told]] = {
    "two_holders": [
        Told().admit().admit("r2"),
        Told().final("r1", END).final("r2", END),
    ],
    "key_astray": [Told().final("r1", END).key("r2"), Told().final("r1", END).key("")],
    "created_twice": Told().start("s1", "r1", key="").start("s2", "r1", key=""),
    "lost": [
        Told().start("s1", "r1").final("r2", END, key="k2", workflow="shop.other"),
        Told().start("s1", "r1").final("r1", joined(run_id="r2"), END),
    ],
    "unasked": [
        Told().start("s1", "r1").final("r1", END).final("r2", END, key="k2"),
        Told().call("s1", key="").back("s1", "unknown").final("r1", END, key="").final("r2", END, key=""),
    ],
    "never_ended": [
        Told().start("s1", "r1").final("r1", status="running", due=True),
        Told().start("s1", "r1").final("r1", status="waiting", waits=(Wait("timer", until_ms=30),)),
        Told().final("r1", status="waiting", waits=(Wait("child", "r2"),)).final("r2", END, key="c"),
    ],
    "cancel_lost": [
        Told().start("s1", "r1").call("c", "cancel", run="r1").back("c").final("r1", status="waiting"),
        Told()
        .start("s1", "r1")
        .start("s2", "r2", replaces="r1")
        .final("r1", status="waiting", holds_key=False)
        .final("r2", END),
    ],
    "other_namespace": [
        Told().start("s1", "r1", key="", namespace="a").final("r1", END, namespace="b", key=""),
        Told().effect(namespace="a").final("r1", done(at_ms=20), END, namespace="b"),
    ],
    "rewritten": [
        a_plain_run().final("r1", replace(done(), value=a_value("other")), END),
        Told().final("r1", END, result="1").call("x", "result", run="r1").back("x", run="r1", result="2"),
    ],
    "unrecorded": Told().admit().write(done("b")).final("r1", status="waiting"),
    "recorded_twice": Told().final("r1", done(), done(), END),
    "timer_twice": Told().final("r1", Elapsed(5, "t", 5), Elapsed(6, "t", 5), END),
    "after_the_end": [
        Told().final("r1", END, Resumed(0), status="waiting"),
        Told().final("r1", END, done(), END),
        Told().final("r1", status="completed"),
    ],
    "called_after_record": [
        a_plain_run().fault("killed", "h1").effect(host="h2", epoch=2),
        # Its fence says that it has read the record, whatever had happened to it before.
        a_plain_run().fault("paused", "h1").effect(epoch=1),
        Told(slack_ms=5).effect().fault("killed", "h1").effect(host="h2").final("r1", done(at_ms=20), END),
    ],
    "attempts_miscounted": [
        Told().final("r1", failed(1), failed(1), END),
        Told().final("r1", failed(1), done(attempt=3), END),
        Told().effect(attempt=2).final("r1", END),
    ],
    "chain_broken": [
        Told().admit().write(continued(2), replaces_journal=True),
        Told().admit().write(STARTED),
        Told().admit().write(replace(continued(1), original=a_value("x")), replaces_journal=True),
    ],
    "undone_for_nothing": [
        Told().final("r1", undone("a"), Cancelled(0), status="cancelled"),
        Told().effect("undo:a").effect("a").final("r1", done(at_ms=40), undone("a"), Cancelled(0), status="cancelled"),
    ],
    "undo_order": Told().final("r1", done("a"), done("b"), undone("a"), undone("b"), Cancelled(0), status="cancelled"),
    "receipt_incomplete": [
        Told().effect().final("r1", Cancelled(0), status="cancelled", receipt=ReceiptSeen("no_effects")),
        Told()
        .effect()
        .call("c", "cancel", run="r1")
        .back("c", receipt=ReceiptSeen("partial"))
        .final("r1", Cancelled(0), status="cancelled"),
    ],
    "receipt_untrue": [
        Told()
        .effect("b")
        .final("r1", Cancelled(0), status="cancelled", receipt=ReceiptSeen("partial", ("r1/a", "r1/b"))),
        Told()
        .effect()
        .final("r1", Cancelled(0), status="cancelled", receipt=ReceiptSeen("compensated", undone=("r1/a",))),
    ],
    "another_key": [
        Told().effect(key="x").fault("killed", "h1").effect(key="y"),
        Told().effect(key="x").final("r1", done(at_ms=20), END),
    ],
    "shared_key": Told().effect("a").effect("b", key="r1/a"),
    "repeated_for_nothing": [
        Told().effect().effect(host="h2").final("r1", done(at_ms=50), END),
        Told().effect().fault("ended", "h1").effect(host="h2").final("r1", done(at_ms=60), END),
        Told()
        .effect()
        .fault("paused", "h1")
        .fault("continued", "h1")
        .wait(2 * LEASE_MS)
        .effect()
        .wait(2 * LEASE_MS)
        .effect()
        .final("r1", done(at_ms=9_000), END),
    ],
    "acknowledged_early": [
        Told().start("s1", "r1").admit(),
        Told().admit().signal("o", "r1", "d1").write(at=None, messages=(SIGNAL,)),
        Told().admit().release("x", "r1").write(at=None, took_key_from="r1"),
        Told().admit().call("c", "cancel", run="r1").back("c").write(Cancelled(0), status="cancelled"),
    ],
    "stale_write_accepted": [
        Told().admit().moved("claimed", at=(2, "n2")).write(done()),
        Told().admit().moved("claimed", at=(1, "other")).write(done()),
        Told().admit().write(at=(2, "n2")).write(done()),
    ],
    "length_not_checked": [
        Told().admit().write(done("a"), length=2, length_before=0),
        Told().admit().write(done("a"), length=5),
    ],
    "signal_lost": [
        Told().start("s1", "r1").signal("o", "r1", "d1").final("r1", END),
        Told().start("s1", "r1", hook="go", dedupe="d1").final("r1", END),
    ],
    "signal_twice": [
        Told().final("r1", received(), received(), END),
        Told().start("s1", "r1").signal("o", "r1", "d1").final("r1", received(), received(), END),
        Told()
        .start("s1", "r1", hook="go", dedupe="d1")
        .final("r1", received(KEY_SIGNAL), END, holds_key=False)
        .final("r2", received(KEY_SIGNAL), END),
    ],
    "signal_refused": Told().start("s1", "r1").signal("o", "r1", "d1", "refused").final("r1", received(), END),
    "signal_order": Told()
    .start("s1", "r1")
    .signal("o1", "r1", "d1", sender="s", number=1)
    .signal("o2", "r1", "d2", sender="s", number=2)
    .final("r1", received(OTHER_SIGNAL), received(), END),
    "lane_width": [
        Told().lane("r1", "r2"),
        Told().lane(parked=("r1",), paused=True).lane("r1", paused=True),
    ],
    "lane_order": [
        Told().lane("r1", parked=("r2", "r3")).lane("r3", parked=("r2",)),
        Told().lane("r1", parked=("r2", "r3"), first=("r3",)).lane("r2", parked=("r3",), first=("r3",)),
        Told().lane("r1", parked=("r2",)).began(run="r2"),
    ],
    "lane_forgotten": [
        Told().lane(parked=("r1",)),
        Told().admit().write(END, status="completed").lane("r1"),
        Told().start("s1", "r1").final("r1", status="pending", lane="x", parked=True),
    ],
    "two_leaders": Told().elected("h1", 2).elected("h2", 2),
    "timer_early": [
        Told().final("r1", Elapsed(5, "t", 6), END),
        Told().start("s1", "r1", delay_ms=50).effect().final("r1", done(at_ms=40), END),
    ],
    "message_lost": Told()
    .admit()
    .write(at=None, messages=("m1", "m2"))
    .delivered("r1", "m1")
    .final("r1", status="waiting"),
    "message_invented": Told().admit().write(at=None, messages=("m1",), outcome="refused").delivered("r1", "m1"),
}
FOUND = [(kind, told) for kind, each in ILLEGAL.items() for told in (each if isinstance(each, list) else [each])]


def kinds(told: Told) -> set[str]:
    return {violation.kind for violation in check(told.records)}


@pytest.mark.parametrize("name", LEGAL)
def test_a_legal_history_has_no_violation(name) -> None:
    assert check(LEGAL[name].records) == ()


@pytest.mark.parametrize(("kind", "told"), FOUND, ids=[kind for kind, _ in FOUND])
def test_an_illegal_history_is_found_by_the_rule_that_it_breaks_and_by_no_other(kind, told) -> None:
    assert kinds(told) == {kind}


@pytest.mark.parametrize("rule", HISTORY_RULES, ids=lambda rule: rule.__name__)
def test_without_a_rule_something_illegal_is_not_found(rule) -> None:
    others = [each for each in HISTORY_RULES if each is not rule]
    found = [{each.kind for each in examine(told.records, rules=others).violations} for _, told in FOUND]
    assert any(kind not in kinds for (kind, _), kinds in zip(FOUND, found, strict=True))


def test_every_kind_of_violation_is_in_the_table_and_has_a_history() -> None:
    table = (checker.__doc__ or "").partition("Rules\n")[0]
    named = set(re.findall(r"[a-z]+(?:_[a-z]+)+", table)) | {"lost", "unasked", "rewritten", "unrecorded"}
    assert named == ILLEGAL.keys() | {"no_legal_order"}


def test_what_is_not_at_rest_long_after_the_last_fault_breaks_another_promise() -> None:
    told = Told(drain_ms=1_000).start("s1", "r1").fault("healed")
    soon, late = told.final("r1", status="running", due=True), Told(drain_ms=1_000).start("s1", "r1").fault("healed")
    assert [each.invariant for each in check(soon.records)] == ["I2"]
    late.wait(2_000).final("r1", status="running", due=True)
    assert [each.invariant for each in check(late.records)] == ["I15"]


def test_a_history_is_the_same_from_a_file(tmp_path) -> None:
    for number, told in enumerate((*LEGAL.values(), *(told for _, told in FOUND))):
        file = tmp_path / f"{number}.jsonl"
        files.write(file, told.records)
        assert files.read(file) == tuple(told.records)


def test_a_line_that_its_writer_could_not_finish_is_left_out(tmp_path) -> None:
    file = tmp_path / "history.jsonl"
    files.write(file, a_plain_run().records)
    whole = file.read_bytes()
    file.write_bytes(whole[:-20])
    assert files.read(file) == tuple(a_plain_run().records[:-1])


def test_a_field_of_a_later_version_is_ignored(tmp_path) -> None:
    file = tmp_path / "history.jsonl"
    file.write_text('{"record":"FinalKey","workflow":"w","key":"k","run":"r","since":4}\n')
    assert [record.key for record in files.read(file)] == ["k"]


def test_nothing_is_wrong_with_nothing() -> None:
    assert check([]) == ()

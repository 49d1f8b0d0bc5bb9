from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, strategies as st

from holdfast.kernel.journal import (
    Blocked,
    Closed,
    Completed,
    Entry,
    Forked,
    Ignored,
    Marked,
    Opened,
    Patched,
    Retried,
    Spawned,
    Stopped,
    Tagged,
    to_replay,
)
from holdfast.kernel.replay import (
    NOTHING_NOTED,
    TIMER,
    Noted,
    TaskLineage,
    contradiction,
    ended_early,
    last_delivery,
    noted,
)
from tests.builders import (
    NOW_MS,
    STARTED,
    a_value,
    an_intent,
    attempted,
    cancel_asked,
    continued,
    dropped,
    elapsed,
    gave_up,
    intended,
    joined,
    late,
    performed,
    received,
)

CHARGE = an_intent()
REFUND = an_intent("shop.refund", key="refund:o-1", digest="d2", line="shop.py:30")
CHILD = an_intent("shop.pay", kind="child")
SPAWN = an_intent("shop.pay", kind="spawn")
JOIN = an_intent("shop.pay", kind="join", key="child-1", digest="", line="")
STOP = an_intent("stop", kind="stop", key="child-1", digest="", line="")
UNDO = an_intent("shop.refund", kind="undo", key="undo:charge:o-1")
HOOK = an_intent("approval", kind="hook", key="token-1")


def test_steps_are_numbered_by_name_and_tasks_by_the_task_that_made_them():
    main = TaskLineage()
    assert [main.step("charge"), main.step("ship"), main.step("charge")] == ["charge#1", "ship#1", "charge#2"]
    first, second = main.child(), main.child()
    grandchild = second.child()
    assert (first.path, second.path, grandchild.path) == ("0", "1", "1.0")
    assert [first.step("charge"), grandchild.step("charge"), grandchild.step("charge")] == [
        "0/charge#1",
        "1.0/charge#1",
        "1.0/charge#2",
    ]
    assert main.step("charge") == "charge#3"


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["child", "charge", "ship"])), max_size=60))
def test_no_two_steps_of_a_run_share_an_id(actions):
    lineages, steps = [TaskLineage()], []
    for which, action in actions:
        lineage = lineages[which % len(lineages)]
        if action == "child":
            lineages.append(lineage.child())
        else:
            steps.append(lineage.step(action))
    assert len(set(steps)) == len(steps)
    assert len({lineage.path for lineage in lineages}) == len(lineages)


@pytest.mark.parametrize(
    ("entry", "asked"),
    [
        (intended(), {"charge#1": CHARGE}),
        (attempted(), {"charge#1": CHARGE}),
        (performed(), {"charge#1": CHARGE}),
        (gave_up(), {"charge#1": CHARGE}),
        (performed(), {"charge#1": an_intent(line="moved.py:99")}),
        (performed("0/charge#1"), {"charge#1": REFUND, "0/charge#1": CHARGE}),
        (elapsed(), {"sleep#1": TIMER}),
        (joined("pay#1"), {"pay#1": CHILD}),
        (joined("pay.result#1"), {"pay.result#1": JOIN}),
        (Spawned(NOW_MS, "pay#1", CHILD, "child-1"), {"pay#1": CHILD}),
        (Spawned(NOW_MS, "pay#1", SPAWN, "child-1"), {"pay#1": SPAWN}),
        (joined("stop:pay#1"), {"stop:pay#1": STOP}),  # a child that is stopped with its parent
        (performed("undo:charge#1", intent=UNDO), {"undo:charge#1": UNDO}),
        (Opened(NOW_MS, "hook:approval#1", HOOK), {"hook:approval#1": HOOK}),
        (received(), {}),  # a hook accepts what arrives before the code reaches it
        (cancel_asked(), {"charge#1": CHARGE}),
        (Stopped(NOW_MS), {}),
        (Completed(NOW_MS), {}),
        (Blocked(NOW_MS, "code", "message"), {"charge#1": CHARGE}),
        (Retried(NOW_MS), {}),
    ],
)
def test_code_that_asks_for_what_is_recorded_is_not_contradicted(entry, asked):
    assert contradiction(entry, 1, asked) is None


@pytest.mark.parametrize(
    ("entry", "asked", "recorded", "code"),
    [
        (
            performed(),
            {},
            "performed charge#1 as entry 4 (effect shop.charge, key 'charge:o-1', input d1, at shop.py:12)",
            "waits for nothing there",
        ),
        (
            performed(),
            {"refund#1": REFUND},
            "performed charge#1 as entry 4",
            "waits for refund#1 (effect shop.refund, key 'refund:o-1', input d2, at shop.py:30)",
        ),
        (performed(), {"charge#1": REFUND}, "effect shop.charge", "asks for effect shop.refund"),
        (performed(), {"charge#1": an_intent(key="charge:o-2")}, "key 'charge:o-1'", "key 'charge:o-2'"),
        (performed(), {"charge#1": an_intent(digest="d2")}, "input d1", "input d2"),
        (performed(), {"charge#1": CHILD}, "effect shop.charge", "asks for child shop.pay"),
        (Spawned(NOW_MS, "pay#1", SPAWN, "child-1"), {"pay#1": CHILD}, "spawn shop.pay", "asks for child shop.pay"),
        (intended(), {"charge#1": REFUND}, "intended charge#1", "shop.refund"),
        (attempted(), {"charge#1": REFUND}, "attempted charge#1", "shop.refund"),
        (gave_up(), {"charge#1": REFUND}, "gave_up charge#1", "shop.refund"),
        (elapsed(), {}, "elapsed sleep#1", "waits for nothing there"),
        (elapsed("charge#1"), {"charge#1": CHARGE}, "elapsed charge#1", "asks for effect shop.charge"),
        (joined("sleep#1"), {"sleep#1": TIMER}, "joined sleep#1", "asks for timer"),
        (joined("pay#1"), {"charge#1": CHARGE}, "joined pay#1", "waits for charge#1"),
        # The value of one child must never reach the code as that of another.
        (joined("pay.result#1", run_id="child-2"), {"pay.result#1": JOIN}, "child-2", "child-1"),
        (joined("charge#1"), {"charge#1": CHARGE}, "joined charge#1", "asks for effect shop.charge"),
        (performed("undo:charge#1", intent=UNDO), {"undo:charge#1": CHARGE}, "undo shop.refund", "asks for effect"),
        (Opened(NOW_MS, "hook:approval#1", HOOK), {}, "opened hook:approval#1", "waits for nothing there"),
        (
            Opened(NOW_MS, "hook:approval#1", HOOK),
            {"hook:approval#1": an_intent("approval", kind="hook", key="token-2")},
            "key 'token-1'",
            "key 'token-2'",
        ),
    ],
)
def test_a_contradiction_names_both_sides(entry, asked, recorded, code):
    """`ReplayDiverged` is worded from this."""
    divergence = contradiction(entry, 4, asked)
    assert divergence is not None
    assert recorded in divergence.recorded
    assert code in divergence.asked
    assert str(divergence) == f"the journal has {divergence.recorded}; the code {divergence.asked}"


def test_of_many_open_steps_a_few_are_named():
    divergence = contradiction(performed(), 1, {f"{number}/charge#1": CHARGE for number in range(20)})
    assert divergence is not None
    assert divergence.asked.count("charge#1") == 5


def test_code_that_ended_before_its_journal_is_told_so():
    divergence = ended_early(performed(), 3)
    assert "performed charge#1 as entry 3" in divergence.recorded
    assert "shop.py:12" in divergence.recorded
    assert divergence.asked == "has already ended there"
    assert "completed" in ended_early(Completed(NOW_MS), 3).recorded


# -- notes


def test_a_journal_without_notes_notes_nothing():
    assert noted((STARTED, performed(), elapsed())) == NOTHING_NOTED


def test_what_is_noted_is_known_by_its_step_its_name_or_its_id():
    journal = (
        STARTED,
        Marked(NOW_MS, "mark#1", "charged"),
        Tagged(NOW_MS, "set_attributes#1", a_value().json),  # pyright: ignore[reportArgumentType]
        Closed(NOW_MS, "0/close#1", "approval"),
        Patched(NOW_MS, "with-tax"),
        Ignored(NOW_MS, "approval", "signal/8/approval/1", "Expected int"),
        dropped(),
    )
    assert noted(journal) == Noted(
        steps=frozenset({"mark#1", "set_attributes#1", "0/close#1"}),
        patches=frozenset({"with-tax"}),
        ignored=frozenset({"signal/8/approval/1"}),
    )


def test_a_fork_keeps_the_chance_and_the_keys_of_its_source():
    """K: effects of the copied part were performed under the keys of the source, and are never performed again."""
    journal = (
        STARTED,
        performed("charge#1", intent=an_intent(key="run-0/charge#1")),
        gave_up("ship#1", intent=an_intent("shop.ship", key="run-0/ship#1")),
        attempted("pack#1", intent=an_intent("shop.pack", key="run-0/pack#1")),
        intended("pay#1", intent=an_intent("shop.pay", key="run-0/pay#1")),
        Forked(NOW_MS, "run-1", "run-0", "last#1"),
    )
    copied = noted(journal)
    assert copied.origin == "run-0"
    assert copied.keys == {step: f"run-0/{step}" for step in ("charge#1", "ship#1", "pack#1", "pay#1")}


def test_of_several_forks_the_last_one_says_where_the_run_comes_from():
    forks = Forked(NOW_MS, "run-0", "run-0", "ship#1"), Forked(NOW_MS, "run-1", "run-0", "last#1")
    assert noted((STARTED, performed(), *forks)).origin == "run-0"
    assert noted((STARTED, performed(), forks[0])).keys == {"charge#1": "charge:o-1"}


@pytest.mark.parametrize(
    ("entries", "last"),
    [
        ((), -1),
        ((performed(),), 0),
        ((performed(), Patched(NOW_MS, "with-tax")), 0),  # a note delivers nothing
        ((performed(), elapsed(), Completed(NOW_MS)), 1),
        ((dropped(), late()), -1),
        ((performed(), received()), 1),
        ((performed(), cancel_asked(), dropped(), Stopped(NOW_MS)), 3),
        ((Opened(NOW_MS, "hook:approval#1", HOOK), Forked(NOW_MS, "run-1", "run-1", "ship#1")), 0),
        # What followed a failure that was retried may never be asked for: it does not hold the code back.
        ((gave_up(), performed("notify#1"), Retried(NOW_MS, (1,))), -1),
    ],
)
def test_the_code_does_for_the_first_time_what_it_does_after_the_last_delivery(entries: tuple[Entry, ...], last: int):
    assert last_delivery(to_replay((STARTED, *entries))) == last


def test_a_later_generation_is_replayed_like_a_first_one():
    journal = (continued(2), performed())
    assert last_delivery(to_replay(journal, first=7)) == 0


# -- default values

PRICED = an_intent(defaults={"price": "100", "currency": "eur"})


@pytest.mark.parametrize("entry", [attempted, intended])
@pytest.mark.parametrize(
    ("defaults", "changed"),
    [
        ({"price": "100", "currency": "eur"}, ""),
        ({"price": "200", "currency": "eur"}, "price"),
        ({"price": "200", "currency": "usd"}, "price, currency"),
        ({"price": "100", "currency": "eur", "added": "1"}, ""),
        ({"price": "100"}, ""),  # one that was removed
        ({}, ""),
    ],
)
def test_a_step_that_has_been_begun_must_be_called_with_the_same_default_values(entry, defaults, changed):
    asked = {"charge#1": an_intent(defaults=defaults)}
    found = contradiction(entry("charge#1", intent=PRICED), 3, asked)
    assert (found is not None) is bool(changed)
    assert not changed or str(found).endswith(f"with another default value of {changed}")
    # Earlier versions recorded nothing about them.
    assert contradiction(entry("charge#1", intent=an_intent()), 3, asked) is None


@pytest.mark.parametrize("entry", [performed, gave_up])
def test_a_step_that_is_not_called_again_keeps_what_came_of_it_though_a_default_has_changed(entry):
    asked = {"charge#1": an_intent(defaults={"price": "200"})}
    assert contradiction(entry("charge#1", intent=PRICED), 3, asked) is None


def test_an_intent_without_defaults_is_written_as_before():
    assert msgspec.json.encode(CHARGE) == msgspec.json.encode(
        {"kind": "effect", "name": CHARGE.name, "key": CHARGE.key, "digest": CHARGE.digest, "line": CHARGE.line}
    )

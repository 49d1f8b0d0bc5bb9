"""The search for a legal order: of moves alone, of what clients are told of a key, and of histories from a model."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from holdfast.kernel import ids
from holdfast.kernel.journal import Cancelled, Completed, Failed, Forked, Resumed, Retried
from holdfast.testing.histories.checker import check, examine
from holdfast.testing.histories.history import OperationCalled, OperationReturned, Record
from holdfast.testing.histories.key_moves import illegal_orders
from holdfast.testing.histories.linearizability import Move, linearize
from holdfast.testing.histories.seen import Seen
from tests.builders import a_failure
from tests.unit.testing.histories.told import WORKFLOW, Told

END = Completed(0)
SUCCESSOR = ids.derived_beside("r1", "successor")

# -- the search


def reads(value: int, began: float, ended: float) -> Move[int]:
    return Move(f"read {value}", began, ended, lambda state: (state,) if state == value else ())


def writes(value: int, began: float, ended: float, *, required: bool = True) -> Move[int]:
    return Move(f"write {value}", began, ended, lambda _: (value,), required)


@pytest.mark.parametrize(
    ("moves", "found"),
    [
        ([], "legal"),
        ([writes(1, 0, 1), reads(1, 2, 3)], "legal"),
        ([writes(1, 0, 1), reads(0, 2, 3)], "illegal"),
        ([writes(1, 0, 5), reads(0, 2, 3)], "legal"),
        ([writes(1, 0, 9), reads(1, 1, 2), reads(0, 3, 4)], "illegal"),
        ([writes(1, 0, inf, required=False), reads(0, 2, 3)], "legal"),
        ([writes(1, 0, inf, required=False), reads(0, 2, 3), reads(1, 8, 9)], "legal"),
        ([writes(1, 0, inf, required=False), reads(1, 2, 3), reads(0, 8, 9)], "illegal"),
        ([writes(1, 4, inf, required=False), reads(1, 2, 3)], "illegal"),
    ],
)
def test_an_order_is_found_if_there_is_one(moves, found) -> None:
    assert linearize(moves, 0).found == found


def test_what_fits_nowhere_is_named() -> None:
    assert linearize([writes(1, 0, 1), reads(0, 2, 3)], 0).stuck == ("read 0",)


def test_a_search_that_takes_too_long_is_undecided_and_no_pass() -> None:
    moves = [*(writes(each, 0, 99) for each in range(1, 13)), reads(0, 100, 101)]
    assert linearize(moves, 0, steps_max=500).found == "undecided"
    told = Told().start("s1", "r1").start("s2", "r1", created=False).start("s3", "r1", created=False)
    assert examine(told.records, steps_max=0).violations == ()
    assert [each.kind for each in examine(told.records, steps_max=0).undecided] == ["undecided"]
    assert not examine(told.records, steps_max=0).has_passed
    assert [each.kind for each in check(told.records, steps_max=0)] == ["undecided"]


# -- keys

LEGAL: dict[str, Told] = {
    "found": Told().start("s1", "r1").start("s2", "r1", created=False).find("f", "r1"),
    "together": Told().call("s1").call("s2").back("s2", run="r1", created=False).back("s1", run="r1", created=True),
    "a request again": Told().start("s1", "r1", request="q").start("s2", "r1", request="q"),
    "a request again, after an unknown one": (
        Told().call("s1", request="q").find("f", "r1").start("s2", "r1", request="q")
    ),
    "another input": Told().start("s1", "r1", input="1").refused("s2", "input_mismatch", "r1", input="2"),
    "in flight": Told().start("s1", "r1").refused("s2", "in_flight", "r1", join=False),
    "ended, and so not in flight": (Told().start("s1", "r1").write(END).start("s2", "r1", created=False, join=False)),
    "replaced": Told().start("s1", "r1").start("s2", "r2", replaces="r1").start("s3", "r2", created=False),
    "replaced, and overtaken": (
        Told().start("s1", "r1").start("s2", "r2", replaces="r1").refused("s3", "overtaken", "r2", replaces="r1")
    ),
    "replaced though it is gone": Told().start("s1", "r1").release("x", "r1").start("s2", "r2", replaces="r1"),
    "released": Told().start("s1", "r1").release("x", "r1").not_found("f").start("s2", "r2"),
    "released by two at once": (
        Told().start("s1", "r1").call("x", "release", run="r1").call("y", "release", run="r1").back("x").back("y")
    ),
    "an unknown release": (
        Told().start("s1", "r1").call("x", "release", run="r1").start("s2", "r1", created=False).start("s3", "r2")
    ),
    "an unknown start that created": Told().call("s1").back("s1", "unknown").not_found("f").find("g", "r1"),
    "an unknown start that did not": Told().call("s1").back("s1", "unknown").start("s2", "r2"),
    "an unknown replacement": Told().start("s1", "r1").call("s2", replaces="r1").find("f", "r1").find("g", "r2"),
    "ended, and found": Told().start("s1", "r1").write(END).start("s2", "r1", created=False),
    "ended, and signalled": Told().start("s1", "r1").write(END).start("s2", "r2", hook="go", dedupe="d"),
    "alive, and signalled": Told().start("s1", "r1").start("s2", "r1", created=False, hook="go", dedupe="d"),
    "signalled again": (
        Told()
        .start("s1", "r1", hook="go", dedupe="d")
        .write(END)
        .start("s2", "r2", hook="go", dedupe="e")
        .start("s3", "r1", created=False, hook="go", dedupe="d")
    ),
    "its own signal received, when it was sent again": (
        Told().call("s1", hook="go", dedupe="d", join=False).admit().back("s1", run="r1", created=False)
    ),
    "its own signal received, when it was sent again in place of one that had ended": (
        Told()
        .start("s1", "r1")
        .write(END)
        .call("s2", hook="go", dedupe="d")
        .admit("r2")
        .back("s2", run="r2", created=False)
        .find("f", "r2")
    ),
    "its retention is over": Told().start("s1", "r1").wait(100).start("s2", "r2").final("r1", END, retention_ms=50),
    "its retention is not over": (
        Told().start("s1", "r1").start("s2", "r1", created=False).final("r1", END, retention_ms=5_000)
    ),
    "removed": Told().start("s1", "r1").write(END).moved("pruned").not_found("f").start("s2", "r2"),
    "gone on": (
        Told().start("s1", "r1").write(Failed(0, a_failure()), Retried(0)).refused("s2", "in_flight", "r1", join=False)
    ),
    "forked": (
        Told()
        .start("s1", "r1")
        .write(END)
        .call("x", "fork", run="r1")
        .back("x", run="r2")
        .find("f", "r2")
        .final("r1", END, holds_key=False)
        .final("r2", END)
    ),
    "forked, as far as is known": (
        Told()
        .start("s1", "r1")
        .write(END)
        .call("x", "fork", run="r1")
        .back("x", "unknown")
        .find("f", "r2")
        .start("s2", "r3", replaces="r2")
        .final("r1", END, holds_key=False)
        .final("r2", Forked(0, "r1", "r1", "b"), END, holds_key=False)
        .final("r3", END)
    ),
    "followed": Told().start("s1", "r1").write(END).admit(SUCCESSOR).find("f", SUCCESSOR),
    "forgotten": (
        Told().call("s1").admit(write="w").find("f", "r1").fault("forgot", lost=("w",)).not_found("g").start("s2", "r2")
    ),
    "created, seen, forgotten, and sent again": (
        Told()
        .start("s1", "r1")
        .call("s2", replaces="r1")
        .admit("r2", write="w")
        .find("f", "r2")
        .fault("forgot", lost=("w",))
        .back("s2", run="r3", created=True)
    ),
    "an end that was forgotten": (
        Told()
        .start("s1", "r1")
        .write(END, write="w")
        .start("s2", "r1", created=False, join=False)
        .fault("forgot", lost=("w",))
        .refused("s3", "in_flight", "r1", join=False)
    ),
    "forgotten, and it is not known what": Told().start("s1", "r1").fault("forgot").not_found("f"),
    "refused for another reason": Told().refused("s1", "too_busy").start("s2", "r1"),
    "a child": Told().admit("c1").find("f", "c1").start("s", "c1", created=False),
}
ILLEGAL: dict[str, Told] = {
    "two created": Told().start("s1", "r1").start("s2", "r2"),
    "two created, together": (
        Told().call("s1").call("s2").back("s2", run="r2", created=True).back("s1", run="r1", created=True)
    ),
    "one seen and another one created, though nothing was forgotten": (
        Told()
        .start("s1", "r1")
        .call("s2", replaces="r1")
        .admit("r2")
        .find("f", "r2")
        .back("s2", run="r3", created=True)
    ),
    "created though it was ended": Told().start("s1", "r1").write(END).start("s2", "r2"),
    "found before it was there": Told().find("f", "r1").start("s1", "r1"),
    "not found": Told().start("s1", "r1").not_found("f"),
    "joined though the input is another": (
        Told().start("s1", "r1", input="1").start("s2", "r1", created=False, input="2")
    ),
    "refused though the input is the same": (
        Told().start("s1", "r1", input="1").refused("s2", "input_mismatch", "r1", input="1")
    ),
    "refused though the key is free": Told().refused("s1", "input_mismatch", input="2"),
    "in flight though it has ended": Told().start("s1", "r1").write(END).refused("s2", "in_flight", "r1", join=False),
    "joined though it should not": Told().start("s1", "r1").start("s2", "r1", created=False, join=False),
    "joined with a signal though it should not": (
        Told().start("s1", "r1").start("s2", "r1", created=False, join=False, hook="go", dedupe="d")
    ),
    "replaced by two": Told().start("s1", "r1").start("s2", "r2", replaces="r1").start("s3", "r3", replaces="r1"),
    "overtaken by none": Told().start("s1", "r1").refused("s2", "overtaken", "r1", replaces="r1"),
    "found after it was replaced": Told().start("s1", "r1").start("s2", "r2", replaces="r1").find("f", "r1"),
    "released, and found": Told().start("s1", "r1").release("x", "r1").find("f", "r1"),
    "released twice": Told().start("s1", "r1").release("x", "r1").release("y", "r1"),
    "an unknown start that created, and was forgotten": (
        Told().call("s1").back("s1", "unknown").find("f", "r1").not_found("g")
    ),
    "an unknown release that is taken back": (
        Told().start("s1", "r1").call("x", "release", run="r1").not_found("f").find("g", "r1")
    ),
    "forgotten is another": (
        Told().start("s1", "r1").admit("r2", key="k2", write="w").fault("forgot", lost=("w",)).not_found("f")
    ),
    "signalled, and began another": Told().start("s1", "r1").start("s2", "r2", hook="go", dedupe="d"),
    "signalled though it has ended": (
        Told().start("s1", "r1").write(END).start("s2", "r1", created=False, hook="go", dedupe="d")
    ),
    "its retention is not over": Told().start("s1", "r1").start("s2", "r2").final("r1", END, retention_ms=5_000),
    "its retention is long over": (
        Told().start("s1", "r1").write(END).wait(100).start("s2", "r1", created=False).final("r1", END, retention_ms=50)
    ),
    "gone on without its key": (
        Told().start("s1", "r1").write(Cancelled(0)).start("s2", "r2", replaces="r1").write(Resumed(0))
    ),
    "forked while it lived": (
        Told().start("s1", "r1").call("x", "fork", run="r1").back("x", run="r2")
        .final("r1", Completed(9_000), holds_key=False).final("r2", END)
    ),
    "forked while it lived, as far as is known": (
        Told().start("s1", "r1").call("x", "fork", run="r1").back("x", "unknown").find("f", "r2")
        .final("r1", Completed(9_000), holds_key=False).final("r2", Forked(0, "r1", "r1", "b"), END)
    ),
    "followed by one that was not before": Told().start("s1", "r1").write(END).find("f", SUCCESSOR).admit(SUCCESSOR),
}  # fmt: skip


def orders(history: list[Record]) -> list[str]:
    return [violation.kind for violation in illegal_orders(Seen(history))]


@pytest.mark.parametrize("name", LEGAL)
def test_a_legal_order_is_found(name) -> None:
    assert orders(LEGAL[name].records) == []


@pytest.mark.parametrize("name", ILLEGAL)
def test_there_is_no_legal_order(name) -> None:
    assert orders(ILLEGAL[name].records) == ["no_legal_order"]


def test_keys_are_apart() -> None:
    told = Told().start("s1", "r1").start("s2", "r2", key="k2").start("s3", "r3", namespace="other")
    assert orders(told.records) == []


# -- histories from a model

VERBS = ("start", "start", "find", "replace", "release", "end")


class Model:
    """A key that is used by one client after the other: what each is told is right by construction."""

    def __init__(self) -> None:
        self.holder = self.former = ""
        self.has_ended = False
        self.runs: list[str] = []
        self.said: list[tuple[OperationCalled | None, OperationReturned | str]] = []

    def do(self, verb: str) -> None:
        op, run = f"op-{len(self.said)}", self.holder
        about = {"op": op, "client": op, "workflow": WORKFLOW, "key": "k"}
        match verb:
            case "start":
                created = not run
                run = self._admit() if created else run
                told = OperationReturned(op=op, outcome="ok", run=run, created=created)
                self.said.append((OperationCalled(verb="start", **about), told))
            case "find":
                told = OperationReturned(op=op, outcome="ok", run=run)
                missing = OperationReturned(op=op, outcome="refused", error="unknown_run")
                self.said.append((OperationCalled(verb="find", **about), told if run else missing))
            case "replace" if run:
                self.former = run
                told = OperationReturned(op=op, outcome="ok", run=self._admit(), created=True)
                self.said.append((OperationCalled(verb="start", replaces=run, **about), told))
            case "release" if run:
                self.holder = ""
                called = OperationCalled(op=op, client=op, verb="release", run=run)
                self.said.append((called, OperationReturned(op=op, outcome="ok", run=run)))
            case "end" if run and not self.has_ended:
                self.has_ended = True
                self.said.append((None, run))
            case _:
                pass

    def _admit(self) -> str:
        self.holder, self.has_ended = f"r{len(self.runs)}", False
        self.runs.append(self.holder)
        return self.holder


def history_of(model: Model, spans: list[tuple[int, int]], unheard: set[int]) -> list[Record]:
    """What was said, each somewhere in its span; of some, no client ever hears."""
    instants: list[tuple[float, Told]] = []
    for at, (called, told) in enumerate(model.said):
        before, behind = spans[at]
        if called is None:
            instants.append((at * 10, Told().write(END, run=str(told))))
            continue
        assert isinstance(told, OperationReturned)
        instants.append((at * 10 - before, Told().add(called)))
        if at not in unheard:
            instants.append((at * 10 + behind, Told().add(told)))
    ordered = sorted(instants, key=lambda each: each[0])
    ordered += [(inf, Told().final(run, holds_key=False, journal=())) for run in model.runs]
    return [replace(told.records[-1], at_ms=at) for at, (_, told) in enumerate(ordered)]


@st.composite
def models(draw: st.DrawFn) -> tuple[Model, list[tuple[int, int]], set[int]]:
    model = Model()
    for verb in draw(st.lists(st.sampled_from(VERBS), min_size=1, max_size=12)):
        model.do(verb)
    reach = st.tuples(st.integers(1, 35), st.integers(1, 35))
    spans = draw(st.lists(reach, min_size=len(model.said), max_size=len(model.said)))
    return model, spans, draw(st.sets(st.integers(0, len(model.said)), max_size=3))


@given(models())
def test_what_a_model_says_has_a_legal_order_however_late_it_is_heard(drawn) -> None:
    assert orders(history_of(*drawn)) == []


@given(models(), st.data())
def test_a_second_holder_is_found(drawn, data) -> None:
    model, _, _ = drawn
    joined = [
        at for at, (_, told) in enumerate(model.said) if isinstance(told, OperationReturned) and told.created is False
    ]
    if not joined:
        return
    at = data.draw(st.sampled_from(joined))
    called, told = model.said[at]
    assert isinstance(told, OperationReturned)
    model.said[at] = (called, replace(told, run="another", created=True))
    in_turn = [(1, 1)] * len(model.said)
    assert orders(history_of(model, in_turn, set())) == ["no_legal_order"]

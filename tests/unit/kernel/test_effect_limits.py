"""Limits at effects: who gets how many slots, and how the rate is spent."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.errors import UsageError
from holdfast.kernel import effect_limits
from holdfast.kernel.effect_limits import (
    NONE,
    Grant,
    Limit,
    LimitSlots,
    Share,
    Wish,
    decide,
    fair_share,
    portion_of,
    slots_in,
    status,
    writing,
)
from holdfast.kernel.rates import Rate
from holdfast.kernel.times import Instant

NOW = Instant(1_000_000)
WIDE = Limit("stripe", width=10)


def settle(
    slots: LimitSlots, wish: Wish, *, alive: set[str] | None = None, limit: Limit = WIDE, at: int = NOW
) -> Grant:
    return decide(limit, slots, wish, alive={"a", "b", "c"} if alive is None else alive, now_ms=Instant(at))


def held(slots: LimitSlots) -> dict[str, int]:
    return {owner: share.slots for owner, share in slots.shares.items()}


def test_a_replica_takes_what_it_wants_and_what_is_free() -> None:
    first = settle(NONE, Wish("a", wants=7)).slots
    assert held(first) == {"a": 7}
    assert held(settle(first, Wish("b", wants=2)).slots) == {"a": 7, "b": 2}
    assert held(settle(first, Wish("b", wants=9)).slots) == {"a": 7, "b": 3}


def test_one_that_holds_more_than_its_share_gives_back_what_it_does_not_use() -> None:
    taken = settle(NONE, Wish("a", wants=10)).slots
    wanted = settle(taken, Wish("b", wants=10)).slots
    assert held(wanted) == {"a": 10, "b": 0}
    assert held(settle(wanted, Wish("a", wants=10, in_use=8)).slots) == {"a": 8, "b": 0}
    given_back = settle(wanted, Wish("a", wants=10, in_use=2)).slots
    assert held(given_back) == {"a": 5, "b": 0}
    assert held(settle(given_back, Wish("b", wants=10)).slots) == {"a": 5, "b": 5}


def test_the_slots_of_the_dead_are_free() -> None:
    slots = settle(NONE, Wish("a", wants=7)).slots
    assert held(settle(slots, Wish("b", wants=10), alive={"a", "b"}).slots) == {"a": 7, "b": 3}
    assert held(settle(slots, Wish("b", wants=10), alive={"b"}).slots) == {"b": 10}


def test_one_that_wants_nothing_any_more_is_forgotten() -> None:
    slots = settle(NONE, Wish("a", wants=7)).slots
    assert held(settle(slots, Wish("a")).slots) == {}
    assert held(settle(slots, Wish("a", in_use=2)).slots) == {"a": 2}


def test_a_limit_that_was_narrowed_is_filled_no_further() -> None:
    slots = settle(NONE, Wish("a", wants=7)).slots
    narrow = Limit("stripe", width=5)
    assert held(settle(slots, Wish("b", wants=3), limit=narrow).slots) == {"a": 7, "b": 0}
    assert held(settle(slots, Wish("a", wants=7, in_use=6), limit=narrow).slots) == {"a": 6}


@pytest.mark.parametrize(
    ("wants", "shares"),
    [
        ({"a": 3}, {"a": 3}),
        ({"a": 30}, {"a": 10}),
        ({"a": 0, "b": 4}, {"a": 0, "b": 4}),
        ({"a": 1, "b": 30, "c": 30}, {"a": 1, "b": 5, "c": 4}),
        ({"a": 30, "b": 30, "c": 30}, {"a": 4, "b": 3, "c": 3}),
        ({"a": 2, "b": 4, "c": 30}, {"a": 2, "b": 4, "c": 4}),
    ],
)
def test_what_is_fair(wants: dict[str, int], shares: dict[str, int]) -> None:
    known = {owner: Share(wants=many) for owner, many in wants.items()}
    assert {owner: fair_share(10, known, owner) for owner in known} == shares
    assert fair_share(10, known, "stranger") == 0


def test_what_cannot_be_divided_goes_to_the_one_that_has_waited_longest() -> None:
    shares = {"a": Share(slots=1, wants=9, turn=3), "b": Share(wants=9, turn=2), "c": Share(wants=9, turn=1)}
    assert [fair_share(1, shares, owner) for owner in "abc"] == [0, 0, 1]


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 50)), st.integers(1, 60))
def test_fair_shares_fill_the_width_and_no_more(wants: dict[str, int], width: int) -> None:
    known = {owner: Share(wants=many, turn=turn) for turn, (owner, many) in enumerate(wants.items())}
    fair = {owner: fair_share(width, known, owner) for owner in known}
    assert sum(fair.values()) == min(width, sum(wants.values()))
    assert all(fair[owner] <= wants[owner] for owner in known)
    short = [fair[owner] for owner in known if fair[owner] < wants[owner]]
    assert not short or max(fair.values()) - min(short) <= 1


def test_the_rate_is_spent_by_portions() -> None:
    limit = Limit("stripe", rate=Rate(90, per="1s"))
    first = settle(NONE, Wish("a", calls=30), limit=limit)
    assert (first.calls, first.slots.shares) == (9, {})
    second = settle(first.slots, Wish("b", calls=30), limit=limit)
    assert (second.calls, 0 < second.retry_ms <= 12) == (0, True)
    third = settle(first.slots, Wish("b", calls=3), limit=limit, at=NOW + 50)
    assert third.calls == 3
    assert settle(first.slots, Wish("b", calls=9), limit=limit, at=NOW + 50).calls == 4
    assert settle(NONE, Wish("a"), limit=limit).calls == 0


@pytest.mark.parametrize(
    ("rate", "portion"),
    [(Rate(90, per="1s"), 9), (Rate(5, per="1s"), 1), (Rate(1, per="1h"), 1), (Rate(50, per="5ms"), 1000)],
)
def test_how_large_a_portion_is(rate: Rate, portion: int) -> None:
    assert portion_of(rate) == portion


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40)), max_size=60))
def test_no_window_sees_more_than_the_rate_and_a_portion(asked: list[tuple[int, int]]) -> None:
    limit, slots, now, begun = Limit("stripe", rate=Rate(90, per="1s")), NONE, int(NOW), list[tuple[int, int]]()
    for pause, calls in asked:
        now += pause
        grant = settle(slots, Wish("a", calls=calls), limit=limit, at=now)
        slots = grant.slots
        begun.append((now, grant.calls))
    for n, (start, _) in enumerate(begun):
        for end, _ in begun[n:]:
            within = sum(calls for at, calls in begun if start <= at <= end)
            assert within <= 0.09 * (end - start) + 9 + 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {},
        {"width": 0},
        {"width": True},
        {"width": 1.5},
        {"width": 1_000_001},
        {"rate": 90},
        {"rate": Rate(1, per="1s", by="{tenant}")},
        {"rate": Rate(1, per="1s", cost="items")},
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Limit(**{"name": "stripe"} | wrong)  # pyright: ignore[reportArgumentType]


def test_it_is_kept_in_a_document_and_shown() -> None:
    assert slots_in(None) == NONE
    slots = settle(NONE, Wish("host-1-ab.nonce", wants=7), alive=set()).slots
    first = writing("default", "stripe", None, slots, now_ms=NOW)
    assert slots_in(first.document) == slots
    assert writing("default", "stripe", first.document, NONE, now_ms=NOW).replaces == first.document.version
    shown = status("stripe", slots)
    assert (shown.taken, shown.width, shown.shares) == (7, 10, (effect_limits.LimitShare("host-1-ab", 7, 7),))


class Sharing(RuleBasedStateMachine):
    """Replicas that take and give back slots, call, and die. Each goes by the document it has written last."""

    def __init__(self) -> None:
        super().__init__()
        self.slots = NONE
        self.alive = {"a", "b", "c"}
        self.in_use = dict.fromkeys("abc", 0)

    def held(self, owner: str) -> int:
        return self.slots.shares.get(owner, Share()).slots

    @rule(owner=st.sampled_from("abc"), wants=st.integers(0, 20))
    def one_settles(self, owner: str, wants: int) -> None:
        if owner in self.alive:
            wish = Wish(owner, min(10, max(wants, self.in_use[owner])), self.in_use[owner])
            self.slots = settle(self.slots, wish, alive=self.alive).slots

    @rule(owner=st.sampled_from("abc"))
    def a_call_begins(self, owner: str) -> None:
        if owner in self.alive and self.in_use[owner] < self.held(owner):
            self.in_use[owner] += 1

    @rule(owner=st.sampled_from("abc"))
    def a_call_ends(self, owner: str) -> None:
        self.in_use[owner] = max(0, self.in_use[owner] - 1)

    @precondition(lambda self: len(self.alive) > 1)
    @rule(owner=st.sampled_from("abc"))
    def one_dies(self, owner: str) -> None:
        self.alive.discard(owner)
        self.in_use[owner] = 0

    @invariant()
    def no_more_calls_than_the_width_are_under_way(self) -> None:
        assert sum(self.in_use.values()) <= 10
        assert sum(share.slots for owner, share in self.slots.shares.items() if owner in self.alive) <= 10
        assert all(many <= self.held(owner) for owner, many in self.in_use.items() if many)


TestSharing = Sharing.TestCase

"""Those that have much to do take turns with those that have little."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, strategies as st

from holdfast.errors import UsageError
from holdfast.kernel import fairness

NAMES = frozenset({"tenant", "n"})


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (7, "is not a template"),
        ("", "is not a template"),
        ("tenants", "names no parameter"),
        ("{shop}", "names 'shop', which is not a parameter"),
    ],
)
def test_what_is_wrong_with_a_declaration(template: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fairness.declared(template, parameters=NAMES, owner="workflow 'shop.sync'")


def test_a_declaration_gives_the_share() -> None:
    template = fairness.declared("{tenant}", parameters=NAMES, owner="workflow 'shop.sync'")
    assert template.fill({"tenant": "a", "n": 1}) == "a"


@pytest.mark.parametrize(
    ("reached", "next_tag", "tag", "after"), [(0, 0, 0, 1), (5, 0, 5, 6), (5, 5, 5, 6), (5, 9, 9, 10)]
)
def test_the_tag_of_the_next_run(reached: int, next_tag: int, tag: int, after: int) -> None:
    assert fairness.enter(reached=reached, next_tag=next_tag) == (tag, after)


def test_what_need_not_be_known() -> None:
    assert fairness.forgotten_up_to(5, is_empty=False) == 5
    assert fairness.forgotten_up_to(5, is_empty=True) is None


def test_places_are_given_by_time_and_taken_by_turn() -> None:
    ready = [("a", 3), ("n", None), ("b", 1), ("c", 2), ("m", None)]
    assert fairness.by_turn(ready, ["b", "c", "a", "z"]) == ["b", "n", "c", "a", "m"]
    assert fairness.by_turn([("n", None)], []) == ["n"]


class Queue:
    """A line, as a store keeps it."""

    def __init__(self) -> None:
        self.reached = 0
        self.next_tags: dict[str, int] = {}
        self.waiting: list[tuple[int, int, str]] = []
        self.count = 0

    def start(self, share: str) -> None:
        tag, self.next_tags[share] = fairness.enter(reached=self.reached, next_tag=self.next_tags.get(share, 0))
        self.count += 1
        heapq.heappush(self.waiting, (tag, self.count, share))

    def claims(self, count: int) -> Iterator[str]:
        for _ in range(min(count, len(self.waiting))):
            tag, _, share = heapq.heappop(self.waiting)
            self.reached = max(self.reached, tag)
            yield share


def positions(shares: list[str], of: str) -> list[int]:
    return [at for at, share in enumerate(shares, 1) if share == of]


def test_one_with_very_much_to_do_keeps_the_others_from_nothing() -> None:
    small = [f"s{n}" for n in range(99)]

    def p99(large: int) -> int:
        queue = Queue()
        for _ in range(large):
            queue.start("large")
        for _ in range(10):
            for share in small:
                queue.start(share)
        order = list(queue.claims(2000))
        found = sorted(at for at, share in enumerate(order, 1) if share != "large")
        return found[int(len(found) * 0.99)]

    assert p99(100_000) <= 2 * p99(0)


@pytest.mark.parametrize("seed", range(5))
def test_shares_with_unequal_load_get_equally_much(seed: int) -> None:
    chance, queue = random.Random(seed), Queue()
    shares = [f"t{n}" for n in range(100)]
    served = dict.fromkeys(shares, 0)
    for n, share in enumerate(shares):
        for _ in range(60 + 20 * n):  # all have more than they get
            queue.start(share)
    for _ in range(50):
        for share in queue.claims(chance.randrange(20, 160)):
            served[share] += 1
            if chance.random() < 0.5:
                queue.start(share)
        if sum(served.values()) > 5000:
            break
    counts = list(served.values())
    jain = sum(counts) ** 2 / (len(counts) * sum(count**2 for count in counts))
    assert jain >= 0.95


@given(st.lists(st.one_of(st.sampled_from("abc"), st.integers(1, 3)), max_size=80))
def test_none_waits_for_more_than_one_run_of_each_other(steps: list[str | int]) -> None:
    """Whatever came before: when a share that has nothing waiting starts a run, it goes after one of each at most."""
    queue = Queue()
    for step in steps:
        if isinstance(step, str):
            queue.start(step)
        else:
            list(queue.claims(step))
    queue.start("new")
    order = list(queue.claims(1000))
    before = order[: order.index("new")]
    assert all(before.count(share) <= 2 for share in "abc")
    tags_behind = [share for share in order if share != "new"]
    assert len(before) <= len(tags_behind)

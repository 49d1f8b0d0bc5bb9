"""Many starts under one key become one run, with the arguments of the newest."""

from __future__ import annotations

import pytest
from msgspec import UNSET, Raw
from msgspec.structs import replace

from holdfast.errors import UsageError
from holdfast.kernel import debounces
from holdfast.kernel.changes import KeyFree, KeyHeldBy, NotBegun
from holdfast.kernel.debounces import Debounce, Debouncing, Newest
from holdfast.kernel.journal import Started, Value
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.starts import Again, Mine, Overtook, Renew, admission, resolve
from tests.builders import NOW_MS, a_run, wanted

QUIET = Debouncing(5000, 60_000)
VALUE = Value(Raw(b'{"n":2}'))


@pytest.mark.parametrize(
    ("quiet", "at_most", "message"),
    [("0s", None, "waits for nothing"), ("5s", "4s", "ends before"), ("soon", None, "is not a duration")],
)
def test_what_is_wrong_with_a_debounce(quiet: str, at_most: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Debounce(quiet, at_most=at_most)


@pytest.mark.parametrize(
    ("debounce", "has_key", "message"), [("5s", True, "is no Debounce"), (Debounce("5s"), False, "no key")]
)
def test_what_is_wrong_with_a_declaration(debounce: object, *, has_key: bool, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        debounces.declared(debounce, has_key=has_key, owner="workflow 'shop.reindex'")


def test_a_declaration_in_milliseconds() -> None:
    declared = debounces.declared(Debounce("5s", at_most="1m"), has_key=True, owner="w")
    assert declared == QUIET
    assert debounces.declared(Debounce("5s"), has_key=True, owner="w") == Debouncing(5000, None)


def renewed(holder: Run, *, debouncing: Debouncing = QUIET, now_ms: int = NOW_MS, attributes: bytes = b"") -> Run:
    change = debounces.renew(holder, debouncing, Newest("s-2", "digest", "2", VALUE, (), attributes), now_ms=now_ms)
    assert change.guard == NotBegun(holder.fence)
    [first] = change.entries
    assert first == Started(now_ms, VALUE, Raw(attributes) if attributes else UNSET)
    assert change.run is not None
    assert change.run.change_id == change.id
    return change.run


@pytest.mark.parametrize(
    ("late_ms", "wake_ms", "debouncing", "expected_ms"),
    [
        (1000, 5000, QUIET, 6000),
        (58_000, 60_000, QUIET, 60_000),
        (90_000, 60_000, QUIET, 60_000),
        (58_000, 60_000, Debouncing(5000, None), 63_000),
        (1000, 7777, QUIET, 7777),  # as its throttle says
        (1000, None, QUIET, 6000),  # it is parked
    ],
)
def test_it_is_put_off(late_ms: int, wake_ms: int | None, debouncing: Debouncing, expected_ms: int) -> None:
    holder = a_run(wake_at_ms=None if wake_ms is None else NOW_MS + wake_ms)
    assert renewed(holder, debouncing=debouncing, now_ms=NOW_MS + late_ms).wake_at_ms == NOW_MS + expected_ms


def test_it_has_all_that_the_newest_start_brings() -> None:
    holder = a_run()
    after = renewed(holder, attributes=b'{"a":1}')
    assert (after.digest, after.version, after.input, after.nonce) == ("digest", "2", VALUE, "s-2")
    assert after.attributes == b'{"a":1}'
    assert (after.id, after.epoch, after.length, after.request_id) == (holder.id, 0, 1, holder.request_id)
    assert renewed(holder).attributes == b""


def a_start(**fields: object) -> object:
    return wanted("run-2", input={"n": 2}, debounce=QUIET, **fields)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("holder", "expected"),
    [
        (a_run(), Renew),
        (a_run(status=Status.RUNNING, epoch=1), Again),
        (a_run(status=Status.WAITING, epoch=1), Again),
        (a_run(epoch=2), Again),  # it has begun, and was given back
        (a_run(status=Status.COMPLETED, finished_at_ms=NOW_MS, expires_at_ms=NOW_MS + 1), Again),
        (a_run(status=Status.FAILED, finished_at_ms=NOW_MS, expires_at_ms=NOW_MS - 1), Again),
    ],
)
def test_what_a_start_does_with_the_holder(holder: Run, expected: type) -> None:
    wish = wanted("run-2", input={"n": 2}, debounce=QUIET)
    resolution = resolve(wish, holder, now_ms=NOW_MS)
    assert isinstance(resolution, expected)
    if isinstance(resolution, Again):
        assert isinstance(resolution.guard, KeyHeldBy)
        assert resolution.guard.run_id == holder.id


def test_the_same_start_again_is_the_one_that_made_the_run() -> None:
    wish = wanted("run-1", debounce=QUIET)
    holder = replace(a_run(), digest=wish.digest, request_id=wish.request_id)
    assert resolve(wish, holder, now_ms=NOW_MS) == Mine(holder)
    assert resolve(wish, None, now_ms=NOW_MS) == Again(KeyFree())


def test_replacing_goes_before() -> None:
    wish = wanted("run-2", debounce=QUIET, replaces="run-7")
    assert isinstance(resolve(wish, a_run(), now_ms=NOW_MS), Overtook)


def test_the_run_says_why_it_waits() -> None:
    run = admission(wanted("run-1", debounce=QUIET, delay_ms=5000), now_ms=NOW_MS, hand=None).run
    assert run is not None
    assert run.waits == debounces.WAITS


def test_each_key_has_a_lane_of_its_own() -> None:
    assert debounces.entering("w", "a") != debounces.entering("w", "b")
    assert debounces.entering("w", "a").width == 1


@pytest.mark.parametrize(
    ("lane", "key"),
    [
        (debounces.entering("shop.reindex", "d:1/2").lane, ("shop.reindex", "d:1/2")),
        ("debounce/x", None),
        ("debounce//x", None),
        ("account:7", None),
        ("a/b", None),
    ],
)
def test_the_key_of_a_lane(lane: str, key: object) -> None:
    assert debounces.key_of_lane(lane) == key

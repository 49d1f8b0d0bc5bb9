"""Retries: only around effects, counted by their records, timed by the store's clock (E4, E10, E11, C9)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from holdfast import (
    NotPerformed,
    Pack,
    Permanent,
    Retry,
    RetryAfter,
    RunFailed,
    TimedOut,
    UsageError,
    attempt,
    effect_key,
    heartbeat,
    sleep,
)
from holdfast.adapters.machine import SystemClock
from holdfast.events import EffectBegan, EffectGaveUp, EffectWillRetry, LeaseWasLost, RunLetGo, RunsRescued
from holdfast.kernel.journal import Attempted, Elapsed, GaveUp
from tests.integration.conftest import Home, eventually, heard, worker_of
from tests.integration.wrappers import SeverableStore

HOUR_MS = 3_600_000


class Refused(Exception):
    """The world says no."""


class TooBusy(Exception):
    """The world says not now."""


def _flaky(pack: Pack, errors: list[Exception], **options: Any) -> tuple[Any, list[int]]:
    """A workflow around one effect that raises these errors and then returns, and the attempts that were made."""
    attempts: list[int] = []

    @pack.effect(**options)
    async def flaky() -> str:
        attempts.append(attempt())
        if len(attempts) <= len(errors):
            raise errors[len(attempts) - 1]
        return f"after {len(attempts)}"

    @pack.workflow
    async def work() -> str:
        return await flaky()

    return work, attempts


# -- E4


@pytest.mark.parametrize("kind", ["workflow", "kernel"])
def test_a_retry_anywhere_but_on_an_effect_is_refused_at_import_with_the_reason(kind: str) -> None:
    """E4."""
    decorator: Any = getattr(Pack("p"), kind)
    with pytest.raises(UsageError) as caught:
        decorator(retry=Retry(attempts=2))
    assert "effect" in caught.value.hint
    assert kind in caught.value.message


# -- which failures are repeated, and how often


async def test_three_attempts_are_made_by_default(home: Home) -> None:
    pack = Pack("p")
    work, attempts = _flaky(pack, [OSError("1"), OSError("2"), OSError("3")])
    pack = pack.with_policy("flaky", retry=Retry(base=0))
    async with home.holdfast(pack) as hf:
        seen = heard(hf)
        run = (await hf.start(work())).run
        with pytest.raises(RunFailed) as caught:
            await run.result(timeout=30)
        assert isinstance(caught.value.__cause__, OSError)
        assert str(caught.value.__cause__) == "3"
        words = [entry.what for entry in await run.journal()]
        assert len(seen.all(EffectWillRetry)) == 2
        assert len(seen.all(EffectGaveUp)) == 1
    assert attempts == [1, 2, 3]
    assert words == ["started", "attempted", "attempted", "gave_up", "failed"]


@pytest.mark.parametrize(
    ("error", "options", "made"),
    [
        (Permanent("p"), {}, 1),
        (UsageError("u"), {}, 1),
        (Refused("r"), {"never_on": (Refused,)}, 1),
        (OSError("o"), {"on": (TooBusy,)}, 1),
        (TooBusy("t"), {"on": (TooBusy,)}, 3),
        (RetryAfter(0), {"on": (TooBusy,)}, 3),
        (RetryAfter("1ms"), {"on": (TooBusy,)}, 3),
        (OSError("o"), {"attempts": 1}, 1),
        (OSError("o"), {"attempts": 5}, 5),
    ],
)
async def test_the_policy_says_what_is_repeated_and_how_often(
    home: Home, error: Exception, options: dict[str, Any], made: int
) -> None:
    pack = Pack("p")
    work, attempts = _flaky(pack, [error] * 10, retry=Retry(**{"base": 0, **options}))
    async with home.holdfast(pack) as hf:
        with pytest.raises(RunFailed) as caught:
            await (await hf.start(work())).run.result(timeout=30)
        assert type(caught.value.__cause__) is type(error)
    assert attempts == list(range(1, made + 1))


async def test_a_policy_is_changed_without_touching_the_domain(home: Home) -> None:
    """C9: the same effect, the same workflow; only the recovery differs."""
    pack = Pack("p")
    work, attempts = _flaky(pack, [OSError("1")] * 4, retry=Retry(attempts=1))
    async with home.holdfast(pack) as hf:
        with pytest.raises(RunFailed):
            await (await hf.start(work())).run.result(timeout=30)
    assert attempts == [1]
    patient = pack.with_policy("flaky", retry=Retry(attempts=9, base=0))
    async with home.holdfast(patient) as hf:
        assert await (await hf.start(work())).run.result(timeout=30) == "after 5"
    assert pack.effects["p.flaky"].policy.retry.attempts == 1  # the author's own stays


async def test_a_policys_timeout_is_changed_without_touching_the_domain(home: Home) -> None:
    """C9."""
    pack = Pack("p")

    @pack.effect(retry=Retry(attempts=1))
    async def slow() -> str:
        await asyncio.Event().wait()
        return "never"

    @pack.workflow
    async def work() -> str:
        return await slow()

    async with home.holdfast(pack.with_policy("slow", timeout="30ms")) as hf:
        with pytest.raises(RunFailed) as caught:
            await (await hf.start(work())).run.result(timeout=30)
        assert isinstance(caught.value.__cause__, TimedOut)


def test_a_policy_for_an_unknown_effect_is_refused_and_lists_the_known_ones() -> None:
    pack = Pack("p")
    _flaky(pack, [])
    with pytest.raises(UsageError, match="nosuch") as caught:
        pack.with_policy("nosuch", retry=Retry())
    assert "p.flaky" in caught.value.hint


# -- E10: restarts, steps of the clock, leases


async def test_attempts_and_waits_survive_restarts(home: Home) -> None:
    """E10: three processes, one attempt each; no wait is cut short and none begins anew."""
    pack = Pack("p")
    begun_at_ms: list[int] = []
    opened: list[Any] = []

    @pack.effect(retry=Retry(attempts=3))
    async def flaky() -> str:
        begun_at_ms.append(opened[-1]._replica._ports.store.now_ms())
        if attempt() < 3:
            raise RetryAfter(0.25)
        return f"attempt {attempt()}"

    @pack.workflow
    async def work() -> str:
        return await flaky()

    async with home.holdfast(pack) as hf:
        opened.append(hf)
        run = (await hf.start(work())).run
        await heard(hf).until(EffectWillRetry)
        await eventually(lambda: _is_recorded(opened[-1], run.id, 2))
    async with home.holdfast(pack) as hf:
        opened.append(hf)
        await heard(hf).until(EffectWillRetry, attempt=2)
        await eventually(lambda: _is_recorded(opened[-1], run.id, 3))
    async with home.holdfast(pack) as hf:
        opened.append(hf)
        assert await (await hf.get(run.id)).result(timeout=30) == "attempt 3"
        waits = [entry for entry in await run_journal(hf, run.id) if isinstance(entry, Attempted)]
    assert [wait.attempt for wait in waits] == [1, 2]
    assert len(begun_at_ms) == 3
    for wait, next_begun in zip(waits, begun_at_ms[1:], strict=True):
        assert next_begun >= wait.retry_at_ms


async def _is_recorded(hf: Any, run_id: str, length: int) -> bool:
    return len(await run_journal(hf, run_id)) >= length


async def run_journal(hf: Any, run_id: str) -> Any:
    return await (await hf.get(run_id)).journal()


async def test_a_long_wait_is_a_durable_timer_and_no_sleeping_task(home: Home) -> None:
    pack = Pack("p")
    work, _ = _flaky(pack, [RetryAfter(3600)])
    async with home.holdfast(pack) as hf:
        seen = heard(hf)
        run = (await hf.start(work())).run
        gone = await seen.until(RunLetGo)
        run = await run.refresh()
        [attempted] = [entry for entry in await run.journal() if isinstance(entry, Attempted)]
        assert (run.status, gone.wake_at_ms) == ("waiting", attempted.retry_at_ms)
        await eventually(lambda: not worker_of(hf).held.holds(run.id))


class SteppedClock(SystemClock):
    """The machine's clock, whose wall part somebody moves."""

    step_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.step_ms


@pytest.mark.parametrize("step_ms", [-24 * HOUR_MS, 24 * HOUR_MS])
async def test_a_step_of_the_wall_clock_changes_no_wait(home: Home, step_ms: int) -> None:
    """E10: a sleep and a retry, with the clock put back or forward in the middle of them."""
    clock = home.clock = SteppedClock()
    pack = Pack("p")
    steady_ms: list[float] = []

    @pack.effect(retry=Retry(attempts=2))
    async def flaky() -> None:
        steady_ms.append(clock.steady_ms())
        if attempt() == 1:
            raise RetryAfter(0.15)

    @pack.workflow
    async def work() -> None:
        await flaky()
        await sleep(0.15)

    async with home.holdfast(pack) as hf:
        seen = heard(hf)
        run = (await hf.start(work())).run
        await seen.until(EffectWillRetry)
        clock.step_ms = step_ms
        await eventually(lambda: len(steady_ms) == 2)
        clock.step_ms = -step_ms
        await run.result(timeout=30)
        ended_steady_ms = clock.steady_ms()
        [elapsed] = [entry for entry in await run.journal() if isinstance(entry, Elapsed)]
        performed = (await run.journal())[2]
    assert steady_ms[1] - steady_ms[0] >= 149  # instants are whole milliseconds
    assert ended_steady_ms - steady_ms[1] >= 149
    assert elapsed.due_at_ms - performed.at_ms == 150
    assert abs(elapsed.at_ms - elapsed.due_at_ms) < HOUR_MS


async def test_an_expired_lease_uses_up_no_attempt(home: Home) -> None:
    """E10, L6: the holder falls silent in the middle of its only attempt; the next one has that attempt."""
    pack = Pack("p")
    attempts: list[int] = []

    @pack.effect(retry=Retry(attempts=1))
    async def work_long() -> str:
        attempts.append(attempt())
        if len(attempts) == 1:
            await asyncio.Event().wait()
        return f"attempt {attempt()}"

    @pack.workflow
    async def work() -> str:
        return await work_long()

    severable: list[SeverableStore] = []

    def through(store: Any) -> SeverableStore:
        severable.append(SeverableStore(store))
        return severable[0]

    async with home.holdfast(pack, through=through, lease="600ms") as first:
        run = (await first.start(work())).run
        lost = heard(first)
        await eventually(lambda: attempts)
        severable[0].sever()
        async with home.holdfast(pack, lease="2s") as second:
            seen = heard(second)
            assert await (await second.get(run.id)).result(timeout=30) == "attempt 1"
            assert run.id in (await seen.until(RunsRescued)).run_ids
            entries = [entry for entry in await run_journal(second, run.id) if isinstance(entry, Attempted | GaveUp)]
            assert entries == []
        await lost.until(LeaseWasLost)
    assert attempts == [1, 1]


# -- E11: timeouts, deadlines, heartbeats


@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
async def test_each_attempt_has_its_own_time(home: Home, *, sync: bool) -> None:
    """E11."""
    pack = Pack("p")
    release = threading.Event()
    attempts: list[int] = []

    async def slow() -> str:
        attempts.append(attempt())
        if attempt() < 3:
            await asyncio.Event().wait()
        return "in time"

    def slow_sync() -> str:
        attempts.append(attempt())
        if attempt() < 3:
            assert release.wait(30)
        return "in time"

    effect: Any = pack.effect(timeout="250ms", retry=Retry(attempts=3, base=0))(slow_sync if sync else slow)

    @pack.workflow
    async def work() -> str:
        return await effect()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        assert await run.result(timeout=30) == "in time"
        errors = [entry.error.type for entry in await run.journal() if isinstance(entry, Attempted)]
        release.set()
    assert attempts == [1, 2, 3]
    assert errors == ["holdfast.errors.TimedOut"] * 2


async def test_a_timeout_reaches_the_workflow_as_a_timeout(home: Home) -> None:
    pack = Pack("p")

    @pack.effect(timeout="20ms", retry=Retry(attempts=1))
    async def slow() -> None:
        await asyncio.Event().wait()

    @pack.workflow
    async def work() -> str:
        try:
            await slow()
        except TimeoutError as error:  # TimedOut is one, so plain asyncio code keeps working
            return type(error).__name__
        return "unreachable"

    async with home.holdfast(pack) as hf:
        assert await (await hf.start(work())).run.result(timeout=30) == "TimedOut"


async def test_the_effects_own_timeout_error_is_not_taken_for_ours(home: Home) -> None:
    pack = Pack("p")

    @pack.effect(timeout="30s", retry=Retry(attempts=1))
    async def slow() -> None:
        raise TimeoutError("the bank's")

    @pack.workflow
    async def work() -> str:
        try:
            await slow()
        except TimeoutError as error:
            return f"{type(error).__name__} {error}"
        return "unreachable"

    async with home.holdfast(pack) as hf:
        assert await (await hf.start(work())).run.result(timeout=30) == "TimeoutError the bank's"


async def test_a_wait_that_would_end_after_the_deadline_is_not_begun(home: Home) -> None:
    """E11."""
    pack = Pack("p")
    work, attempts = _flaky(pack, [RetryAfter(0), RetryAfter(3600)], retry=Retry(attempts=9, deadline="20s"))
    async with home.holdfast(pack) as hf:
        with pytest.raises(RunFailed) as caught:
            await (await hf.start(work())).run.result(timeout=30)
        assert isinstance(caught.value.__cause__, RetryAfter)
    assert attempts == [1, 2]


async def test_an_attempt_that_outlives_the_deadline_is_cut_short(home: Home) -> None:
    """E11: the deadline is for the effect as a whole, with or without a time for each attempt."""
    pack = Pack("p")
    attempts: list[int] = []

    @pack.effect(retry=Retry(attempts=9, base=0, deadline="100ms"))
    async def hang() -> None:
        attempts.append(attempt())
        await asyncio.Event().wait()

    @pack.workflow
    async def work() -> None:
        await hang()

    async with home.holdfast(pack) as hf:
        with pytest.raises(RunFailed) as caught:
            await (await hf.start(work())).run.result(timeout=30)
        assert isinstance(caught.value.__cause__, TimedOut)
    assert attempts[0] == 1


async def test_the_deadline_counts_from_when_the_effect_was_asked_for_over_restarts(home: Home) -> None:
    """E11: a restart gives no new deadline."""
    pack = Pack("p")
    # A quarter of a second has passed when the second attempt fails: its wait would end just after the deadline.
    errors: list[Exception] = [RetryAfter(0.25), RetryAfter(9.9)]
    work, attempts = _flaky(pack, errors, retry=Retry(attempts=20, deadline="10s"))
    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        await heard(hf).until(EffectWillRetry)
    async with home.holdfast(pack) as hf:
        with pytest.raises(RunFailed):
            await (await hf.get(run.id)).result(timeout=30)
    assert attempts == [1, 2]


@pytest.mark.parametrize("safety", ["keyed", "once"])
@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
async def test_the_next_process_begins_nothing_after_the_deadline(home: Home, *, sync: bool, safety: str) -> None:
    """E11: the deadline has passed while the run lay with a process that had fallen silent."""
    pack = Pack("p")
    released = threading.Event()
    calls: list[str] = []
    asked: list[str] = []

    async def charge() -> str:
        calls.append(effect_key())
        await asyncio.to_thread(released.wait, 30)
        return "charged"

    def charge_sync() -> str:
        calls.append(effect_key())
        assert released.wait(30)
        return "charged"

    def not_performed(key: str) -> str:
        asked.append(key)
        raise NotPerformed

    options: Any = {"safety": safety} | ({"reconcile": not_performed} if safety == "once" else {})
    effect: Any = pack.effect(key="charge", retry=Retry(attempts=9, deadline="1500ms"), **options)(
        charge_sync if sync else charge
    )

    @pack.workflow
    async def work() -> str:
        return await effect()

    severable: list[SeverableStore] = []

    def through(store: Any) -> SeverableStore:
        severable.append(SeverableStore(store))
        return severable[0]

    async with home.holdfast(pack, through=through, lease="3s") as first:
        run = (await first.start(work())).run
        await eventually(lambda: calls)
        severable[0].sever()
        async with home.holdfast(pack, lease="2s") as second:
            with pytest.raises(RunFailed, match="was over before attempt 1 could begin") as caught:
                await (await second.get(run.id)).result(timeout=30)
            assert isinstance(caught.value.__cause__, TimedOut)
            [gave_up] = [entry for entry in await run_journal(second, run.id) if isinstance(entry, GaveUp)]
            assert gave_up.attempt == 0
            assert not heard(second).all(EffectBegan)
        released.set()
    assert calls == ["charge"]
    assert set(asked) == ({"charge"} if safety == "once" else set())


@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
async def test_the_next_attempt_reads_what_the_last_heartbeat_said(home: Home, *, sync: bool) -> None:
    """E11."""
    pack = Pack("p")
    read: list[Any] = []

    def body() -> str:
        read.append(heartbeat())
        assert heartbeat({"done": attempt() * 10}) == read[-1]
        assert heartbeat({"done": attempt() * 10 + 1}) == {"done": attempt() * 10}
        if attempt() < 3:
            raise OSError("again")
        return "done"

    async def body_async() -> str:
        return body()

    effect: Any = pack.effect(retry=Retry(attempts=3, base=0))(body if sync else body_async)

    @pack.workflow
    async def work() -> str:
        return await effect()

    async with home.holdfast(pack) as hf:
        assert await (await hf.start(work())).run.result(timeout=30) == "done"
    assert read == [None, {"done": 11}, {"done": 21}]


async def test_a_heartbeat_is_read_by_another_process(home: Home) -> None:
    """E11: it is durable."""
    pack = Pack("p")
    read: list[Any] = []

    @pack.effect(retry=Retry(attempts=2))
    async def long() -> str:
        read.append(heartbeat({"page": attempt()}))
        if attempt() == 1:
            raise RetryAfter(0.1)
        return "done"

    @pack.workflow
    async def work() -> str:
        return await long()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        await heard(hf).until(EffectWillRetry)
    async with home.holdfast(pack) as hf:
        assert await (await hf.get(run.id)).result(timeout=30) == "done"
    assert read == [None, {"page": 1}]


async def test_a_heartbeat_of_an_attempt_that_never_ended_is_read_by_whoever_takes_over(home: Home) -> None:
    """E11, L6."""
    pack = Pack("p")
    read: list[Any] = []

    @pack.effect
    async def long() -> str:
        read.append(heartbeat())
        if len(read) == 1:
            heartbeat("half way")
            await asyncio.Event().wait()
        return "done"

    @pack.workflow
    async def work() -> str:
        return await long()

    severable: list[SeverableStore] = []

    def through(store: Any) -> SeverableStore:
        severable.append(SeverableStore(store))
        return severable[0]

    async with home.holdfast(pack, through=through, lease="600ms") as first:
        run = (await first.start(work())).run
        store = severable[0].inner
        await eventually(lambda: _has_beat(store, run.id))
        severable[0].sever()
        async with home.holdfast(pack, lease="2s") as second:
            assert await (await second.get(run.id)).result(timeout=30) == "done"
    assert read == [None, "half way"]


async def _has_beat(store: Any, run_id: str) -> bool:
    [history] = await store.histories([run_id])
    return bool(history.beats)


async def test_beats_of_one_effect_are_not_read_by_another(home: Home) -> None:
    pack = Pack("p")

    @pack.effect
    async def long(name: str) -> Any:
        return heartbeat(name)

    @pack.workflow
    async def work() -> list[Any]:
        return [await long("a"), await long("b"), *await asyncio.gather(long("c"), long("d"))]

    async with home.holdfast(pack) as hf:
        seen = heard(hf)
        assert await (await hf.start(work())).run.result(timeout=30) == [None] * 4
        assert len(seen.all(EffectBegan)) == 4

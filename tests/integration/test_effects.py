"""Effects: intent before effect, one key for every attempt, record before acknowledgement (E1, E2, E3, E7, E9)."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from hashlib import blake2b
from typing import Any

import pytest

from holdfast import Pack, Permanent, Retry, RetryAfter, RunFailed, TimedOut, UsageError, attempt, effect_key
from holdfast.adapters.payloads import JsonCodec
from holdfast.engine.runs.heartbeats import AttemptScope
from holdfast.errors import EffectFailed, ReplayDiverged
from holdfast.events import (
    EffectBegan,
    EffectWillRetry,
    RunBlocked,
    RunEnded,
    ThreadGivenUp,
    ThreadsUsedUp,
)
from holdfast.kernel.journal import Attempted, Failed, GaveUp, Performed, Started
from tests.integration.conftest import Home, eventually, heard, worker_of
from tests.integration.wrappers import GatedStore

AT_ONCE = Retry(attempts=3, base=0)


class CardDeclined(Exception):
    """A domain error of the user's."""


class Pricing(Exception):
    """A domain error with arguments of its own."""

    def __init__(self, item: str, cents: int) -> None:
        super().__init__(item, cents)
        self.item = item
        self.cents = cents


async def test_each_entry_of_an_effect_carries_the_intent_computed_before_the_call(home: Home) -> None:
    """E1."""
    pack = Pack("shop")

    @pack.effect(key="charge:{order}", retry=AT_ONCE)
    async def charge(order: str, cents: int) -> str:
        if attempt() == 1:
            raise OSError("no answer")
        return "paid"

    @pack.effect(retry=Retry(attempts=1))
    async def ship(order: str) -> None:
        raise CardDeclined(order)

    @pack.workflow
    async def checkout(order: str) -> str:
        payment = await charge(order, cents=500)
        try:
            await ship(order)
        except CardDeclined:
            return payment + ", not shipped"
        return "unreachable"

    async with home.holdfast(pack) as hf:
        run = (await hf.start(checkout("o-1"))).run
        assert await run.result(timeout=30) == "paid, not shipped"
        started, attempted, performed, gave_up, _ = await run.journal()
    digest = blake2b(JsonCodec().encode({"order": "o-1", "cents": 500}, what="x"), digest_size=16).hexdigest()
    assert isinstance(started, Started)
    assert isinstance(attempted, Attempted)
    assert isinstance(performed, Performed)
    assert isinstance(gave_up, GaveUp)
    assert attempted.intent == performed.intent
    assert (performed.intent.kind, performed.intent.name, performed.intent.key) == (
        "effect",
        "shop.charge",
        "charge:o-1",
    )
    assert performed.intent.digest == digest
    assert performed.intent.line.startswith("test_effects.py:")
    assert (performed.step, performed.attempt) == ("charge#1", 2)
    assert gave_up.intent.key == f"{run.id}/ship#1"


async def test_every_attempt_of_an_effect_has_the_same_key(home: Home) -> None:
    """E2."""
    pack = Pack("shop")
    ledger: list[tuple[str, int]] = []

    @pack.effect(retry=Retry(attempts=4, base=0))
    async def flaky(name: str) -> str:
        ledger.append((effect_key(), attempt()))
        if attempt() < 4:
            raise OSError(name)
        return effect_key()

    @pack.effect(key="fixed:{name}", retry=AT_ONCE)
    def flaky_too(name: str) -> str:
        ledger.append((effect_key(), attempt()))
        if attempt() < 3:
            raise OSError(name)
        return effect_key()

    @pack.workflow
    async def work() -> list[str]:
        return [await flaky("a"), await flaky("b"), await flaky_too("c"), *await asyncio.gather(flaky("d"), flaky("e"))]

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        keys = await run.result(timeout=30)
    assert keys == [
        f"{run.id}/flaky#1",
        f"{run.id}/flaky#2",
        "fixed:c",
        f"{run.id}/0/flaky#1",
        f"{run.id}/1/flaky#1",
    ]
    for key in keys:
        assert [number for seen, number in ledger if seen == key] == list(range(1, 4 if key == "fixed:c" else 5))


async def test_a_step_does_not_begin_before_the_record_that_it_depends_on_is_durable(home: Home) -> None:
    """E3: the world sees nothing that a crash could take back."""
    pack = Pack("shop")
    begun: list[str] = []

    @pack.effect
    async def first() -> str:
        begun.append("first")
        return "1"

    @pack.effect
    async def second(before: str) -> str:
        begun.append("second")
        return before + "2"

    @pack.workflow
    async def work() -> str:
        return await second(await first())

    gated: list[GatedStore] = []

    def through(store: Any) -> GatedStore:
        def records_first(changes: Any) -> bool:
            return any(getattr(entry, "step", "") == "first#1" for change in changes for entry in change.entries)

        gated.append(GatedStore(store, records_first))
        return gated[0]

    async with home.holdfast(pack, through=through) as hf:
        seen = heard(hf)
        run = (await hf.start(work())).run
        await asyncio.wait_for(gated[0].reached.wait(), 30)
        await _breathe()
        assert begun == ["first"]
        assert len(seen.all(EffectBegan)) == 1
        assert [type(entry) for entry in await run.journal()] == [Started]
        gated[0].gate.set()
        assert await run.result(timeout=30) == "12"
    assert begun == ["first", "second"]


async def test_the_result_is_not_acknowledged_before_it_is_recorded(home: Home) -> None:
    """E3: never acked but unrecorded."""
    pack = Pack("shop")

    @pack.workflow
    async def work() -> str:
        return "done"

    gated: list[GatedStore] = []

    def through(store: Any) -> GatedStore:
        def ends(changes: Any) -> bool:
            return any(change.run is not None and change.run.finished_at_ms is not None for change in changes)

        gated.append(GatedStore(store, ends))
        return gated[0]

    async with home.holdfast(pack, through=through) as hf:
        seen = heard(hf)
        run = (await hf.start(work())).run
        waiting = asyncio.create_task(run.result(timeout=30))
        await asyncio.wait_for(gated[0].reached.wait(), 30)
        await _breathe()
        assert not waiting.done()
        assert seen.all(RunEnded) == []
        assert (await run.refresh()).status == "running"
        gated[0].gate.set()
        assert await waiting == "done"


async def test_a_start_is_not_acknowledged_before_it_is_recorded(home: Home) -> None:
    """E3, at the front door."""
    pack = Pack("shop")

    @pack.workflow(key="k")
    async def work() -> str:
        return "done"

    gated: list[GatedStore] = []

    def through(store: Any) -> GatedStore:
        gated.append(GatedStore(store, lambda _: True))
        return gated[0]

    async with home.holdfast(pack, through=through) as hf:
        seen = heard(hf)
        starting = asyncio.create_task(hf.start(work()))
        await asyncio.wait_for(gated[0].reached.wait(), 30)
        await _breathe()
        assert not starting.done()
        assert seen.events == [] or not seen.all(EffectBegan)
        gated[0].gate.set()
        assert await (await starting).run.result(timeout=30) == "done"


async def _breathe() -> None:
    """Give whatever would go on too early every chance to."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_an_error_of_a_kernel_ends_the_run_at_once_and_before_any_effect(home: Home) -> None:
    """E7."""
    pack = Pack("shop")
    calls = 0

    @pack.kernel
    def price(cents: int) -> int:
        nonlocal calls
        calls += 1
        if cents < 0:
            raise ValueError("a price is not negative")
        return cents

    @pack.effect
    async def charge(cents: int) -> None: ...

    @pack.workflow
    async def checkout(cents: int) -> None:
        await charge(price(cents))

    async with home.holdfast(pack) as hf:
        seen = heard(hf)
        run = (await hf.start(checkout(-1))).run
        with pytest.raises(RunFailed) as caught:
            await run.result(timeout=30)
        assert isinstance(caught.value.__cause__, ValueError)
        assert [type(entry) for entry in await run.journal()] == [Started, Failed]
        assert seen.all(EffectBegan) == []
    assert calls == 1


@pytest.mark.parametrize("error", [ValueError("v"), AssertionError("a"), CardDeclined("c"), Permanent("p")])
async def test_an_error_of_the_workflow_is_never_retried(home: Home, error: Exception) -> None:
    """E7: a workflow is continued, not repeated."""
    pack = Pack("shop")
    calls = 0

    @pack.effect
    async def ok() -> None: ...

    @pack.workflow
    async def work() -> None:
        nonlocal calls
        await ok()
        calls += 1
        raise error

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        with pytest.raises(RunFailed) as caught:
            await run.result(timeout=30)
        assert type(caught.value.__cause__) is type(error)
        assert str(caught.value.__cause__) == str(error)
    assert calls == 1


async def _as_the_workflow_sees_it(home: Home, error: Exception, *, sync: bool = False) -> Exception:
    """What a workflow catches when its effect raises `error`."""
    pack = Pack("shop")
    caught: list[Exception] = []

    def fail() -> None:
        raise error

    async def fail_async() -> None:
        raise error

    effect: Any = pack.effect(retry=Retry(attempts=1))(fail if sync else fail_async)

    @pack.workflow
    async def work() -> None:
        try:
            await effect()
        except Exception as raised:
            caught.append(raised)

    async with home.holdfast(pack) as hf:
        await (await hf.start(work())).run.result(timeout=30)
    return caught[0]


@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
async def test_an_effects_exception_reaches_the_workflow_as_its_own_class(home: Home, *, sync: bool) -> None:
    error = await _as_the_workflow_sees_it(home, Pricing("book", 500), sync=sync)
    assert isinstance(error, Pricing)
    assert (error.item, error.cents) == ("book", 500)


async def test_an_exception_of_a_class_that_cannot_be_found_is_named(home: Home) -> None:
    class Local(Exception):
        pass

    error = await _as_the_workflow_sees_it(home, Local("hidden"))
    assert isinstance(error, EffectFailed)
    assert (error.error_type.rpartition(".")[2], error.error_message) == ("Local", "hidden")


async def test_an_exception_whose_text_cannot_be_stored_harms_nobody_else(home: Home) -> None:
    """E14: file names may hold what UTF-8 cannot."""
    pack = Pack("shop")
    together = asyncio.Barrier(20)

    @pack.effect(retry=Retry(attempts=1))
    async def read(n: int) -> int:
        await together.wait()
        if n == 0:
            raise FileNotFoundError("caf\udcff")
        return n

    @pack.workflow
    async def work(n: int) -> int:
        return await read(n)

    async with home.holdfast(pack) as hf:
        runs = [(await hf.start(work(n))).run for n in range(20)]
        for n, run in enumerate(runs[1:], 1):
            assert await run.result(timeout=30) == n
        with pytest.raises(RunFailed) as caught:
            await runs[0].result(timeout=30)
        assert "FileNotFoundError" in str(caught.value)


class Strange(BaseException):
    """No Exception: what catches only those lets it through."""


@pytest.mark.parametrize(
    "error",
    [
        asyncio.CancelledError(),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        StopIteration(1),
        Strange("odd"),
        BaseExceptionGroup("several", [Strange("odd"), SystemExit(4)]),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
async def test_whatever_an_effect_raises_is_its_outcome_and_not_the_engines_end(
    home: Home, error: BaseException, *, sync: bool
) -> None:
    pack = Pack("shop")

    def fail() -> None:
        raise error

    async def fail_async() -> None:
        raise error

    effect: Any = pack.effect(retry=Retry(attempts=1))(fail if sync else fail_async)

    @pack.effect
    async def fine() -> str:
        return "fine"

    @pack.workflow
    async def bad() -> None:
        await effect()

    @pack.workflow
    async def good() -> str:
        return await fine()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(bad())).run
        with pytest.raises(RunFailed):
            await run.result(timeout=30)
        assert await (await hf.start(good())).run.result(timeout=30) == "fine"


async def test_a_key_that_changes_between_attempts_blocks_the_run(home: Home) -> None:
    """E9, at run time: chance in a key shows when the run is replayed, and nobody is charged under a second key."""
    pack = Pack("shop")
    ledger: list[str] = []
    chance = itertools.count()  # stands for uuid4(), time.time() or the host's name

    @pack.effect(key="charge:{token}", retry=Retry(attempts=5))
    async def charge(token: str) -> None:
        ledger.append(effect_key())
        raise RetryAfter(0.05)

    @pack.workflow
    async def checkout() -> None:
        await charge(f"token-{next(chance)}")

    async with home.holdfast(pack) as hf:
        run = (await hf.start(checkout())).run
        await heard(hf).until(EffectWillRetry)
    async with home.holdfast(pack) as hf:
        with pytest.raises(ReplayDiverged) as caught:
            await (await hf.get(run.id)).result(timeout=30)
        assert "charge:token-0" in caught.value.message
        assert "charge:token-1" in caught.value.message
        assert "test_effects.py:" in caught.value.message
        assert caught.value.hint
    assert set(ledger) == {"charge:token-0"}


async def test_an_input_that_changes_between_attempts_blocks_the_run(home: Home) -> None:
    """E9: the key is the same, what is asked under it is not."""
    pack = Pack("shop")
    chance = itertools.count()

    @pack.effect(key="charge:{order}", retry=Retry(attempts=5))
    async def charge(order: str, cents: int) -> None:
        raise RetryAfter(0.05)

    @pack.workflow
    async def checkout() -> None:
        await charge("o-1", next(chance))

    async with home.holdfast(pack) as hf:
        run = (await hf.start(checkout())).run
        await heard(hf).until(EffectWillRetry)
    async with home.holdfast(pack) as hf:
        seen = heard(hf)
        blocked = await seen.until(RunBlocked)
        assert blocked.code == "replay_diverged"
        assert (await hf.get(run.id)).status == "blocked"


async def test_sync_effects_run_beside_each_other_in_threads(home: Home) -> None:
    pack = Pack("shop")
    together = threading.Barrier(5, timeout=30)

    @pack.effect(retry=Retry(attempts=1))
    def meet(n: int) -> str:
        together.wait()
        assert effect_key()
        return f"{n} {threading.current_thread() is threading.main_thread()}"

    @pack.workflow
    async def work() -> list[str]:
        return await asyncio.gather(*(meet(n) for n in range(5)))

    async with home.holdfast(pack) as hf:
        assert await (await hf.start(work())).run.result(timeout=30) == [f"{n} False" for n in range(5)]


async def test_a_sync_effect_does_not_hold_up_the_others(home: Home) -> None:
    pack = Pack("shop")
    release = threading.Event()

    @pack.effect
    def slow() -> str:
        assert release.wait(30)
        return "slow"

    @pack.effect
    async def quick() -> str:
        return "quick"

    @pack.workflow
    async def one() -> str:
        return await slow()

    @pack.workflow
    async def two() -> str:
        return await quick()

    async with home.holdfast(pack) as hf:
        seen = heard(hf)
        first = (await hf.start(one())).run
        await seen.until(EffectBegan)
        assert await (await hf.start(two())).run.result(timeout=30) == "quick"
        release.set()
        assert await first.result(timeout=30) == "slow"


class Hanging:
    """Sync effects that hang until they are released, and others that do not; with the attempts of each."""

    def __init__(self, **options: Any) -> None:
        self.pack = Pack("shop")
        self.released = threading.Event()
        self.entered: list[int] = []
        self.attempts: list[int] = []

        @self.pack.effect(timeout="50ms", retry=Retry(attempts=1))
        def hang(n: int) -> None:
            self.entered.append(n)
            assert self.released.wait(30)

        @self.pack.effect(timeout="5s", **options)
        def pass_by(n: int) -> int:
            self.attempts.append(attempt())
            return n

        @self.pack.workflow
        async def stuck(n: int) -> str:
            try:
                await hang(n)
            except TimedOut:
                return "given up"
            return "done"

        @self.pack.workflow
        async def fine(n: int) -> int:
            return await pass_by(n)

        @self.pack.workflow
        async def impatient(n: int) -> str:
            try:
                async with asyncio.timeout(0.5):  # long enough for its thread to begin, on a busy machine too
                    await patient(n)
            except TimeoutError:
                pass
            return str(await pass_by(n))

        @self.pack.effect
        def patient(n: int) -> None:
            self.entered.append(n)
            assert self.released.wait(30)

        self.stuck, self.fine, self.impatient = stuck, fine, impatient


async def test_threads_that_hang_are_replaced(home: Home) -> None:
    hanging = Hanging(retry=Retry(attempts=1))
    async with home.holdfast(hanging.pack, concurrency=8) as hf:
        runs = [(await hf.start(hanging.stuck(n))).run for n in range(16)]
        assert [await run.result(timeout=30) for run in runs] == ["given up"] * 16
        assert sorted(hanging.entered) == list(range(16))
        assert len(heard(hf).all(ThreadGivenUp)) == 16
        later = [(await hf.start(hanging.fine(n))).run for n in range(4)]
        assert [await run.result(timeout=30) for run in later] == [0, 1, 2, 3]
        hanging.released.set()
        await eventually(lambda: worker_of(hf).performer.threads_given_up == 0)
        assert [await (await hf.start(hanging.fine(n))).run.result(timeout=30) for n in range(20)] == list(range(20))
        assert not heard(hf).all(ThreadsUsedUp)
    assert hanging.attempts == [1] * 24


async def test_threads_that_hang_are_counted_and_doctor_sees_them_from_another_process(home: Home) -> None:
    home.paced(hangs_seconds=0.01)
    hanging = Hanging()

    async def is_said(level: str, words: str = "") -> bool:
        [found] = [each for each in await client.runtime.inspect() if each.what == "threads"]
        return found.level == level and words in found.detail

    async with home.holdfast(worker=False, duties=False) as client, home.holdfast(hanging.pack) as hf:
        metrics = hf.metrics()
        assert await is_said("ok")
        for n in range(2):
            assert await (await hf.start(hanging.stuck(n))).run.result(timeout=30) == "given up"
        await eventually(lambda: is_said("warning", ": 2 of worker "))
        given_up = metrics.registry.get_sample_value("holdfast_effect_threads_given_up_total", {"effect": "shop.hang"})
        assert given_up == 2
        assert b"holdfast_effect_threads_hanging" in (await metrics.render()).body
        assert metrics.registry.get_sample_value("holdfast_effect_threads_hanging") == 2
        hanging.released.set()
        await eventually(lambda: is_said("ok"))
        await metrics.render()
        assert metrics.registry.get_sample_value("holdfast_effect_threads_hanging") == 0


async def test_an_effect_that_is_not_waited_for_any_more_keeps_its_room_from_no_other(home: Home) -> None:
    hanging = Hanging()
    async with home.holdfast(hanging.pack, concurrency=1) as hf:
        assert await (await hf.start(hanging.impatient(1))).run.result(timeout=30) == "1"
        hanging.released.set()
    assert hanging.entered == [1]


async def test_an_effect_that_waits_for_a_thread_uses_up_neither_attempt_nor_time(home: Home) -> None:
    home.paced(given_up_threads_max=2)
    hanging = Hanging(retry=Retry(attempts=1))
    pack = hanging.pack.with_policy("pass_by", timeout="1s")
    async with home.holdfast(pack, concurrency=1) as hf:
        seen = heard(hf)
        for n in range(3):
            assert await (await hf.start(hanging.stuck(n))).run.result(timeout=30) == "given up"
        run = (await hf.start(hanging.fine(4))).run
        assert (await seen.until(ThreadsUsedUp)).given_up == 3
        over_ms = hf.runtime.store.now_ms() + 1_100  # longer than the effect may take
        await eventually(lambda: hf.runtime.store.now_ms() >= over_ms)
        assert not seen.all(EffectBegan, effect="shop.pass_by")
        assert hanging.attempts == []
        hanging.released.set()
        assert await run.result(timeout=30) == 4
        assert [entry.what for entry in await run.journal()] == ["started", "performed", "completed"]
    assert hanging.attempts == [1]


async def test_an_effect_that_gets_no_thread_before_its_deadline_is_given_up_without_a_call(home: Home) -> None:
    home.paced(given_up_threads_max=0)
    hanging = Hanging(retry=Retry(attempts=3, deadline="100ms"))
    async with home.holdfast(hanging.pack, concurrency=1) as hf:
        assert await (await hf.start(hanging.stuck(1))).run.result(timeout=30) == "given up"
        run = (await hf.start(hanging.fine(2))).run
        with pytest.raises(RunFailed, match="before attempt 1 could begin") as caught:
            await run.result(timeout=30)
        assert isinstance(caught.value.__cause__, TimedOut)
        [gave_up] = [entry for entry in await run.journal() if isinstance(entry, GaveUp)]
        assert gave_up.attempt == 0
        assert "before the first attempt" in str(await run.explain())
        hanging.released.set()
    assert hanging.attempts == []


async def test_where_the_system_gives_no_thread_an_effect_waits_until_it_does(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.paced(start_thread_again_seconds=0.01)
    start, refused = threading.Thread.start, list[str]()

    def reluctant(thread: threading.Thread) -> None:
        if thread.name.startswith("holdfast-effect") and len(refused) < 3:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", reluctant)
    hanging = Hanging()
    async with home.holdfast(hanging.pack) as hf:
        assert await (await hf.start(hanging.fine(1))).run.result(timeout=30) == 1
    assert (len(refused), hanging.attempts) == (3, [1])


@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
@pytest.mark.parametrize("timeout", [None, "5s"], ids=["without a limit", "with a limit"])
async def test_the_last_look_at_the_lease_is_made_where_the_effect_is_entered(
    home: Home, monkeypatch: pytest.MonkeyPatch, *, sync: bool, timeout: str | None
) -> None:
    """As if the process were stopped after its effect had been handed over, and went on when its lease was over."""
    pack = Pack("bank")
    looks: list[str] = []
    calls: list[tuple[int, int]] = []

    async def transfer() -> str:
        calls.append((len(looks), attempt()))
        return "sent"

    def transfer_sync() -> str:
        calls.append((len(looks), attempt()))
        return "sent"

    effect: Any = pack.effect(safety="once", timeout=timeout)(transfer_sync if sync else transfer)

    @pack.workflow
    async def pay() -> str:
        return await effect()

    may_enter = AttemptScope.may_enter

    def looked(scope: AttemptScope) -> Any:
        looks.append(threading.current_thread().name)
        lease = hf._replica.lease
        assert lease is not None
        if len(looks) == 1:
            lease._reliable_until_steady_ms = 0.0
        return may_enter(scope)

    monkeypatch.setattr(AttemptScope, "may_enter", looked)
    async with home.holdfast(pack, lease="4s") as hf:
        run = (await hf.start(pay())).run
        assert await run.result(timeout=30) == "sent"
        assert [entry.what for entry in await run.journal()] == ["started", "intended", "performed", "completed"]
    assert [made for _, made in calls] == [1]
    assert calls[0][0] == len(looks) > 1  # once for the refusal; then nothing lies between the last look and the call
    in_threads = [name.startswith("holdfast-effect") for name in looks]
    assert all(in_threads) if sync else not any(in_threads)


async def test_the_last_look_at_the_deadline_is_made_where_the_effect_is_entered(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = Hanging(retry=Retry(attempts=3, deadline="100ms"))
    may_enter = AttemptScope.may_enter

    def late(scope: AttemptScope) -> Any:
        time.sleep(0.15)  # as if the process were stopped between handing the effect over and entering it
        return may_enter(scope)

    monkeypatch.setattr(AttemptScope, "may_enter", late)
    async with home.holdfast(hanging.pack) as hf:
        with pytest.raises(RunFailed, match="before attempt 1 could begin"):
            await (await hf.start(hanging.fine(1))).run.result(timeout=30)
    assert hanging.attempts == []


async def test_a_sync_effect_that_answers_a_coroutine_is_told_what_to_write(home: Home) -> None:
    pack = Pack("shop")

    async def inner() -> None: ...

    @pack.effect
    def wrong() -> Any:
        return inner()

    @pack.workflow
    async def work() -> None:
        await wrong()

    async with home.holdfast(pack) as hf:
        with pytest.raises(RunFailed) as caught:
            await (await hf.start(work())).run.result(timeout=30)
        assert isinstance(caught.value.__cause__, UsageError)
        assert "async def" in str(caught.value.__cause__)

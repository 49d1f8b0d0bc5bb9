"""Circuit breakers: one for all replicas, one probe at a time, and effects that wait at no cost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Breaker, Holdfast, Pack, Permanent, Retry, RunFailed, UsageError
from holdfast.errors import StoreUnavailable, UnknownBreaker
from holdfast.events import (
    BreakerChanged,
    BreakerProbed,
    DecidesAlone,
    DecidesTogether,
    EffectBegan,
    EffectHeld,
    RunLetGo,
)
from holdfast.kernel.journal import Attempted, Intended, Performed
from tests.integration.conftest import Home, eventually, heard, worker_of


class Shop:
    """A service that works or not, and effects on it."""

    def __init__(self, *, of: int = 4, stays: str = "300ms", retry: Retry | None = None) -> None:
        self.pack = Pack("shop")
        self.is_down = True
        self.calls: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        rule = Breaker("stripe", of=of, stays=stays)
        retry = retry or Retry(attempts=1_000, base=0.01, cap=0.01)

        @self.pack.effect(breaker=rule, retry=retry)
        async def charge(order: str) -> str:
            self.calls.append(order)
            await self.gate.wait()
            if self.is_down:
                raise OSError("down")
            return f"paid {order}"

        @self.pack.effect(breaker=rule, safety="once", retry=retry)
        def send(order: str) -> str:
            self.calls.append(order)
            if self.is_down:
                raise OSError("down")
            return f"sent {order}"

        @self.pack.effect(breaker=rule, retry=Retry(attempts=3, base=0.01))
        async def refuse(order: str) -> str:
            self.calls.append(order)
            raise Permanent("card declined")

        @self.pack.effect
        async def note(order: str) -> str:
            return order

        @self.pack.workflow(key="{order}")
        async def buy(order: str, effect: str = "charge") -> str:
            return await {"charge": charge, "send": send, "refuse": refuse, "note": note}[effect](order)

        @self.pack.workflow
        async def race(order: str) -> str:
            try:
                async with asyncio.timeout(0.05):
                    return await charge(order)
            except TimeoutError:
                return "gave up waiting"

        self.buy, self.race = buy, race


async def opened(hf: Holdfast, *, within: float = 30) -> None:
    await heard(hf).until(BreakerChanged, state="open", within=within)


async def test_a_service_that_is_down_is_left_alone_and_no_attempt_is_used(home: Home) -> None:
    shop = Shop(of=4, stays="10m")
    async with home.holdfast(shop.pack, concurrency=1) as hf:
        runs = [(await hf.start(shop.buy(f"o-{n}"))).run for n in range(8)]
        await opened(hf)
        assert len(shop.calls) == 4
        # They hold no slot: with room for one, others go on.
        assert await (await hf.start(shop.buy("other", "note"))).run.result() == "other"
        await heard(hf).until(RunLetGo, count=8)
        await eventually(lambda: worker_of(hf).slots.taken == 0 and len(worker_of(hf).held) == 0)
        for run in runs:
            seen = await hf.get(run.id)
            [wait] = seen.waiting_on
            assert (seen.status, wait.kind, wait.name) == ("waiting", "breaker", "stripe")
            assert str(wait).startswith("breaker 'stripe', which is open until ")
            assert "it waits for breaker 'stripe'" in str(await hf.explain(run))
        shop.is_down = False
        assert (await hf.close_breaker("stripe", by="ada")).state == "closed"
        assert [await run.result("30s") for run in runs] == [f"paid o-{n}" for n in range(8)]
        tried = [entry for run in runs for entry in await run.journal() if isinstance(entry, Attempted)]
        assert len(tried) == 4
        assert len(shop.calls) == 4 + 8
        closed = await hf.breaker("stripe")
        assert (closed.state, closed.by, closed.did) == ("closed", "ada", "closed")


async def test_one_probe_at_a_time_and_three_close_it(home: Home) -> None:
    shop = Shop(of=2, stays="1s")
    async with home.holdfast(shop.pack) as first, home.holdfast(shop.pack) as second:
        runs = [
            (await hf.start(shop.buy(f"{n}-{hf.namespace}-{id(hf)}"))).run for n in range(5) for hf in (first, second)
        ]
        await opened(first)
        await opened(second)
        before = len(shop.calls)
        shop.gate.clear()
        await eventually(lambda: len(shop.calls) == before + 1, what="the probe")
        prober = next(hf for hf in (first, second) if heard(hf).all(BreakerProbed))
        shown = await first.breaker("stripe")
        assert (shown.state, shown.prober) == ("half-open", prober.runtime.instance)
        assert len(shop.calls) == before + 1
        shop.is_down = False
        shop.gate.set()
        assert sorted([await run.result("30s") for run in runs]) == sorted(f"paid {run.key}" for run in runs)
        probes = [len(heard(hf).all(BreakerProbed)) for hf in (first, second)]
        assert sum(probes) == 3
        assert (await second.breaker("stripe")).state == "closed"


async def test_all_replicas_together_make_no_more_calls_than_it_takes(home: Home) -> None:
    shop = Shop(of=10, stays="10m", retry=Retry(attempts=1_000, base=0, cap=0))
    holdfasts = [home.holdfast(shop.pack, concurrency=1) for _ in range(3)]
    async with holdfasts[0], holdfasts[1], holdfasts[2]:
        for hf in holdfasts:
            for n in range(5):
                await hf.start(shop.buy(f"{n}-{id(hf)}"))
        for hf in holdfasts:
            await opened(hf)
        assert 10 <= len(shop.calls) <= 10 + len(holdfasts)
        assert sum(len(heard(hf).all(EffectBegan)) for hf in holdfasts) == len(shop.calls)


async def test_a_once_effect_is_recorded_as_intended_only_when_it_may_begin(home: Home) -> None:
    shop = Shop(of=1, stays="10m")
    async with home.holdfast(shop.pack) as hf:
        await hf.start(shop.buy("opens"))
        await opened(hf)
        run = (await hf.start(shop.buy("o-1", "send"))).run
        await heard(hf).until(RunLetGo, run_id=run.id)
        assert not [entry for entry in await run.journal() if isinstance(entry, Intended)]
        shop.is_down = False
        await hf.close_breaker("stripe")
        assert await run.result("30s") == "sent o-1"
        kinds = [type(entry) for entry in await run.journal() if isinstance(entry, Intended | Performed)]
        assert kinds == [Intended, Performed]
    assert shop.calls.count("o-1") == 1


async def test_a_refusal_for_good_speaks_for_the_service(home: Home) -> None:
    shop = Shop(of=2)
    async with home.holdfast(shop.pack) as hf:
        for n in range(6):
            with pytest.raises(Exception, match="card declined"):
                await (await hf.start(shop.buy(f"o-{n}", "refuse"))).run.result("30s")
        assert heard(hf).all(BreakerChanged) == []


async def test_a_person_opens_it_and_every_replica_stops_at_once(home: Home) -> None:
    shop = Shop()
    shop.is_down = False
    async with home.holdfast(shop.pack) as first, home.holdfast(shop.pack) as second:
        with pytest.raises(UnknownBreaker, match="stripe"):
            await first.open_breaker("stripe")
        for hf in (first, second):
            assert await (await hf.start(shop.buy(f"{id(hf)}"))).run.result() == f"paid {id(hf)}"
        assert (await first.breakers())[0].state == "closed"
        shown = await first.open_breaker("stripe", by="eve")
        assert (shown.state, shown.until, shown.by) == ("open", None, "eve")
        for hf in (first, second):
            changed = await heard(hf).until(BreakerChanged, state="open")
            assert changed.by == "eve"
        run = (await second.start(shop.buy("o-1"))).run
        await heard(second).until(EffectHeld, run_id=run.id, rule="breaker", name="stripe")
        assert len(shop.calls) == 2
        let_go = await heard(second).until(RunLetGo, run_id=run.id)
        assert let_go.wake_at_ms is not None, "it would wait for ever if this process died"
        assert let_go.wake_at_ms - second.runtime.store.now_ms() <= 700_000
        [wait] = (await first.get(run.id)).waiting_on
        assert str(wait) == "breaker 'stripe', which is open until it is closed by hand"
        await first.close_breaker("stripe")
        assert await run.result("30s") == "paid o-1"


async def test_what_the_code_does_not_wait_for_any_more_does_not_begin(home: Home) -> None:
    shop = Shop(of=1, stays="10m")
    async with home.holdfast(shop.pack) as hf:
        await hf.start(shop.buy("opens"))
        await opened(hf)
        assert await (await hf.start(shop.race("o-1"))).run.result("30s") == "gave up waiting"
        run = (await hf.start(shop.buy("o-2"))).run
        await heard(hf).until(EffectHeld, run_id=run.id)
        assert (await run.cancel(deadline="30s")).outcome == "no_effects"
    assert shop.calls == ["opens"]


async def test_the_deadline_of_a_retry_counts_while_it_waits(home: Home) -> None:
    shop = Shop(of=1, stays="10m", retry=Retry(attempts=50, base=0.01, deadline=0.2))
    async with home.holdfast(shop.pack) as hf:
        run = (await hf.start(shop.buy("o-1"))).run
        with pytest.raises(RunFailed, match="was over before attempt 2 could begin"):
            await run.result("30s")
    assert shop.calls == ["o-1"]


async def test_a_replica_that_stops_leaves_what_waits_to_the_next(home: Home) -> None:
    shop = Shop(of=1, stays="10m")
    async with home.holdfast(shop.pack) as hf:
        await hf.start(shop.buy("opens"))
        await opened(hf)
        run = (await hf.start(shop.buy("o-1"))).run
        await heard(hf).until(EffectHeld, run_id=run.id)
    shop.is_down = False
    async with home.holdfast(shop.pack) as hf:
        await hf.close_breaker("stripe")
        assert await (await hf.get(run.id)).result("30s") == "paid o-1"


def test_a_breaker_is_declared_alike_everywhere() -> None:
    one, other = Pack("one"), Pack("other")

    @one.effect(breaker=Breaker("stripe"))
    async def charge() -> None: ...

    @other.effect(breaker=Breaker("stripe", of=5))
    async def refund() -> None: ...

    with pytest.raises(UsageError, match=r"'one.charge' and 'other.refund' declare breaker 'stripe'"):
        Holdfast("memory://", packs=[one, other])
    with pytest.raises(UsageError, match="different numbers"):

        @one.effect(breaker=Breaker("stripe", opens=0.9))
        async def again() -> None: ...


class StoreAway:
    """A store that cannot be reached for documents, as long as it is away."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.is_away = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def write(self, writings: Any) -> Any:
        if self.is_away and any(each.document.kind == "breaker" for each in writings):
            raise StoreUnavailable("away")
        return await self._store.write(writings)


async def test_while_the_store_is_away_a_replica_decides_alone_and_says_so(home: Home) -> None:
    shop, stores = Shop(of=2, stays="10m"), list[StoreAway]()
    shop.is_down = False

    def through(store: Any) -> StoreAway:
        stores.append(StoreAway(store))
        return stores[-1]

    async with home.holdfast(shop.pack, through=through) as hf:
        assert await (await hf.start(shop.buy("o-0"))).run.result() == "paid o-0"
        shop.is_down = stores[0].is_away = True
        runs = [(await hf.start(shop.buy(f"o-{n}"))).run for n in range(1, 4)]
        await opened(hf)
        assert heard(hf).all(DecidesAlone, rule="breaker", name="stripe")
        assert len(shop.calls) <= 1 + 2 + 3
        assert (await hf.breaker("stripe")).state == "closed"  # as the others see it
        shop.is_down = stores[0].is_away = False
        await hf.close_breaker("stripe")
        await heard(hf).until(DecidesTogether)
        assert [await run.result("30s") for run in runs] == [f"paid o-{n}" for n in range(1, 4)]

"""Signal or start: one commit gives the payload to the live owner of the key, or to a new one (K8)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from holdfast import Holdfast, InputMismatch, Pack, Run, UsageError, hook
from holdfast.errors import PayloadRefused, StoreUnavailable
from holdfast.events import EffectBegan
from holdfast.kernel.journal import Received
from tests.integration.conftest import Home, eventually, heard
from tests.integration.wrappers import LossyStore

LARGE = "x" * 300_000  # kept beside the journal


class Carts:
    """Runs that take a few items and end, whoever still wants to send."""

    def __init__(self, *, retention: str = "30d") -> None:
        self.pack = Pack("carts")
        self.gate = asyncio.Event()
        self.gate.set()
        self.ledger: Counter[Any] = Counter()

        @self.pack.effect
        async def add(item: Any) -> None:
            self.ledger[item if isinstance(item, int) else str(item)[:20]] += 1
            await self.gate.wait()

        @self.pack.workflow(key="cart:{customer}", retention=retention)
        async def cart(customer: str, count: int = 1) -> list[Any]:
            taken: list[Any] = []
            items = hook("items")
            while len(taken) < count:
                taken.append(await items)
                await add(taken[-1])
            return taken

        @self.pack.workflow(key="typed:{customer}")
        async def typed(customer: str) -> list[int]:
            items = hook("items", type=int)
            return [await items, await items]

        @self.pack.workflow(key="short:{customer}")
        async def short(customer: str) -> list[Any]:
            """Collects while an effect lasts: it does not know how many will come."""
            taken: list[Any] = []

            async def consume() -> None:
                async for item in hook("items"):
                    taken.append(item)  # noqa: PERF401 - one by one: it is looked at before the end

            consumer = asyncio.create_task(consume())
            await add("an effect")
            consumer.cancel()
            return taken

        self.cart, self.typed, self.short = cart, typed, short


@pytest.fixture
def carts() -> Carts:
    return Carts()


async def _received(run: Run[Any]) -> list[Any]:
    return [entry for entry in await run.journal() if isinstance(entry, Received)]


async def _has_received(run: Run[Any], count: int) -> bool:
    return len(await _received(run)) >= count


async def test_the_first_sender_starts_the_run_and_the_next_ones_reach_it(home: Home, carts: Carts) -> None:
    async with home.holdfast(carts.pack) as hf, home.holdfast(carts.pack, worker=False) as client:
        first = await hf.start(carts.cart("c", 3), signal=("items", 1))
        assert first.created
        second = await client.start(carts.cart("c", 3), signal=("items", 2, "second"))
        assert (second.created, second.run.id) == (False, first.run.id)
        third = await hf.start(carts.cart("c", 3), signal=("items", 3))
        assert (third.created, third.run.id) == (False, first.run.id)
        assert await first.run.result(timeout=30) == [1, 2, 3]


async def test_an_owner_that_has_ended_is_succeeded_though_its_retention_is_not_over(home: Home, carts: Carts) -> None:
    async with home.holdfast(carts.pack) as hf:
        owners: list[str] = []
        for n in range(3):
            run, created = await hf.start(carts.cart("c"), signal=("items", n))
            assert created
            assert await run.result(timeout=30) == [n]
            owners.append(run.id)
        assert len(set(owners)) == 3
        assert (await hf.find(carts.cart, "cart:c")).id == owners[-1]
        assert [(await (await hf.get(owner)).refresh()).holds_key for owner in owners] == [False, False, True]
        joined = await hf.start(carts.cart("c"))  # without a signal it is an ordinary start
        assert (joined.created, joined.run.id) == (False, owners[-1])


async def test_a_failed_owner_is_succeeded_as_well(home: Home) -> None:
    pack = Pack("p")

    @pack.workflow(key="k")
    async def work() -> str:
        payload = await hook("items")
        if payload == "bad":
            raise ValueError(payload)
        return payload

    async with home.holdfast(pack) as hf:
        first = (await hf.start(work(), signal=("items", "bad", "1"))).run
        with pytest.raises(Exception, match="bad"):
            await first.result(timeout=30)
        second = await hf.start(work(), signal=("items", "good", "2"))
        assert second.created
        assert await second.run.result(timeout=30) == "good"


async def test_one_dedupe_id_counts_for_the_key_whoever_owns_it(home: Home, carts: Carts) -> None:
    """The repetition meets the first one though its owner has ended, and though another one has the key."""
    async with home.holdfast(carts.pack) as hf:
        first = (await hf.start(carts.cart("c"), signal=("items", 1, "a"))).run
        assert await first.result(timeout=30) == [1]
        again = await hf.start(carts.cart("c"), signal=("items", 1, "a"))
        assert (again.created, again.run.id) == (False, first.id)
        second = (await hf.start(carts.cart("c", 2), signal=("items", 2, "b"))).run
        assert second.id != first.id
        for dedupe, owner in (("a", first), ("b", second), ("a", first)):
            again = await hf.start(carts.cart("c", 2), signal=("items", "a repetition", dedupe))
            assert (again.created, again.run.id) == (False, owner.id)
        await hf.start(carts.cart("c", 2), signal=("items", 3, "c"))
        assert await second.result(timeout=30) == [2, 3]
        other = await hf.start(carts.cart("d"), signal=("items", 1, "a"))  # another key: nothing to do with it
        assert other.created
        assert await other.run.result(timeout=30) == [1]
    assert carts.ledger == {1: 2, 2: 1, 3: 1}


async def test_a_signal_to_the_run_and_one_to_its_key_are_two_though_their_dedupe_id_is_one(
    home: Home, carts: Carts
) -> None:
    """Whoever sends to the run and whoever sends to the key need not know of each other's ids."""
    async with home.holdfast(carts.pack) as hf:
        run = (await hf.start(carts.cart("c", 4))).run
        for _ in range(2):  # the same way a second time is a repetition
            await run.signal("items", 1, dedupe="a")
        for _ in range(2):
            told = await hf.start(carts.cart("c", 4), signal=("items", 2, "a"))
            assert (told.created, told.run.id) == (False, run.id)
        for _ in range(2):
            await hf.start(carts.cart("c", 4), signal=("items", 3, "b"))
        for _ in range(2):
            await run.signal("items", 4, dedupe="b")
        assert await run.result(timeout=30) == [1, 2, 3, 4]


async def test_a_request_that_is_repeated_with_its_signal_delivers_it_once(home: Home, carts: Carts) -> None:
    """The request id is the signal's dedupe id, if it has no other: to a new run, and to one that another started."""
    async with home.holdfast(carts.pack) as hf:
        for _ in range(2):
            first = await hf.start(carts.cart("c", 3), signal=("items", 1), request_id="r-1")
            assert first.created
        for _ in range(2):
            told = await hf.start(carts.cart("c", 3), signal=("items", 2), request_id="r-2")
            assert (told.created, told.run.id) == (False, first.run.id)
        await hf.start(carts.cart("c", 3), signal=("items", 3))
        assert await first.run.result(timeout=30) == [1, 2, 3]
        again = await hf.start(carts.cart("c", 3), signal=("items", 1), request_id="r-1")
        assert (again.created, again.run.id) == (True, first.run.id)


@pytest.mark.parametrize("over", [False, True], ids=["it lives", "it has ended"])
async def test_a_request_that_is_repeated_with_another_signal_delivers_that(
    home: Home, carts: Carts, *, over: bool
) -> None:
    """A signal is accepted or refused: that the run is there already does not mean that it has this one."""
    async with home.holdfast(carts.pack) as hf:
        run = (await hf.start(carts.cart("c"), request_id="r-1")).run
        if over:
            await run.signal("items", 0)
            assert await run.result(timeout=30) == [0]
        told = await hf.start(carts.cart("c"), signal=("items", 1, "a"), request_id="r-1")
        assert (told.run.id == run.id) is not over
        assert await told.run.result(timeout=30) == [1]


async def test_another_input_under_the_live_owner_delivers_nothing(home: Home, carts: Carts) -> None:
    """K11."""
    async with home.holdfast(carts.pack) as hf:
        run = (await hf.start(carts.cart("c", 2), signal=("items", 1, "a"))).run
        await eventually(lambda: _has_received(run, 1))
        with pytest.raises(InputMismatch) as caught:
            await hf.start(carts.cart("c", 7), signal=("items", "wrong", "b"))
        assert isinstance(caught.value.run, Run)
        assert caught.value.run_id == run.id
        await hf.start(carts.cart("c", 2), signal=("items", 2, "b"))  # its id is still free
        assert await run.result(timeout=30) == [1, 2]


async def test_another_input_after_the_owner_has_ended_is_a_new_run(home: Home, carts: Carts) -> None:
    async with home.holdfast(carts.pack) as hf:
        await (await hf.start(carts.cart("c"), signal=("items", 1))).run.result(timeout=30)
        run, created = await hf.start(carts.cart("c", 2), signal=("items", 2))
        assert created
        await run.signal("items", 3)
        assert await run.result(timeout=30) == [2, 3]


async def test_a_payload_that_does_not_fit_the_owners_hook_is_refused(home: Home, carts: Carts) -> None:
    async with home.holdfast(carts.pack) as hf:
        run = (await hf.start(carts.typed("c"), signal=("items", 1))).run
        await eventually(lambda: _has_received(run, 1))
        with pytest.raises(PayloadRefused):
            await hf.start(carts.typed("c"), signal=("items", "two"))
        await hf.start(carts.typed("c"), signal=("items", 2))
        assert await run.result(timeout=30) == [1, 2]


async def test_what_makes_no_sense_is_said_at_once(home: Home, carts: Carts) -> None:
    @carts.pack.workflow
    async def keyless() -> None: ...

    async with home.holdfast(carts.pack) as hf:
        wrong: list[Any] = ["items", ("items",), ("items", 1, "a", "b"), ("", 1), ("items", 1, ""), ("items", object())]
        for signal in wrong:
            with pytest.raises(UsageError):
                await hf.start(carts.cart("c"), signal=signal)
        with pytest.raises(UsageError, match="no key"):
            await hf.start(keyless(), signal=("items", 1))
        assert [run async for run in hf.runs()] == []


async def test_large_payloads_travel_with_the_admission_and_to_the_owner(home: Home, carts: Carts) -> None:
    async with home.holdfast(carts.pack) as hf, home.holdfast(carts.pack, worker=False) as client:
        run = (await client.start(carts.cart("c", 2), signal=("items", LARGE, "1"))).run
        await client.start(carts.cart("c", 2), signal=("items", LARGE + "2", "2"))
        assert await (await hf.get(run.id)).result(timeout=30) == [LARGE, LARGE + "2"]


@pytest.mark.parametrize("carried_out", [True, False], ids=["reply lost", "request lost"])
async def test_a_sender_that_heard_no_answer_sends_again_and_it_lands_once(
    home: Home, carts: Carts, *, carried_out: bool
) -> None:
    chance = random.Random(4)

    def loses(name: str, args: tuple[Any, ...]) -> bool:
        return name == "commit" and chance.random() < 0.4

    async with (
        home.holdfast(carts.pack) as hf,
        home.holdfast(
            carts.pack, worker=False, through=lambda store: LossyStore(store, loses, before=not carried_out)
        ) as client,
    ):
        for n in range(12):
            while True:
                try:
                    await client.start(carts.cart("c"), signal=("items", n, f"d{n}"))
                    break
                except StoreUnavailable:
                    continue
        await _all_landed(hf, carts.cart, range(12))
    assert carts.ledger == dict.fromkeys(range(12), 1)


async def _all_landed(hf: Holdfast, workflow: Any, payloads: range) -> int:
    """Wait until every run has ended; each payload is in the result of one of them, once. Answers how many runs."""

    async def ended() -> bool:
        # A list is no snapshot: of an owner that hands over meanwhile, it may show neither. So look for the payloads.
        live = [run async for run in hf.runs(workflow, {"pending", "running", "waiting"})]
        return not live and len(await landed()) >= len(payloads)

    async def landed() -> list[Any]:
        done = [run async for run in hf.runs(workflow, {"completed"})]
        return [payload for run in done for payload in await run.result(timeout=30)]

    await eventually(ended)
    assert sorted(await landed()) == list(payloads)
    return len([run async for run in hf.runs(workflow)])


@pytest.mark.parametrize("kind", ["cart", "short"])
async def test_each_payload_of_many_senders_lands_once_while_owners_come_and_go(
    home: Home, carts: Carts, kind: str
) -> None:
    """K8: in the old run or in the new one. Some senders repeat themselves."""
    chance = random.Random(8)
    workflow: Any = getattr(carts, kind)
    count = 90
    async with (
        home.holdfast(carts.pack) as one,
        home.holdfast(carts.pack) as two,
        home.holdfast(carts.pack, worker=False) as client,
    ):
        clients = [one, two, client]

        async def send(n: int) -> None:
            for _ in range(chance.randrange(1, 3)):
                await clients[n % 3].start(workflow("c"), signal=("items", n, f"d{n}"))

        for start in range(0, count, 30):
            await asyncio.gather(*map(send, range(start, start + 30)))
            if start == 0:
                await _all_landed(client, workflow, range(30))  # however fast the others come, there is a second owner
        runs = await _all_landed(client, workflow, range(count))
        owners = [run async for run in client.runs(workflow) if run.holds_key]
    assert runs > 1
    assert len(owners) == 1
    if kind == "cart":
        assert runs == count  # each of them takes one
        assert carts.ledger == dict.fromkeys(range(count), 1)


async def test_what_an_owner_did_not_take_begins_its_successor(home: Home, carts: Carts) -> None:
    """Whoever sends to a key does not care which run takes it; but one of them has to."""
    carts.gate.clear()
    async with home.holdfast(carts.pack) as hf:
        first = (await hf.start(carts.cart("c"), signal=("items", 0, "d0"), attributes={"customer": "c"})).run
        await heard(hf).until(EffectBegan)
        for n in (1, 2):
            again = await hf.start(carts.cart("c"), signal=("items", n, f"d{n}"))
            assert (again.created, again.run.id) == (False, first.id)
        carts.gate.set()
        assert await first.result(timeout=30) == [0]
        assert await _all_landed(hf, carts.cart, range(3)) == 3
        for n in range(3):
            assert not (await hf.start(carts.cart("c"), signal=("items", n, f"d{n}"))).created
        assert await _all_landed(hf, carts.cart, range(3)) == 3
    assert carts.ledger == {0: 1, 1: 1, 2: 1}

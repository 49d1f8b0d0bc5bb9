"""Starting work by key: once, whoever asks and however often (K3, K4, K5, K6, K10, K11, K17)."""

from __future__ import annotations

import asyncio
from collections import Counter
from hashlib import blake2b
from typing import Any

import msgspec
import pytest

from holdfast import InFlight, InputMismatch, NotAllowedNow, Pack, UnknownRun, heartbeat, sleep, spawn
from holdfast.engine.api.start_options import StartOptions
from holdfast.errors import EngineFault, StoreUnavailable
from holdfast.events import EffectBegan, RunEnded
from tests.integration.conftest import PATIENCE_SECONDS, Holding, Home, eventually, heard
from tests.integration.wrappers import LossyStore

LARGE = "x" * 400_000  # kept beside the journal


class Shop:
    """A pack with a ledger of what it did."""

    def __init__(self, name: str = "shop", *, retention: float | str = "30d") -> None:
        self.pack = Pack(name)
        self.ledger: Counter[str] = Counter()
        self.gate = asyncio.Event()
        self.gate.set()

        @self.pack.effect
        async def charge(order: str) -> str:
            self.ledger[order] += 1
            await self.gate.wait()
            return f"paid {order}"

        @self.pack.workflow(key="checkout:{order}", retention=retention)
        async def checkout(order: str, note: str = "") -> str:
            return await charge(order)

        @self.pack.workflow(key="checkout:{order}", retention=retention)
        async def refund(order: str) -> str:
            return "refunded " + await charge(f"refund {order}")

        @self.pack.workflow(retention=retention)
        async def anonymous(order: str) -> str:
            return await charge(order)

        self.checkout, self.refund, self.anonymous = checkout, refund, anonymous


async def test_a_start_answers_the_run_and_that_it_was_created(home: Home) -> None:
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        started = await hf.start(shop.checkout("o-1"))
        assert started._fields == ("run", "created")
        assert started.created
        assert started.run.key == "checkout:o-1"
        assert await started.run.result(timeout=30) == "paid o-1"


async def test_64_starts_of_one_key_at_once_are_one_run(home: Home) -> None:
    """K1, in one process, by two clients and a worker."""
    shop = Shop()
    async with (
        home.holdfast(shop.pack) as worker,
        home.holdfast(shop.pack, worker=False) as client,
    ):
        clients = [worker, client]
        answers = await asyncio.gather(*(clients[n % 2].start(shop.checkout("o-1")) for n in range(64)))
        assert sum(answer.created for answer in answers) == 1
        assert len({answer.run.id for answer in answers}) == 1
        results = await asyncio.gather(*(answer.run.result(timeout=30) for answer in answers))
        assert set(results) == {"paid o-1"}
    assert shop.ledger == {"o-1": 1}


# -- K3: the reply is lost


def _first_commit() -> Any:
    count = 0

    def loses(name: str, args: tuple[Any, ...]) -> bool:
        nonlocal count
        count += name == "commit"
        return name == "commit" and count == 1

    return loses


@pytest.mark.parametrize("worker", [True, False], ids=["worker", "client"])
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "keyless"])
async def test_a_start_whose_reply_was_lost_answers_created_again(home: Home, *, keyed: bool, worker: bool) -> None:
    """K3."""
    shop = Shop()
    call = shop.checkout("o-1") if keyed else shop.anonymous("o-1")
    loses = _first_commit()
    async with (
        home.holdfast(shop.pack) as other,
        home.holdfast(shop.pack, worker=worker, through=lambda store: LossyStore(store, loses)) as hf,
    ):
        with pytest.raises(StoreUnavailable):
            await hf.start(call, request_id="request-1")
        run, created = await hf.start(call, request_id="request-1")
        assert created
        assert await run.result(timeout=30) == "paid o-1"
        again = await hf.start(call, request_id="request-1")
        assert (again.created, again.run.id) == (True, run.id)
        assert await other.get(run.id) == await run.refresh()
    assert shop.ledger == {"o-1": 1}
    assert home.rows().get("runs", home.rows().get("_runs")) == 1


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "keyless"])
async def test_a_request_that_never_arrived_may_be_repeated_too(home: Home, *, keyed: bool) -> None:
    shop = Shop()
    call = shop.checkout("o-1") if keyed else shop.anonymous("o-1")
    loses = _first_commit()
    async with home.holdfast(shop.pack, through=lambda store: LossyStore(store, loses, before=True)) as hf:
        with pytest.raises(StoreUnavailable):
            await hf.start(call, request_id="request-1")
        run, created = await hf.start(call, request_id="request-1")
        assert created
        assert await run.result(timeout=30) == "paid o-1"
    assert shop.ledger == {"o-1": 1}


async def test_another_request_for_the_key_is_told_that_it_did_not_create_the_run(home: Home) -> None:
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        first = await hf.start(shop.checkout("o-1"), request_id="request-1")
        second = await hf.start(shop.checkout("o-1"), request_id="request-2")
        third = await hf.start(shop.checkout("o-1"))
        assert [first.created, second.created, third.created] == [True, False, False]
        assert {first.run.id, second.run.id, third.run.id} == {first.run.id}


async def test_repeated_requests_without_a_key_are_one_run_and_others_are_not(home: Home) -> None:
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        same = await asyncio.gather(*(hf.start(shop.anonymous("o-1"), request_id="r") for _ in range(8)))
        assert {answer.created for answer in same} == {True}
        assert len({answer.run.id for answer in same}) == 1
        other = await hf.start(shop.anonymous("o-1"), request_id="r-2")
        without = await hf.start(shop.anonymous("o-1"))
        assert len({same[0].run.id, other.run.id, without.run.id}) == 3
        for answer in (same[0], other, without):
            await answer.run.result(timeout=30)
    assert shop.ledger == {"o-1": 3}


async def test_requests_of_two_namespaces_never_meet_however_they_are_named(home: Home) -> None:
    """Joined by slashes, the two would be one text."""
    shop = Shop()
    workflow = shop.anonymous.name
    async with (
        home.holdfast(shop.pack) as plain,
        home.holdfast(shop.pack, namespace=f"default/{workflow}") as crafted,
    ):
        assert plain.namespace == "default"
        one = await plain.start(shop.anonymous("o-1"), request_id=f"{workflow}/r")
        two = await crafted.start(shop.anonymous("o-1"), request_id="r")
        assert one.run.id != two.run.id
        again = [
            await plain.start(shop.anonymous("o-1"), request_id=f"{workflow}/r"),
            await crafted.start(shop.anonymous("o-1"), request_id="r"),
        ]
        assert [each.run.id for each in again] == [one.run.id, two.run.id]
        await asyncio.gather(one.run.result(timeout=30), two.run.result(timeout=30))
        with pytest.raises(UnknownRun):
            await crafted.get(one.run.id)
    assert shop.ledger == {"o-1": 2}


async def test_a_request_that_was_named_by_an_earlier_version_is_found_again(home: Home) -> None:
    """The id of its run is what it was: a request that is retried across an upgrade does not start a second run."""
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        started = await hf.start(shop.anonymous("o-1"), request_id="r/1")
        name = f"default/{shop.anonymous.name}/r/1"
        assert started.run.id.startswith(blake2b(name.encode(), digest_size=16).hexdigest())
        await started.run.result(timeout=30)


async def test_a_run_of_another_namespace_that_has_the_id_of_a_request_is_not_answered(home: Home) -> None:
    """Earlier versions let such ids meet, and their runs are still there."""
    shop = Shop()
    async with (
        home.holdfast(shop.pack) as hf,
        home.holdfast(shop.pack, namespace="other") as other,
    ):
        run_id = (await hf.start(shop.anonymous("o-1"), request_id="r")).run.id
        service, options = other._service, StartOptions(request_id="q")
        wanted = service._wanted(service._asked(shop.anonymous("o-1"), options), options, is_plain=True)
        with pytest.raises(EngineFault):
            await service._admission.admit(msgspec.structs.replace(wanted, run_id=run_id))


async def test_a_repeated_request_with_another_input_is_refused(home: Home) -> None:
    """K11, where the request id is all the identity there is."""
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        first = await hf.start(shop.anonymous("o-1"), request_id="r")
        with pytest.raises(InputMismatch):
            await hf.start(shop.anonymous("o-2"), request_id="r")
        await first.run.result(timeout=30)
    assert shop.ledger == {"o-1": 1}


# -- K4, K5: around the end of the run


async def test_a_start_after_completion_answers_with_the_result_at_once(home: Home) -> None:
    """K4."""
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        first = await hf.start(shop.checkout("o-1"))
        await first.run.result(timeout=30)
        run, created = await hf.start(shop.checkout("o-1"))
        assert (created, run.id, run.status) == (False, first.run.id, "completed")
        assert await run.result(timeout=0) == "paid o-1"
    assert shop.ledger == {"o-1": 1}


async def test_a_failed_run_keeps_its_key_and_its_error_too(home: Home) -> None:
    pack = Pack("p")

    @pack.workflow(key="k:{n}")
    async def rejected(n: int) -> None:
        raise ValueError(f"no {n}")

    async with home.holdfast(pack) as hf:
        first = await hf.start(rejected(1))
        with pytest.raises(Exception, match="no 1"):
            await first.run.result(timeout=30)
        run, created = await hf.start(rejected(1))
        assert (created, run.status) == (False, "failed")
        with pytest.raises(Exception, match="no 1"):
            await run.result(timeout=0)


@pytest.mark.parametrize("pruned", [True, False], ids=["pruned", "not pruned yet"])
async def test_a_start_after_retention_is_a_new_run(home: Home, *, pruned: bool) -> None:
    """K4. Whether the pruner has come by makes no difference."""
    shop = Shop(retention="40ms")
    async with home.holdfast(shop.pack) as hf:
        store = hf._replica._ports.store
        first = (await hf.start(shop.checkout("o-1"))).run
        assert await first.result(timeout=30) == "paid o-1"
        expires_at = (await hf.find(shop.checkout, "checkout:o-1")).expires_at
        assert expires_at is not None
        await eventually(lambda: store.now_ms() > expires_at.timestamp() * 1000 + 1)
        if pruned:
            await store.prune(100)
        second, created = await hf.start(shop.checkout("o-1", note="another input is fine by now"))
        assert created
        assert second.id != first.id
        assert await second.result(timeout=30) == "paid o-1"
    assert shop.ledger == {"o-1": 2}


async def test_the_key_does_not_expire_while_its_run_lives(home: Home) -> None:
    shop = Shop(retention=0)
    shop.gate.clear()
    async with home.holdfast(shop.pack) as hf:
        seen = heard(hf)
        first = (await hf.start(shop.checkout("o-1"))).run
        await seen.until(EffectBegan)
        await hf._replica._ports.store.prune(100)
        second, created = await hf.start(shop.checkout("o-1"))
        assert (created, second.id) == (False, first.id)
        shop.gate.set()
        await seen.until(RunEnded)


async def test_starts_that_race_the_final_commit_see_one_of_two_serial_orders(home: Home) -> None:
    """K5: with no retention at all, each start either joins a run that was not over, or is a new one."""
    shop = Shop(retention=0)
    async with (
        home.holdfast(shop.pack) as worker,
        home.holdfast(shop.pack, worker=False) as client,
    ):

        async def keep_starting(hf: Any, count: int) -> list[Any]:
            answers = []
            for _ in range(count):
                answers.append(await hf.start(shop.checkout("o-1")))
                await asyncio.sleep(0)
            return answers

        answers = [
            answer
            for share in await asyncio.gather(
                keep_starting(worker, 100), keep_starting(client, 100), keep_starting(client, 100)
            )
            for answer in share
        ]
        created = {answer.run.id for answer in answers if answer.created}
        assert {answer.run.id for answer in answers} == created
        assert len([answer for answer in answers if answer.created]) == len(created)
        await eventually(lambda: shop.ledger["o-1"] == len(created))
    assert shop.ledger == {"o-1": len(created)}


async def test_starts_that_race_the_final_commit_all_get_the_one_result(home: Home) -> None:
    """K5, with retention: joining before, during and after the end is all the same."""
    shop = Shop()
    async with (
        home.holdfast(shop.pack) as worker,
        home.holdfast(shop.pack, worker=False) as client,
    ):
        for number in range(20):
            order = f"o-{number}"
            starts = [worker.start(shop.checkout(order))]
            starts += [client.start(shop.checkout(order)) for _ in range(4)]
            answers = await asyncio.gather(*starts)
            assert sum(answer.created for answer in answers) == 1
            results = await asyncio.gather(*(answer.run.result(timeout=30) for answer in answers))
            assert set(results) == {f"paid {order}"}
    assert set(shop.ledger.values()) == {1}


# -- K6, K17: retention


async def test_payloads_live_as_long_as_their_key(home: Home) -> None:
    """K6: the neighbours are pruned, this one answers with everything it had."""
    pack = Pack("p")

    @pack.workflow(key="k:{n}")
    async def echo(n: int, text: str) -> str:
        return text

    async with home.holdfast(pack, duties=False) as hf:  # nothing is pruned before the results were seen
        store = hf._replica._ports.store
        kept = (await hf.start(echo(0, LARGE))).run
        others = [(await hf.start(echo(n, LARGE), retention=0)).run for n in range(1, 6)]
        for run in [kept, *others]:
            assert await run.result(timeout=30) == LARGE
        await eventually(lambda: _pruned(store, others))
        for run in others:
            with pytest.raises(UnknownRun):
                await run.refresh()
        again, created = await hf.start(echo(0, LARGE))
        assert not created
        assert await again.result(timeout=0) == LARGE
        assert await again.input() == {"n": 0, "text": LARGE}
        assert len(await again.journal()) == 2


async def _pruned(store: Any, runs: list[Any]) -> bool:
    await store.prune(100)
    return not await store.runs([run.id for run in runs])


async def test_row_counts_return_to_the_baseline(home: Home) -> None:
    """K17: children, large values, heartbeats, messages, watchers and keys all go."""
    pack = Pack("p")

    @pack.effect
    async def work(text: str) -> str:
        heartbeat({"done": 1})
        return text

    @pack.workflow(retention=0, key="child:{n}")
    async def child(n: int) -> str:
        return await work(LARGE)

    @pack.workflow(retention=0, key="parent:{n}")
    async def parent(n: int) -> int:
        spawned = await spawn(child(n))
        other = await child(n + 1000)
        await sleep(0.001)
        return len(await spawned.result()) + len(other)

    async with home.holdfast(pack) as hf:
        await eventually(lambda: all(hf.runtime.duties_led.values()))  # whose leases are documents, too
        baseline = home.rows()
        seen = heard(hf)
        for n in range(5):
            assert await (await hf.start(parent(n))).run.result(timeout=30) == 2 * len(LARGE)
        await seen.until(RunEnded, count=15)
        assert home.rows() != baseline
        store = hf._replica._ports.store
        await eventually(lambda: _baseline(store, home, baseline))


async def _baseline(store: Any, home: Home, baseline: dict[str, int]) -> bool:
    await store.prune(100)
    return home.rows() == baseline


async def test_the_pruner_comes_by_itself(home: Home) -> None:
    shop = Shop(retention=0)
    async with home.holdfast(shop.pack) as first:
        run = (await first.start(shop.checkout("o-1"))).run
        await run.result(timeout=30)
    async with home.holdfast(shop.pack) as hf:
        await eventually(lambda: _pruned(hf._replica._ports.store, [run]))
        with pytest.raises(UnknownRun):
            await hf.find(shop.checkout, "checkout:o-1")


async def test_a_run_that_was_pruned_before_anybody_asked_is_unknown_and_not_waited_for(home: Home) -> None:
    shop = Shop(retention=0)
    async with home.holdfast(shop.pack) as hf, home.holdfast(shop.pack, worker=False) as client:
        seen = heard(hf)
        run = (await client.start(shop.checkout("o-1"))).run
        await seen.until(RunEnded)
        await eventually(lambda: _pruned(hf._replica._ports.store, [run]))
        with pytest.raises(UnknownRun):
            await run.result(timeout=30)


# -- K10, K11: whose key it is


async def test_the_same_key_in_two_workflows_is_independent(home: Home) -> None:
    """K10."""
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        one = await hf.start(shop.checkout("o-1"))
        two = await hf.start(shop.refund("o-1"))
        assert (one.created, two.created, one.run.key) == (True, True, two.run.key)
        assert await one.run.result(timeout=30) == "paid o-1"
        assert await two.run.result(timeout=30) == "refunded paid refund o-1"
        assert (await hf.find(shop.checkout, "checkout:o-1")).id == one.run.id
        assert (await hf.find("refund", "checkout:o-1")).id == two.run.id


async def test_the_same_key_in_two_namespaces_is_independent(home: Home) -> None:
    """K10."""
    shop = Shop()
    async with (
        home.holdfast(shop.pack, namespace="a") as a,
        home.holdfast(shop.pack, namespace="b") as b,
    ):
        one, two = await a.start(shop.checkout("o-1")), await b.start(shop.checkout("o-1", note="other input"))
        assert (one.created, two.created) == (True, True)
        assert one.run.id != two.run.id
        await asyncio.gather(one.run.result(timeout=30), two.run.result(timeout=30))
        with pytest.raises(UnknownRun):
            await a.get(two.run.id)
        with pytest.raises(UnknownRun):
            await b.get(one.run.id)
    assert shop.ledger == {"o-1": 2}


async def test_a_worker_leaves_other_namespaces_alone(home: Home) -> None:
    shop = Shop()
    async with (
        home.holdfast(shop.pack, namespace="a") as a,
        home.holdfast(shop.pack, namespace="b", worker=False) as b,
    ):
        lonely = (await b.start(shop.checkout("lonely"))).run
        assert await (await a.start(shop.checkout("o-1"))).run.result(timeout=30) == "paid o-1"
        assert (await lonely.refresh()).status == "pending"
    assert shop.ledger == {"o-1": 1}


@pytest.mark.parametrize(
    ("default", "given"),
    [(0.0, -0.0), ([1], [True]), ({"limit": 1}, {"limit": 1.0}), ({"limit": 1}, {"limit": True})],
)
async def test_what_only_python_calls_equal_to_a_default_is_another_input(home: Home, default: Any, given: Any) -> None:
    pack = Pack("shop")

    @pack.workflow(key="order:{order}")
    async def work(order: str, limit: Any = default) -> None: ...

    async with home.holdfast(pack) as hf:
        first = await hf.start(work("o-1"))
        for same in (work("o-1"), work("o-1", default), hf.call("work", {"order": "o-1", "limit": default})):
            assert (await hf.start(same)).run.id == first.run.id
        for other in (work("o-1", given), hf.call("work", {"order": "o-1", "limit": given})):
            with pytest.raises(InputMismatch):
                await hf.start(other)
        await hf.start(work("o-2", given))
        with pytest.raises(InputMismatch):
            await hf.start(work("o-2"))


@pytest.mark.parametrize("finished", [True, False], ids=["finished", "in flight"])
async def test_another_input_under_a_live_key_starts_nothing(home: Home, *, finished: bool) -> None:
    """K11."""
    shop = Shop()
    if not finished:
        shop.gate.clear()
    async with home.holdfast(shop.pack) as hf:
        seen = heard(hf)
        first = (await hf.start(shop.checkout("o-1"))).run
        await (first.result(timeout=30) if finished else seen.until(EffectBegan))
        with pytest.raises(InputMismatch) as caught:
            await hf.start(shop.checkout("o-1", note="changed"))
        assert caught.value.hint
        assert caught.value.run_id == first.id
        assert (caught.value.run.id, caught.value.run.key) == (first.id, "checkout:o-1")
        shop.gate.set()
        assert await caught.value.run.result(timeout=30) == "paid o-1"
    assert shop.ledger == {"o-1": 1}
    assert home.rows().get("runs", home.rows().get("_runs")) == 1


async def test_inputs_that_mean_the_same_are_the_same(home: Home) -> None:
    """Defaults, keywords and the order of a mapping make no other input."""
    pack = Pack("p")

    @pack.workflow(key="k")
    async def work(options: dict[str, int], flag: bool = False) -> None: ...

    async with home.holdfast(pack) as hf:
        first = await hf.start(work({"a": 1, "b": 2}))
        for call in (work({"b": 2, "a": 1}), work(options={"a": 1, "b": 2}, flag=False)):
            again = await hf.start(call)
            assert (again.created, again.run.id) == (False, first.run.id)
        with pytest.raises(InputMismatch):
            await hf.start(work({"a": 1, "b": 2}, flag=True))
        await first.run.result(timeout=30)


async def test_a_key_given_at_the_start_takes_the_place_of_the_template(home: Home) -> None:
    shop = Shop()
    async with home.holdfast(shop.pack) as hf:
        one = await hf.start(shop.checkout("o-1"), key="mine")
        two = await hf.start(shop.checkout("o-1"))
        three = await hf.start(shop.anonymous("o-1"), key="mine")
        assert (one.run.key, two.run.key, three.run.key) == ("mine", "checkout:o-1", "mine")
        assert (one.created, two.created, three.created) == (True, True, True)
        assert not (await hf.start(shop.anonymous("o-1"), key="mine")).created


async def test_whoever_joins_nobody_is_told_who_is_at_it(home: Home) -> None:
    holding = Holding()
    async with home.holdfast(holding.pack) as hf:
        run = (await hf.start(holding.work(1), key="k", request_id="r-1")).run
        with pytest.raises(InFlight) as caught:
            await hf.start(holding.work(1), key="k", join=False)
        assert caught.value.run_id == run.id
        again = await hf.start(holding.work(1), key="k", join=False, request_id="r-1")
        assert (again.run.id, again.created) == (run.id, True)
        holding.gate.set()
        settled = await run.wait(timeout=PATIENCE_SECONDS)
        assert (settled.status, settled.is_settled, run.is_settled) == ("completed", True, False)
        assert (await settled.result_json(), await settled.input_json()) == (b"1", b'{"n":1}')
        with pytest.raises(NotAllowedNow):
            await run.result_json()
        assert await hf.start(holding.work(1), key="k", join=False) == (settled, False)


async def test_a_start_joins_the_run_of_its_key_although_a_default_has_changed_since(home: Home) -> None:
    """What the caller has given is the same. The run keeps the input that it was admitted with, and shows it."""

    def shop(cents: int) -> tuple[Pack, Any]:
        pack = Pack("shop")

        @pack.workflow(key="checkout:{order}")
        async def checkout(order: str, price: int = cents) -> int:
            return price

        return pack, checkout

    (old, before), (new, after) = shop(100), shop(200)
    async with home.holdfast(old) as hf:
        first = (await hf.start(before("o-1"))).run
        assert await first.result(timeout=30) == 100
    async with home.holdfast(new) as hf:
        run, created = await hf.start(after("o-1"))
        assert (run.id, created, await run.result(timeout=30)) == (first.id, False, 100)
        assert await run.input() == {"order": "o-1", "price": 100}
        assert await (await hf.start(after("o-2"))).run.result(timeout=30) == 200

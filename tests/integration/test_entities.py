"""Entities: one long run per key that loops over its hook, and continues as new to keep its journal short (K19)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import (
    Hook,
    Pack,
    Run,
    RunCancelled,
    RunFailed,
    UsageError,
    continue_as_new,
    effect_key,
    hook,
    mark,
    now,
    set_attributes,
    sleep,
    uuid4,
)
from holdfast.events import EffectBegan, RunContinued, RunLetGo
from holdfast.kernel.journal import Completed, Continued, Performed, Received
from tests.integration.conftest import Home, eventually, heard
from tests.integration.wrappers import LossyStore

LARGE = "x" * 300_000  # kept beside the journal
EACH = 3  # payloads per generation


class Accounts:
    """An account takes deposits until it is closed; every few of them it begins anew."""

    def __init__(self) -> None:
        self.pack = Pack("bank")
        self.keys: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

        @self.pack.effect
        async def book(what: Any) -> None:
            self.keys.append(effect_key())
            await self.gate.wait()

        @self.pack.workflow(key="account:{name}", markers=("open", "busy"))
        async def account(name: str, balance: int = 0, seen: list[int] | None = None) -> list[int]:
            seen = seen or []
            if len(seen) == EACH:
                await set_attributes(generation="second")
            deposits: Hook[int] = hook("deposits", type=int)
            for _ in range(EACH):
                amount = await deposits
                if amount < 0:
                    return [*seen, balance]
                await book(amount)
                balance, seen = balance + amount, [*seen, amount]
                await set_attributes(balance=balance)
            return continue_as_new(account(name, balance, seen))

        self.account, self.book = account, book


@pytest.fixture
def bank() -> Accounts:
    return Accounts()


@pytest.mark.parametrize("count", [30, 31])
async def test_nothing_is_lost_and_nothing_comes_twice_over_many_generations(
    home: Home, bank: Accounts, count: int
) -> None:
    """K19: all that is sent to the key reaches the one run that owns it, whatever generation it is in."""
    async with home.holdfast(bank.pack) as hf, home.holdfast(bank.pack, worker=False) as client:
        clients = [hf, client]

        async def send(n: int) -> list[Any]:
            return [
                await clients[n % 2].start(bank.account("a"), signal=("deposits", n, f"d{n}")) for _ in range(1 + n % 2)
            ]

        answers = [each for some in await asyncio.gather(*map(send, range(1, count + 1))) for each in some]
        assert len({answer.run.id for answer in answers}) == 1
        assert sum(answer.created for answer in answers) == 1
        run = answers[0].run
        await run.signal("deposits", -1)
        *seen, balance = await run.result(timeout=30)
        assert sorted(seen) == list(range(1, count + 1))
        assert balance == sum(range(1, count + 1))
        generations = heard(hf).all(RunContinued, run_id=run.id)
        assert [event.generation for event in generations] == list(range(1, count // EACH + 1))
    assert len(bank.keys) == len(set(bank.keys)) == count


async def test_the_run_stays_what_it_is(home: Home, bank: Accounts) -> None:
    """Its id, its key, its attributes; only its journal begins anew, and with it its input."""
    async with home.holdfast(bank.pack) as hf:
        run = (await hf.start(bank.account("a"), attributes={"owner": "ann"})).run
        for n in range(1, 2 * EACH + 1):
            await run.signal("deposits", n)
        await heard(hf).until(RunContinued, count=2)
        await eventually(lambda: _input(hf, run, 6 * 7 // 2))
        again = await hf.find(bank.account, "account:a")
        assert (again.id, again.key, again.holds_key) == (run.id, "account:a", True)
        assert again.attributes == {"owner": "ann", "generation": "second", "balance": 21}
        assert [each.id async for each in hf.runs(attributes={"owner": "ann", "balance": 21})] == [run.id]
        assert await again.input() == {"name": "a", "balance": 21, "seen": [1, 2, 3, 4, 5, 6]}
        assert again.created_at == run.created_at
        first, *_ = await run.journal()
        assert isinstance(first, Continued)
        assert first.generation == 2
        await run.signal("deposits", -1)
        assert await run.result(timeout=30) == [1, 2, 3, 4, 5, 6, 21]
        assert [entry.what for entry in await run.journal()] == ["continued", "received", "completed"]


async def _input(hf: Any, run: Run[Any], balance: int) -> bool:
    return (await (await hf.get(run.id)).input())["balance"] == balance


async def test_starts_of_the_key_meet_the_first_input_whatever_the_present_one_is(home: Home, bank: Accounts) -> None:
    async with home.holdfast(bank.pack) as hf:
        run = (await hf.start(bank.account("a"))).run
        for n in range(EACH):
            await run.signal("deposits", n)
        await heard(hf).until(RunContinued)
        again = await hf.start(bank.account("a"))
        assert (again.created, again.run.id) == (False, run.id)


async def test_steps_and_effect_keys_of_generations_differ(home: Home, bank: Accounts) -> None:
    async with home.holdfast(bank.pack) as hf:
        run = (await hf.start(bank.account("a"))).run
        steps: list[str] = []
        for generation in range(3):
            for n in range(EACH):
                await run.signal("deposits", n)
                if n < EACH - 1:
                    await eventually(lambda: _performed(run, n + 1))  # noqa: B023 - awaited here
            if generation < 2:
                await heard(hf).until(RunContinued, count=generation + 1)
        await heard(hf).until(RunContinued, count=3)
        steps = [event.step for event in heard(hf).all(EffectBegan)]
    assert steps == [f"{prefix}book#{n}" for prefix in ("", "g1/", "g2/") for n in (1, 2, 3)]
    assert bank.keys == [f"{run.id}/{step}" for step in steps]


async def _performed(run: Run[Any], count: int) -> bool:
    return sum(isinstance(entry, Performed) for entry in await run.journal()) >= count


async def test_unread_and_untaken_signals_go_along_whole_and_in_order(home: Home) -> None:
    """For a hook that this generation waits for, for one that it does not know, large or small."""
    pack = Pack("p")
    gate = asyncio.Event()

    @pack.effect
    async def hold() -> None:
        await gate.wait()

    @pack.workflow(key="k")
    async def relay(generation: int = 0) -> list[Any]:
        if generation == 0:
            first = await hook("items")
            assert first == "first"
            await hold()
            continue_as_new(relay(1))
        if generation == 1:
            continue_as_new(relay(2))
        items = hook("items")
        return [await items, await items, await items, await hook("later"), await hook("later")]

    async with home.holdfast(pack) as hf:
        run = (await hf.start(relay(), signal=("items", "first", "d0"))).run
        await heard(hf).until(EffectBegan)
        await run.signal("later", LARGE)
        for n, payload in enumerate(["a", LARGE + "b", "c"]):
            await run.signal("items", payload, dedupe=f"d{n + 1}")
        await run.signal("later", "z")
        for n in range(4):
            await run.signal("items", "a repetition", dedupe=f"d{n}")
        gate.set()
        await heard(hf).until(RunContinued, count=2)
        for n in range(4):
            await run.signal("items", "a repetition", dedupe=f"d{n}")
        assert await run.result(timeout=30) == ["a", LARGE + "b", "c", LARGE, "z"]


async def test_signals_that_race_the_new_beginning_are_kept(home: Home) -> None:
    pack = Pack("p")

    @pack.workflow(key="k")
    async def spin(taken: list[int], generations: int) -> list[int]:
        if generations == 0:
            items = hook("items")
            while len(taken) < 50:
                taken = [*taken, await items]
            return taken
        items = hook("items")
        taken = [*taken, await items]
        return continue_as_new(spin(taken, generations - 1))

    async with home.holdfast(pack) as hf, home.holdfast(worker=False) as client:
        run = (await hf.start(spin([], 40))).run
        theirs = await client.get(run.id)
        await asyncio.gather(*([run, theirs][n % 2].signal("items", n, dedupe=str(n)) for n in range(50)))
        assert sorted(await run.result(timeout=30)) == list(range(50))


@pytest.mark.parametrize("let_go", [False, True], ids=["in memory", "let go"])
async def test_a_later_generation_survives_the_process(home: Home, bank: Accounts, *, let_go: bool) -> None:
    if let_go:
        home.paced(idle_ms=10)
    async with home.holdfast(bank.pack) as hf:
        run = (await hf.start(bank.account("a"))).run
        for n in range(1, EACH + 2):
            await run.signal("deposits", n)
        await eventually(lambda: len(bank.keys) == EACH + 1)
        if let_go:
            await heard(hf).until(RunLetGo)
    async with home.holdfast(bank.pack) as hf:
        run = await hf.get(run.id)
        await run.signal("deposits", 10)
        await run.signal("deposits", -1)
        assert await run.result(timeout=30) == [1, 2, 3, 4, 10, 20]
        assert run.attributes["balance"] == 10
        assert [row.divergence for row in await hf.replay_check(status="completed")] == [""]
    assert len(bank.keys) == len(set(bank.keys)) == 5


async def test_a_process_that_stops_in_the_middle_of_a_generation_loses_nothing(home: Home, bank: Accounts) -> None:
    run_id = ""
    for n in range(1, 11):
        async with home.holdfast(bank.pack) as hf:
            run, created = await hf.start(bank.account("a"), signal=("deposits", n, str(n)))
            assert created == (n == 1)
            run_id = run.id
    async with home.holdfast(bank.pack) as hf:
        run = await hf.get(run_id)
        await run.signal("deposits", -1)
        assert await run.result(timeout=30) == [*range(1, 11), 55]
    assert len(set(bank.keys)) == 10


async def test_a_new_beginning_whose_reply_was_lost_begins_once(home: Home, bank: Accounts) -> None:
    lost: list[str] = []

    def loses(name: str, args: tuple[Any, ...]) -> bool:
        if name != "commit" or not any(change.replaces_journal for change in args[0]) or lost:
            return False
        lost.append(name)
        return True

    async with home.holdfast(bank.pack, through=lambda store: LossyStore(store, loses)) as hf:
        run = (await hf.start(bank.account("a"))).run
        for n in (1, 2, 3):
            await run.signal("deposits", n)
        await heard(hf).until(RunContinued)
        for n in (4, -1):
            await run.signal("deposits", n)
        assert await run.result(timeout=30) == [1, 2, 3, 4, 10]
    assert lost == ["commit"]
    assert len(bank.keys) == 4


async def test_the_journal_of_an_entity_stays_short_and_its_large_values_go(home: Home) -> None:
    pack = Pack("p")

    @pack.effect
    async def act(payload: str) -> str:
        return payload + "!"

    @pack.workflow(key="k")
    async def entity(n: int = 0) -> str:
        await act(await hook("items", type=str))
        if n == 5:
            return "done"
        return continue_as_new(entity(n + 1))

    async with home.holdfast(pack) as hf:
        run = (await hf.start(entity())).run
        longest = 0
        for n in range(6):
            await run.signal("items", LARGE)
            if n < 5:
                await heard(hf).until(RunContinued, count=n + 1)
                longest = max(longest, len(await run.journal()))
        assert await run.result(timeout=30) == "done"
        rows = home.rows()
        assert longest <= 3
    blobs = rows.get("blobs", rows.get("_blobs"))
    assert blobs is not None
    assert blobs <= 3


async def test_tokens_timers_and_chance_begin_anew_with_each_generation(home: Home) -> None:
    pack = Pack("p")

    @pack.workflow(key="k")
    async def entity(seen: list[str]) -> list[str]:
        if len(seen) == 3:
            return seen
        assert now().timestamp() > 0
        door = hook("door", token="T")
        assert await door.conflict() is None
        answer = await door
        await sleep("2ms")
        return continue_as_new(entity([*seen, f"{answer} {uuid4()}"]))

    async with home.holdfast(pack) as hf:
        run = (await hf.start(entity([]))).run

        async def resumed(n: int) -> bool:
            try:
                return (await hf.resume_hook("T", n, dedupe=str(n))).id == run.id
            except UsageError:
                return False

        for n in range(3):
            await eventually(lambda: resumed(n))  # noqa: B023 - awaited here
        seen = await run.result(timeout=30)
        assert [each.split()[0] for each in seen] == ["0", "1", "2"]
        assert len({each.split()[1] for each in seen}) == 3


async def test_a_new_generation_may_go_through_the_markers_again(home: Home) -> None:
    pack = Pack("p")

    @pack.workflow(key="k", markers=("new", "paid", "shipped"))
    async def order(n: int = 0) -> int:
        await mark("paid")
        await mark("shipped")
        if n == 2:
            return n
        return continue_as_new(order(n + 1))

    async with home.holdfast(pack) as hf:
        run = (await hf.start(order())).run
        assert await run.result(timeout=30) == 2
        assert [marker.name for marker in (await run.refresh()).markers] == ["paid", "shipped"]


async def test_what_is_under_way_is_left_behind(home: Home) -> None:
    """A task that the former generation did not wait for belongs to the past."""
    pack = Pack("p")
    gate = asyncio.Event()
    calls: list[str] = []

    @pack.effect
    async def act(name: str) -> str:
        calls.append(name)
        if name == "slow":
            await gate.wait()
        return name

    @pack.workflow(key="k")
    async def entity(n: int = 0) -> str:
        if n == 0:
            slow = asyncio.ensure_future(_awaited(act("slow")))
            await act("quick")
            assert not slow.done()
            continue_as_new(entity(1))
        return await act("second")

    async with home.holdfast(pack) as hf:
        run = (await hf.start(entity())).run
        assert await run.result(timeout=30) == "second"
        gate.set()
        assert isinstance((await run.journal())[-1], Completed)
    assert sorted(calls) == ["quick", "second", "slow"]


async def _awaited(call: Any) -> Any:
    return await call


async def test_an_entity_can_be_cancelled_in_any_generation(home: Home, bank: Accounts) -> None:
    async with home.holdfast(bank.pack) as hf:
        run = (await hf.start(bank.account("a"))).run
        for n in range(EACH):
            await run.signal("deposits", n)
        await heard(hf).until(RunContinued)
        receipt = await run.cancel("enough")
        assert receipt.run_id == run.id
        with pytest.raises(RunCancelled):
            await run.result(timeout=30)
        assert not any(isinstance(entry, Received) for entry in await run.journal())


async def test_a_run_can_only_continue_as_what_it_is(home: Home) -> None:
    pack = Pack("p")

    @pack.workflow
    async def other() -> None: ...

    @pack.workflow
    async def work(how: str) -> None:
        strange: Any = object()
        wrong: Any = {"another workflow": other(), "no call": "work()", "not serializable": work(strange)}[how]
        continue_as_new(wrong)

    async with home.holdfast(pack) as hf:
        for how in ("another workflow", "no call", "not serializable"):
            with pytest.raises(RunFailed) as caught:
                await (await hf.start(work(how))).run.result(timeout=30)
            assert isinstance(caught.value.__cause__, UsageError), how
    with pytest.raises(UsageError):
        continue_as_new(work("outside"))

"""A signal that was accepted is in the journal of some run, whatever becomes of the run that it was sent to."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest

from holdfast import Holdfast, Pack, Run, RunFailed, hook
from holdfast.events import EffectBegan
from holdfast.kernel import hooks
from holdfast.kernel.journal import KeyReleased, Received
from holdfast.ports.store import Store
from tests.integration.conftest import Home, eventually, heard
from tests.integration.wrappers import GatedStore, StoreWrapper

LIVE = ["pending", "running", "waiting", "blocked"]


class Desks:
    """Runs that take one item and end, whatever else was sent to them."""

    def __init__(self) -> None:
        self.pack = Pack("desks")
        self.gate = asyncio.Event()

        @self.pack.effect
        async def hold() -> None:
            await self.gate.wait()

        @self.pack.workflow(key="desk:{clerk}", retention="30d")
        async def desk(clerk: str, how: str = "waiting") -> Any:
            async with hook("bell", token=f"bell:{clerk}:{how}") as bell:
                await bell.conflict()
                match how:
                    case "running":
                        await hold()
                    case "blocked":
                        await asyncio.Event().wait()
                    case _:
                        pass
                return await hook("items")

        @self.pack.workflow(key="fussy:{clerk}")
        async def fussy(clerk: str) -> None:
            raise ValueError(await hook("items"))

        self.desk, self.fussy = desk, fussy


async def _is(run: Run[Any], status: str) -> bool:
    return (await run.refresh()).status == status


async def received(run: Run[Any]) -> list[Received]:
    return [entry for entry in await run.journal() if isinstance(entry, Received)]


def payloads(entries: list[Received]) -> list[Any]:
    return [msgspec.json.decode(entry.value.json) for entry in entries]


async def recorded(hf: Holdfast) -> Counter[Any]:
    """What all journals together say was received."""
    return Counter([payload async for run in hf.runs() for payload in payloads(await received(run))])


async def all_ended(hf: Holdfast) -> bool:
    """Whether every run has ended, and nothing lies in an inbox."""
    run_ids = [run.id async for run in hf.runs()]
    rows = await hf.runtime.store.runs(run_ids)
    ended = all(row.finished_at_ms is not None and not row.unread for row in rows)
    # One that has ended since the list was made may have a successor, which the list does not show.
    return ended and [run.id async for run in hf.runs()] == run_ids


@pytest.fixture
def desks() -> Desks:
    return Desks()


@pytest.fixture(autouse=True)
def let_go_at_once(home: Home) -> None:
    """Runs that wait leave the memory nearly at once."""
    home.paced(idle_ms=10)


@contextlib.asynccontextmanager
async def in_status(home: Home, desks: Desks, client: Holdfast, status: str) -> AsyncGenerator[Run[Any]]:
    """A run in this status. Nobody executes it in the block, unless it is running."""
    run = (await client.start(desks.desk("eve", status))).run
    async with contextlib.AsyncExitStack() as working:
        if status != "pending":
            hf = await working.enter_async_context(home.holdfast(desks.pack))
            if status == "running":
                await heard(hf).until(EffectBegan)
            else:
                await eventually(lambda: _is(run, status))
        if status != "running":
            await working.aclose()
        yield await run.refresh()
        desks.gate.set()


async def send(client: Holdfast, desks: Desks, run: Run[Any]) -> Counter[Any]:
    """Send some payloads by every way there is; each is accepted."""
    sent: list[Any] = [0, 1, 2, "to the run"]
    for number in sent[:3]:
        told = await client.start(desks.desk("eve", (await run.input())["how"]), signal=("items", number, f"d{number}"))
        assert told.run.id == run.id
    await run.signal("items", "to the run")
    if run.status != "pending":
        assert (await client.resume_hook(f"bell:eve:{(await run.input())['how']}", "to the token")).id == run.id
        sent.append("to the token")
    return Counter(sent)


@pytest.mark.parametrize(
    ("verb", "status"), [*itertools.product(["release", "replace"], LIVE), ("release and replace", "waiting")]
)
async def test_what_was_sent_to_a_run_that_loses_its_key_is_in_its_journal(
    home: Home, desks: Desks, status: str, verb: str
) -> None:
    async with home.holdfast(desks.pack, worker=False) as client:
        async with in_status(home, desks, client, status) as run:
            sent = await send(client, desks, run)
            if "release" in verb:
                await run.release_key("a person")
                await client.start(desks.desk("eve"), signal=("items", "to the next", "d9"))
            if "replace" in verb:
                former = await client.find(desks.desk, "desk:eve") if "release" in verb else run
                await client.start(desks.desk("eve"), replace=former, signal=("items", "to the last", "d10"))
        if "release" in verb and status == "blocked":
            await run.cancel("nobody will retry it")  # it has lost its key
        async with home.holdfast(desks.pack):
            await eventually(lambda: all_ended(client))
        of_the_run = Counter(payloads(await received(run)))
        assert of_the_run == sent
        own = {"to the next"} if "release" in verb else set[str]()
        own |= {"to the last"} if "replace" in verb else set()
        assert await recorded(client) == sent + Counter(own)
        if "release" in verb:
            assert [entry.reason for entry in await run.journal() if isinstance(entry, KeyReleased)] == ["a person"]
        for number in range(3):  # and each dedupe id still meets the run that has it
            again = await client.start(desks.desk("eve"), signal=("items", number, f"d{number}"))
            assert (again.created, again.run.id) == (False, run.id)


@pytest.mark.parametrize("status", LIVE)
@pytest.mark.parametrize("late", [False, True], ids=["in time", "by the deadline"])
async def test_what_was_sent_to_a_run_that_is_cancelled_is_in_its_journal(
    home: Home, desks: Desks, status: str, *, late: bool
) -> None:
    async with home.holdfast(desks.pack, worker=False) as client:
        async with in_status(home, desks, client, status) as run:
            sent = await send(client, desks, run)
            if late:
                await run.cancel("enough", deadline="0s")
            else:
                await run.ask_cancel("enough")
        async with home.holdfast(desks.pack):
            await eventually(lambda: all_ended(client))
            if (await run.refresh()).status == "completed":  # it was faster; its successors took one each
                assert set(await recorded(client)) == set(sent)
                return
            assert Counter(payloads(await received(run))) == sent == await recorded(client)
            if status in {"pending", "waiting"}:
                await run.resume()
                assert await run.result(timeout=30) == 0  # what it had not seen it sees now
                await eventually(lambda: all_ended(client))
                assert set(await recorded(client)) == set(sent)


@pytest.mark.parametrize("verb", ["release", "replace"])
async def test_a_key_that_is_lost_while_the_run_is_ending_leaves_its_mail_with_the_run(
    home: Home, desks: Desks, verb: str
) -> None:
    """The end was decided with a successor for what is unread; when it is committed, there can be none."""
    async with home.holdfast(desks.pack, worker=False) as client:
        async with in_status(home, desks, client, "waiting") as run:
            sent = await send(client, desks, run)
        async with home.holdfast(desks.pack, through=_held_at_an_end_with_a_successor) as hf:
            gated = hf.runtime.store
            assert isinstance(gated, GatedStore)
            await gated.reached.wait()
            if verb == "release":
                await run.release_key("a person")
                await client.start(desks.desk("eve"), signal=("items", "to the next", "d9"))
            else:
                await client.start(desks.desk("eve"), replace=run, signal=("items", "to the next", "d9"))
            gated.gate.set()
            assert await run.result(timeout=30) == 0
            await eventually(lambda: all_ended(client))
        assert Counter(payloads(await received(run))) == sent
        assert await recorded(client) == sent + Counter(["to the next"])
        assert sum(isinstance(entry, KeyReleased) for entry in await run.journal()) == (verb == "release")
        left = [line.text for line in (await run.explain()).lines if "left unread" in line.text]
        assert len(left) >= 2, left  # those that a successor was to take over


def _held_at_an_end_with_a_successor(store: Store) -> GatedStore:
    return GatedStore(store, lambda changes: any(change.then is not None for change in changes))


async def test_what_was_sent_to_a_run_that_fails_is_in_its_journal_once(home: Home, desks: Desks) -> None:
    async with home.holdfast(desks.pack, worker=False) as client:
        run = (await client.start(desks.fussy("eve"), signal=("items", 0, "d0"))).run
        for number in (1, 2):
            await client.start(desks.fussy("eve"), signal=("items", number, f"d{number}"))
        async with home.holdfast(desks.pack):
            for _ in range(2):
                with pytest.raises(RunFailed):
                    await (await client.get(run.id)).result(timeout=30)
                assert payloads(await received(run)) == [0, 1, 2]
                assert [entry.left for entry in await received(run)] == [False, True, True]
                await run.retry()
            with pytest.raises(RunFailed):
                await (await client.get(run.id)).result(timeout=30)
            after = await client.start(desks.fussy("eve"), signal=("items", 3, "d3"))
            assert after.created  # it takes the key over, and not what the failed run has in its journal
            await eventually(lambda: all_ended(client))
            assert await recorded(client) == Counter(range(4))


async def test_a_blocked_run_that_is_superseded_ends_although_a_signal_comes_just_then(
    home: Home, desks: Desks
) -> None:
    """Nobody executes it: whoever supersedes it ends it, and reads what has come meanwhile."""
    async with (
        home.holdfast(desks.pack, worker=False) as other,
        home.holdfast(desks.pack, worker=False, through=_held_at_a_cancelled_run) as client,
    ):
        gated = client.runtime.store
        assert isinstance(gated, GatedStore)
        async with in_status(home, desks, client, "blocked") as run:
            sent = await send(client, desks, run)
            superseding = asyncio.create_task(client.start(desks.desk("eve"), replace=run))
            await gated.reached.wait()
            await (await other.get(run.id)).signal("items", "in between")
            gated.gate.set()
            await superseding
            assert (await run.refresh()).status == "cancelled"
            assert Counter(payloads(await received(run))) == sent + Counter(["in between"])
            assert {entry.left for entry in await received(run)} == {True}


def _held_at_a_cancelled_run(store: Store) -> GatedStore:
    return GatedStore(store, lambda changes: any(each.run and each.run.status == "cancelled" for each in changes))


@pytest.mark.parametrize("safety", ["keyed", "once"])
@pytest.mark.parametrize("stops", [None, 1, 2], ids=["goes on", "stops at once", "stops after a commit"])
async def test_what_returned_before_a_refused_end_is_not_performed_again_however_much_mail_came(
    home: Home, safety: Any, stops: int | None
) -> None:
    """The end is refused over so many signals that what it recorded waits behind them for more than one commit."""
    pack, calls, told, stopped = Pack("p"), list[str](), list[str](), asyncio.Event()
    commits = itertools.count(1)  # after the end was refused

    @pack.effect(safety=safety)
    async def act() -> None:
        calls.append("act")

    @pack.workflow
    async def collect() -> int:
        taken = list[int]()

        async def take() -> None:
            async for item in hook("items", type=int):
                taken.append(item)

        taking = asyncio.create_task(take())
        await act()
        taking.cancel()
        return len(taken)

    class Crowded(StoreWrapper):
        async def called(self, name: str, verb: Any, args: tuple[Any, ...]) -> Any:
            if name == "commit" and not told:
                for change in args[0]:
                    if change.run is not None and change.run.status == "completed":
                        told.append(change.run.id)
                        sent = (hooks.signal("items", b"1", dedupe=str(n), nonce=str(n)) for n in range(1_100))
                        await verb([hooks.to_run(change.run.id, each) for each in sent])
            elif name == "commit" and next(commits) == stops:
                hf.runtime.wind_down()
                stopped.set()
            return await verb(*args)

    async with home.holdfast(pack, through=Crowded) as hf:
        run = (await hf.start(collect())).run
        if stops:
            await stopped.wait()
        else:
            await run.result(timeout=30)
    async with home.holdfast(pack) as another:
        await (await another.get(run.id)).result(timeout=30)
    assert (len(told), calls) == (1, ["act"])

"""Hooks: payloads for a running workflow, durable, in order, and each of them once (K9, K12, K13)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import Hook, NotAllowedNow, Pack, Run, RunFailed, UsageError, hook
from holdfast.errors import HookTaken, PayloadRefused, PayloadTooLarge, UnknownHook
from holdfast.events import EffectBegan, RunBlocked, RunEnded, RunLetGo
from holdfast.kernel.journal import Ignored, Opened, Performed, Received
from tests.integration.conftest import Holding, Home, eventually, heard
from tests.integration.wrappers import GatedStore, LossyStore, StoreWrapper

LARGE = "x" * 300_000  # kept beside the journal


@dataclass
class Approval:
    by: str
    cents: int


class Desk:
    """Workflows that wait for payloads, and a gate in front of them."""

    def __init__(self) -> None:
        self.pack = Pack("desk")
        self.gate = asyncio.Event()
        self.taken: list[Any] = []

        @self.pack.effect
        async def hold() -> str:
            await self.gate.wait()
            return "held"

        @self.pack.effect
        async def take(payload: Any) -> None:
            self.taken.append(payload)

        @self.pack.workflow
        async def take_two(before: str = "nothing") -> list[Any]:
            if before == "an effect":
                await hold()
            inbox = hook("items")
            taken: list[Any] = []
            for _ in range(2):
                taken.append(await inbox)
                await take(taken[-1])
            return taken

        @self.pack.workflow
        async def take_many(count: int) -> list[Any]:
            taken: list[Any] = []
            async for payload in hook("items"):
                taken.append(payload)
                if len(taken) == count:
                    break
            return taken

        @self.pack.workflow
        async def approve(early: bool = False) -> str:
            if early:
                await hold()
            asked = hook("approval", token="the approval", type=Approval)
            assert await asked.conflict() is None
            await take("ready")
            answer = await asked
            return f"{type(answer).__name__} by {answer.by}: {answer.cents + 1}"

        @self.pack.workflow
        async def wait_at(token: str) -> Any:
            return await hook("door", token=token)

        @self.pack.workflow
        async def try_door(token: str) -> str | None:
            door = hook("door", token=token)
            holder = await door.conflict()
            if holder is None:
                return await door
            return f"{holder.workflow} {holder.id}"

        self.take_two, self.take_many, self.approve = take_two, take_many, approve
        self.wait_at, self.try_door, self.hold = wait_at, try_door, hold


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def let_go_at_once(home: Home) -> None:
    """Runs that wait leave the memory nearly at once."""
    home.paced(idle_ms=10)


async def _entries(run: Run[Any], kind: type) -> list[Any]:
    return [entry for entry in await run.journal() if isinstance(entry, kind)]


async def _holds_a_token(run: Run[Any], count: int = 1) -> None:
    await eventually(lambda: _has(run, Opened, count))


async def _has(run: Run[Any], kind: type, count: int) -> bool:
    return len(await _entries(run, kind)) >= count


# -- before and after the workflow reaches its hook


async def test_what_is_sent_before_and_after_the_workflow_reaches_its_hook_arrives_once(home: Home, desk: Desk) -> None:
    """K9."""
    async with home.holdfast(desk.pack) as hf:
        run = (await hf.start(desk.take_two("an effect"))).run
        await heard(hf).until(EffectBegan)
        for _ in range(3):
            await run.signal("items", "early", dedupe="a")
        desk.gate.set()
        await eventually(lambda: desk.taken == ["early"])
        for _ in range(3):
            await run.signal("items", "a repetition may even say something else", dedupe="a")
        await run.signal("items", "late", dedupe="b")
        assert await run.result(timeout=30) == ["early", "late"]
        assert [entry.hook for entry in await _entries(run, Received)] == ["items", "items"]


async def test_a_signal_with_the_admission_hardly_dry_is_kept(home: Home, desk: Desk) -> None:
    """Nobody has executed the run yet, or even knows how."""
    async with home.holdfast(desk.pack, worker=False) as client:
        run = (await client.start(desk.take_two())).run
        await run.signal("items", 1, dedupe="a")
        await run.signal("items", 1, dedupe="a")
        await run.signal("items", 2)
        async with home.holdfast(desk.pack):
            assert await run.result(timeout=30) == [1, 2]


async def test_one_dedupe_id_counts_once_per_hook_and_no_id_never_counts_as_a_repetition(
    home: Home, desk: Desk
) -> None:
    pack = Pack("p")

    @pack.workflow
    async def work() -> list[Any]:
        return [await hook("a"), await hook("b"), await hook("b"), await hook("b")]

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        for name in ("a", "b", "a", "b"):
            await run.signal(name, name.upper(), dedupe="1")
        await run.signal("b", "again")
        await run.signal("b", "again")
        assert await run.result(timeout=30) == ["A", "B", "again", "again"]


async def test_payloads_arrive_in_the_order_in_which_they_were_sent(home: Home, desk: Desk) -> None:
    async with home.holdfast(desk.pack) as hf:
        run = (await hf.start(desk.take_many(40))).run
        for n in range(40):
            await run.signal("items", n)
        assert await run.result(timeout=30) == list(range(40))


async def test_64_senders_at_once_lose_nothing(home: Home, desk: Desk) -> None:
    async with home.holdfast(desk.pack) as hf, home.holdfast(desk.pack, worker=False) as client:
        run = (await hf.start(desk.take_many(64))).run
        theirs = await client.get(run.id)
        sending = [[run, theirs][n % 2].signal("items", n, dedupe=f"{n // 2}/{n % 2}") for n in range(64)]
        again = [[run, theirs][n % 2].signal("items", n, dedupe=f"{n // 2}/{n % 2}") for n in range(0, 64, 3)]
        await asyncio.gather(*sending, *again, return_exceptions=True)
        assert sorted(await run.result(timeout=30)) == list(range(64))


@pytest.mark.usefixtures("let_go_at_once")
async def test_a_signal_of_another_process_wakes_a_run_that_nobody_has_in_memory(home: Home, desk: Desk) -> None:
    async with home.holdfast(desk.pack) as hf, home.holdfast(worker=False) as client:
        run = (await hf.start(desk.take_many(2))).run
        theirs = await client.get(run.id)
        for n in range(2):
            await heard(hf).until(RunLetGo, run_id=run.id, count=n + 1)
            await theirs.signal("items", n)
        assert await theirs.result(timeout=30) == [0, 1]


async def test_what_was_received_survives_the_process_and_is_not_received_again(home: Home, desk: Desk) -> None:
    async with home.holdfast(desk.pack) as hf:
        run = (await hf.start(desk.take_many(3))).run
        await run.signal("items", "one", dedupe="1")
        await eventually(lambda: _has(run, Received, 1))
    async with home.holdfast(desk.pack, worker=False) as client:
        run = await client.get(run.id)
        await run.signal("items", "two", dedupe="2")
        await run.signal("items", "one", dedupe="1")
    async with home.holdfast(desk.pack) as hf:
        run = await hf.get(run.id)
        await run.signal("items", "one", dedupe="1")
        await run.signal("items", "three")
        assert await run.result(timeout=30) == ["one", "two", "three"]
        assert len(await _entries(run, Received)) == 3


async def test_a_signal_whose_reply_was_lost_is_sent_again_and_arrives_once(home: Home, desk: Desk) -> None:
    lost: list[str] = []

    def loses(name: str, args: tuple[Any, ...]) -> bool:
        if name != "commit" or lost or not any(change.envelopes for change in args[0]):
            return False
        lost.append(name)
        return True

    async with (
        home.holdfast(desk.pack) as hf,
        home.holdfast(worker=False, through=lambda store: LossyStore(store, loses)) as client,
    ):
        run = (await hf.start(desk.take_many(2))).run
        theirs = await client.get(run.id)
        with pytest.raises(Exception, match="lost"):
            await theirs.signal("items", "one", dedupe="1")
        await theirs.signal("items", "one", dedupe="1")
        await theirs.signal("items", "two")
        assert await run.result(timeout=30) == ["one", "two"]
    assert lost == ["commit"]


async def test_an_ended_run_takes_no_signal_but_knows_those_that_it_has_received(home: Home, desk: Desk) -> None:
    async with home.holdfast(desk.pack) as hf:
        run = (await hf.start(desk.take_many(1))).run
        await run.signal("items", 1, dedupe="1")
        await run.result(timeout=30)
        await run.signal("items", 1, dedupe="1")  # a sender that did not hear the first answer
        for refused in (run.signal("items", 2, dedupe="2"), run.signal("items", 1)):
            with pytest.raises(NotAllowedNow) as caught:
                await refused
            assert run.id in caught.value.message
        assert len(await _entries(run, Received)) == 1


async def test_a_blocked_run_keeps_what_it_is_sent_and_reads_it_when_it_goes_on(home: Home, desk: Desk) -> None:
    pack = Pack("p")
    stuck = True

    @pack.workflow
    async def work() -> list[Any]:
        if stuck:
            await asyncio.Event().wait()
        return [await hook("items"), await hook("items")]

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        await heard(hf).until(RunBlocked)
        for _ in range(2):
            await run.signal("items", "kept", dedupe="1")
        await run.signal("items", LARGE)
        assert (await run.refresh()).status == "blocked"
        stuck = False
        run = await run.retry()
        assert await run.result(timeout=30) == ["kept", LARGE]


@pytest.mark.parametrize(
    ("name", "payload", "dedupe"),
    [("", 1, None), ("x" * 256, 1, None), ("items", object(), None), ("items", 1, ""), ("items", 1, "x" * 256)],
    ids=["no hook", "long hook", "payload", "no dedupe", "long dedupe"],
)
async def test_what_cannot_be_sent_is_said_at_once(
    home: Home, desk: Desk, name: str, payload: Any, dedupe: str | None
) -> None:
    async with home.holdfast(desk.pack) as hf:
        run = (await hf.start(desk.take_many(1))).run
        with pytest.raises(UsageError):
            await run.signal(name, payload, dedupe=dedupe)
        await run.signal("items", "fine")
        assert await run.result(timeout=30) == ["fine"]


async def test_a_payload_over_the_limit_is_refused(home: Home, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_PAYLOAD_MAX", "1000")
    async with home.holdfast(desk.pack) as hf:
        run = (await hf.start(desk.wait_at("T"))).run
        await _holds_a_token(run)
        for refused in (run.signal("door", LARGE), hf.resume_hook("T", LARGE)):
            with pytest.raises(PayloadTooLarge):
                await refused
        await run.signal("door", "small")
        assert await run.result(timeout=30) == "small"


# -- the hook in the workflow


async def test_a_closed_hook_ends_its_loop_and_what_comes_later_is_for_the_next_one(home: Home) -> None:
    pack = Pack("p")
    closed = asyncio.Event()

    @pack.effect
    async def tell() -> None:
        closed.set()

    @pack.workflow
    async def work() -> list[Any]:
        taken: list[Any] = []
        async with hook("items") as items:
            async for payload in items:
                taken.append(payload)
                await items.close()
        with pytest.raises(UsageError):
            await items
        await tell()
        taken.append(await hook("items"))
        return taken

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        await run.signal("items", 1)
        await asyncio.wait_for(closed.wait(), 30)
        await run.signal("items", 2)
        assert await run.result(timeout=30) == [1, 2]


async def test_closing_a_hook_lets_another_task_go_that_waits_for_it(home: Home) -> None:
    holding = Holding()

    @holding.pack.workflow
    async def work_beside() -> list[Any]:
        items: Hook[Any] = hook("items")
        taken: list[Any] = []

        async def consume() -> None:
            taken.extend([payload async for payload in items])
            taken.append("over")

        consumer = asyncio.create_task(consume())
        await holding.hold()
        items.close()
        await consumer
        return taken

    async with home.holdfast(holding.pack) as hf:
        run = (await hf.start(work_beside())).run
        await run.signal("items", 1)
        await eventually(lambda: _has(run, Received, 1))
        holding.gate.set()
        assert await run.result(timeout=30) == [1, "over"]


async def test_of_several_tasks_at_one_hook_each_payload_goes_to_one(home: Home) -> None:
    pack = Pack("p")

    @pack.workflow
    async def work() -> list[Any]:
        return await asyncio.gather(*(_next(hook("items")) for _ in range(5)))

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        for n in range(5):
            await run.signal("items", n)
        assert await run.result(timeout=30) == [0, 1, 2, 3, 4]  # who waits longest gets the first


async def test_a_payload_is_not_lost_with_the_task_that_stopped_waiting_for_it(home: Home) -> None:
    pack = Pack("p")

    @pack.workflow
    async def work() -> list[Any]:
        items = hook("items")
        waiting = asyncio.create_task(_next(items))
        await hook("stop")
        waiting.cancel()
        return [await items, await items]

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        await run.signal("stop")
        for n in range(2):
            await run.signal("items", n)
        assert await run.result(timeout=30) == [0, 1]


def test_hooks_are_for_workflows() -> None:
    with pytest.raises(UsageError, match="outside a workflow"):
        hook("items")


async def test_a_hook_against_the_clock_has_one_winner(home: Home) -> None:
    """K14, live: the payload that comes too late is for whoever waits next."""
    pack = Pack("p")

    @pack.workflow
    async def work() -> list[Any]:
        answers = hook("answers")
        try:
            async with asyncio.timeout(0.02):
                return ["in time", await answers]
        except TimeoutError:
            return ["late", await answers]

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        await eventually(lambda: _has_elapsed(run))
        await run.signal("answers", "here")
        assert await run.result(timeout=30) == ["late", "here"]


async def _has_elapsed(run: Run[Any]) -> bool:
    return any(entry.what == "elapsed" for entry in await run.journal())


@pytest.mark.parametrize("beside", [False, True], ids=["after the effect", "beside the effect"])
async def test_a_signal_during_a_long_effect_is_seen_right_after_it(home: Home, *, beside: bool) -> None:
    """K13: the effect is neither disturbed nor repeated."""
    holding = Holding()

    @holding.pack.workflow
    async def interrupted() -> list[Any]:
        if not beside:
            return [await holding.hold(1), await hook("stop")]
        asked = asyncio.ensure_future(_next(hook("stop")))
        held = await holding.hold(1)
        return [held, asked.result()]  # it was there before

    async with home.holdfast(holding.pack) as hf:
        run = (await hf.start(interrupted())).run
        await heard(hf).until(EffectBegan)
        await run.signal("stop", "now")
        if beside:
            await eventually(lambda: _has(run, Received, 1))
        holding.gate.set()
        assert await run.result(timeout=30) == [1, "now"]
        assert len(heard(hf).all(EffectBegan)) == 1
        assert sorted(entry.what for entry in await run.journal()) == ["completed", "performed", "received", "started"]


async def _next(inbox: Hook[Any]) -> Any:
    return await inbox


# -- a run never ends over an unread signal


class Collector:
    """Collects what arrives while its effect lasts, and then ends at once."""

    def __init__(self) -> None:
        self.pack = Pack("p")
        self.calls = 0

        @self.pack.effect
        async def act() -> None:
            self.calls += 1

        @self.pack.workflow(key="collect")
        async def collect() -> list[Any]:
            taken: list[Any] = []

            async def consume() -> None:
                async for payload in hook("items"):
                    taken.append(payload)  # noqa: PERF401 - one by one: it is looked at before the end

            consumer = asyncio.create_task(consume())
            await act()
            consumer.cancel()
            return taken

        self.collect = collect


async def test_a_run_never_ends_over_an_unread_signal(home: Home) -> None:
    """The signal is durable before the final commit, which is on its way: the end is taken back."""
    collector = Collector()
    made: list[GatedStore] = []

    def through(store: Any) -> GatedStore:
        def ends(changes: Any) -> bool:
            return any(change.run is not None and change.run.status == "completed" for change in changes)

        made.append(GatedStore(store, ends))
        return made[0]

    async with (
        home.holdfast(collector.pack, through=through) as hf,
        home.holdfast(worker=False) as client,
    ):
        run = (await hf.start(collector.collect())).run
        await asyncio.wait_for(made[0].reached.wait(), 30)
        theirs = await client.get(run.id)
        await theirs.signal("items", "just in time", dedupe="1")
        await theirs.signal("items", LARGE)
        made[0].gate.set()
        assert await run.result(timeout=30) == ["just in time", LARGE]
        assert len(await _entries(run, Received)) == 2
        assert len(await _entries(run, Performed)) == 1
        with pytest.raises(NotAllowedNow):
            await theirs.signal("items", "too late")
    assert collector.calls == 1
    assert len(heard(hf).all(RunEnded)) == 1


async def test_each_accepted_signal_is_delivered_however_close_to_the_end(home: Home) -> None:
    collector = Collector()
    async with home.holdfast(collector.pack) as hf, home.holdfast(worker=False) as client:
        for round_ in range(20):
            run = (await hf.start(collector.collect(), key=f"round {round_}")).run
            theirs = await client.get(run.id)

            async def send(n: int, theirs: Run[Any] = theirs) -> int | None:
                for _ in range(n % 4):
                    await asyncio.sleep(0)
                try:
                    await theirs.signal("items", n)
                except NotAllowedNow:
                    return None
                return n

            accepted = [n for n in await asyncio.gather(*map(send, range(8))) if n is not None]
            assert sorted(await run.result(timeout=30)) == accepted
    assert collector.calls == 20


class MailOnTheWay(StoreWrapper):
    """Has read what is in the inbox, and does not return it before the gate is opened."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.gate = asyncio.Event()
        self.read: list[Any] = []

    async def called(self, name: str, verb: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Any:
        result = await verb(*args)
        if name == "messages" and result:
            self.read.append(result)
            await self.gate.wait()
        return result


async def test_a_signal_that_comes_right_behind_what_ends_the_code_is_seen_before(home: Home) -> None:
    """The effect has returned, and before the run goes on there is mail: the code does not end over it."""
    pack, made = Pack("p"), list[MailOnTheWay]()

    def through(store: Any) -> MailOnTheWay:
        made.append(MailOnTheWay(store))
        return made[0]

    @pack.effect
    async def act() -> None:
        run = await hf.find(collect, "collect")
        for item in ("first", "second"):
            await run.signal("items", item)
        await eventually(lambda: bool(made[0].read))
        made[0].gate.set()  # the mail is delivered in the next turn of the loop, right behind the end of this effect

    @pack.workflow(key="collect")
    async def collect() -> list[Any]:
        taken: list[Any] = []

        async def consume() -> None:
            async for payload in hook("items"):
                taken.append(payload)  # noqa: PERF401 - one by one: it is looked at before the end

        consumer = asyncio.create_task(consume())
        await act()
        consumer.cancel()
        return taken

    async with home.holdfast(pack, through=through) as hf:
        run = (await hf.start(collect())).run
        assert await run.result(timeout=30) == ["first", "second"]
        assert [entry.left for entry in await _entries(run, Received)] == [False, False]


async def test_what_comes_through_a_token_is_recorded_behind_the_opening_of_its_hook(home: Home) -> None:
    """Others may use the token before its claim is known here. A fork at the hook must not have their signal."""
    pack = Pack("p")
    delivered = asyncio.Event()

    @pack.workflow(key="ask")
    async def ask() -> Any:
        return await hook("approval", token="approve")

    class SlowReply(StoreWrapper):
        """The token is claimed, and used, before the reply to the claim arrives."""

        has_sent = False

        async def called(self, name: str, verb: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Any:
            result = await verb(*args)
            if name == "messages" and result:
                delivered.set()
            if name == "commit" and any(change.opens for change in args[0]) and not self.has_sent:
                self.has_sent = True
                await client.resume_hook("approve", "yes", dedupe="1")
                await asyncio.wait_for(delivered.wait(), 30)
                for _ in range(10):  # the run has it, and may go on
                    await asyncio.sleep(0)
            return result

    async with home.holdfast(pack, worker=False) as client, home.holdfast(pack, through=SlowReply) as hf:
        run = (await hf.start(ask())).run
        assert await run.result(timeout=30) == "yes"
        assert [entry.what for entry in await run.journal()] == ["started", "opened", "received", "completed"]
        fork = await run.fork("hook:approval#1")
        await _holds_a_token(fork)
        await hf.resume_hook("approve", "no", dedupe="2")
        assert await fork.result(timeout=30) == "no"


async def test_an_end_that_is_taken_back_loses_neither_a_large_child_nor_what_was_performed(home: Home) -> None:
    """The large result of the child came beside a message, and is in no journal yet when the end is refused."""
    pack, made, calls = Pack("p"), list[GatedStore](), list[str]()
    gate = asyncio.Event()

    def through(store: Any) -> GatedStore:
        made.append(GatedStore(store, _ends("p.parent")))
        return made[0]

    @pack.effect
    async def act() -> str:
        calls.append("acted")
        await gate.wait()
        return "acted"

    @pack.workflow
    async def child() -> str:
        return LARGE

    @pack.workflow
    async def parent() -> list[Any]:
        large, acted = await asyncio.gather(child(), act())
        return [len(large), acted]

    async with home.holdfast(pack, worker=False) as client, home.holdfast(pack, through=through) as hf:
        run = (await hf.start(parent())).run
        await eventually(lambda: _ended(hf, child))
        gate.set()
        await asyncio.wait_for(made[0].reached.wait(), 30)
        await (await client.get(run.id)).signal("items", "just in time")
        made[0].gate.set()
        assert await run.result(timeout=30) == [len(LARGE), "acted"]
    assert calls == ["acted"]


def _ends(workflow: str) -> Callable[[Any], bool]:
    def ends(changes: Any) -> bool:
        runs = [change.run for change in changes if change.run is not None]
        return any(run.status == "completed" and run.workflow == workflow for run in runs)

    return ends


async def _ended(hf: Any, workflow: Any) -> bool:
    return [run.status async for run in hf.runs(workflow)] == ["completed"]


async def test_what_comes_through_a_token_is_behind_its_hook_though_an_end_was_taken_back(home: Home) -> None:
    pack, made = Pack("p"), list[GatedStore]()

    def through(store: Any) -> GatedStore:
        made.append(GatedStore(store, _ends("p.ask")))
        return made[0]

    @pack.workflow
    async def ask() -> str:
        approval = hook("approval", token="approve")
        taken = await approval.conflict()
        return "free" if taken is None else "taken"

    async with home.holdfast(pack, worker=False) as client, home.holdfast(pack, through=through) as hf:
        run = (await hf.start(ask())).run
        await asyncio.wait_for(made[0].reached.wait(), 30)
        await client.resume_hook("approve", "yes", dedupe="1")
        made[0].gate.set()
        assert await run.result(timeout=30) == "free"
        assert [entry.what for entry in await run.journal()] == ["started", "opened", "received", "completed"]


# -- types


async def test_a_typed_hook_delivers_values_of_its_type(home: Home, desk: Desk) -> None:
    async with home.holdfast(desk.pack) as hf:
        run = (await hf.start(desk.approve())).run
        await run.signal("approval", Approval("ann", 4))
        assert await run.result(timeout=30) == "Approval by ann: 5"


@pytest.mark.parametrize("way", ["signal", "token"])
async def test_a_payload_that_does_not_fit_is_refused_and_the_path_is_named(home: Home, desk: Desk, way: str) -> None:
    async with home.holdfast(desk.pack) as hf, home.holdfast(worker=False) as client:
        run = (await hf.start(desk.approve())).run
        theirs = await client.get(run.id)
        await eventually(lambda: desk.taken == ["ready"])

        async def send(payload: Any) -> None:
            if way == "signal":
                await theirs.signal("approval", payload)
            else:
                await client.resume_hook("the approval", payload)

        for payload, path in (({"by": "bob", "cents": "many"}, "cents"), ({"by": "bob"}, "cents"), ("yes", "object")):
            with pytest.raises(PayloadRefused) as caught:
                await send(payload)
            assert (caught.value.code, caught.value.hook) == ("payload_refused", "approval")
            assert path in caught.value.message
        await send({"by": "bob", "cents": 1})
        assert await run.result(timeout=30) == "Approval by bob: 2"
        assert len(await _entries(run, Received)) == 1


async def test_a_misfit_sent_before_the_hook_was_reached_is_passed_over_and_noted(home: Home, desk: Desk) -> None:
    async with home.holdfast(desk.pack) as hf:
        run = (await hf.start(desk.approve(early=True))).run
        await heard(hf).until(EffectBegan)
        await run.signal("approval", {"by": 7}, dedupe="bad")
        await run.signal("approval", {"by": "eve", "cents": 1}, dedupe="good")
        desk.gate.set()
        assert await run.result(timeout=30) == "Approval by eve: 2"
        [ignored] = await _entries(run, Ignored)
        assert ignored.hook == "approval"
        assert "by" in ignored.why
        assert "passed over" in str(await run.explain())


# -- tokens


async def test_a_token_names_the_run_that_gets_the_payload(home: Home, desk: Desk) -> None:
    async with home.holdfast(desk.pack) as hf, home.holdfast(worker=False) as client:
        with pytest.raises(UnknownHook) as caught:
            await client.resume_hook("T", "too early")
        assert caught.value.token == "T"
        runs = {token: (await hf.start(desk.wait_at(token))).run for token in ("T", "U")}
        for token, run in runs.items():
            await _holds_a_token(run)
            assert (await client.resume_hook(token, f"for {token}")).id == run.id
            assert await run.result(timeout=30) == f"for {token}"
            with pytest.raises(UnknownHook):
                await client.resume_hook(token, "too late")


async def test_a_token_that_is_made_again_in_a_loop_is_resumable_each_time(home: Home, desk: Desk) -> None:
    """K12."""
    pack = Pack("p")

    @pack.workflow
    async def loop() -> list[int]:
        return [await hook("turn", token="T") for _ in range(6)]

    async with home.holdfast(pack) as hf, home.holdfast(worker=False) as client:
        run = (await hf.start(loop())).run
        await _holds_a_token(run)
        for n in range(6):
            assert (await client.resume_hook("T", n)).id == run.id
        assert await run.result(timeout=30) == list(range(6))
        with pytest.raises(UnknownHook):
            await client.resume_hook("T", 6)


async def test_a_token_that_is_closed_and_opened_again_is_resumable_each_time(home: Home) -> None:
    """K12."""
    pack = Pack("p")

    @pack.workflow
    async def loop() -> list[int]:
        taken: list[int] = []
        for _ in range(4):
            async with hook("turn", token="T") as turn:
                taken.append(await turn)
        return taken

    async with home.holdfast(pack) as hf:
        run = (await hf.start(loop())).run
        for n in range(4):
            await _holds_a_token(run, n + 1)
            assert (await hf.resume_hook("T", n)).id == run.id
        assert await run.result(timeout=30) == list(range(4))


async def test_a_closed_token_is_free_while_its_run_goes_on(home: Home, desk: Desk) -> None:
    @desk.pack.workflow
    async def close_early() -> str:
        door = hook("door", token="T")
        await door.conflict()
        door.close()
        return await desk.hold()

    async with home.holdfast(desk.pack) as hf:
        first = (await hf.start(close_early())).run
        await heard(hf).until(EffectBegan)
        second = (await hf.start(desk.wait_at("T"))).run
        await _holds_a_token(second)
        assert (await hf.resume_hook("T", "hello")).id == second.id
        assert await second.result(timeout=30) == "hello"
        desk.gate.set()
        assert await first.result(timeout=30) == "held"


async def test_a_token_that_a_live_run_holds_conflicts_and_names_its_owner(home: Home, desk: Desk) -> None:
    """K12."""
    caught: list[HookTaken] = []

    @desk.pack.workflow
    async def barge_in() -> str:
        try:
            await hook("door", token="T")
        except HookTaken as error:
            caught.append(error)
            raise
        return "unreachable"

    async with home.holdfast(desk.pack) as hf:
        owner = (await hf.start(desk.wait_at("T"))).run
        await _holds_a_token(owner)
        assert await (await hf.start(desk.try_door("T"))).run.result(timeout=30) == f"desk.wait_at {owner.id}"
        with pytest.raises(RunFailed) as failed:
            await (await hf.start(barge_in())).run.result(timeout=30)
        for error in (caught[0], failed.value.__cause__):
            assert isinstance(error, HookTaken)
            assert (error.code, error.token, error.run_id) == ("hook_taken", "T", owner.id)
        await hf.resume_hook("T", "done")
        assert await owner.result(timeout=30) == "done"
        successor = (await hf.start(desk.wait_at("T"))).run  # free in the instant in which its run has ended
        await _holds_a_token(successor)
        assert (await hf.resume_hook("T", "next")).id == successor.id
        assert await successor.result(timeout=30) == "next"


async def test_of_64_claims_at_once_one_owns_the_token(home: Home, desk: Desk) -> None:
    """K12."""
    async with home.holdfast(desk.pack) as one, home.holdfast(desk.pack) as two:
        started = await asyncio.gather(*([one, two][n % 2].start(desk.try_door("T")) for n in range(64)))
        runs = [each.run for each in started]
        await eventually(lambda: _all_decided(runs))
        owner = await two.resume_hook("T", "you it is")
        answers = [await run.result(timeout=30) for run in runs]
        assert answers.count("you it is") == 1
        assert set(answers) == {"you it is", f"desk.try_door {owner.id}"}
        assert runs[answers.index("you it is")].id == owner.id


async def _all_decided(runs: list[Run[Any]]) -> bool:
    return all([await _has(run, Opened, 1) for run in runs])


async def test_a_repeated_resume_is_recognised_after_the_run_has_ended_and_the_token_moved_on(
    home: Home, desk: Desk
) -> None:
    async with home.holdfast(desk.pack) as hf, home.holdfast(worker=False) as client:
        first = (await hf.start(desk.wait_at("T"))).run
        await _holds_a_token(first)
        assert (await client.resume_hook("T", "one", dedupe="1")).id == first.id
        assert await first.result(timeout=30) == "one"
        assert (await client.resume_hook("T", "one", dedupe="1")).id == first.id
        with pytest.raises(UnknownHook):
            await client.resume_hook("T", "two", dedupe="2")
        second = (await hf.start(desk.wait_at("T"))).run
        await _holds_a_token(second)
        assert (await client.resume_hook("T", "one", dedupe="1")).id == first.id
        assert await _entries(second, Received) == []
        assert (await client.resume_hook("T", "two", dedupe="2")).id == second.id
        assert await second.result(timeout=30) == "two"


async def test_a_dedupe_id_of_a_token_does_not_meet_one_of_a_hook_whatever_that_is_called(home: Home) -> None:
    pack = Pack("p")

    @pack.workflow
    async def work() -> list[Any]:
        async with hook("door", token="T") as door:
            await door.conflict()
            return [await hook("token T"), await door, await hook("door")]

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        await _holds_a_token(run)
        for _ in range(2):  # the same way a second time is a repetition
            await run.signal("token T", "to a hook with a strange name", dedupe="d1")
            await hf.resume_hook("T", "to the token", dedupe="d1")
            await run.signal("door", "to the hook", dedupe="d1")
        assert await run.result(timeout=30) == ["to a hook with a strange name", "to the token", "to the hook"]


async def test_a_token_survives_the_process(home: Home, desk: Desk) -> None:
    async with home.holdfast(desk.pack) as hf:
        run = (await hf.start(desk.wait_at("T"))).run
        await _holds_a_token(run)
    async with home.holdfast(worker=False) as client:
        assert (await client.resume_hook("T", "anybody there?")).id == run.id
    async with home.holdfast(desk.pack) as hf:
        assert await (await hf.get(run.id)).result(timeout=30) == "anybody there?"


async def test_tokens_of_two_namespaces_are_independent(home: Home, desk: Desk) -> None:
    async with home.holdfast(desk.pack) as one, home.holdfast(desk.pack, namespace="other") as two:
        runs = [(await hf.start(desk.wait_at("T"))).run for hf in (one, two)]
        for hf, run in zip((one, two), runs, strict=True):
            await _holds_a_token(run)
            assert (await hf.resume_hook("T", run.id)).id == run.id
            assert await run.result(timeout=30) == run.id


# -- large payloads


@pytest.mark.usefixtures("let_go_at_once")
async def test_large_payloads_arrive_whole_wherever_the_run_is(home: Home, desk: Desk) -> None:
    """In memory, let go, and replayed from the journal by another process."""
    async with home.holdfast(desk.pack) as hf:
        run = (await hf.start(desk.take_many(3))).run
        await run.signal("items", LARGE)
        await heard(hf).until(RunLetGo, run_id=run.id)
        await run.signal("items", LARGE + "2", dedupe="2")
        await run.signal("items", LARGE + "2", dedupe="2")
        await eventually(lambda: _has(run, Received, 2))
    async with home.holdfast(desk.pack) as hf:
        run = await hf.get(run.id)
        await run.signal("items", {"nested": [LARGE]})
        assert await run.result(timeout=30) == [LARGE, LARGE + "2", {"nested": [LARGE]}]


async def test_large_payloads_reach_a_token(home: Home, desk: Desk) -> None:
    async with home.holdfast(desk.pack) as hf:
        run = (await hf.start(desk.wait_at("T"))).run
        await _holds_a_token(run)
        await hf.resume_hook("T", LARGE)
        assert await run.result(timeout=30) == LARGE

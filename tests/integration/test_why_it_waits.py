"""Why a run is not finished, in every situation; what may be done about it; and its story in words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, timedelta
from typing import Any

import pytest

from holdfast import (
    Holdfast,
    NotAllowedNow,
    Pack,
    Retry,
    Run,
    RunFailed,
    UnknownRun,
    UsageError,
    current,
    hook,
    mark,
    set_attributes,
    sleep,
)
from holdfast.engine.api.registry import Description
from holdfast.events import EffectBegan, RunBlocked, RunLetGo
from holdfast.kernel.journal import Attempted
from tests.builders import FakeClock
from tests.integration.conftest import Home, eventually, heard, owner_of


@pytest.fixture(autouse=True)
def let_go_at_once(home: Home) -> None:
    """Runs that wait leave the memory nearly at once."""
    home.paced(idle_ms=10)


class Works:
    """Workflows that wait, each for something else."""

    def __init__(self) -> None:
        self.pack = Pack("p")
        self.gate = asyncio.Event()

        @self.pack.effect
        async def hold() -> None:
            await self.gate.wait()

        @self.pack.effect(retry=Retry(attempts=5, base=3600, cap=7200))
        async def refuse() -> None:
            raise OSError("try later")

        @self.pack.workflow(key="child:{n}")
        async def child(n: int) -> str:
            return await hook("answer")

        @self.pack.workflow(key="{kind}", queue="slow")
        async def work(kind: str) -> str | None:
            match kind:
                case "timer":
                    await sleep("1h")
                case "hook":
                    await hook("approval")
                case "token":
                    await hook("approval", token="T")
                case "child":
                    return await child(1)
                case "retry":
                    await refuse()
                case "running":
                    await hold()
                case "blocked":
                    await asyncio.Event().wait()
                case "failed":
                    raise ValueError("no")
                case "cancelled":
                    raise asyncio.CancelledError
                case "all":
                    async with asyncio.timeout(7200), asyncio.TaskGroup() as group:
                        group.create_task(sleep("1h"))
                        group.create_task(_awaited(hook("one")))
                        group.create_task(_awaited(hook("two")))
                        group.create_task(_awaited(child(2)))
                        group.create_task(_awaited(refuse()))
                case _:
                    pass
            return kind

        self.child, self.work = child, work

    async def let_go(self, hf: Holdfast, kind: str) -> Run[Any]:
        run = (await hf.start(self.work(kind))).run
        await heard(hf).until(RunLetGo, run_id=run.id)
        return await run.refresh()


async def _awaited(it: Any) -> Any:
    return await it


@pytest.fixture
def works() -> Works:
    return Works()


# -- what it waits for


async def test_a_timer(home: Home, works: Works) -> None:
    async with home.holdfast(works.pack) as hf:
        run = await works.let_go(hf, "timer")
        [wait] = run.waiting_on
        assert (run.status, wait.kind, wait.step) == ("waiting", "timer", "sleep#1")
        assert wait.until is not None
        assert wait.until.tzinfo is UTC
        assert timedelta(0) <= wait.until - run.created_at - timedelta(hours=1) < timedelta(minutes=5)
        assert str(wait) == f"timer sleep#1 until {wait.until.isoformat(timespec='milliseconds')}"


@pytest.mark.parametrize("kind", ["hook", "token"])
async def test_a_hook(home: Home, works: Works, kind: str) -> None:
    async with home.holdfast(works.pack) as hf:
        run = await works.let_go(hf, kind)
        [wait] = run.waiting_on
        assert (run.status, wait.kind, wait.name, wait.until) == ("waiting", "hook", "approval", None)
        assert str(wait) == "a signal to hook 'approval'"


async def test_a_child(home: Home, works: Works) -> None:
    async with home.holdfast(works.pack) as hf:
        run = await works.let_go(hf, "child")
        child = await hf.find(works.child, "child:1")
        [wait] = run.waiting_on
        assert (run.status, wait.kind, wait.name, wait.step) == ("waiting", "child", child.id, "child#1")
        assert child.id in str(wait)


async def test_a_retry(home: Home, works: Works) -> None:
    async with home.holdfast(works.pack) as hf:
        run = await works.let_go(hf, "retry")
        [wait] = run.waiting_on
        assert (run.status, wait.kind, wait.name, wait.step) == ("waiting", "retry", "p.refuse", "refuse#1")
        assert wait.until is not None
        assert wait.until > run.created_at
        assert "the retry of refuse#1 at" in str(wait)
        assert wait.error
        assert str(wait).endswith(f", after {wait.error}")
        attempt = next(entry for entry in await run.journal() if isinstance(entry, Attempted))
        assert wait.error == f"{attempt.error.type}: {attempt.error.message}"


async def test_several_things_at_once(home: Home, works: Works) -> None:
    async with home.holdfast(works.pack) as hf:
        run = await works.let_go(hf, "all")

        async def settled() -> bool:
            return len((await run.refresh()).waiting_on) == 6

        await eventually(settled)
        run = await run.refresh()
        assert sorted(wait.kind for wait in run.waiting_on) == ["child", "hook", "hook", "retry", "timer", "timer"]
        assert {wait.name for wait in run.waiting_on if wait.kind == "hook"} == {"one", "two"}
        assert len({str(wait) for wait in run.waiting_on}) == 6


async def test_a_delayed_start(home: Home, works: Works) -> None:
    async with home.holdfast(works.pack) as hf:
        started = (await hf.start(works.work("hook"), delay="1h")).run
        for run in (started, await started.refresh()):
            [wait] = run.waiting_on
            assert (run.status, wait.kind) == ("pending", "delay")
            assert wait.until == run.created_at + timedelta(hours=1)
            assert str(wait).startswith("its delayed start at")


async def test_a_worker_that_is_not_there(home: Home, works: Works) -> None:
    """Nobody serves its queue, though somebody serves another one."""
    async with home.holdfast(works.pack, worker=False) as client:
        started = (await client.start(works.work("timer"))).run
        for run in (started, await started.refresh()):
            [wait] = run.waiting_on
            assert (run.status, wait.kind, wait.name) == ("pending", "no_worker", "slow")
            assert str(wait) == "a worker: none serves queue 'slow'"
        async with home.holdfast(works.pack, queues=["default"]) as other:
            for hf in (client, other):
                assert [wait.kind for wait in (await hf.get(started.id)).waiting_on] == ["no_worker"]
                assert [wait.kind async for run in hf.runs() for wait in run.waiting_on] == ["no_worker"]
                assert "none serves queue 'slow'" in str(await hf.explain(started))
        async with home.holdfast(works.pack, queues=["slow"]) as hf:
            await heard(hf).until(RunLetGo, run_id=started.id)
        assert [wait.kind for wait in (await started.refresh()).waiting_on] == ["timer"]


async def test_a_worker_that_is_busy(home: Home, works: Works) -> None:
    async with home.holdfast(works.pack, concurrency=1) as hf, home.holdfast(worker=False) as viewer:
        await hf.start(works.work("running"))
        await heard(hf).until(EffectBegan)
        started = (await hf.start(works.work("timer"))).run
        for run in (started, await started.refresh(), await viewer.get(started.id)):
            [wait] = run.waiting_on
            assert (run.status, wait.kind, wait.name) == ("pending", "worker", "slow")
            assert str(wait) == "a free worker of queue 'slow'"
        works.gate.set()


async def test_a_worker_for_a_run_whose_time_has_come(home: Home, works: Works) -> None:
    """It was let go, its timer is due, and nobody is there to take it up."""
    clock = home.clock = FakeClock()
    async with home.holdfast(works.pack) as hf:
        timer = await works.let_go(hf, "timer")
        approval = await works.let_go(hf, "hook")
    async with home.holdfast(works.pack, worker=False) as client:
        await (await client.get(approval.id)).signal("approval")
        clock.advance(3_600_001)
        for run_id in (timer.id, approval.id):
            run = await client.get(run_id)
            assert (run.status, [wait.kind for wait in run.waiting_on]) == ("waiting", ["no_worker"])


async def test_whoever_executes_it(home: Home, works: Works) -> None:
    async with home.holdfast(works.pack) as hf:
        run = (await hf.start(works.work("running"))).run
        await heard(hf).until(EffectBegan)
        run = await run.refresh()
        [wait] = run.waiting_on
        assert (run.status, wait.kind, wait.name) == ("running", "running", owner_of(hf))
        assert wait.effect is not None
        assert (wait.effect.name, wait.instance) == ("p.hold", hf.runtime.instance)
        works.gate.set()


async def test_a_person(home: Home, works: Works) -> None:
    async with home.holdfast(works.pack) as hf:
        run = (await hf.start(works.work("blocked"))).run
        blocked = await heard(hf).until(RunBlocked)
        run = await run.refresh()
        [wait] = run.waiting_on
        assert (run.status, wait.kind) == ("blocked", "blocked")
        assert blocked.code in wait.name
        assert blocked.message in str(wait)


@pytest.mark.parametrize("kind", ["completed", "failed", "cancelled"])
async def test_an_ended_run_waits_for_nothing(home: Home, works: Works, kind: str) -> None:
    async with home.holdfast(works.pack) as hf:
        run = await _put(hf, works, kind)
        assert (run.status, run.waiting_on) == (kind, ())


async def test_a_run_that_goes_on_no_longer_waits_for_what_it_has_got(home: Home, works: Works) -> None:
    pack = Pack("two")

    @pack.workflow
    async def steps() -> None:
        await hook("first")
        await hook("second")

    async with home.holdfast(pack) as hf:
        run = (await hf.start(steps())).run
        for n, name in enumerate(["first", "second"], 1):
            await heard(hf).until(RunLetGo, run_id=run.id, count=n)
            run = await run.refresh()
            assert [wait.name for wait in run.waiting_on] == [name]
            await run.signal(name)
        await run.result(timeout=30)
        assert (await run.refresh()).waiting_on == ()


# -- what may be done


async def _put(hf: Holdfast, works: Works, status: str) -> Run[Any]:
    """A run in this status."""
    kind = {"waiting": "hook", "pending": "hook"}.get(status, status)
    run = (await hf.start(works.work(kind), delay="1h" if status == "pending" else None)).run

    async def there() -> bool:
        return (await run.refresh()).status == status

    await eventually(there)
    return await run.refresh()


VERBS: dict[str, Callable[[Run[Any]], Any]] = {
    "signal": lambda run: run.signal("approval"),
    "cancel": lambda run: run.cancel(deadline="100ms"),
    "retry": lambda run: run.retry(),
    "resume": lambda run: run.resume(),
    "fork": lambda run: run.fork(at="nobody#1"),
    "release_key": lambda run: run.release_key(),
}


@pytest.mark.parametrize(
    ("status", "verbs"),
    [
        ("pending", {"signal", "cancel", "release_key"}),
        ("running", {"signal", "cancel", "release_key"}),
        ("waiting", {"signal", "cancel", "release_key"}),
        ("blocked", {"signal", "cancel", "retry", "release_key"}),
        ("completed", {"fork", "release_key"}),
        ("failed", {"retry", "fork", "release_key"}),
    ],
)
async def test_what_may_be_done_is_said_and_everything_else_is_refused(
    home: Home, works: Works, status: str, verbs: set[str]
) -> None:
    async with home.holdfast(works.pack) as hf:
        run = await _put(hf, works, status)
        assert set(run.next_actions) == verbs
        assert set((await run.explain()).next_actions) == verbs
        for verb in set(VERBS) - verbs - {"fork", "cancel"}:  # to cancel an ended run is a question about it
            with pytest.raises(NotAllowedNow):
                await VERBS[verb](run)
        for verb in verbs - {"cancel", "fork", "retry"}:
            await VERBS[verb](run)
        works.gate.set()


@pytest.mark.parametrize("status", ["blocked", "failed"])
async def test_what_can_be_retried_says_so(home: Home, works: Works, status: str) -> None:
    async with home.holdfast(works.pack) as hf:
        run = await _put(hf, works, status)
        assert "retry" in run.next_actions
        assert (await run.retry()).id == run.id


async def test_a_cancelled_run_says_whether_it_can_be_resumed(home: Home, works: Works) -> None:
    pack = Pack("two")

    @pack.workflow
    async def lets_it_pass() -> str:
        return await hook("go")

    @pack.effect
    async def tidy() -> None: ...

    @pack.workflow
    async def cleans_up() -> str:
        try:
            return await hook("go")
        except asyncio.CancelledError:
            from holdfast import shield

            async with shield("5s"):
                await tidy()
            raise

    async with home.holdfast(pack) as hf:
        for workflow, resumable in ((lets_it_pass, True), (cleans_up, False)):
            run = (await hf.start(workflow())).run
            await heard(hf).until(RunLetGo, run_id=run.id)
            await run.cancel()
            story = await run.explain()
            assert ("resume" in story.next_actions) is resumable
            if resumable:
                await run.resume()
                await run.signal("go", "gone on")
                assert await run.result(timeout=30) == "gone on"
            else:
                with pytest.raises(NotAllowedNow):
                    await run.resume()


# -- the story


async def test_the_story_of_a_run_can_be_asked_for_in_three_ways(home: Home, works: Works) -> None:
    async with home.holdfast(works.pack) as hf:
        run = await works.let_go(hf, "hook")
        story = await hf.explain(run)
        assert story.run_id == run.id
        assert story.waiting_on == run.waiting_on
        assert story.next_actions == run.next_actions
        for same in (
            await hf.explain(run.id),
            await hf.explain(works.work, "hook"),
            await hf.explain("p.work", "hook"),
            await hf.explain("work", "hook"),
            await run.explain(),
        ):
            assert str(same) == str(story)
        for ask in (hf.explain("nobody"), hf.explain(works.work, "nobody")):
            with pytest.raises(UnknownRun):
                await ask


async def test_the_story_tells_what_happened_why_it_waits_and_what_to_do(home: Home) -> None:
    pack = Pack("shop")
    calls = 0

    @pack.effect(key="charge:{order}", retry=Retry(attempts=3, base=0))
    async def charge(order: str) -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError("no answer")
        return "paid"

    @pack.workflow
    async def label() -> str:
        return "label"

    @pack.workflow(key="checkout:{order}", markers=("new", "charged"))
    async def checkout(order: str) -> str:
        await charge(order)
        await mark("charged")
        await set_attributes(stage="charged")
        await label()
        await sleep("1ms")
        async with hook("approval", token=f"approve {order}") as approval:
            await approval
        await hook("never")
        return "done"

    async with home.holdfast(pack) as hf:
        run = (await hf.start(checkout("o-1"))).run

        async def approved() -> bool:
            try:
                return bool(await hf.resume_hook("approve o-1", {"by": "ann"}))
            except UsageError:
                return False

        await eventually(approved)

        async def waits() -> bool:
            return [wait.name for wait in (await run.refresh()).waiting_on] == ["never"]

        await eventually(waits)
        story = await run.explain()
        text = str(story)
        assert f"run {run.id} of shop.checkout under key 'checkout:o-1': waiting" in story.headline
        told = [
            "was admitted",
            "attempt 1 of charge#1 failed with",
            "performed charge#1 under key 'charge:o-1', in attempt 2",
            "reached marker 'charged'",
            "set attributes {'stage': 'charged'}",
            "started child run",
            "ended",
            "timer sleep#1 elapsed",
            "opened hook 'approval' with token 'approve o-1'",
            "received a signal to hook 'approval'",
            "closed hook 'approval'",
            "it waits for a signal to hook 'never'",
            "possible now: signal, cancel, release_key",
        ]
        places = [text.index(each) for each in told]
        assert places == sorted(places)
        assert [line.position for line in story.lines] == list(range(len(await run.journal())))
        assert all(line.at.tzinfo is UTC and line.counts for line in story.lines)
        await run.cancel("changed their mind")
        text = str(await run.explain())
        assert "was asked to cancel: changed their mind" in text
        assert "was cancelled" in text
        assert "it waits for" not in text


async def test_the_story_says_which_entries_no_longer_count(home: Home) -> None:
    pack = Pack("p")
    broken = True

    @pack.effect(retry=Retry(attempts=1))
    async def act() -> None:
        if broken:
            raise OSError("broken")

    @pack.workflow
    async def work() -> str:
        await act()
        return await hook("go")

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        with pytest.raises(RunFailed):
            await run.result(timeout=30)
        broken = False
        await run.retry()
        await heard(hf).until(RunLetGo, run_id=run.id)
        story = await run.explain()
        [void] = [line for line in story.lines if not line.counts]
        assert void.text.startswith("gave up on act#1")
        assert "was retried" in [line.text for line in story.lines]
        assert "performed act#1" in str(story)


async def test_a_run_that_lost_its_key_says_so(home: Home, works: Works) -> None:
    async with home.holdfast(works.pack) as hf:
        run = await works.let_go(hf, "hook")
        await run.release_key("by mistake")
        story = await run.explain()
        assert "which it has lost since" in story.headline
        assert "release_key" not in story.next_actions


# -- what workflows declare


async def test_a_holdfast_describes_its_workflows(home: Home) -> None:
    pack = Pack("shop")

    @pack.workflow(
        key="c:{order}",
        version="7",
        queue="slow",
        retention="1h",
        markers=("new", "done"),
        outcomes=("no_effects", "compensated"),
    )
    async def checkout(order: str) -> None:
        """Sells.

        Once.
        """

    @pack.workflow
    async def plain() -> None: ...

    async with home.holdfast(pack, worker=False) as hf:
        described = {each.name: each for each in await hf.workflows()}
    assert set(described) == {"shop.checkout", "shop.plain"}
    assert described["shop.checkout"] == Description(
        name="shop.checkout",
        doc="Sells.\n\nOnce.",
        key="c:{order}",
        version="7",
        queue="slow",
        retention=timedelta(hours=1),
        markers={"new": ("done",), "done": ()},
        outcomes=("no_effects", "compensated"),
        input_schema=described["shop.checkout"].input_schema,
        result_schema=described["shop.checkout"].result_schema,
    )
    schema = described["shop.checkout"].input_schema or {}
    assert schema["$defs"]["Arguments"]["properties"] == {"order": {"type": "string"}}
    assert schema["$defs"]["Arguments"]["required"] == ["order"]
    assert described["shop.checkout"].result_schema == {"type": "null"}
    plain_ = described["shop.plain"]
    assert (plain_.key, plain_.version, plain_.queue, plain_.markers, plain_.outcomes) == (
        None,
        None,
        "default",
        {},
        None,
    )


async def test_a_run_keeps_the_version_under_which_it_was_admitted(home: Home) -> None:
    def version(name: str | None) -> tuple[Pack, Any]:
        pack = Pack("p")

        @pack.workflow(key="k:{n}", version=name)
        async def work(n: int) -> list[str | None]:
            before = current().version
            await hook("go")
            return [before, current().version]

        return pack, work

    (old, old_work), (new, new_work), (bare, bare_work) = version("1"), version("2"), version(None)
    async with home.holdfast(old) as hf:
        first = (await hf.start(old_work(1))).run
        assert first.version == "1"
        await heard(hf).until(RunLetGo, run_id=first.id)
    async with home.holdfast(new) as hf:
        second = (await hf.start(new_work(2))).run
        for run_id, expected in ((first.id, "1"), (second.id, "2")):
            run = await hf.get(run_id)
            assert run.version == expected
            await run.signal("go")
            assert await run.result(timeout=30) == [expected, expected]
    async with home.holdfast(bare) as hf:
        third = (await hf.start(bare_work(3))).run
        await third.signal("go")
        assert (third.version, await third.result(timeout=30)) == (None, [None, None])

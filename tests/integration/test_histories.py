"""The checker of histories against the engine itself: what happens in memory, recorded as a simulation records it.

What the engine does is legal; a rule that says otherwise is wrong, or has found something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import Holdfast, Pack, Retry, Run, continue_as_new, current, hook, sleep, spawn
from holdfast.adapters.machine import SystemClock
from holdfast.effects import attempt, effect_key
from holdfast.engine.code import unwinding
from holdfast.errors import HoldfastError, TransientError
from holdfast.kernel import cancels
from holdfast.kernel.runs import ENDED
from holdfast.stores.memory import MemoryStore
from holdfast.testing import eventually
from holdfast.testing.histories import files
from holdfast.testing.histories.checker import check
from holdfast.testing.histories.history import (
    EffectObserved,
    FinalKey,
    HistoryHead,
    OperationCalled,
    OperationReturned,
    Record,
    RunMoved,
)
from holdfast.testing.histories.recording import (
    fence_seen,
    final_run,
    outcome_of,
    receipt_seen,
    run_of,
    store_write,
)


class RecordedStore(MemoryStore):
    """A store in memory that writes down what it decides."""

    def __init__(self) -> None:
        super().__init__(clock=SystemClock())
        self.history: list[Record] = [HistoryHead(source="test", lease_ms=30_000)]

    async def commit(self, changes):
        answers = []
        for change in changes:
            run, successor = run_of(change), change.then.run.id if change.then and change.then.run else ""
            before, had = self._tables.runs.get(run), successor in self._tables.runs
            answer = self._writes.apply(change)
            after = self._tables.runs.get(run)
            outcome = outcome_of(change, answer, before=before, after=after)
            told = {"at_ms": self.now_ms(), "host": "h"}
            self.history.append(store_write(change, outcome, before=before, after=after, **told))
            if change.then and successor in self._tables.runs and not had:
                row = self._tables.runs[successor]
                self.history.append(store_write(change.then, "accepted", before=None, after=row, **told))
            answers.append(answer)
        self._notify()
        return answers

    async def claim(self, claim):
        claimed = await super().claim(claim)
        for run in claimed.runs:
            self._moved("claimed", run.id)
        return claimed

    def _free(self, run_id):
        super()._free(run_id)
        self._moved("rescued", run_id)

    async def prune(self, limit):
        before = set(self._tables.runs)
        pruned = await super().prune(limit)
        for run in sorted(before - set(self._tables.runs)):
            self.history.append(RunMoved(at_ms=self.now_ms(), how="pruned", run=run))
        return pruned

    def _moved(self, how, run_id) -> None:
        fence = fence_seen(self._tables.runs[run_id])
        self.history.append(RunMoved(at_ms=self.now_ms(), how=how, run=run_id, fence=fence))

    def finish(self) -> list[Record]:
        """The history, with what there is in the end."""
        now_ms = self.now_ms()
        for run in self._tables.runs.values():
            journal = tuple(self._tables.journals[run.id])
            receipt = cancels.receipt(run, journal) if run.status in ENDED else None
            self.history.append(final_run(run, journal, at_ms=now_ms, receipt=receipt))
        for (namespace, workflow, key), run_id in self._tables.keys.items():
            each = FinalKey(at_ms=now_ms, namespace=namespace, workflow=workflow, key=key, run=run_id)
            self.history.append(each)
        return self.history


class World:
    """Effects that are seen, workflows of many kinds, and clients whose calls are written down."""

    def __init__(self, store: RecordedStore) -> None:
        self.store = store
        self.ops = count()
        self.pack = Pack("w")
        self.failures: dict[str, int] = {}

        @self.pack.effect
        async def unmake(run: str, what: str) -> None:
            async with self._seen(run, f"undo:{what}", undo=True):
                pass

        @self.pack.effect(undo=unmake, retry=Retry(attempts=3, base="1ms"))
        async def make(run: str, what: str, fails: int = 0) -> str:
            async with self._seen(run, what):
                self.failures[run + what] = self.failures.get(run + what, 0) + 1
                if self.failures[run + what] <= fails:
                    raise TransientError("not yet")
                await asyncio.sleep(0)
                return what

        @self.pack.workflow(key="{name}")
        async def plain(name: str, amount: int = 0) -> str:
            run = current().run_id
            await asyncio.gather(make(run, "a"), make(run, "b", 1))
            await sleep("1ms")
            return await make(run, "c")

        @self.pack.workflow(key="{name}")
        async def talk(name: str, words: int = 2) -> list[str]:
            async with hook("word", type=str) as word:
                return [await word for _ in range(words)]

        @self.pack.workflow(key="{name}")
        async def wait(name: str) -> None:
            run = current().run_id
            await make(run, "a")
            await make(run, "b")
            async with hook("go") as go:
                await go

        @self.pack.workflow(key="{name}")
        async def parent(name: str) -> str:
            first = await plain(f"{name}.child")
            second = await spawn(plain(f"{name}.spawned"))
            return first + await second.result()

        @self.pack.workflow(key="{name}")
        async def loop(name: str, left: int) -> int:
            await make(current().run_id, "a")
            if left:
                continue_as_new(loop(name, left - 1))
            return left

        @self.pack.workflow(key="{name}")
        async def broken(name: str) -> str:
            run = current().run_id
            await make(run, "a")
            return await make(run, "b", 3)

        self.plain, self.talk, self.wait, self.parent, self.loop, self.broken = plain, talk, wait, parent, loop, broken

    @asynccontextmanager
    async def _seen(self, run: str, step: str, *, undo: bool = False):
        # Steps have longer names in the journal; those of an effect follow from its key, unless it declares one.
        step = effect_key().removeprefix("undo:").removeprefix(f"{run}/")
        step = f"undo:{step}" if undo else step
        call = EffectObserved(
            host="h", run=run, step=step, key=effect_key(), phase="began", attempt=attempt(), undo=undo
        )
        self.store.history.append(replace(call, at_ms=self.store.now_ms()))
        returned = False
        try:
            yield
            returned = True
        finally:
            self.store.history.append(replace(call, at_ms=self.store.now_ms(), phase="ended", returned=returned))

    async def do(self, verb: Any, ask: Callable[[], Awaitable[Any]], **fields: Any) -> Any:
        """Ask, and write down what was said."""
        op = f"op-{next(self.ops)}"
        self.store.history.append(OperationCalled(at_ms=self.store.now_ms(), op=op, client="c", verb=verb, **fields))
        returned = OperationReturned(op=op, outcome="ok")
        found: Any = None
        try:
            found = await ask()
        except HoldfastError as error:
            returned = replace(returned, outcome="refused", error=error.code, run=getattr(error, "run_id", "") or "")
        if isinstance(found, tuple):
            returned = replace(returned, run=found[0].id, created=found[1])
        elif isinstance(found, Run):
            returned = replace(returned, run=found.id)
        elif verb == "cancel" and found is not None:
            returned = replace(returned, receipt=receipt_seen(found))
        self.store.history.append(replace(returned, at_ms=self.store.now_ms()))
        return found

    async def start(self, hf: Holdfast, call: Any, key: str, **options: Any) -> Any:
        fields: dict[str, Any] = {}
        if "replace" in options:
            fields["replaces"] = options["replace"].id
        if "signal" in options:
            fields |= {"hook": options["signal"][0], "dedupe": options["signal"][2]}
        return await self.do(
            "start",
            lambda: hf.start(call, **options),
            workflow=call.target.name,
            key=key,
            input=repr(sorted(call.arguments.items())),
            join=options.get("join", True),
            **fields,
        )


Scenario = Callable[[World, Holdfast, Holdfast], Awaitable[None]]


async def recorded(scenario: Scenario, store: RecordedStore) -> list[Record]:
    """What happens in a scenario, until nothing moves."""
    world = World(store)
    async with Holdfast(store, packs=[world.pack]) as one, Holdfast(store, packs=[world.pack]) as other:
        await scenario(world, one, other)
        live = {"pending", "running"}
        await eventually(lambda: not any(run.status in live for run in store._tables.runs.values()))
        return store.finish()


async def starts_and_joins(world: World, one: Holdfast, other: Holdfast) -> None:
    async def client(hf: Holdfast, nth: int) -> None:
        for key in ("k-1", "k-2", f"own-{nth}"):
            run, _ = await world.start(hf, world.plain(key), key)
            await world.start(hf, world.plain(key, 7), key)
            await world.do("find", lambda hf=hf, key=key: hf.find(world.plain, key), workflow="w.plain", key=key)
            await run.result()

    await asyncio.gather(*(client(hf, nth) for nth, hf in enumerate((one, other, one, other))))


async def replaced_and_released(world: World, one: Holdfast, other: Holdfast) -> None:
    run, _ = await world.start(one, world.wait("k"), "k")
    await eventually(lambda: run.status)  # it may be anywhere
    both = await asyncio.gather(
        world.start(one, world.wait("k"), "k", replace=run), world.start(other, world.wait("k"), "k", replace=run)
    )
    winner = next(each for each in both if each is not None)[0]
    await world.start(other, world.wait("k"), "k", join=False)
    await asyncio.gather(
        world.do("release", lambda: winner.release_key("test"), run=winner.id),
        world.do("release", lambda: winner.release_key("test"), run=winner.id),
        world.start(other, world.wait("k"), "k"),
    )
    for hf in (one, other):
        await world.start(hf, world.wait("k"), "k")
    last = await world.do("find", lambda: one.find(world.wait, "k"), workflow="w.wait", key="k")
    await asyncio.gather(*(world.do("cancel", lambda run=run: run.cancel(), run=run.id) for run in (winner, last)))


async def cancelled_and_resumed(world: World, one: Holdfast, other: Holdfast) -> None:
    run, _ = await world.start(one, world.wait("k"), "k")
    await asyncio.sleep(0.01)
    await world.do("cancel", run.cancel, run=run.id)
    await world.start(other, world.wait("k"), "k")
    await world.do("resume", run.resume, run=run.id)
    await world.do("release", run.release_key, run=run.id)
    await world.do("release", run.release_key, run=run.id)
    await world.start(other, world.plain("p"), "p")


async def failed_retried_and_forked(world: World, one: Holdfast, other: Holdfast) -> None:
    run, _ = await world.start(one, world.broken("k"), "k")
    await run.wait()
    await world.do("retry", run.retry, run=run.id)
    done = await (await one.get(run.id)).wait()
    assert done.status == "completed"
    step = next(entry.step for entry in await done.journal() if entry.what == "performed")
    fork = await world.do("fork", lambda: done.fork(at=step), run=run.id)
    await fork.wait()
    await world.do("find", lambda: other.find(world.broken, "k"), workflow="w.broken", key="k")
    await world.start(other, world.broken("k"), "k")


async def signals_by_run_and_key(world: World, one: Holdfast, other: Holdfast) -> None:
    run, _ = await world.start(one, world.talk("r", 3), "r")
    for number in range(4):
        for hf in (one, other):

            async def send(hf: Holdfast = hf, number: int = number) -> None:
                await (await hf.get(run.id)).signal("word", f"{number}", dedupe=f"d{number}")

            fields = {"sender": "s", "number": number, "run": run.id, "hook": "word", "dedupe": f"d{number}"}
            await world.do("signal", send, **fields)
    for number in range(6):
        for hf in (one, other):
            await world.start(hf, world.talk("k"), "k", signal=("word", f"{number}", f"d{number}"))


async def children_and_generations(world: World, one: Holdfast, other: Holdfast) -> None:
    family, _ = await world.start(one, world.parent("p"), "p")
    loop, _ = await world.start(other, world.loop("l", 3), "l")
    await asyncio.gather(family.result(), loop.result())
    await world.start(one, world.plain("p.child"), "p.child")


SCENARIOS = (
    starts_and_joins,
    replaced_and_released,
    cancelled_and_resumed,
    failed_retried_and_forked,
    signals_by_run_and_key,
    children_and_generations,
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
async def test_what_the_engine_does_is_legal(scenario, tmp_path) -> None:
    history = await recorded(scenario, RecordedStore())
    assert check(history) == ()
    file = tmp_path / "history.jsonl"
    files.write(file, history)
    assert files.read(file) == tuple(history)
    assert check(files.read(file)) == ()


# -- what the checker is for


class FreedAtTheEnd(RecordedStore):
    """A key is free as soon as its run has ended."""

    async def commit(self, changes):
        answers = await super().commit(changes)
        for run in self._tables.runs.values():
            if run.status in ENDED:
                self._tables.free_key(run)
        return answers


class Grabbing(RecordedStore):
    """A key that is taken does not keep a second run out."""

    def __init__(self) -> None:
        super().__init__()
        self._writes._may_take_over = lambda _guard, _holder: True


class Forgetful(RecordedStore):
    """What was sent to a key is forgotten when another run takes the key over."""

    def __init__(self) -> None:
        super().__init__()
        self._writes._receiver_in_scopes = lambda _change: None


class Deaf(RecordedStore):
    """Signals are acknowledged, and dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._writes._deliver = lambda _envelopes: ()


class TwoGenerations(RecordedStore):
    """A journal that begins again keeps no count of that."""

    async def commit(self, changes):
        changes = [
            replace(each, entries=(replace(each.entries[0], generation=1), *each.entries[1:]))
            if each.replaces_journal
            else each
            for each in changes
        ]
        return await super().commit(changes)


async def ended_and_started_again(world: World, one: Holdfast, other: Holdfast) -> None:
    run, _ = await world.start(one, world.plain("k"), "k")
    await run.result()
    await world.start(other, world.plain("k"), "k")


async def ended_and_signalled_again(world: World, one: Holdfast, other: Holdfast) -> None:
    for number in (0, 1, 0):
        run, _ = await world.start(one, world.talk("k", 1), "k", signal=("word", "w", f"d{number}"))
        await run.wait()


async def signalled(world: World, one: Holdfast, other: Holdfast) -> None:
    run, _ = await world.start(one, world.talk("r", 3), "r")
    fields = {"run": run.id, "hook": "word", "dedupe": "d"}
    await world.do("signal", lambda: run.signal("word", "w", dedupe="d"), **fields)


async def generations(world: World, one: Holdfast, other: Holdfast) -> None:
    run, _ = await world.start(one, world.loop("l", 2), "l")
    await run.result()


async def cancelled_while_it_waits(world: World, one: Holdfast, other: Holdfast) -> None:
    run, _ = await world.start(one, world.wait("k"), "k")
    await eventually(lambda: world.store._tables.runs[run.id].status == "waiting")
    await world.start(one, world.plain("other"), "other")
    await world.do("cancel", run.cancel, run=run.id)


@pytest.mark.parametrize(
    ("store", "scenario", "kind"),
    [
        (FreedAtTheEnd, ended_and_started_again, "no_legal_order"),
        (FreedAtTheEnd, ended_and_started_again, "two_holders"),
        (Grabbing, ended_and_started_again, "two_holders"),
        (Forgetful, ended_and_signalled_again, "signal_twice"),
        (Deaf, signalled, "signal_lost"),
        (TwoGenerations, generations, "chain_broken"),
    ],
)
async def test_what_a_store_must_not_do_is_found(store, scenario, kind) -> None:
    assert kind in {violation.kind for violation in check(await recorded(scenario, store()))}


async def test_an_undo_in_the_wrong_order_is_found(monkeypatch) -> None:
    assert check(await recorded(cancelled_while_it_waits, RecordedStore())) == ()
    monkeypatch.setattr(unwinding, "reversed", list, raising=False)
    found = {violation.kind for violation in check(await recorded(cancelled_while_it_waits, RecordedStore()))}
    assert found == {"undo_order"}

"""One world: the engine on a store model, a caller, stand-ins for effects, and the faults of a schedule.

Workers and caller are hosts in virtual time. A worker that crashes is replaced by a new one; one that stands still
goes on later, when another one has its runs. The caller starts the run, sends signals to whatever hook a run waits
for, and repeats what was not acknowledged. A world is over when no run can go on by itself, and everything that was
late has arrived.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import PurePath
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from holdfast.assembly import Holdfast
from holdfast.calls import Call
from holdfast.engine.attempts import EffectAttempt
from holdfast.engine.pace import Pace
from holdfast.errors import HoldfastError, NotPerformed, TransientError
from holdfast.kernel import waits
from holdfast.kernel.cancels import Receipt
from holdfast.kernel.changes import Alive, Answer, Change, Committed, KeyFree, KeyHeldBy, TokenHeldBy
from holdfast.kernel.journal import Entry, GaveUp, IntentEntry, Performed, StepEntry
from holdfast.kernel.runs import SETTLED, Fenced, Run, Status
from holdfast.kernel.times import Millis
from holdfast.kernel.units import utc_of
from holdfast.pack import Effect, Pack
from holdfast.ports.notices import Notice
from holdfast.ports.store import Claimed
from holdfast.prove.performing import ProvedCall, ProvedPerformer
from holdfast.prove.samples import CODEC, result_of
from holdfast.prove.schedules import Boundary, BoundaryKind, FaultKind, Phase, Schedule
from holdfast.testing.effect_ledger import EffectLedger
from holdfast.testing.proofs import FakeWorld
from holdfast.testing.simulation.hosts import Host
from holdfast.testing.simulation.network import Fate, StoreCall, StoreModel
from holdfast.testing.simulation.world import NothingHappens, TimeStandsStill, World
from holdfast.wire.samples import sample

TRAVEL_SECONDS = 0.001  # of a call to the store, each way
LEASE_SECONDS_MIN = 6.0
STEPS_MAX = 100_000  # of one world; most have some thousands
SIGNALS_MAX = 2  # to one hook of one run, where a proof declares none
WORKERS = 2

StoreMaker = Callable[[World, "Life"], StoreModel]


class Case(Struct, frozen=True, kw_only=True):
    """What is proved: a call, the packs that it needs, and the world around it."""

    name: str
    call: Call[Any]
    packs: tuple[Pack, ...]
    arrange: Callable[[FakeWorld], None]
    deliver: tuple[str, ...] = ("twice", "together", "late")
    make_store: StoreMaker | None = None

    def fake_world(self) -> FakeWorld:
        world = FakeWorld()
        self.arrange(world)
        return world


class Happening(Struct, frozen=True):
    """Something that happened in a world, for those who read about it."""

    after_ms: Millis  # since the world began
    host: str
    kind: str  # call, commit, refused, fault, sent, end
    words: str
    step: str = ""


class SeenWrong(Struct, frozen=True):
    """What was seen to be wrong while it happened."""

    rule: str
    what: str
    step: str = ""
    line: str = ""


class Lived(Struct, kw_only=True):
    """A world that is over: all that is judged."""

    schedule: Schedule
    boundaries: list[Boundary]
    happenings: list[Happening]
    ledger: EffectLedger
    runs: list[Run]
    journals: dict[str, tuple[Entry, ...]]
    blobs: dict[str, dict[str, bytes]]
    receipts: dict[str, Receipt]
    root: str
    noted: list[SeenWrong]
    seen: list[Any]
    before: dict[str, str]
    after: dict[str, str]
    is_over: bool
    lasted_seconds: float
    faults_met: list[Boundary]

    @property
    def root_run(self) -> Run | None:
        return next((run for run in self.runs if run.id == self.root), None)


class KilledHere(BaseException):
    """The host that executes this has been killed."""


class Life:
    """Lives one world. It is the observer of its store, and performs the effects."""

    def __init__(self, case: Case, schedule: Schedule, *, seed: int, lease_seconds: float = LEASE_SECONDS_MIN) -> None:
        self.case = case
        self.schedule = schedule
        self.world = World(seed)
        self.fake = case.fake_world()
        self.lease_seconds = lease_seconds
        self.pace = pace_for(lease_seconds)
        self.model = (case.make_store or StoreModel)(self.world, self)
        self.ledger = EffectLedger()
        self.boundaries: list[Boundary] = []
        self.happenings: list[Happening] = []
        self.noted: list[SeenWrong] = []
        self.faults_met: list[Boundary] = []
        self.root = ""
        self._seed = seed
        self._faults: dict[int, FaultKind] = {fault.at: fault.what for fault in schedule.faults}
        self._callers = 0
        self._caller: Host | None = None
        self._hf: Holdfast | None = None
        self._is_live = False
        self._workers = 0
        self._busy: list[asyncio.Task[Any]] = []
        self._late: list[StoreCall] = []
        self._owed: dict[tuple[str, str, int], Any] = {}  # signals that are not acknowledged
        self._payloads: dict[tuple[str, str, int], Any] = {}
        self._signalled: dict[tuple[str, str], int] = {}
        self._calls_by_key: dict[tuple[str, str], int] = {}
        self._ends: dict[str, int] = {}  # the highest epoch of each run that the store has told
        self._renewed_since = False
        self._to_be_cancelled = False
        self._restless = 0  # what still has to arrive or to go on

    # -- the life

    def live(self) -> Lived:
        """The whole life. Whatever happens in it, nothing of the world is left."""
        try:
            return self._live()
        finally:
            self.world.close()

    def _live(self) -> Lived:
        before = self._look()
        for _ in range(WORKERS):
            self._boot()
        self._join_caller()
        self.world.run(lambda: self._hf is not None, seconds=self.lease_seconds * 10)
        self._is_live = True
        self._spawn(self._start())
        limit = self.lease_seconds * 60
        is_over = self._go_on(self._is_quiet, limit)
        if is_over and "late" in {self.schedule.start, self.schedule.signals}:
            self._spawn(self._start(again=True))
            for place in list(self._signalled) if self.schedule.signals == "late" else ():
                self._spawn(self._signal_again(place))
            is_over = self._go_on(self._is_quiet, limit)
        if is_over and (self._late or self._restless):
            for call in self._late:
                self.model.apply_late(call)
            self._late.clear()
            is_over = self._go_on(lambda: False, self.lease_seconds * 4) or self._go_on(self._is_quiet, limit)
        self._is_live = False
        receipts = self._receipts() if is_over else {}
        return self._lived(before, receipts, is_over=is_over)

    def _go_on(self, until: Callable[[], bool], seconds: float) -> bool:
        """Whether it became so. A world that is busy forever is given up, however short the time is that it takes."""
        steps = itertools.count()
        with contextlib.suppress(NothingHappens, TimeStandsStill):
            self.world.run(lambda: until() or next(steps) > STEPS_MAX, seconds=seconds)
        return until()

    def _look(self) -> dict[str, str]:
        return {name: CODEC.encode(look(), what=name).decode() for name, look in self.fake.observed.items()}

    def _lived(self, before: dict[str, str], receipts: dict[str, Receipt], *, is_over: bool) -> Lived:
        tables = self.model.inner._tables  # noqa: SLF001
        runs = [run for run in tables.runs.values() if not run.workflow.startswith("holdfast.")]
        return Lived(
            schedule=self.schedule,
            boundaries=self.boundaries,
            happenings=self.happenings,
            ledger=self.ledger,
            runs=runs,
            journals={run.id: tuple(tables.journals[run.id]) for run in runs},
            blobs={run.id: dict(tables.blobs.get(run.id, {})) for run in runs},
            receipts=receipts,
            root=self.root,
            noted=self.noted,
            seen=self.fake.seen,
            before=before,
            after=self._look(),
            is_over=is_over,
            lasted_seconds=self.world.now(),
            faults_met=self.faults_met,
        )

    # -- hosts

    def _boot(self) -> None:
        self._workers += 1
        host = self.world.host(f"worker-{self._workers}")

        async def work() -> None:
            async with self._holdfast(host, worker=True):
                await asyncio.Event().wait()

        host.spawn(work())

    def _holdfast(self, host: Host, *, worker: bool) -> Holdfast:
        return Holdfast(
            self.model.seen_from(host),
            packs=self.case.packs,
            worker=worker,
            lease=self.lease_seconds,
            _pace=self.pace,
            _platform=replace(host.platform, performer=partial(ProvedPerformer, self, host)),
        )

    def _join_caller(self) -> None:
        self._callers += 1
        host = self._caller = self.world.host(f"caller-{self._callers}")
        self._hf = None

        async def stay() -> None:
            async with self._holdfast(host, worker=False) as hf:
                self._hf = hf
                await asyncio.Event().wait()

        host.spawn(stay())

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        assert self._caller is not None
        self._busy.append(self._caller.spawn(self._until_acknowledged(work)))

    async def _until_acknowledged(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except TransientError:
            return  # it is repeated
        except HoldfastError as error:
            self.noted.append(SeenWrong("a caller was refused", f"{type(error).__name__}: {error}"))

    # -- the caller

    async def _start(self, *, again: bool = False) -> None:
        hf = self._hf
        assert hf is not None
        workflow: Any = self.case.call.target
        request_id = None if workflow.key is not None else "the-start"

        async def once() -> None:
            call = Call(workflow, dict(self.case.call.arguments))
            while True:
                try:
                    run, _ = await hf.start(call, request_id=request_id)
                    break
                except TransientError:
                    continue
            if run.id not in self.model.inner._tables.runs:  # noqa: SLF001
                self.noted.append(SeenWrong("an acknowledgement before the record", f"the start of run {run.id}"))
            if self.root and run.id != self.root:
                self.noted.append(SeenWrong("a start was repeated", f"it made run {run.id} beside run {self.root}"))
            self.root = self.root or run.id
            self._tell("sent", f"the start is acknowledged: run {run.id}", host="caller")

        if self.schedule.start == "together" and not again:
            await asyncio.gather(once(), once())
        else:
            await once()
            if self.schedule.start == "twice" and not again:
                await once()

    def _send_what_is_waited_for(self) -> None:
        """A run that waits for a signal gets one, unless it has had all there are."""
        tables = self.model.inner._tables  # noqa: SLF001
        for run in list(tables.runs.values()):
            if run.status is not Status.WAITING or run.waits is None or run.unread:
                continue
            for wait in waits.decode(run.waits):
                if wait.kind == "hook":
                    self._send_to(run, wait.name)

    def _send_to(self, run: Run, hook: str) -> None:
        number = self._signalled.get((run.id, hook), 0)
        if any(place[:2] == (run.id, hook) for place in self._owed):
            return  # it is on its way
        declared = self.fake.payloads.get(hook)
        if number >= (SIGNALS_MAX if declared is None else len(declared)):
            return
        payload = self._sample_for(run, hook) if declared is None else declared[number]
        self._signalled[run.id, hook] = number + 1
        self._owed[run.id, hook, number] = self._payloads[run.id, hook, number] = payload
        self._spawn(self._signal((run.id, hook, number), payload))

    def _sample_for(self, run: Run, hook: str) -> Any:
        opened = self.model.inner._tables.hooks.get(run.id, {}).values()  # noqa: SLF001
        schema = next((each.schema for each in opened if each.name == hook and each.schema), None)
        return None if schema is None else sample(CODEC.decode(schema, dict[str, Any]))

    async def _signal(self, place: tuple[str, str, int], payload: Any) -> None:
        run_id, hook, number = place
        hf = self._hf
        assert hf is not None

        async def once() -> None:
            while True:
                try:
                    run = await hf.get(run_id)
                    if run.is_settled:
                        break
                    await run.signal(hook, payload, dedupe=f"{hook}-{number}")
                    inbox = self.model.inner._tables.inboxes.get(run_id, {})  # noqa: SLF001
                    if not any(f"{hook}-{number}" in message_id for message_id in inbox):
                        self.noted.append(SeenWrong("an acknowledgement before the record", f"a signal to {hook!r}"))
                    break
                except TransientError:
                    continue
                except HoldfastError:
                    if (await hf.get(run_id)).is_settled:
                        break  # it has ended meanwhile
                    raise

        match self.schedule.signals:
            case "together":
                await asyncio.gather(once(), once())
            case "twice":
                await once()
                await once()
            case _:
                await once()
        self._tell("sent", f"the signal to {hook!r} is acknowledged", host="caller")
        self._owed.pop(place, None)

    async def _signal_again(self, place: tuple[str, str]) -> None:
        """The first signal to a hook arrives once more, when nothing else happens."""
        hf = self._hf
        assert hf is not None
        run_id, hook = place
        run = await hf.get(run_id)
        if not run.is_settled:
            await run.signal(hook, self._payloads[run_id, hook, 0], dedupe=f"{hook}-0")

    async def _cancel(self) -> None:
        hf = self._hf
        assert hf is not None
        while True:
            try:
                run = await hf.get(self.root)
                await run.ask_cancel("a proof", deadline=self.lease_seconds * 20)
                self._tell("sent", "the cancellation is acknowledged", host="caller")
                return
            except TransientError:
                continue

    def _receipts(self) -> dict[str, Receipt]:
        found: dict[str, Receipt] = {}
        ended = [
            run.id
            for run in self.model.inner._tables.runs.values()  # noqa: SLF001
            if run.status in {Status.CANCELLED, Status.FAILED}
        ]

        async def ask() -> None:
            assert self._hf is not None
            for run_id in ended:
                found[run_id] = await (await self._hf.get(run_id)).receipt()

        if ended:
            self._spawn(ask())
            self._go_on(self._busy[-1].done, self.lease_seconds * 10)
        return found

    # -- how far it is

    def _is_quiet(self) -> bool:
        """Whether nothing more happens by itself."""
        if not self.root or self._hf is None or self._owed or self._to_be_cancelled or self._restless:
            return False
        if any(not task.done() for task in self._busy):
            return False
        return all(_is_settled(run) for run in self.model.inner._tables.runs.values())  # noqa: SLF001

    def _tell(self, kind: str, words: str, *, host: str, step: str = "") -> None:
        self.happenings.append(Happening(self._elapsed_ms, host, kind, words, step))

    @property
    def _elapsed_ms(self) -> Millis:
        return Millis(int(self.world.now() * 1000))

    # -- boundaries and faults

    def _reach(
        self, kind: BoundaryKind, phase: Phase, host: Host, *, about: str, line: str = "", run_id: str = ""
    ) -> Fate | None:
        """The world is at a boundary. Returns the fate of the call that is about to be sent, if a fault decides it."""
        if not self._is_live:
            return None
        if kind == "renewal":  # one like the other, until something else happens
            if self._renewed_since:
                return None
            self._renewed_since = True
        else:
            self._renewed_since = False
        boundary = Boundary(
            number=len(self.boundaries),
            kind=kind,
            phase=phase,
            host=host.name,
            after_ms=self._elapsed_ms,
            about=about,
            line=line,
            run_id=run_id,
        )
        self.boundaries.append(boundary)
        fault = self._faults.get(boundary.number)
        if fault is None:
            return None
        self.faults_met.append(boundary)
        self._tell(
            "fault", f"{fault} of {host.name} {boundary}" if fault != "cancel" else f"cancel {boundary}", host=host.name
        )
        past_lease = self.lease_seconds * 2.5
        match fault:
            case "crash":
                self._kill(host)
                return Fate(call_lost=True)
            case "pause":
                self._stop(host, past_lease)
            case "late":
                self._stop(host, past_lease)
                self._expect(past_lease)
                return Fate(there=past_lease)
            case "stale":
                self._stop(host, past_lease)
                return Fate(call_lost=True)  # and kept until the end
            case "cancel":
                self._to_be_cancelled = True
                self.world.after(0.0, self._ask_cancel)
        return None

    def _ask_cancel(self) -> None:
        if not self.root or self._hf is None:
            self.world.after(0.01, self._ask_cancel)
            return
        self._to_be_cancelled = False
        self._spawn(self._cancel())

    def _kill(self, host: Host) -> None:
        host.kill()
        if host is not self._caller:
            self._boot()
            return
        self._hf = None
        owed = dict(self._owed)
        self._busy.clear()
        self.world.after(0.1, lambda: self._repeat(owed))

    def _repeat(self, owed: dict[tuple[str, str, int], Any]) -> None:
        """Another caller does again what the one that died had not seen acknowledged."""
        self._join_caller()

        async def again() -> None:
            while self._hf is None:  # noqa: ASYNC110 - of virtual time, in which it joins at once
                await asyncio.sleep(0.01)  # noqa: TID251 - of virtual time
            if not self.root:
                await self._start()
            for place, payload in owed.items():
                await self._signal(place, payload)

        self._spawn(again())

    def _stop(self, host: Host, seconds: float) -> None:
        host.stop()
        self._restless += 1

        def go_on() -> None:
            self._restless -= 1
            self._tell("fault", f"{host.name} goes on", host=host.name)
            host.go_on()

        self.world.after(seconds, go_on)

    def _expect(self, seconds: float) -> None:
        self._restless += 1

        def arrived() -> None:
            self._restless -= 1

        self.world.after(seconds + 0.1, arrived)

    # -- the store, as its observer

    def fate(self, call: StoreCall) -> Fate:
        fate = self._at_call("before", call)
        if fate is not None and fate.call_lost and self._faults.get(len(self.boundaries) - 1) == "stale":
            self._late.append(call)
        return fate or Fate(TRAVEL_SECONDS, TRAVEL_SECONDS)

    def notice(self, host: Host, notice: Notice) -> tuple[float, ...]:  # noqa: ARG002
        return (TRAVEL_SECONDS,)

    def applied(self, call: StoreCall, result: object) -> None:
        if call.verb == "claim" and isinstance(result, Claimed):
            for run in result.runs:
                self._ends[run.id] = run.epoch
            if not result.runs:
                return
        if call.verb == "rescue" and isinstance(result, list):
            for run_id in cast("list[str]", result):
                self._tell("commit", f"the runs of a dead worker are freed: {run_id}", host=call.host.name)
        if call.verb == "commit" and isinstance(result, list):
            for change, answer in zip(call.args[0], cast("list[Answer]", result), strict=True):
                self._learn(call, change, answer)
        self._at_call("after", call)
        if self._is_live and call.verb == "commit":
            self._send_what_is_waited_for()

    def replied(self, call: StoreCall) -> None: ...

    def _learn(self, call: StoreCall, change: Change, answer: Any) -> None:
        about = about_change(change)
        if not isinstance(answer, Committed):
            if isinstance(change.guard, Fenced):
                self._tell("refused", f"refused: {about}", host=call.host.name)
            return
        if isinstance(change.guard, Fenced) and change.entries:
            known = self._ends.get(change.guard.run_id, 0)
            if change.guard.epoch < known:
                self.noted.append(
                    SeenWrong(
                        "a late write was taken", f"{call.host.name}, which had lost the run, {about}", _step_in(change)
                    )
                )
        if change.entries:
            self._tell("commit", about, host=call.host.name, step=_step_in(change))

    def _at_call(self, phase: Phase, call: StoreCall) -> Fate | None:
        host = call.host
        of_caller = host.name.startswith("caller")
        match call.verb:
            case "commit":
                changes: tuple[Change, ...] = tuple(change for change in call.args[0] if counts(change))
                if not changes:
                    return None
                first = changes[0]
                kind: BoundaryKind = "acknowledgement" if of_caller else "commit"
                run_id = first.run.id if first.run is not None else getattr(first.guard, "run_id", "")
                return self._reach(
                    kind,
                    phase,
                    host,
                    about=" and ".join(map(about_change, changes)),
                    line=next((line for change in changes if (line := _line_in(change))), ""),
                    run_id=run_id,
                )
            case "claim" if not of_caller and (phase == "after" or self._has_ready()):
                return self._reach("claim", phase, host, about="a worker takes the run")
            case "renew" if phase == "before" and not of_caller:
                return self._reach("renewal", phase, host, about="the lease is renewed")
            case _:
                return None

    def _has_ready(self) -> bool:
        store = self.model.inner
        now_ms = store.now_ms()
        runs = store._tables.runs  # noqa: SLF001
        return any((runs[run_id].wake_at_ms or 0) <= now_ms for run_id in store._tables.waking)  # noqa: SLF001

    # -- effects

    def is_real(self, effect: Effect[..., Any]) -> bool:
        return effect.name in self.fake.real_effects

    async def perform(
        self,
        host: Host,
        effect: Effect[..., Any],
        arguments: dict[str, Any],
        scope: EffectAttempt,
        original: Callable[[], Coroutine[Any, Any, Any]],
    ) -> Any:
        stub = self.fake._stub_for(effect)  # noqa: SLF001
        call = self._begin(host, effect, arguments, scope)
        await self._boundary("before", host, call)
        is_real = self.is_real(effect)
        try:
            if not is_real:
                await asyncio.sleep(stub.latency_seconds)  # noqa: TID251 - of virtual time
            if (error := stub.failure(call.key)) is not None:
                raise error
            if is_real:
                returned = await original()
            else:
                returned = await stub.value(effect, arguments) if stub.replaces else result_of(effect)
        except BaseException as error:
            call.outcome = "interrupted" if isinstance(error, asyncio.CancelledError) else "raised"
            if not isinstance(error, asyncio.CancelledError):
                await self._boundary("after", host, call)
            raise
        call.happened = True
        self._see_changed(effect, call, arguments)
        await self._boundary("after", host, call)
        if stub.loses_reply and stub.loses(call.key):
            call.outcome = "lost"
            raise ConnectionError(f"the reply of {effect.name} is lost")
        call.outcome = "returned"
        return returned

    async def reconcile(self, effect: Effect[..., Any], key: str) -> Any:
        stub = self.fake._stub_for(effect)  # noqa: SLF001
        if not self.ledger.count(effect, key=key):
            raise NotPerformed
        return await stub.value(effect, {}) if stub.replaces and stub.calls is None else result_of(effect)

    def _begin(
        self, host: Host, effect: Effect[..., Any], arguments: dict[str, Any], scope: EffectAttempt
    ) -> ProvedCall:
        call = ProvedCall(
            effect=effect.name,
            run=scope.run_id,
            step=scope.step,
            key=scope.key,
            attempt=scope.attempt,
            arguments=dict(arguments),
            worker=host.name,
            at=utc_of(host.clock.wall_ms()),
            encoded=CODEC.encode(arguments, what=effect.input_name),
            after_record=self._is_recorded(scope.run_id, scope.step),
            after_ms=self._elapsed_ms,
        )
        self.ledger.write(call)
        self._tell("call", f"calls {call.step} under the key {call.key}", host=host.name, step=call.step)
        return call

    def _see_changed(self, effect: Effect[..., Any], call: ProvedCall, arguments: dict[str, Any]) -> None:
        if CODEC.encode(arguments, what=effect.input_name) != call.encoded:
            self.noted.append(
                SeenWrong(
                    "an effect changed its argument",
                    f"{effect.name} changes what it was given: after a replay, which does not call it, the workflow "
                    "has it unchanged",
                    call.step,
                    place_of(effect.fn),
                )
            )

    def _is_recorded(self, run_id: str, step: str) -> bool:
        journal = self.model.inner._tables.journals.get(run_id, ())  # noqa: SLF001
        return any(isinstance(entry, Performed | GaveUp) and entry.step == step for entry in journal)

    async def _boundary(self, phase: Phase, host: Host, call: ProvedCall) -> None:
        words = f"{call.step} is {'called' if phase == 'before' else 'done'}"
        self._reach("effect", phase, host, about=words, run_id=call.run)
        while not host.is_running:  # not one line more, until it goes on
            turned: asyncio.Future[None] = host.loop.create_future()
            host.loop.call_soon(turned.set_result, None)
            await turned


def place_of(fn: Callable[..., Any]) -> str:
    """Where a function of the user is, as journals name lines."""
    code = inspect.unwrap(fn).__code__
    return f"{PurePath(code.co_filename).name}:{code.co_firstlineno}"


def pace_for(lease_seconds: float) -> Pace:
    """The engine looks as seldom as the lease allows: notices are not lost here, and idle looks only cost time."""
    seldom = lease_seconds * 2
    return Pace(
        code_seconds_max=0.0,
        wake_poll_seconds=seldom,
        mail_poll_seconds=seldom,
        waiters_poll_seconds=seldom,
        tasks_poll_seconds=seldom,
        events_poll_seconds=seldom,
        prune_seconds=seldom * 50,
        timeouts_seconds=lease_seconds / 2,
        relay_seconds=seldom * 50,
        hangs_seconds=seldom * 50,
        uptake_seconds=seldom,
        idle_ms=Millis(1_000),
    )


def about_change(change: Change) -> str:
    """What a change commits, in words."""
    if change.entries:
        words: list[str] = []
        for entry in change.entries:
            what = entry.what.replace("_", " ")
            words.append(
                f"{entry.step} is recorded as {what}" if isinstance(entry, StepEntry) else f"'{what}' is recorded"
            )
        return ", ".join(words)
    match change.guard:
        case KeyFree() | KeyHeldBy():
            return "the run is admitted"
        case Alive() | TokenHeldBy():
            return "a message is sent to the run"
        case _ if change.run is not None:
            return f"the run is written as {change.run.status.value}"
        case _:
            return "a write"


def counts(change: Change) -> bool:
    """Whether it is a boundary: not what only keeps a heartbeat."""
    return bool(change.entries or change.run is not None or change.envelopes or change.opens)


def _line_in(change: Change) -> str:
    return next(
        (entry.intent.line for entry in change.entries if isinstance(entry, IntentEntry) and entry.intent.line), ""
    )


def _step_in(change: Change) -> str:
    return next((entry.step for entry in change.entries if isinstance(entry, StepEntry)), "")


def _is_settled(run: Run) -> bool:
    if run.status in SETTLED:
        return True
    return run.status is Status.WAITING and run.wake_at_ms is None and not run.unread and not _waits_for_child(run)


def _waits_for_child(run: Run) -> bool:
    return run.waits is not None and any(wait.kind in {"child", "retry", "timer"} for wait in waits.decode(run.waits))

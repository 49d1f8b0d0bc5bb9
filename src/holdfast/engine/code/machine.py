"""One run as a sans-IO machine: journal entries go in, commands come out.

A live completion and a recorded one take the same way: `apply(entry)` delivers it and runs the code until it is
quiet. So what happens on a replay is what happened the first time, by construction.

Code that runs for long does so in pieces: `starting` and `applying` run the first one, and what they return runs the
others as it is iterated over, so that other runs have their turn in between. Nearly always nothing is left.

    pending   what the code waits for: open steps and timers, and how far they have come
    notes     what the code did besides, to be recorded
    inbox     what has arrived for its hooks
    ended     how the code ended, once it has
    outcome   how the run ended: as the code did; after a cancellation, and if a workflow undoes on failure, once
              everything has been unwound
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from hashlib import blake2b
from itertools import chain
from typing import Any, NoReturn

import msgspec
from msgspec import UNSET, Struct, field

from holdfast.calls import Call, WorkflowCall
from holdfast.engine.code import divergences, gathering, shields
from holdfast.engine.code.commands import CodeCancelled, CodeContinued, CodeOutcome, CodeRaised, CodeReturned, Command
from holdfast.engine.code.dropped_calls import DroppedCall, dropped_here
from holdfast.engine.code.effect_keys import EffectKeys
from holdfast.engine.code.inbox import Inbox
from holdfast.engine.code.lineage import LINEAGE
from holdfast.engine.code.lines import line_of
from holdfast.engine.code.loop import Timer, WorkflowLoop
from holdfast.engine.code.notes import Notes
from holdfast.engine.code.pending import Pending, StepFuture
from holdfast.engine.code.shields import SHIELD, Shield, Shields
from holdfast.engine.code.tasks import WorkflowTask
from holdfast.engine.code.unwinding import LeftBehind
from holdfast.engine.failures import described, members_of, rebuilt
from holdfast.engine.values import digest_of
from holdfast.errors import HeldUpItsWorker, NotSerializable, ReplayDiverged, UsageError
from holdfast.kernel import flow_rules, keys, lane_options, seals
from holdfast.kernel.attributes import Scalar
from holdfast.kernel.changes import HookOpen
from holdfast.kernel.journal import (
    Attempted,
    CancelAsked,
    Continued,
    Elapsed,
    Entry,
    GaveUp,
    Intended,
    Intent,
    IntentKind,
    Joined,
    Note,
    Opened,
    Other,
    Performed,
    Received,
    Spawned,
    Started,
    StepEntry,
    Stopped,
    Value,
    step_of,
)
from holdfast.kernel.replay import NOTHING_NOTED, Divergence, Noted, contradiction, ended_early
from holdfast.kernel.times import EPOCH, Instant, Millis
from holdfast.kernel.waits import Wait
from holdfast.pack import Effect, Workflow
from holdfast.ports.codec import Codec
from holdfast.workflow import ChildRun, Current

LAST_ERROR_LENGTH_MAX = 200  # it is kept with the row of a run that waits; all of it is in the journal
REFUSALS_MAX = 1_000  # a workflow that swallows more cancellations than this will not end by itself

_LATER: Any = None  # until the machine is made
_lineage, _shield = LINEAGE.get, SHIELD.get


class _ContinuesAsNew(BaseException):
    """Ends the code of a run that continues as new."""

    def __init__(self, call: Call[Any]) -> None:
        super().__init__()
        self.call = call


class Machine(Struct, eq=False):
    """Drives the code of one run. It is also the `WorkflowScope` that the authoring functions find."""

    workflow: Workflow[..., Any]
    current: Current
    codec: Codec
    blobs: Mapping[str, bytes]  # the large values that are at hand
    noted: Noted = NOTHING_NOTED
    journal: tuple[Entry, ...] = ()
    on_dropped: Callable[[DroppedCall], None] | None = None
    # What the code waits for, and what it does besides.
    pending: Pending = field(default_factory=Pending)
    open: dict[str, Command] = _LATER
    timers: dict[str, Timer] = _LATER
    inbox: Inbox = field(default_factory=Inbox)
    notes: Notes = _LATER
    _loop: WorkflowLoop = _LATER
    _main: WorkflowTask | None = None
    # How it has ended.
    ended: CodeOutcome | None = None
    outcome: CodeOutcome | None = None
    cancelling: bool = False
    failing: bool = False  # the code has failed, and what it left behind is undone before the run fails
    # What few runs have is made when it is needed.
    _put_by: dict[str, list[Entry]] = {}
    _left: LeftBehind | None = None
    _keys: EffectKeys | None = None
    _kept_shields: Shields | None = None
    _dropped: tuple[DroppedCall, ...] = ()  # calls that the code has not awaited, since it was last quiet
    _draws: dict[str, int] | None = None  # how often each task has asked for chance
    _refusals: int = 0
    _unwinder: WorkflowTask | None = None
    _deadline_at_ms: Instant = EPOCH  # of a cancellation, or of undoing after a failure

    def __post_init__(self) -> None:
        pending, noted, workflow = self.pending, self.noted, self.workflow
        self.open, self.timers = pending.open, pending.timers
        self._loop = loop = WorkflowLoop(self, pending, shields.withholds)
        shows = noted.shows_again
        self.notes = Notes(noted, self.current.run_id, workflow.name, workflow.markers, loop, shows, are_there=shows)

    @property
    def left(self) -> LeftBehind:
        """What would have to be taken back: most runs have nothing."""
        if self._left is None:
            self._left = LeftBehind()
        return self._left

    @property
    def _shields(self) -> Shields:
        if self._kept_shields is None:
            self._kept_shields = Shields()
        return self._kept_shields

    # -- driven by the engine

    def start(self, first: Started | Continued, *, at_ms: Instant) -> None:
        """Begin the code with its stored arguments."""
        exhaust(self.starting(first, at_ms=at_ms))

    def starting(self, first: Started | Continued, *, at_ms: Instant) -> Iterable[None]:
        """The same; what is left of it comes in pieces."""
        self._loop.now_ms = at_ms
        arguments = self._bytes_of(first.input)
        self.notes.begin_with(first.attributes)
        path = ""
        if type(first) is Continued:
            self.left.begin_with(first.children)
            path = f"g{first.generation}"
        workflow, signature = self.workflow, self.workflow.signature
        try:
            given = self.codec.decode(arguments, signature.arguments_type)
            coroutine = signature.call(workflow.fn, given)
            batch = workflow.rules.batch
            if batch is not None and not getattr(given, batch.parameter):
                coroutine.close()
                coroutine = gathering.gather(workflow, self.inbox)
        except UsageError as error:  # stored by other code than this: the run fails with the reason
            self.ended = self.outcome = CodeRaised(error)
            return ()
        self._main = self._loop.start(coroutine, path=path)
        return self._run()

    def apply(self, entry: Entry, position: int, *, strict: bool = True) -> None:
        """Deliver one entry and run the code until it is quiet.

        Raises `ReplayDiverged` if the code contradicts it; an entry that is not strict is put by instead, and
        delivered if the code asks for it after all.
        """
        if type(entry) is Performed:
            command = self.open.get(entry.step)
            if command is not None and command.intent is entry.intent:
                self.deliver(command, entry)
                return
        exhaust(self.applying(entry, position, strict=strict))

    def deliver(self, command: Command, entry: Performed) -> None:
        """The same for nearly all entries: this one was made of what the code asks for, so it contradicts nothing."""
        loop, at_ms = self._loop, entry.at_ms
        if at_ms > loop.now_ms:  # noqa: PLR1730 - `max` takes longer than all of this
            loop.now_ms = at_ms
        if self._left is not None:
            self._left.recorded(entry)
        self._resolve(command, entry.value)
        while self._run_piece():
            pass
        if self._put_by:
            exhaust(self._delivering_what_was_put_by())

    def applying(self, entry: Entry, position: int, *, strict: bool = True) -> Iterable[None]:
        """The same; what is left of it comes in pieces."""
        if isinstance(entry, Note):
            self.left.recorded(entry)
            return ()
        if isinstance(entry, Stopped) and entry.error is not None and not self.failing:
            self._fail_as_recorded(entry, position)
        if self.outcome is not None:
            if isinstance(entry, Received):
                self.inbox.put(entry)  # it is not taken here; a new generation or a successor may
            if strict and isinstance(entry, StepEntry):
                raise self._diverged(ended_early(entry, position), entry)
            return ()
        divergence = contradiction(entry, position, self.pending)
        if divergence is None:
            pieces = self._deliver_and_run(entry)
            return chain(pieces, self._delivering_what_was_put_by()) if self._put_by else pieces
        if strict:
            raise self._diverged(divergence, entry)
        if self.pending.get(step_of(entry)) is None and not isinstance(entry, Elapsed):  # a wait begins again
            self._put_by.setdefault(step_of(entry), []).append(entry)
        return ()

    def fail_by_unwinding(self) -> None:
        """The code has failed: what it left behind is to be taken back before the run fails.

        Tasks of the code that are left stay where they are, as those of any failed run: nothing wakes them any more.
        """
        assert self.ended is not None
        self.failing = True
        self.outcome = None
        self.pending.drop_everything()
        self.inbox = Inbox()

    def _fail_as_recorded(self, entry: Stopped, position: int) -> None:
        if self.outcome is None:
            recorded = f"the journal has {entry.what} after a failure as entry {position}; the code has not ended there"
            raise ReplayDiverged(f"run {self.current.run_id}: {recorded}")
        self.fail_by_unwinding()

    def _diverged(self, divergence: Divergence, entry: Entry) -> ReplayDiverged:
        error = ReplayDiverged(f"run {self.current.run_id}: {divergence}")
        error.values = divergences.values_at(entry, self.open, self._bytes_of)
        return error

    def _deliver_and_run(self, entry: Entry) -> Iterable[None]:
        self._loop.now_ms = max(self._loop.now_ms, entry.at_ms)
        self._deliver(entry)
        return self._run()

    def _delivering_what_was_put_by(self) -> Iterator[None]:
        # The code may wait for thousands of steps, and what was put by may stay so: look from the shorter side first.
        while not self._put_by.keys().isdisjoint(self.open.keys()):
            step = next(step for step in self.open if step in self._put_by)
            for entry in self._put_by.pop(step):
                if contradiction(entry, 0, self.pending) is None:  # otherwise it is not what the code wants
                    yield from self._deliver_and_run(entry)

    @property
    def is_unwinding(self) -> bool:
        """Whether what the code left behind is being taken back."""
        return self._unwinder is not None

    def is_shielded(self, step: str) -> bool:
        """Whether a cancellation would not reach the code that waits for this step."""
        command = self.open.get(step)
        return command is not None and isinstance(command.future, StepFuture) and command.future.is_shielded()

    @property
    def is_in_shield(self) -> bool:
        """Whether any of the code is in a shield."""
        return self._kept_shields is not None and self._kept_shields.any_holds()

    def waits(self) -> tuple[Wait, ...]:
        """What the code waits for."""
        return (*self.pending.waits(), *(Wait("hook", name) for name in self.inbox.awaited()))

    def evict(self) -> None:
        """Forget the run; its coroutines are closed."""
        self._loop.evict()
        self._main = self._unwinder = self.on_dropped = None

    def where(self) -> str:
        """The line at which the main task waits, for messages."""
        stack = self._main.get_stack(limit=1) if self._main and not self._main.done() else []
        return line_of(stack[0]) if stack else ""

    # -- asked by the code

    def perform(self, call: Call[Any]) -> Awaitable[Any]:
        target = call.target
        key = target.key.fill(call.arguments) if target.key else None
        line = line_of(sys._getframe(2))  # noqa: SLF001 - perform ← Call.__await__ ← the code
        return self._ask("effect" if isinstance(target, Effect) else "child", call, key, line)

    def dropped(self, call: Call[Any]) -> None:
        # What is dropped while the run is let go or cancelled would perhaps have been awaited; what is dropped on a
        # replay was told of when it happened.
        if self.on_dropped is None or self._loop.is_evicted or self.cancelling or self.notes.is_replaying:
            return
        self._dropped += (dropped_here(call, self.workflow.fn),)
        self._loop.is_irregular = True

    def spawn(
        self, call: WorkflowCall[Any], key: str | None, *, detached: bool, lane: str | None, width: int | None
    ) -> Awaitable[ChildRun[Any]]:
        if not isinstance(call, Call):
            raise UsageError(f"spawn() was given {type(call).__name__}", hint="Call the workflow: spawn(ship('o-1')).")
        call.is_taken = True
        target = call.target
        if not isinstance(target, Workflow):
            raise UsageError(
                f"spawn() was given the effect {target.name!r}",
                hint="Only a workflow can be a child run; await the effect.",
            )
        if key is None and target.key is not None:
            key = target.key.fill(call.arguments)
        key = None if key is None else keys.checked(key)
        lane_options.check(lane, width, if_free=False)
        flow_rules.check_start(target.rules, lane, owner=target.lane.owner)
        line = line_of(sys._getframe(2))  # noqa: SLF001 - spawn ← workflow.spawn ← the code
        return self._ask("spawn", call, key, line, detached=detached, lane=lane, width=width)

    def join(self, child: ChildRun[Any]) -> Awaitable[Any]:
        if self._is_refused():
            return self._parked()
        intent = Intent("join", child.workflow, key=child.id)
        step = self._next_step(f"{child.workflow.partition('.')[2]}.result", intent)
        return self._open(
            Command(step, intent, self._loop.now_ms, self._future(step), child.returns, child_id=child.id)
        )

    def open_hook(self, name: str, token: str | None, as_type: Any) -> asyncio.Future[ChildRun[Any] | None] | None:
        if as_type is not Any:
            self.codec.check(as_type, what=f"the payload of hook {name!r}")
        schema = None if as_type is Any else self.codec.schema(as_type)
        hook = HookOpen(name, token, None if schema is None else msgspec.json.encode(schema))
        if token is None:
            if schema is not None:
                self.notes.hook_opened(hook)
            return None
        if self.cancelling and not shields.holds_here():
            refused = self._loop.create_future()
            refused.cancel()
            return refused
        intent = Intent("hook", name, key=token)
        step = self._next_step(f"hook:{name}", intent)
        command = Command(step, intent, self._loop.now_ms, self._future(step), None, hook=hook)
        self._open(command)
        return command.future

    async def receive(self, name: str, as_type: Any) -> Any:
        self._loop.refuse_elsewhere()
        while True:
            if self._is_refused():
                await self._parked()
            received = await self.inbox.take(name)
            try:
                return self.codec.decode(self._bytes_of(received.value), as_type)
            except NotSerializable as error:
                self.notes.ignored(received, str(error.__cause__ or error))

    def close_hook(self, name: str, token: str | None) -> None:
        self._loop.refuse_elsewhere()
        self.inbox.close(name)
        self.notes.hook_closed(HookOpen(name, token))

    def mark(self, marker: str) -> None:
        self.notes.mark(marker)

    def set_attributes(self, changes: Mapping[str, Scalar | None]) -> None:
        self.notes.set_attributes(changes)

    def patched(self, name: str) -> bool:
        return self.notes.patched(name)

    def shield(self, limit_ms: Millis) -> AbstractAsyncContextManager[None]:
        return Shield(self._loop, limit_ms, self._shields)

    def continue_as_new(self, call: WorkflowCall[Any]) -> NoReturn:
        if not isinstance(call, Call) or call.target is not self.workflow:
            raise UsageError(
                f"continue_as_new() was given {call!r:.60}",
                hint=f"A run stays what it is: call {self.workflow.name} with its new arguments.",
            )
        call.is_taken = True
        self.codec.encode(call.arguments, what=self.workflow.input_name)  # what cannot be stored is said here
        if self._is_refused():
            raise asyncio.CancelledError
        raise _ContinuesAsNew(call)

    def now_ms(self) -> Instant:
        return self._loop.now_ms

    def place(self) -> int:
        return self._loop.place()

    def chance(self) -> float:
        return self.bits(53) / (1 << 53)

    def bits(self, count: int) -> int:
        """`count` bits that follow from the run, the task and how often it has asked: the same on every replay."""
        if self._draws is None:
            self._draws = {}
        path = LINEAGE.get().path
        draw = self._draws[path] = self._draws.get(path, 0) + 1
        seed = f"{self.noted.origin or self.current.run_id}/{path}/{draw}".encode()
        return int.from_bytes(blake2b(seed, digest_size=32).digest()) & ((1 << count) - 1)

    # -- while it is being cancelled

    def _cancel(self) -> None:
        """Cancel the code: its main task first, as asyncio does it; then whatever is still waiting on its own."""
        assert self._main is not None
        self.cancelling = True
        self._shields.cancel()
        self._main.cancel()
        exhaust(self._run())
        for task in self._loop.tasks():
            if task is not self._main:
                task.cancel()

    def _is_refused(self) -> bool:
        """Whether the code may wait for nothing more. Raises its cancellation, again and again.

        True if it has swallowed so many that it never would end: then it is left standing where it is.
        """
        if not self.cancelling or shields.holds_here():
            return False
        self._refusals += 1
        if self._refusals >= REFUSALS_MAX:
            return True
        if asyncio.current_task() is not self._main and self._main is not None:
            self._main.cancel()  # a task group does not pass on what happens to one of its tasks
        raise asyncio.CancelledError

    def _parked(self) -> asyncio.Future[Any]:
        return self._loop.create_future()

    def may_set_timer(self) -> bool:
        return not self._is_refused()

    def undo(self, step: str, call: Call[Any], key: str, mark: str) -> Awaitable[Any]:
        effect = call.target
        assert isinstance(effect, Effect)
        arguments = self.codec.encode(call.arguments, what=effect.input_name)
        essence = effect.signature.essence(call.arguments, arguments, self.codec)
        named = f"{effect.key.fill(call.arguments)}{mark}" if effect.key else key
        intent = Intent("undo", effect.name, named, digest_of(essence.given), defaults=essence.left_out)
        returns = effect.signature.returns
        future = self._future(step)
        return self._open(Command(step, intent, self._loop.now_ms, future, returns, call, effect, arguments))

    def cannot_undo(self, step: str, intent: Intent, error: Exception) -> None:
        self.notes.undo_failed(step, intent, described(error, self.codec))

    def stop_child(self, step: str, run_id: str) -> Awaitable[Any]:
        intent = Intent("stop", "stop", key=run_id)
        command = Command(step, intent, self._loop.now_ms, self._future(step), Any, child_id=run_id)
        command.deadline_at_ms = self._deadline_at_ms
        return self._open(command)

    def has_record_of(self, step: str) -> bool:
        return any(step_of(entry) == step for entry in self.journal)

    def result_of(self, value: Value, as_type: Any) -> Any:
        return self.codec.decode(self._bytes_of(value), as_type)

    # -- between the two

    def _ask(
        self,
        kind: IntentKind,
        call: Call[Any],
        key: str | None,
        line: str,
        *,
        detached: bool = False,
        lane: str | None = None,
        width: int | None = None,
    ) -> Awaitable[Any]:
        if self.cancelling and self._is_refused():
            return self._parked()
        target, signature = call.target, call.target.signature
        arguments = self.codec.encode(call.arguments, what=target.input_name)
        essence = signature.essence(call.arguments, arguments, self.codec)
        effect = target if isinstance(target, Effect) else None
        digest = digest_of(essence.given)
        while True:
            step = _lineage().step(target.step_name)
            if effect is None:
                intent = Intent(kind, target.name, key or "", digest, line)
            else:  # every effect has a key: one that declares none, by its run and step
                named = self._declared_key(effect, call, key, step, digest) if key else self._default_key(step)
                intent = Intent(kind, target.name, named, digest, line, essence.left_out)
            if not self._put_by or self._fits(step, intent):
                break
        if effect is not None and effect.has_counterpart:
            self.left.asked(step, call, intent)
        loop = self._loop
        future = StepFuture(loop=loop)
        future.pending, future.step, future.shield = self.pending, step, _shield()
        returns = signature.returns
        self.pending.add(
            Command(
                step,
                intent,
                loop.now_ms,
                future,
                returns,
                call,
                effect,
                arguments,
                key,
                detached,
                lane=lane,
                width=width,
            )
        )
        return future

    def _declared_key(self, effect: Effect[..., Any], call: Call[Any], key: str, step: str, digest: str) -> str:
        if self._keys is None:
            self._keys = EffectKeys(self.journal, self.left.undone)
        mark = self.left.mark_for(call) if effect.is_undo and self.left.undone else ""
        return self._keys.claim(effect, key, step, digest, mark)

    def _default_key(self, step: str) -> str:
        return self.noted.keys.get(step) or f"{self.current.run_id}/{step}"

    def _next_step(self, name: str, intent: Intent) -> str:
        """The id of the code's next step of this name. Ids under which something else was done are passed over."""
        lineage = LINEAGE.get()
        while not self._fits(step := lineage.step(name), intent):
            pass
        return step

    def _fits(self, step: str, intent: Intent) -> bool:
        """Whether nothing else was done under this id."""
        return step not in self._put_by or contradiction(self._put_by[step][0], 0, {step: intent}) is None

    def _open(self, command: Command) -> Awaitable[Any]:
        self.pending.add(command)
        return command.future

    def _future(self, step: str) -> StepFuture:
        future = StepFuture(loop=self._loop)
        future.pending, future.step, future.shield = self.pending, step, _shield()
        return future

    def _deliver(self, entry: Entry) -> None:
        self.left.recorded(entry)
        match entry:
            case Performed(step=step, value=value):
                self._resolve(self.open[step], value)
            case GaveUp(step=step, error=error):
                self.pending.close(step).future.set_exception(rebuilt(error, self.codec, step=step))
            case Elapsed(step=step):
                self._loop.fire(self.pending.elapse(step))
            case Spawned(step=step, run_id=run_id) if self.open[step].intent.kind == "child":
                self.open[step].child_id = run_id
            case Spawned(step=step, run_id=run_id, key=key):
                command = self.pending.close(step)
                command.future.set_result(ChildRun(run_id, command.intent.name, key or None, command.returns))
            case Joined(step=step, value=Value() as value):
                self._resolve(self.open[step], value)
            case Joined(step=step, error=error):
                assert error is not None
                self.pending.close(step).future.set_exception(rebuilt(error, self.codec, step=step))
            case Attempted(step=step, attempt=attempt, error=error, retry_at_ms=retry_at_ms):
                command = self.open[step]
                command.last_error = f"{error.type}: {error.message}"[:LAST_ERROR_LENGTH_MAX]
                command.failures, command.intended, command.may_call = attempt, False, False
                self.pending.retry_at(step, retry_at_ms)
            case Intended(step=step):
                self.open[step].intended = True
            case _:
                self._deliver_beside(entry)

    def _deliver_beside(self, entry: Entry) -> None:
        """What belongs to the run rather than to one of its steps."""
        match entry:
            case Received():
                self.inbox.put(entry)
            case Opened(step=step, holder=holder):
                other = None if holder is None else ChildRun[Any](*_parts(holder), Any)
                self.pending.close(step).future.set_result(other)
            case CancelAsked(deadline_at_ms=deadline_at_ms, pausing=False):
                self._deadline_at_ms = deadline_at_ms
                self._cancel()
            case Stopped(deadline_at_ms=deadline_at_ms, kept=kept):
                self._deadline_at_ms = deadline_at_ms or self._deadline_at_ms
                self._unwinder = self._loop.start(_nothing() if kept else self.left.unwind(self), path="undo")
                shields.shield_for_ever(self._unwinder)
            case _:
                pass

    def _resolve(self, command: Command, value: Value) -> None:
        """It has come to its end, with this value."""
        self.pending.close(command.step)
        result = command.returned
        if result is UNSET:
            try:
                result = self.codec.decode(self._bytes_of(value), command.returns)
            except UsageError as error:
                command.future.set_exception(error)
                return
        command.future.set_result(result)

    def _bytes_of(self, value: Value) -> bytes:
        if value.sealed:  # a worker looks before it replays; others replay what was exported
            raise seals.refusal(value.sealed)
        return self.blobs[value.blob] if value.json is UNSET else bytes(value.json)

    def _run(self) -> Iterable[None]:
        """Run the code until it is quiet. If that takes long, what is left comes in pieces."""
        return self._run_on() if self._run_piece() else ()

    def _run_on(self) -> Iterator[None]:
        yield
        while self._run_piece():
            yield

    def _run_piece(self) -> bool:
        """Run the code for a while: whether it is not quiet yet. If it is, note whether it has ended."""
        loop = self._loop
        if loop.held_up_at:  # what else is delivered is only recorded
            return False
        try:
            is_more = loop.run_some()
        except (SystemExit, KeyboardInterrupt) as error:
            self.ended = self.outcome = CodeRaised(error)
            return False
        if loop.is_irregular:
            self._look_into_it()
        if is_more:
            return True
        main = self._main
        if self.ended is None and main is not None and not main.done() and self._refusals < REFUSALS_MAX:
            return False
        if self.ended is not None or self._has_just_ended():
            self._note_outcome()
        return False

    def _look_into_it(self) -> None:
        """The code was held up, or has dropped calls that it did not await."""
        loop = self._loop
        loop.is_irregular = False
        if loop.held_up_at:
            place = f"at {loop.held_up_at}"
            raise HeldUpItsWorker(f"run {self.current.run_id} computed for too long without an await, {place}")
        dropped, self._dropped = self._dropped, ()
        # Code that has failed drops what it would have awaited, and its failure is what there is to say.
        if self.on_dropped is not None and not isinstance(self._end_of_code(), CodeRaised | CodeCancelled):
            for call in dropped:
                self.on_dropped(call)

    def _has_just_ended(self) -> bool:
        """Whether the code has ended; `ended` says how."""
        self.ended = self._end_of_code()
        if self.ended is None or self._is_held_open():
            return False
        if self.cancelling and not isinstance(self.ended, CodeReturned):
            self.pending.drop_everything()  # nothing waits for what else it asked for
        return True

    def _note_outcome(self) -> None:
        if not self.failing and (not self.cancelling or isinstance(self.ended, CodeReturned)):
            self.outcome = self.ended
        elif self._unwinder is not None and self._unwinder.done():
            self._unwinder.result()
            self.outcome = self.ended

    def _is_held_open(self) -> bool:
        """Whether a shield still holds although the main task was cancelled: what it protects may come to its end."""
        if not self.cancelling or isinstance(self.ended, CodeReturned) or not self._shields.any_holds():
            return False
        self.ended = None
        return True

    def _end_of_code(self) -> CodeOutcome | None:
        main = self._main
        assert main is not None
        if not main.done():
            return CodeCancelled() if self._refusals >= REFUSALS_MAX else None
        if main.cancelled():
            return CodeCancelled()
        error = main.exception()
        if error is None:
            return CodeReturned(main.result())
        if (continued := _continuation_in(error)) is not None:
            return CodeCancelled() if self.cancelling else CodeContinued(continued.call)
        return CodeRaised(_mistake_in(error) or error)


def _mistake_in(error: BaseException) -> UsageError | None:
    """The mistake of the author that groups hold, and nothing else: a library has made a task of it.

    So a socket to an address is refused with the same words as one to a name, whichever way the library takes.
    """
    leaf = error
    while len(members := members_of(leaf)) == 1:
        [leaf] = members
    return leaf if leaf is not error and type(leaf) is UsageError else None


def _continuation_in(error: BaseException) -> _ContinuesAsNew | None:
    """The new beginning that the code asked for, also if a task group has wrapped it."""
    first = next(iter(members_of(error)), error)
    return first if type(first) is _ContinuesAsNew else None


async def _nothing() -> None:
    """What is undone where what the code did is kept."""


def exhaust(pieces: Iterable[None]) -> None:
    """Do all of it in one piece."""
    for _ in pieces:
        pass


def _parts(holder: Other) -> tuple[str, str, str | None]:
    return holder.run_id, holder.workflow, holder.key or None

"""What is being done in the world for one run: effects, reconciliations, children. Each comes back as a completion.

What is to be done is decided in `kernel/steps.py`; here it is carried out.

Rules
- Work is begun only after the records it depends on are durable; the caller of `begin` sees to that.
- No effect is begun on a lease that may be lost, nor after its deadline. That is asked again where it is entered.
- What could not be entered is no attempt: it waits for its turn again.
- What is interrupted comes back all the same: what it has done, an undo may have to take back.
- An effect that a breaker or a limit stands before is begun twice: first it waits there, then it is called.
- A remote effect takes no room here, and a worker that stops does not wait for it: its task is joined by the next.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from holdfast import events
from holdfast.engine.attempts import AttemptOutcome, AttemptRaised, AttemptRefused, AttemptReturned
from holdfast.engine.code.commands import Command
from holdfast.engine.failures import described, worded
from holdfast.engine.remote.remote_effects import RemoteAttempt
from holdfast.engine.runs.completions import Broken, Completion
from holdfast.engine.runs.heartbeats import AttemptScope, Heartbeats, SeenBeat
from holdfast.engine.runs.held_effects import HeldEffects
from holdfast.engine.runs.host import RunHost
from holdfast.engine.runs.performer import Turn, is_async
from holdfast.engine.tracing import Tried
from holdfast.engine.values import kept
from holdfast.errors import (
    LeaseLost,
    NotPerformed,
    TimedOut,
    UnknownRun,
    UsageError,
)
from holdfast.kernel import retries, tasks
from holdfast.kernel.changes import Change, Committed, TokenFree
from holdfast.kernel.effect_rules import EffectRules, Stay
from holdfast.kernel.journal import Other
from holdfast.kernel.messages import Watcher
from holdfast.kernel.retries import Begin, Retry
from holdfast.kernel.running_effects import StepAtWork
from holdfast.kernel.steps import (
    DENIED,
    WATCHING,
    ChildAdmitted,
    Confirmed,
    Expired,
    Interrupted,
    NotAdmitted,
    Raised,
    Returned,
    TokenClaimed,
    Undecided,
)
from holdfast.kernel.tasks import Task, TaskPlace
from holdfast.kernel.times import Millis
from holdfast.kernel.units import milliseconds
from holdfast.pack import Effect, EffectPolicy
from holdfast.ports.store import History

_making_heartbeats = threading.Lock()  # one for all runs: it is held for a moment, and most runs never need it
_NO_STEPS: frozenset[str] = frozenset()
_NO_STAYS: Mapping[str, Stay] = {}


class StepsInFlight:
    """The work for the steps of one run, each in a task."""

    parent_ended = "was cancelled"  # why its children are stopped
    is_leaving = False  # the worker stops: remote tasks are left to the next holder of the run
    _kept_heartbeats: Heartbeats | None = None
    _held: HeldEffects | None = None  # made by the first effect that a breaker or a limit stands before

    def __init__(self, host: RunHost, history: History, complete: Callable[[Completion], None]) -> None:
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.host = host
        self.run = history.run
        self._journal = history.journal
        self._complete = complete
        self._beats = history.beats
        self._remote: frozenset[str] = _NO_STEPS
        self._attempts: dict[str, AttemptScope | _Question] = {}
        self._begun: set[str] = set()

    def heartbeats(self) -> Heartbeats:
        """Made by the first effect that asks, in its thread: most runs have none."""
        if self._kept_heartbeats is None:
            with _making_heartbeats:  # two of one run would number their writes alike, and one would be lost
                if self._kept_heartbeats is None:
                    self._kept_heartbeats = Heartbeats(self.host, self.run, self._beats)
        return self._kept_heartbeats

    def begin(self, command: Command) -> None:
        """Do what the code asked for, in a task of its own."""
        match command.intent.kind:
            case "effect" | "undo" if command.reconciles:
                work = self._reconcile(command)
            case "effect" | "undo" if command.effect is not None and command.effect.rules is not None:
                self._begin_under_rules(command, command.effect.rules)
                return
            case "effect" | "undo":
                work = self._call(command)
            case "join":
                work = self._watch(command)
            case "stop":
                work = self._stop(command)
            case "hook":
                work = self._claim_token(command)
            case "child" if command.child_id:
                work = self._watch(command)
            case _:
                work = self._admit(command)
        self._do(command, work)

    def _call(self, command: Command, turn: Turn | None = None) -> Coroutine[Any, Any, Completion | None]:
        if command.is_remote:
            self._remote |= {command.step}
            return self._attempt_elsewhere(command)
        if turn is None or command.effect is None:
            return self.attempt(command)
        return self._attempt_in_turn(command, command.effect, command.policy_on(self.host), turn)

    def _begin_under_rules(self, command: Command, rules: EffectRules) -> None:
        """Call an effect that may begin; let one wait that may not, or of which that is not known yet."""
        held = self._held = self._held or HeldEffects()
        if held.may_call(command.step):
            self._do(command, held.call(command.step, lambda turn: self._call(command, turn)))
        else:
            self._do(command, held.wait(command, rules, self.host, self.run, self._tell))

    def _tell(self, completion: Completion) -> None:
        self._complete(completion)  # it is another one when the run is not here any more

    def _do(self, command: Command, work: Coroutine[Any, Any, Completion | None]) -> None:
        task = self.tasks[command.step] = self.host.loop.create_task(self._complete_by(work))

        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled():
                work.close()  # it may not even have begun
                self.give_back(command.step)
            if self.tasks.get(command.step) is not task:
                return
            if task.cancelled():
                self._complete(Completion(command.step, Interrupted(command.step in self._begun)))
            elif (error := task.exception()) is not None:
                self._complete(Completion(command.step, Broken(error)))

        task.add_done_callback(ended)

    async def _complete_by(self, work: Coroutine[Any, Any, Completion | None]) -> None:
        try:
            completion = await work
        except LeaseLost:
            return  # the worker has said so, for all its runs at once
        if completion is not None:
            self._complete(completion)

    def has_begun(self, step: str) -> bool:
        """Whether an attempt of the effect has begun and did not come to its end, as far as is known here."""
        scope = self._attempts.get(step)
        return step in self._begun or (scope is not None and scope.entered)

    def at_work(self, length: int) -> list[StepAtWork]:
        """The effects that run now, as far as they are waited for; `length` is how far the run has come."""
        if not self._attempts:
            return []
        run = self.run
        return [
            StepAtWork(run.id, run.epoch, length, step, scope.running(self._seen_beat(step)))
            for step, scope in self._attempts.items()
            if isinstance(scope, AttemptScope) and not scope.dropped
        ]

    def _seen_beat(self, step: str) -> SeenBeat | None:
        if self._kept_heartbeats is not None:
            return self._kept_heartbeats.seen(step)
        return next((SeenBeat(beat.details) for beat in self._beats if beat.step == step), None)

    def interrupt(self, step: str) -> None:
        """Interrupt what is being done for the step."""
        self.tell_dropped(step)
        self.tasks[step].cancel()

    def tell_dropped(self, step: str) -> None:
        """Let the effect know that its outcome is not waited for."""
        if (scope := self._attempts.get(step)) is not None:
            scope.dropped = True
            scope.abandoned |= isinstance(scope, _Question)  # what it would say is of no use

    def take_back(self, command: Command) -> None:
        """Take back the task that a former holder of the run may have put up."""
        self._remote |= {command.step}
        self._do(command, self._take_back(command))

    def close(self) -> None:
        """The run is no longer here: drop everything, and whatever comes back all the same."""
        self._complete = _ignore
        if self._attempts or self.tasks:
            for scope in self._attempts.values():
                scope.dropped = scope.abandoned = True
            for task in self.tasks.values():
                task.cancel()
            self._attempts.clear()
            self.tasks.clear()
        if self._held is not None:
            self._held.close()

    def are_under_way(self) -> bool:
        """Whether something is being done at this moment."""
        return any(not task.done() for task in self.tasks.values())

    def need_no_slot(self) -> bool:
        """Whether something is under way, and all of it with remote workers, or held back by a rule."""
        return bool(self.tasks) and self.tasks.keys() <= self._remote | self.stays.keys()

    @property
    def stays(self) -> Mapping[str, Stay]:
        """What the effects wait for that a breaker or a limit holds back, by step."""
        return _NO_STAYS if self._held is None else self._held.stays

    def all_held_for_ms(self) -> Millis | None:
        """How long all that is under way has waited for a breaker or a limit; None if something else is, or nothing."""
        if self._held is None or not self._held.stays or self.tasks.keys() != self._held.stays.keys():
            return None
        return self.host.store.now_ms() - self._held.since_ms

    def may_call(self, step: str) -> bool:
        """Whether a breaker and a limit have let the effect begin."""
        return self._held is not None and self._held.may_call(step)

    def give_back(self, step: str) -> None:
        """An effect that was let begin is not called."""
        if self._held is not None:
            self._held.give_back(step)

    def leave_held(self) -> Mapping[str, Stay]:
        """Do not wait any longer for what lets effects begin: what each of them waits for."""
        if self._held is None:
            return _NO_STAYS
        left = self._held.leave()
        for step in left:
            self.tasks.pop(step).cancel()
        return left

    def leave_tasks(self) -> None:
        """Do not wait for remote workers any longer. Their tasks stay: the next holder of the run joins them."""
        self.is_leaving = True
        for step in sorted(self._remote & self.tasks.keys()):
            if (scope := self._attempts.get(step)) is not None:
                scope.dropped = scope.abandoned = True
            self.tasks.pop(step).cancel()
        self.leave_held()

    async def attempt(self, command: Command) -> Completion:
        """What comes of one attempt of an effect."""
        host, effect, call = self.host, command.effect, command.call
        policy, performer = command.policy or command.policy_on(host), host.performer
        began_steady_ms = host.clock.steady_ms()
        assert effect is not None
        assert call is not None
        if not (
            effect.is_plain
            and policy.timeout_ms is None
            and policy.safety != "once"
            and policy.retry.deadline is None
            and host.tracing is None
            and performer.room > 0
            and host.is_trusted(began_steady_ms)
        ):
            return await self._attempt_in_turn(command, effect, policy)
        # Nothing has to be waited for, and nothing limits it.
        step, attempt = command.step, command.failures + 1
        scope = self._attempts[step] = AttemptScope(command, attempt, policy, self)
        scope.entered, scope.began_steady_ms = True, began_steady_ms
        host.emit(events.EffectBegan(self.run.id, step, attempt, effect.name))
        try:
            outcome = await performer.perform(effect, call.arguments, scope)
        except BaseException:  # it is interrupted
            self._begun.add(step)
            raise
        finally:
            self._attempts.pop(step, None)
        return self._completion(command, scope, outcome)

    async def _attempt_in_turn(
        self, command: Command, effect: Effect[..., Any], policy: EffectPolicy, turn: Turn | None = None
    ) -> Completion:
        """The same, of an effect that has to wait for its turn, or is limited; `turn` is there if it has one."""
        performer = self.host.performer
        if policy.safety == "once":
            await performer.until_ended(self.run.id, command.step)
        in_thread = not effect.is_async
        if turn is None and policy.retry.deadline is None:
            turn = performer.turn_now(in_thread=in_thread)
        while turn is not None or (turn := await self._turn(command, policy.retry, in_thread=in_thread)) is not None:
            completion = await self._try(command, effect, turn)
            if completion is not None:
                return completion
            turn = None
        name, made = command.intent.name, command.failures
        error = TimedOut(f"the deadline of effect {name} was over before attempt {made + 1} could begin")
        return Completion(command.step, Expired(described(error, self.host.codec)))

    async def _attempt_elsewhere(self, command: Command) -> Completion | None:
        """What comes of an attempt by a remote worker."""
        await self._until_trusted()
        assert command.effect is not None
        return await self._try(command, command.effect, None)

    async def _turn(self, command: Command, retry: Retry, *, in_thread: bool) -> Turn | None:
        """Room for the effect, and a thread if it needs one; None if its deadline comes first."""
        host = self.host
        if retry.deadline is None:
            return await host.performer.turn(host, in_thread=in_thread)
        left_ms = retries.left_ms(retry, asked_at_ms=command.asked_at_ms, now_ms=host.store.now_ms())
        if not left_ms:
            return None
        try:
            async with asyncio.timeout(left_ms / 1000):
                return await host.performer.turn(host, in_thread=in_thread)
        except TimeoutError:
            return None

    async def _try(self, command: Command, effect: Effect[..., Any], turn: Turn | None) -> Completion | None:
        """Perform one attempt, in its turn here or by a remote worker. None if it could not be entered, so is none."""
        host, step, call = self.host, command.step, command.call
        assert call is not None
        scope = self._attempts[step] = AttemptScope.of(command, self)
        self._begun.add(step)
        host.emit(events.EffectBegan(self.run.id, step, scope.attempt, effect.name))
        if turn is None:
            work = self._dispatched(command, scope)
        else:
            work = host.performer.attempt(effect, call.arguments, scope, turn, once=scope.policy.safety == "once")
        if host.tracing is not None:
            work = host.tracing.around(work, Tried(self.run, effect.name, step, scope.attempt, scope.key))
        scope.began_steady_ms = host.clock.steady_ms()
        try:
            outcome = await work
        finally:
            self._attempts.pop(step, None)
            if not effect.remote and not scope.entered:
                self._begun.discard(step)
        if isinstance(outcome, AttemptRefused):
            if scope.dropped:
                raise asyncio.CancelledError  # that it was dropped is what kept it from being entered
            return None
        return self._completion(command, scope, outcome)

    def _completion(self, command: Command, scope: AttemptScope, outcome: AttemptOutcome) -> Completion:
        """What has come of an attempt that was entered."""
        step, took_ms = command.step, self.host.clock.steady_ms() - scope.began_steady_ms
        if self._begun:
            self._begun.discard(step)
        if type(outcome) is AttemptReturned:
            return _returned(command, outcome, took_ms, scope)
        interrupted = scope.dropped and not command.future.done()
        return Completion(step, self._raised(outcome, interrupted=interrupted), (), took_ms, scope.task)

    def _raised(self, outcome: AttemptOutcome, *, interrupted: bool) -> Raised:
        assert isinstance(outcome, AttemptRaised)
        return Raised(outcome.error, described(outcome.error, self.host.codec), interrupted)

    async def _dispatched(self, command: Command, scope: AttemptScope) -> AttemptOutcome:
        effect, run, host = command.effect, self.run, self.host
        assert effect is not None
        policy, last = scope.policy, scope.last_beat()
        deadline, first = policy.retry.deadline, run.length - len(self._journal)
        deadline_at_ms = None if deadline is None else command.asked_at_ms + milliseconds(deadline)
        task = Task(
            run_id=run.id,
            key=scope.key,
            attempt=scope.attempt,
            input=command.arguments.decode(),
            once=policy.safety == "once",
            details=None if last is None else host.codec.encode(last, what="the last heartbeat").decode(),
            traceparent=(host.tracing.traceparent() if host.tracing else None) or "",
            deadline_at_ms=deadline_at_ms,
        )
        task_id = tasks.id_of(run.id, self._journal, command.step, scope.attempt, first=first)
        wanted = RemoteAttempt(
            effect=effect,
            place=TaskPlace(run.namespace, effect.name, task_id),
            task=task,
            in_doubt=command.is_in_doubt,
            timeout_ms=policy.timeout_ms,
            deadline_at_ms=deadline_at_ms,
        )
        return await host.remote_effects.attempt(wanted, scope)

    async def _take_back(self, command: Command) -> Completion:
        """See to it that no worker begins what was dropped, and learn what came of it if one has."""
        scope = self._attempts[command.step] = AttemptScope.of(command, self)
        scope.dropped = True
        try:
            outcome = await self._dispatched(command, scope)
        finally:
            self._attempts.pop(command.step, None)
        if type(outcome) is AttemptReturned:
            return _returned(command, outcome, 0.0, scope)
        return Completion(command.step, self._raised(outcome, interrupted=False), (), 0.0, scope.task)

    async def _until_trusted(self) -> None:
        while not self.host.is_trusted():
            await self.host.until_trusted()

    async def _reconcile(self, command: Command) -> Completion:
        effect, step, performer = command.effect, command.step, self.host.performer
        policy = command.policy_on(self.host)
        assert effect is not None
        assert policy.reconcile is not None
        await performer.until_ended(self.run.id, step)
        turn = await performer.turn(self.host, in_thread=not is_async(policy.reconcile))
        question = self._attempts[step] = _Question(self.run.id, step, effect.name, policy.timeout_ms)
        try:
            outcome = await performer.reconcile(effect, policy.reconcile, command.intent.key, question, turn)
        finally:
            self._attempts.pop(step, None)
        match outcome:
            case AttemptReturned(value=data):
                value, blobs = kept(data)
                return Completion(step, Confirmed(value), blobs)
            case AttemptRaised(error=error) if isinstance(error, NotPerformed):
                return Completion(step, DENIED)
            case AttemptRaised(error=error):
                return Completion(step, Undecided(f"reconcile raised {worded(error)}"))
            case AttemptRefused():  # pragma: no cover - a question may always be asked
                raise AssertionError(step)

    def reconcile(self, command: Command) -> None:
        """Ask the world about an effect whose outcome is not known."""
        self._remote -= {command.step}
        self._do(command, self._reconcile(command))

    async def _admit(self, command: Command) -> Completion:
        try:
            run, created = await self.host.admit_child(self.run, command)
        except UsageError as error:
            return Completion(command.step, NotAdmitted(described(error, self.host.codec)))
        return Completion(command.step, ChildAdmitted(run.id, run.key or "", created))

    async def _claim_token(self, command: Command) -> Completion | None:
        hook, run = command.hook, self.run
        assert hook is not None
        assert hook.token is not None
        guard = TokenFree(run.fence, run.namespace, hook.token)
        answer = await self.host.commit(Change(f"{run.id}/{command.step}", guard, opens=(hook,)))
        if isinstance(answer, Committed):
            return Completion(command.step, TokenClaimed(None))
        if (holder := answer.current) is not None and holder.id != run.id:
            return Completion(command.step, TokenClaimed(Other(holder.id, holder.workflow, holder.key or "")))
        return None  # another worker has this run; the next commit will say so

    async def _stop(self, command: Command) -> Completion:
        reason = f"its parent {self.run.id} {self.parent_ended}"
        await self.host.cancel(command.child_id, reason, nonce=self.run.id, deadline_at_ms=command.deadline_at_ms)
        return await self._watch(command)

    async def _watch(self, command: Command) -> Completion:
        if await self.host.watch(command.child_id, Watcher(self.run.id, command.step, self.run.epoch)):
            return Completion(command.step, WATCHING)
        error = UnknownRun(f"no run has the id {command.child_id}")
        return Completion(command.step, NotAdmitted(described(error, self.host.codec)))


class _Question:
    """What is asked about a `once` effect of unknown outcome. It may take as long as the effect."""

    __slots__ = ("_begin", "abandoned", "dropped", "effect", "run_id", "step")

    entered = False  # asking is no attempt

    def __init__(self, run_id: str, step: str, effect: str, timeout_ms: Millis | None) -> None:
        self.run_id = run_id
        self.step = step
        self.effect = effect
        self.dropped = False
        self.abandoned = False
        self._begin = Begin(timeout_ms)

    def may_enter(self) -> Begin:
        """Asking does no harm."""
        return self._begin


def _returned(command: Command, outcome: AttemptReturned, took_ms: float, scope: AttemptScope) -> Completion:
    command.returned = outcome.read_back
    value, blobs = kept(outcome.value)
    return Completion(command.step, Returned(value), blobs, took_ms, scope.task)


def _ignore(completion: Completion) -> None:
    """The run is not here any more."""
    del completion

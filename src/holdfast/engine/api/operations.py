"""What people do to a run: cancel it, resume it, retry it, fork it, release its key."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from holdfast import events
from holdfast.engine.api.decisions import Said
from holdfast.engine.api.scope import Scope
from holdfast.engine.api.waiters import Waiters
from holdfast.engine.cancelling import Cancellation, Canceller
from holdfast.engine.failures import described
from holdfast.engine.values import inline, kept
from holdfast.errors import (
    NotAllowedNow,
    NotPerformed,
    NotSerializable,
    Permanent,
    TimedOut,
    UndeclaredOutcome,
    UnknownRun,
    UnknownWorkflow,
    UsageError,
)
from holdfast.kernel import attributes, cancels, doubts, forks, keys, retry_requests, timeouts, transitions
from holdfast.kernel.cancels import Child, ChildLeft, Receipt, Way
from holdfast.kernel.changes import Blob, Change, Committed, HookOpen
from holdfast.kernel.doubts import SaidFailed, SaidNotPerformed, SaidReturned, Verdict
from holdfast.kernel.journal import ByHand, Intended, Value
from holdfast.kernel.runs import ENDED, Run, Status
from holdfast.kernel.timeouts import TimeLimit
from holdfast.kernel.times import NO_TIME
from holdfast.kernel.units import Duration, milliseconds, utc_of
from holdfast.ports.store import History


class Operations:
    """The verbs that move runs which are not one's own."""

    def __init__(
        self,
        scope: Scope,
        *,
        waiters: Waiters,
        strict: bool,
        on_pending: Callable[[Run], None],
    ) -> None:
        self._scope = scope
        self._waiters = waiters
        self._strict = strict
        self._on_pending = on_pending
        self._canceller = Canceller(
            now_ms=scope.store.now_ms,
            commit=scope.commit,
            history=scope.history,
            emit=scope.emit,
            on_ended=waiters.settled,
        )

    # -- cancel

    async def cancel(self, run_id: str, reason: str, deadline: Duration) -> Receipt:
        """Cancel a run and say what it has left behind."""
        return await self.cancelled(await self.ask_cancel(run_id, reason, deadline))

    async def ask_cancel(
        self, run_id: str, reason: str, deadline: Duration, *, nonce: str | None = None
    ) -> Cancellation:
        """Ask for it. Once this returns it will be done, whether or not the caller waits for it.

        A repetition with the same `nonce` is the same request.
        """
        deadline_at_ms = self._scope.store.now_ms() + milliseconds(deadline)
        run = await self._scope.run(run_id)
        asked = Cancellation(run_id, nonce or self._scope.ids.nonce(), reason, deadline_at_ms)
        if run.status not in ENDED:
            self._scope.emit(events.CancelRequested(run_id, reason))
            await self._canceller.ask(asked, run)
        return asked

    async def cancelled(self, asked: Cancellation) -> Receipt:
        """Wait until it has ended, stop it when the deadline has passed, and say what it has left behind."""
        await self._wait(asked)
        while (run := await self._scope.run(asked.run_id)).status not in ENDED:  # it was blocked, say
            if not await self._canceller.ask(asked, run):
                await self._wait(asked)
        receipt = await self.receipt(asked.run_id)
        if run.status is not Status.FAILED or await self._was_asked(run):
            self._check_declared(run, receipt)
        return receipt

    async def _was_asked(self, run: Run) -> bool:
        """Whether it was told to cancel: what a failure of its own has left behind is no outcome of a cancellation."""
        history = await self._scope.history(run.id)
        return cancels.request_in(history.run, history.journal) is not None

    async def _wait(self, asked: Cancellation) -> None:
        """Wait for its owner to end it. When the time is over it is stopped from here, even if a worker holds it."""
        left_ms = max(NO_TIME, asked.deadline_at_ms - self._scope.store.now_ms()) + self._scope.pace.cancel_grace_ms
        try:
            await self._waiters.wait(asked.run_id, left_ms)
        except TimedOut:
            await self._canceller.stop(asked.run_id, asked.reason, late=True)

    async def time_out(self, limit: TimeLimit) -> TimeLimit | None:
        """The time of a run is up: end it as its limit says, or ask its owner to. None if it has ended."""
        now_ms = self._scope.store.now_ms()
        run = await self._scope.store.run(limit.namespace, limit.run_id)
        if run is None:
            return None if limit.at_ms + timeouts.EARLY_MS < now_ms else limit
        if run.status in ENDED:
            return None
        if timeouts.shown_by(attributes.decode(run.attributes)) != utc_of(limit.at_ms):
            return None  # of another start under the same id
        if limit.asked_until_ms is not None and limit.asked_until_ms <= now_ms:
            found = await self._scope.history(run.id)
            unread = [message.id for message in found.messages]
            if not cancels.still_asked(found.run, found.journal, unread, "timeout"):
                return None  # it has ended, and was retried or resumed since
            stopped = await self._canceller.stop(run.id, limit.reason, late=True, error=limit.failure)
            return None if stopped else limit
        if limit.asked_until_ms is None:
            self._scope.emit(events.TimeLimitPassed(run.id, run.workflow, limit.timeout_ms))
        limit = timeouts.asked(limit, now_ms=now_ms)
        assert limit.asked_until_ms is not None
        cancellation = Cancellation(run.id, "timeout", limit.reason, limit.asked_until_ms, limit.failure)
        return None if await self._canceller.ask(cancellation, run) else limit

    async def stop_if_nobody_reads(self, run_id: str, reason: str) -> None:
        """A request to cancel is in the inbox of this run. If it is blocked, or not begun, that needs no owner."""
        while (run := await self._scope.store.run(self._scope.namespace, run_id)) is not None:
            if cancels.way(run) is not Way.AT_ONCE:
                return
            await self._canceller.stop(run_id, reason, late=False)  # refused if a message came meanwhile: once more

    async def receipt(self, run_id: str) -> Receipt:
        """What the cancellation of an ended run has left behind."""
        receipt, _ = await self._receipt(run_id)
        return receipt

    async def _receipt(self, run_id: str) -> tuple[Receipt, bool]:
        """The receipt, and whether neither the run nor any run below it has performed anything."""
        history = await self._scope.history(run_id)
        if history.run.status not in ENDED:
            raise NotAllowedNow(
                f"run {run_id} is {history.run.status}", hint="There is a receipt when it has ended: cancel it."
            )
        children = [await self._receipt_of_child(child) for child in cancels.children_left(history.journal)]
        receipt = cancels.receipt(history.run, history.journal, tuple(children))
        return receipt, cancels.performed_nothing(receipt, history.journal, children)

    async def _receipt_of_child(self, child: Child) -> ChildLeft:
        if child.has_ended:
            try:
                receipt, is_empty = await self._receipt(child.run_id)
            except (UnknownRun, NotAllowedNow):
                pass  # removed or retried since: how it was then is not known any more
            else:
                return ChildLeft(child.run_id, child.workflow, receipt.outcome, is_empty)
        return ChildLeft(child.run_id, child.workflow, "unknown")

    def _check_declared(self, run: Run, receipt: Receipt) -> None:
        try:
            declared = self._scope.registry.workflow(run.workflow).outcomes
        except UnknownWorkflow:
            return
        if declared is None or receipt.outcome in declared:
            return
        self._scope.emit(events.OutcomeUndeclared(run.id, run.workflow, receipt.outcome))
        if self._strict:
            raise UndeclaredOutcome(run.workflow, receipt, receipt.outcome)

    # -- go on

    async def retry(self, run_id: str) -> Run:
        """Try a failed or blocked run again from its last record."""
        history = await self._scope.history(run_id)
        if history.run.status not in ENDED and transitions.was_taken_up(history.journal):
            return history.run  # a worker was faster: it is being tried again
        run = await self._move(history, transitions.retry)
        self._scope.emit(events.RunRetried(run_id))
        return run

    async def resume(self, run_id: str) -> Run:
        """Let a cancelled run go on as if it had not been cancelled."""
        run = await self._move(await self._scope.history(run_id), transitions.resume)
        self._scope.emit(events.RunResumed(run_id))
        return run

    async def decide(self, run_id: str, step: str, said: Said) -> Run:
        """Record what a person knows about a step in doubt, and let its run go on."""
        said.check()
        nonce = self._scope.ids.nonce()
        while True:
            history = await self._scope.history(run_id)
            verdict = self._verdict(history, step, said)
            by_hand = ByHand(said.by, said.reason)
            change = doubts.decide(
                history.run, history.journal, step, verdict, by_hand, nonce=nonce, now_ms=self._scope.store.now_ms()
            )
            if change is None:
                return history.run
            answer = await self._scope.commit(change)
            if isinstance(answer, Committed):
                assert answer.run is not None
                self._scope.emit(events.StepDecided(run_id, step, said.by))
                self._on_pending(answer.run)
                return answer.run

    async def retry_now(self, run_id: str, step: str | None, by_hand: ByHand) -> Run:
        """Let the next attempt of a step begin at once; without a step, of all that wait for one."""
        run: Run | None = None
        history = await self._scope.history(run_id)
        now_ms = self._scope.store.now_ms()
        for name, change in retry_requests.requests(history.run, history.journal, step, by_hand, now_ms=now_ms).items():
            answer = await self._scope.commit(change)
            if isinstance(answer, Committed):
                run = answer.run
                self._scope.emit(events.RetryRequested(run_id, name, by_hand.by))
        # It has ended meanwhile, or what was asked for happens anyway.
        return run or await self._scope.run(run_id)

    def _verdict(self, history: History, step: str, said: Said) -> Verdict:
        codec = self._scope.codec
        if said.failed is not None:
            return SaidFailed(described(Permanent(said.failed), codec))
        if said.not_performed:
            return SaidNotPerformed(described(NotPerformed("it never happened: decided by hand"), codec))
        data = codec.encode(said.returned, what=f"the result of step {step}")
        names = {entry.intent.name for entry in history.journal if isinstance(entry, Intended) and entry.step == step}
        for name in sorted(names):
            try:
                codec.decode(data, self._scope.registry.returns_of_effect(name))
            except NotSerializable as error:
                raise UsageError(
                    f"returned= does not fit the result of effect {name}: {error.__cause__ or error}",
                    hint="Give a value of the type that the effect declares to return.",
                ) from error
        return SaidReturned(*kept(data))

    async def _move(self, history: History, decide: Callable[..., Change]) -> Run:
        change = decide(history.run, history.journal, now_ms=self._scope.store.now_ms())
        answer = await self._scope.commit(change)
        if isinstance(answer, Committed):
            assert answer.run is not None
            self._on_pending(answer.run)
            return answer.run
        return await self._scope.run(history.run.id)  # another process has moved it meanwhile

    async def fork(self, run_id: str, step: str, key: str | None) -> Run:
        """A new run with the journal before the first record of `step`."""
        history = await self._scope.history(run_id)
        source = history.run
        if key is not None:
            key = keys.of_run(key, owned=source.key)
        prefix = forks.prefix(source, history.journal, step)
        void = forks.taken_back_later(history.journal, len(prefix))
        origin = forks.origin_of(source, history.journal)
        opens = tuple([await self._hook_for_a_fork(source, hook) for hook in forks.open_hooks(prefix)])
        blobs = [await self._blob(run_id, value) for value in forks.values(prefix) if inline(value) is None]
        while True:
            now_ms = self._scope.store.now_ms()
            fork_id = self._scope.store.id_for(
                self._scope.ids.run_id(now_ms),
                namespace=source.namespace,
                workflow=source.workflow,
                key=forks.key_of_fork(source, key),
                lane=source.lane,
            )
            change = forks.fork(
                source, prefix, fork_id=fork_id, step=step, key=key, origin=origin, void=void, now_ms=now_ms
            )
            answer = await self._scope.commit(replace(change, blobs=tuple(blobs), opens=opens))
            if isinstance(answer, Committed):
                assert answer.run is not None
                self._scope.emit(events.RunForked(fork_id, run_id, source.workflow))
                self._on_pending(answer.run)
                return answer.run
            source = await self._scope.run(run_id)
            forks.check_key(source, key, answer.current)

    async def _hook_for_a_fork(self, source: Run, hook: HookOpen) -> HookOpen:
        known = await self._scope.store.hook_of_token(source.namespace, hook.token or "")
        if known is None:
            return hook
        if known.run.status not in ENDED:
            raise NotAllowedNow(
                f"the fork needs the token {hook.token!r}, which run {known.run.id} holds",
                hint="Cancel that run first, or fork from a step before the hook was opened.",
            )
        return replace(known.hook, name=hook.name)

    async def _blob(self, run_id: str, value: Value) -> Blob:
        return Blob(value.blob, await self._scope.stored_blob(run_id, value))

    async def release_key(self, run_id: str, reason: str) -> Run:
        """Take the key from a run, so that it can be used again."""
        nonce = self._scope.ids.nonce()
        while True:
            run = await self._scope.run(run_id)
            change = transitions.release_key(run, reason=reason, nonce=nonce, now_ms=self._scope.store.now_ms())
            if isinstance(await self._scope.commit(change), Committed):
                self._scope.emit(events.KeyWasReleased(run_id, run.key or ""))
                return await self._scope.run(run_id)

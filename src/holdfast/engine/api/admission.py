"""Admits runs: offers the change, and lets the kernel say what a taken key means."""

from __future__ import annotations

from asyncio import Future
from functools import partial
from typing import Any, Protocol, assert_never

from msgspec.structs import replace

from holdfast.engine.committer import Committer, OnAnswer
from holdfast.engine.values import kept
from holdfast.errors import EngineFault, InFlight, InputMismatch, LaneBusy, LaneFull, Overtaken
from holdfast.events import Emit, RunAdmitted, RunDebounced, RunJoined, RunParked, RunThrottled
from holdfast.kernel import debounces, starts, timeouts, waits
from holdfast.kernel.changes import Answer, Change, Committed, KeyFree, KeyHeldBy, Refused
from holdfast.kernel.flow_rules import NO_RULES
from holdfast.kernel.lanes import Entering
from holdfast.kernel.runs import Run
from holdfast.kernel.starts import (
    Again,
    Busy,
    Hand,
    Joining,
    Mine,
    Mismatch,
    NoPlace,
    Overtook,
    Renew,
    Tell,
    Theirs,
    Wanted,
)
from holdfast.kernel.timeouts import TimeLimit
from holdfast.kernel.times import NO_TIME, Instant, Millis
from holdfast.pack import Workflow
from holdfast.ports.store import Store

HELD_KEYS_MAX = 1_000  # that are remembered


class Taker(Protocol):
    """A worker that may take a fresh run in the admitting commit."""

    def reserve(self, workflow: str, run_id: str) -> Hand | None:
        """A free slot for this run; None if there is none. `adopt_fresh` or `give_back` follows."""
        ...

    def adopt_fresh(self, change: Change, run: Run) -> None: ...
    def give_back(self, run_id: str, *, is_unsure: bool) -> None: ...


def wish(
    store: Store,
    workflow: Workflow[..., Any],
    arguments: bytes,
    *,
    run_id: str,
    namespace: str,
    key: str | None,
    digest: str,
    request_id: str | None = None,
    enters: Entering | None = None,
) -> Wanted:
    """A run of this workflow with what it declares about itself. Without a `request_id` the run's own id is the one."""
    # A repeated request must have the same id, even if the workflow declares another lane by then.
    near = "" if enters is None or request_id is not None else enters.lane
    run_id = store.id_for(run_id, namespace=namespace, workflow=workflow.name, key=key, lane=near)
    value, blobs = kept(arguments)
    return Wanted(
        run_id,
        namespace,
        workflow.name,
        key,
        workflow.queue,
        0,
        NO_TIME,
        workflow.retention_ms,
        digest,
        request_id or run_id,
        value,
        blobs,
        version=workflow.version or "",
        enters=enters,
    )


def limited(wanted: Wanted, workflow: Workflow[..., Any], limit_ms: Millis, *, now_ms: Instant) -> Wanted:
    """The run, which may take so long from when it may begin. Its attributes show it."""
    at_ms = now_ms + wanted.delay_ms + limit_ms
    on_timeout, cleanup_ms = workflow.on_timeout, timeouts.CLEANUP_MS
    if on_timeout == "fail" and workflow.undo_ms is not None:
        cleanup_ms = workflow.undo_ms
    limit = TimeLimit(wanted.namespace, wanted.run_id, at_ms, limit_ms, on_timeout, cleanup_ms)
    return replace(wanted, limit=limit, attributes=timeouts.shown_with(wanted.attributes, at_ms))


def ruled(wanted: Wanted, workflow: Workflow[..., Any], arguments: dict[str, Any]) -> Wanted:
    """The run, as the flow rules of its workflow have it."""
    rules = workflow.rules
    if rules is NO_RULES:
        return wanted
    takes = None if rules.throttle is None else rules.throttle.taking(workflow.name, arguments)
    shares = "" if rules.fair is None else rules.fair.fill(arguments)
    wanted = replace(wanted, takes=takes, shares=shares)
    if (debounce := rules.debounce) is None:
        return wanted
    assert wanted.key is not None, wanted
    delay_ms = Millis(max(wanted.delay_ms, debounce.quiet_ms))
    entering = debounces.entering(workflow.name, wanted.key)
    return replace(wanted, debounce=debounce, delay_ms=delay_ms, enters=entering)


class Admission:
    """The one way in.

    A start under a key that was held when another start came for it looks at the holder before it is offered whole:
    that is most often all there is to it, and costs a fraction. That the key is held is a hint and no more.
    """

    def __init__(self, store: Store, committer: Committer, *, emit: Emit, taker: Taker | None) -> None:
        self._store = store
        self._committer = committer
        self._emit = emit
        self._taker = taker
        # By namespace, workflow and key: those that were held when another start came for them, the oldest first.
        self.held_keys: dict[tuple[str, str, str | None], None] = {}

    async def admit(self, wanted: Wanted) -> tuple[Run, bool]:
        """The run that holds the key now, and whether it is the wanted one.

        Raises `InputMismatch`, `InFlight`, `Overtaken`, `LaneBusy`, `LaneFull`.
        """
        if (
            wanted.replaces is None
            and wanted.signal is None
            and wanted.debounce is None
            and (wanted.namespace, wanted.workflow, wanted.key) in self.held_keys
            and (joined := await self.join(wanted, now_ms=self._store.now_ms())) is not None
        ):
            return joined, False
        return await self.offer(wanted)

    async def offer(self, wanted: Wanted) -> tuple[Run, bool]:
        """The same, of a start that does not look first."""
        if wanted.limit is not None:  # before the run is there: it must not be without its limit if this process dies
            await self._store.write([timeouts.begin(wanted.limit, now_ms=self._store.now_ms())])
        guard = starts.first_guard(wanted)
        while True:
            answer = await self._offer(wanted, guard)
            if isinstance(answer, Committed):
                assert answer.run is not None
                return self._admitted(wanted, answer.run)
            found = starts.resolve(wanted, answer.current, now_ms=self._store.now_ms(), no_room=answer.no_room)
            if isinstance(found, Tell):
                told = await self._committer.commit(found.change)
                if isinstance(told, Committed):
                    assert told.run is not None
                    return self._joined(wanted, told.run), bool(wanted.gathers and told.told)
                guard = starts.after_refusal(wanted, told.current)
            elif isinstance(found, Renew):
                renewed = await self._committer.commit(found.change)
                if isinstance(renewed, Committed):
                    assert renewed.run is not None
                    self._emit(RunDebounced(renewed.run.id, wanted.workflow, wanted.key))
                    return renewed.run, False
                guard = KeyFree()  # it has begun meanwhile, or another start was faster: look again
            elif isinstance(found, Again):
                guard = found.guard
            else:
                return self._taken(wanted, found)

    def _taken(self, wanted: Wanted, found: Mine | Theirs | Mismatch | Busy | Overtook | NoPlace) -> tuple[Run, bool]:
        """The holder of the key, if that does for this start; raises why not."""
        match found:
            case Mine(run):
                return run, True
            case Theirs(run):
                self._remember_held(wanted)
                return self._joined(wanted, run), False
            case Mismatch(run):
                raise InputMismatch(wanted.workflow, wanted.key or "", run.id, run)
            case Busy(run):
                raise InFlight(wanted.workflow, wanted.key or "", run.id)
            case Overtook(run):
                raise Overtaken(wanted.workflow, wanted.key or "", run.id, run)
            case NoPlace() as refusal:
                raise _no_place(wanted, refusal)
            case other:  # pragma: no cover
                assert_never(other)

    def _joined(self, wanted: Joining | Wanted, run: Run) -> Run:
        self._emit(RunJoined(run.id, wanted.workflow, wanted.key))
        return run

    async def join(self, wanted: Joining | Wanted, *, now_ms: Instant) -> Run | None:
        """The holder of the key, if this start, which came then, joins it. Otherwise it has to be offered."""
        answer = await self._committer.commit(starts.look(wanted))
        assert isinstance(answer, Refused), answer
        holder = answer.current
        if holder is None:
            self.held_keys.pop((wanted.namespace, wanted.workflow, wanted.key), None)
            return None
        return self._joined(wanted, holder) if starts.joins(wanted, holder, now_ms=now_ms) else None

    def _remember_held(self, wanted: Wanted) -> None:
        if len(self.held_keys) >= HELD_KEYS_MAX:
            del self.held_keys[next(iter(self.held_keys))]
        self.held_keys[wanted.namespace, wanted.workflow, wanted.key] = None

    def _admitted(self, wanted: Wanted, run: Run) -> tuple[Run, bool]:
        if run.id != wanted.run_id:  # its signal has been received before, by this run
            return run, run.request_id == wanted.request_id
        if (run.namespace, run.workflow) != (wanted.namespace, wanted.workflow):
            # Earlier versions joined the texts that the id of a request follows from in a way that let them meet.
            raise EngineFault(f"the request {wanted.request_id!r} has the id of a run that is not of {wanted.workflow}")
        # A known request id without a key, and another input.
        if run.digest != wanted.digest and wanted.debounce is None:
            raise InputMismatch(wanted.workflow, wanted.request_id, run.id, run)
        self._emit(RunAdmitted(run.id, wanted.workflow, wanted.key))
        if wanted.enters is not None and waits.may_be_parked(run):
            self._emit(RunParked(run.id, wanted.workflow, wanted.enters.lane))
        if wanted.takes is not None and run.waits is not None and run.wake_at_ms is not None:
            self._emit(RunThrottled(run.id, wanted.workflow, Millis(run.wake_at_ms - run.created_at_ms)))
        return run, True

    def _offer(self, wanted: Wanted, guard: KeyFree | KeyHeldBy) -> Future[Answer]:
        hand = self._taker.reserve(wanted.workflow, wanted.run_id) if self._taker and not wanted.delay_ms else None
        change = starts.admission(wanted, now_ms=self._store.now_ms(), hand=hand, guard=guard)
        # The run may be ours even if the caller goes away meanwhile: the worker learns it in any case.
        on_answer: OnAnswer | None = None if hand is None else partial(self._settle_hand, change)
        return self._committer.commit(change, on_answer=on_answer)

    def _settle_hand(self, change: Change, answer: Answer | None) -> None:
        """The worker takes the run, or gives back the slot that it has kept for it."""
        assert self._taker is not None
        assert change.run is not None
        run = answer.run if isinstance(answer, Committed) else None
        if run is not None and (run is change.run or run.fence == change.run.fence):
            self._taker.adopt_fresh(change, run)
        else:
            self._taker.give_back(change.run.id, is_unsure=answer is None)


def _no_place(wanted: Wanted, refusal: NoPlace) -> LaneBusy | LaneFull:
    assert wanted.enters is not None
    if refusal.why == "full":
        return LaneFull(wanted.enters.lane, wanted.enters.parked_max or 0)
    assert refusal.run is not None
    return LaneBusy(wanted.enters.lane, refusal.run.id, refusal.run)

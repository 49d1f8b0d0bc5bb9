"""What `Caller` and `Run` ask for, carried out by a gateway: the remote twin of the engine's service."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from holdfast import wire
from holdfast.calls import Call, ItemCall, WorkflowCall
from holdfast.engine import bulk_pack
from holdfast.engine.api.decisions import Said
from holdfast.engine.api.queries import Replayed
from holdfast.engine.api.registry import Description
from holdfast.engine.api.start_options import StartOptions, signal_of
from holdfast.engine.cancelling import Cancellation
from holdfast.errors import (
    GatewayUnavailable,
    InputMismatch,
    LaneBusy,
    NotAllowedNow,
    Overtaken,
    RunError,
    TimedOut,
    TransientError,
    UnknownRun,
    UsageError,
)
from holdfast.gateway_client.bulk import GatewayBulk
from holdfast.gateway_client.flow import GatewayFlow
from holdfast.gateway_client.lanes import GatewayLanes
from holdfast.gateway_client.transport import Transport
from holdfast.journal import Journal, RunEvent
from holdfast.kernel import cancels, limits, waits
from holdfast.kernel.cancels import Child, ChildLeft, Receipt
from holdfast.kernel.explanations import Story
from holdfast.kernel.exports import ExportedJournal
from holdfast.kernel.journal import ByHand, Entry
from holdfast.kernel.limits import Cost, LimitVerdict
from holdfast.kernel.rates import Rate
from holdfast.kernel.running_effects import StepAtWork
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.searches import Search
from holdfast.kernel.times import NO_TIME, Instant
from holdfast.kernel.units import Duration, milliseconds
from holdfast.kernel.waits import LanePlace, Wait
from holdfast.pack import Workflow
from holdfast.ports.clock import Clock
from holdfast.ports.codec import Codec
from holdfast.ports.ids import Ids
from holdfast.ports.store import Backlog, Member
from holdfast.wire import inbound, outbound, starts

WAIT_SECONDS_MAX = 30.0
RECEIPTS_AT_ONCE = 8
# With these outcomes a child may have performed nothing. With the others its outcome says whether it has.
MAY_BE_EMPTY = frozenset({"completed_first", "partial", "unknown"})
STREAM_PAUSE_SECONDS = 0.2
RUN_ID = re.compile(r"[0-9A-Za-z_-]+")
_decode_entry = msgspec.json.Decoder(Entry).decode


class Named(Struct, frozen=True):
    """A workflow of which only the name is known here."""

    name: str


class GatewayBackend:
    """All verbs of `Backend`, over one connection."""

    def __init__(
        self,
        transport: Transport,
        *,
        workflows: Mapping[str, Workflow[..., Any]],
        codec: Codec,
        ids: Ids,
        clock: Clock,
    ) -> None:
        self._transport = transport
        self._workflows = bulk_pack.pack.workflows | dict(workflows)
        self._codec = codec
        self._ids = ids
        self._clock = clock
        self._offset_ms = clock.wall_ms() - float(clock.steady_ms())
        self.bulk = GatewayBulk(transport, codec=codec, ids=ids)
        self.flow = GatewayFlow(transport)
        self.lanes = GatewayLanes(transport)

    @property
    def namespace(self) -> str:
        """The namespace of the API key, as the gateway says it with each reply; empty before the first one."""
        return self._transport.namespace

    @property
    def signals(self) -> GatewayBackend:
        return self

    @property
    def operations(self) -> GatewayBackend:
        return self

    @property
    def queries(self) -> GatewayBackend:
        return self

    # -- starts

    def call(self, workflow: str, arguments: Mapping[str, Any] | bytes) -> Call[Any]:
        given = self._codec.decode(arguments, dict[str, Any]) if isinstance(arguments, bytes) else dict(arguments)
        return Call(cast("Workflow[..., Any]", self._workflows.get(workflow) or Named(workflow)), given)

    async def start(self, call: WorkflowCall[Any], options: StartOptions) -> tuple[Run, bool]:
        if not isinstance(call, Call):
            raise UsageError(
                f"start() was given {type(call).__name__}", hint="Pass checkout('o-1'), or client.call(...)."
            )
        call.is_taken = True
        if isinstance(call.target, Workflow):
            self._workflows.setdefault(call.target.name, call.target)  # it says what the result is
        sent = starts.request(
            options,
            input=Raw(self._codec.encode(call.arguments, what=f"the input of {call.target.name}")),
            signal=self._first_signal(options.signal, options.request_id),
            request_id=options.request_id or self._ids.nonce(),
        )
        path = f"/v1/workflows/{quote(call.target.name, safe='')}/runs"
        try:
            reply = await self._transport.post(path, sent.body, query=sent.query, headers=sent.headers, again=True)
        except (InputMismatch, LaneBusy, Overtaken) as error:
            found: Any = await self.get(error.run_id)  # a row, of which `start` makes a `Run`
            error.run = found
            raise
        return self._run(reply.of(wire.RunView)), reply.status == 201

    async def start_item(self, call: ItemCall[Any], options: StartOptions) -> tuple[Run, bool, str]:
        """Put an item into a batch. Its own result is read off that of its batch."""
        del options
        raise UsageError(
            f"an item of {call.target.name} cannot be started over HTTP",
            hint="Start items where the workflow is defined, with Holdfast(...).",
        )

    def _first_signal(self, signal: Any, request_id: str | None) -> wire.SentSignalBody | None:
        if signal is None:
            return None
        hook, payload, dedupe = signal_of(signal)
        body = self._signal(hook, payload, dedupe)
        # A start that is repeated under the same request id must not deliver twice. The gateway makes the id of such a
        # signal of the request's and of who asks: two callers may choose the same request id, and mean two signals.
        return replace(body, dedupe=None) if dedupe is None and request_id is not None else body

    def _signal(self, hook: str, payload: Any, dedupe: str | None = None) -> wire.SentSignalBody:
        # Without an id of its own a signal could not be sent again after a broken connection.
        data = Raw(self._codec.encode(payload, what=f"the payload for hook {hook!r}"))
        return wire.SentSignalBody(hook=hook, payload=data, dedupe=dedupe or self._ids.nonce())

    # -- looking

    async def get(self, run_id: str) -> Run:
        return self._run((await self._transport.get(_path(run_id))).of(wire.RunView))

    async def find(self, workflow: str, key: str) -> Run:
        path = f"/v1/workflows/{quote(workflow, safe='')}/holder"
        return self._run((await self._transport.get(path, {"key": key})).of(wire.RunView))

    async def search(self, search: Search) -> list[Run]:
        page = (await self._transport.get("/v1/runs", outbound.query(search))).of(wire.RunPageView)
        return [self._run(each) for each in page.runs]

    async def served(self, runs: Sequence[Run]) -> frozenset[str] | None:
        del runs  # the gateway has said what each waits for
        return None

    async def at_work(self, runs: Sequence[Run]) -> Mapping[str, tuple[StepAtWork, ...]]:
        del runs
        return {}

    async def places(self, runs: Sequence[Run]) -> Mapping[str, LanePlace]:
        del runs
        return {}

    def waits_of(
        self,
        run: Run,
        served: frozenset[str] | None,
        at_work: tuple[StepAtWork, ...] = (),
        place: LanePlace | None = None,
    ) -> tuple[Wait, ...]:
        del served, at_work, place
        return () if run.waits is None else waits.decode(run.waits)

    async def descriptions(self) -> tuple[Description, ...]:
        shown = (await self._transport.get("/v1/workflows")).of(wire.WorkflowsView)
        return tuple(map(inbound.description, shown.workflows))

    async def description(self, name: str) -> Description:
        return inbound.description(
            (await self._transport.get(f"/v1/workflows/{quote(name, safe='')}")).of(wire.WorkflowView)
        )

    async def members(self) -> list[Member]:
        shown = (await self._transport.get("/v1/workers")).of(wire.WorkersView)
        return [inbound.member(each, self.namespace) for each in shown.workers]

    async def backlog(self) -> Backlog:
        return inbound.backlog((await self._transport.get("/v1/backlog")).of(wire.BacklogView))

    async def explain(self, run_id: str) -> Story:
        return inbound.story((await self._transport.get(f"{_path(run_id)}/explain")).of(wire.StoryView))

    async def journal(self, run_id: str) -> Journal:
        shown = (await self._transport.get(f"{_path(run_id)}/journal")).of(wire.JournalView)
        return Journal(map(_decode_entry, shown.entries), shown.first)

    async def replay_check(
        self, workflow: str | None, statuses: frozenset[Status], limit: int | None
    ) -> list[Replayed]:
        del workflow, statuses, limit
        raise UsageError(
            "journals are replayed where the code and the store are, not over a gateway",
            hint="Use a Holdfast on the store's URL, with the packs.",
        )

    def export_journals(
        self, workflow: str | None, statuses: frozenset[Status], limit: int | None
    ) -> AsyncIterator[ExportedJournal]:
        del workflow, statuses, limit
        raise UsageError(
            "journals are exported where the store is, not over a gateway", hint="Use a Holdfast on the store's URL."
        )

    def full_name(self, workflow: str) -> str:
        return workflow  # the gateway completes it

    def returns_of(self, workflow: str) -> Any:
        known = self._workflows.get(workflow)
        return Any if known is None else known.signature.returns

    async def input(self, run: Run) -> dict[str, Any]:
        data = await self.input_json(run)
        known = self._workflows.get(run.workflow)
        if known is None:
            return self._codec.decode(data, dict[str, Any])
        return known.signature.named(self._codec.decode(data, known.signature.arguments_type))

    async def input_json(self, run: Run) -> bytes:
        return (await self._transport.get(f"{_path(run.id)}/input")).body

    async def events(self, run_id: str, after: int | None) -> AsyncIterator[RunEvent]:
        """What happens to a run. A connection that breaks is made again, and continues behind what has been seen."""
        cursor = after
        while True:
            try:
                async for event in self._events(run_id, cursor):
                    if event is None:
                        return
                    cursor = event.cursor
                    yield event
            except TransientError:
                await self.get(run_id)  # raises if the gateway is really away, or the run gone
            await self._clock.pause(STREAM_PAUSE_SECONDS)

    async def _events(self, run_id: str, after: int | None) -> AsyncIterator[RunEvent | None]:
        headers = {"Accept": "text/event-stream"} | ({} if after is None else {"Last-Event-ID": str(after)})
        async with self._transport.stream(f"{_path(run_id)}/events", headers) as response:
            fields: dict[str, str] = {}
            async for line in response.aiter_lines():
                if line:
                    name, _, value = line.partition(":")
                    fields[name] = value.removeprefix(" ")
                elif fields.get("event") == "end":
                    yield None
                elif "data" in fields:
                    yield RunEvent(int(fields["id"]), _decode_entry(fields["data"]))
                if not line:
                    fields = {}

    async def limit(self, name: str, rate: Rate, cost: int) -> LimitVerdict:
        """Not sent again after a broken connection: it may have been counted."""
        limits.checked(Cost("own", name, rate, cost))
        per = milliseconds(rate.per) / 1000
        body = wire.SpendBody(name=name, rate=wire.RateBody(count=rate.count, per=per, burst=rate.burst), cost=cost)
        said = (await self._transport.post("/v1/limits", body, again=False)).of(wire.LimitVerdictView)
        return LimitVerdict(said.allowed, said.remaining, said.retry_after, said.reset_after)

    # -- results

    async def result(self, run: Run, as_type: Any, timeout: Duration | None) -> Any:
        return self._codec.decode(await self._result(run, timeout), as_type)

    async def result_json(self, run: Run) -> bytes:
        return await self._result(run, timeout=None)

    async def wait(self, run: Run, timeout: Duration | None) -> Run:
        with suppress(RunError):
            await self._result(run, timeout)
        return await self.get(run.id)

    async def _result(self, run: Run, timeout: Duration | None) -> bytes:
        limit_ms = None if timeout is None else milliseconds(timeout)
        until_steady_ms = None if limit_ms is None else self._clock.steady_ms() + limit_ms
        while True:
            left = WAIT_SECONDS_MAX if until_steady_ms is None else (until_steady_ms - self._clock.steady_ms()) / 1000
            wait_seconds = min(WAIT_SECONDS_MAX, max(0.0, left))
            query = {"wait": f"{wait_seconds:.3f}"}
            reply = await self._transport.get(f"{_path(run.id)}/result", query, wait_seconds=wait_seconds)
            if reply.status == 200:
                return bytes(reply.of(wire.ResultView).result)
            reply.of(wire.RunView)  # it goes on; anything else is no response of a gateway
            if until_steady_ms is not None and self._clock.steady_ms() >= until_steady_ms:
                raise TimedOut(
                    f"run {run.id} has not ended within {(limit_ms or 0) / 1000:g} s",
                    hint="It goes on; ask for its result again later.",
                )

    # -- signals and operations

    async def to_run(self, run_id: str, hook: str, payload: Any, dedupe: str | None) -> str:
        body = self._signal(hook, payload, dedupe)
        sent = await self._transport.post(f"{_path(run_id)}/signal", body, again=True)
        sent.of(wire.RunView)  # anything else is no response of a gateway
        return sent.warning

    async def to_token(self, token: str, payload: Any, dedupe: str | None) -> Run:
        body = Raw(self._codec.encode(payload, what=f"the payload for token {token!r}"))
        query = {"dedupe": dedupe or self._ids.nonce()}
        path = f"/v1/hooks/{quote(token, safe='')}"
        return self._run((await self._transport.post(path, body, query=query, again=True)).of(wire.RunView))

    async def cancel(self, run_id: str, reason: str, deadline: Duration) -> Receipt:
        """Cancel, and ask for the receipt until it is there: the gateway waits only so long."""
        until_steady_ms = self._clock.steady_ms() + milliseconds(deadline)
        path = f"{_path(run_id)}/cancel"
        while True:
            left_ms = max(0.0, until_steady_ms - self._clock.steady_ms())  # the same instant, however often it is asked
            body = wire.CancelBody(reason=reason or None, deadline=left_ms / 1000)
            reply = await self._transport.post(path, body, wait_seconds=2 * WAIT_SECONDS_MAX, again=True)
            if reply.status == 200:
                return await self._receipt(reply.of(wire.ReceiptView))
            reply.of(wire.RunView)  # it goes on; anything else is no response of a gateway

    async def ask_cancel(self, run_id: str, reason: str, deadline: Duration) -> Cancellation:
        limit_ms = milliseconds(deadline)
        asked = Cancellation(run_id, self._ids.nonce(), reason, self._now_ms() + limit_ms)
        body = wire.CancelBody(reason=reason or None, deadline=limit_ms / 1000)
        await self._transport.post(f"{_path(run_id)}/cancel", body, query={"wait": "0s"}, again=True)
        return asked

    async def cancelled(self, asked: Cancellation) -> Receipt:
        left_ms = max(NO_TIME, asked.deadline_at_ms - self._now_ms())
        return await self.cancel(asked.run_id, asked.reason, left_ms / 1000)

    def _now_ms(self) -> Instant:
        """The present by our own clock, which a step of the wall clock does not move."""
        return Instant(int(self._clock.steady_ms() + self._offset_ms))

    async def receipt(self, run_id: str) -> Receipt:
        return await self._receipt((await self._transport.get(f"{_path(run_id)}/receipt")).of(wire.ReceiptView))

    async def _receipt(self, shown: wire.ReceiptView, limit: asyncio.Semaphore | None = None) -> Receipt:
        """The receipt. What its JSON does not say of a child is read off the child's own, as the engine does."""
        receipt = inbound.receipt(shown)
        limit = limit or asyncio.Semaphore(RECEIPTS_AT_ONCE)
        children = await asyncio.gather(*(self._child(child, limit) for child in receipt.children))
        return replace(receipt, children=tuple(children))

    async def _child(self, child: ChildLeft, limit: asyncio.Semaphore) -> ChildLeft:
        if child.outcome not in MAY_BE_EMPTY:
            return replace(child, is_empty=child.outcome == "no_effects")
        own = await self._own_receipt(child.run_id, limit)
        if own is None or own.outcome != child.outcome:  # it has ended, or was moved, since the receipt of its parent
            return child
        return replace(child, is_empty=await self._performed_nothing(own, limit))

    async def _own_receipt(self, run_id: str, limit: asyncio.Semaphore) -> Receipt | None:
        """The receipt of a child; None if it is not known: it was removed, has not ended, or is out of reach."""
        try:
            async with limit:
                shown = (await self._transport.get(f"{_path(run_id)}/receipt")).of(wire.ReceiptView)
            return await self._receipt(shown, limit)
        except (UnknownRun, NotAllowedNow, TransientError):
            return None

    async def _performed_nothing(self, receipt: Receipt, limit: asyncio.Semaphore) -> bool:
        if receipt.effects or not all(child.is_empty for child in receipt.children):
            return False  # as most are: their journals need not be read
        try:
            async with limit:
                journal = await self.journal(receipt.run_id)
        except (UnknownRun, TransientError):
            return False
        shown = {child.run_id for child in receipt.children}
        others = [child for child in cancels.children_left(journal) if child.run_id not in shown]
        below = [await self._left_by(child, limit) for child in others]
        return cancels.performed_nothing(receipt, journal, [*receipt.children, *below])

    async def _left_by(self, child: Child, limit: asyncio.Semaphore) -> ChildLeft:
        own = await self._own_receipt(child.run_id, limit) if child.has_ended else None
        if own is None:
            return ChildLeft(child.run_id, child.workflow, "unknown")
        return ChildLeft(child.run_id, child.workflow, own.outcome, await self._performed_nothing(own, limit))

    async def retry(self, run_id: str) -> Run:
        return await self._move(run_id, "retry")

    async def resume(self, run_id: str) -> Run:
        return await self._move(run_id, "resume")

    async def decide(self, run_id: str, step: str, said: Said) -> Run:
        said.check()
        body = wire.DecideBody(
            step=step,
            returned=said.returned,
            failed=said.failed,
            not_performed=said.not_performed,
            by=said.by or None,
            reason=said.reason or None,
        )
        return await self._move(run_id, "decide", body)

    async def retry_now(self, run_id: str, step: str | None, by_hand: ByHand) -> Run:
        body = wire.RetryNowBody(step=step, by=by_hand.by or None, reason=by_hand.reason or None)
        return await self._move(run_id, "retry-now", body)

    async def fork(self, run_id: str, step: str, key: str | None) -> Run:
        return await self._move(run_id, "fork", wire.ForkBody(at=step, key=key))

    async def release_key(self, run_id: str, reason: str) -> Run:
        return await self._move(run_id, "release-key", wire.ReleaseKeyBody(reason=reason or None))

    async def _move(self, run_id: str, verb: str, body: object = UNSET) -> Run:
        # Not again: a second fork would be a second run, a second retry is refused by what the first one did.
        try:
            return self._run(
                (await self._transport.post(f"{_path(run_id)}/{verb}", body, again=False)).of(wire.RunView)
            )
        except GatewayUnavailable as error:
            error.hint = f"Whether run {run_id} was moved is not known: look at it before you try again."
            raise

    def _run(self, shown: wire.RunView) -> Run:
        return inbound.run(shown, self.namespace)


def _path(run_id: str) -> str:
    if not RUN_ID.fullmatch(run_id):  # it would be another path
        raise UnknownRun(f"no run has the id {run_id!r}")
    return f"/v1/runs/{run_id}"

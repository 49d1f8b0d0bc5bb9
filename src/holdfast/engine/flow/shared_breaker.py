"""One circuit breaker, as one replica sees it. What follows from what is decided in `kernel/breakers.py`.

Rules
- While the breaker is closed, an effect costs no look into the store. The document is read before the first one.
- A failure is reported before the next effect begins here, if half as many fail as open the breaker. So a service that
  does not work gets no more calls than `of`, and those that were under way when it opened.
- While the store is away the replica goes on by what it knows, and decides alone; it says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from msgspec import Struct

from holdfast import events
from holdfast.engine.flow.buckets import Buckets
from holdfast.engine.flow.context import FlowContext, ParkedRuns, Told
from holdfast.errors import TransientError
from holdfast.kernel import breakers
from holdfast.kernel.breakers import (
    NEW,
    Breaker,
    BreakerClosed,
    BreakerHalfOpen,
    BreakerOpen,
    BreakerState,
    CallsReported,
    Event,
    MayBegin,
    MayProbe,
    MustWait,
    Probe,
    ProbeFailed,
    ProbeSucceeded,
    ProbeUnknown,
    ProbeWanted,
    kept_in,
    look,
    writing,
)
from holdfast.kernel.documents import Document
from holdfast.kernel.effect_rules import Stay, at_breaker
from holdfast.kernel.runs import Run
from holdfast.kernel.times import END_OF_TIME, Instant, Millis


class BreakerCall(Struct, frozen=True, gc=False):
    """A call that the breaker has let begin. `probe` is there if it is the one that is tried."""

    era: int
    probe: Probe | None = None


class SharedBreaker:
    """A breaker that all replicas share."""

    def __init__(self, rule: Breaker, context: FlowContext) -> None:
        self.rule = rule
        self.kept: BreakerState = NEW
        self.parked = ParkedRuns(context)
        self.is_known = False  # whether its document has been read
        self._context = context
        self._document: Document | None = None
        self._is_alone = False
        self._buckets = Buckets(rule.within_ms)
        self._changed = asyncio.Event()
        self._waiting = 0
        self._scout: Told | None = None  # the one of those who wait that tries first
        self._turn = asyncio.Lock()  # one write at a time
        self._reporting: asyncio.Task[None] | None = None
        self._is_due = False  # whether there is something to report
        self._telling: dict[asyncio.Task[None], None] = {}

    # -- effects

    async def until_open(self, step: str, told: Told) -> None:
        """Returns when an effect may perhaps begin."""
        if not self.is_known:
            async with self._turn:  # one look for all that begin together
                if not self.is_known:
                    await self.read()
        try:
            while (must := self._must_wait()) is not None:
                if must.until_ms:
                    self._scout = self._scout or told
                    told(self.stay(step, must, is_scout=self._scout is told))
                await self._until_changed(must.until_ms)
        finally:
            if self._scout is told:
                self._scout = None

    async def begin(self, timeout_ms: Millis | None) -> BreakerCall | None:
        """Let an effect begin; None if it has to wait after all."""
        if self._must_wait() is not None:
            return None
        if isinstance(self.kept.state, BreakerClosed):
            return BreakerCall(self.kept.era)
        wanted = ProbeWanted(self._context.owner(), timeout_ms)
        taking = asyncio.get_running_loop().create_task(self._apply(wanted))
        try:
            kept = await asyncio.shield(taking)
        except asyncio.CancelledError:
            self._do(self._give_back(taking))
            raise
        if (probe := _probe_in(kept)) is None or kept is None:
            return None
        self._context.emit(events.BreakerProbed(self.rule.name))
        return BreakerCall(kept.era, probe)

    async def _give_back(self, taking: asyncio.Task[BreakerState | None]) -> None:
        """The effect that wanted to be the probe is not called: no replica may probe before that is known."""
        if (probe := _probe_in(await taking)) is not None:
            await self._apply(ProbeUnknown(probe))

    def end(self, call: BreakerCall, *, failed: bool | None) -> None:
        """The call has come to its end. `failed` is None if nothing is known of it."""
        if call.probe is not None:
            outcome: Event = ProbeUnknown(call.probe)
            if failed is not None:
                outcome = ProbeFailed(call.probe) if failed else ProbeSucceeded(call.probe)
            self._tell(outcome)
        elif failed is not None and call.era == self.kept.era:
            self._buckets.add(self._context.store.now_ms(), failed=failed)
            if failed and breakers.is_suspicious(self.rule, self._buckets.calls, self._buckets.failures):
                self._is_due = True
                if self._reporting is None:
                    self._reporting = asyncio.get_running_loop().create_task(self._report())

    def stay(self, step: str, must: MustWait, *, is_scout: bool) -> Stay:
        """What an effect waits for that may not begin.

        The run of the scout is woken when one may be tried; the others later, or when the breaker is closed. Each
        wakes by itself in the end, however long the breaker is open: the replica that would wake it may have died.
        The scout stays one when all of them look again, or none of them would be woken in time once they are let go.
        """
        wake_at_ms = min(must.until_ms, Instant(self._context.store.now_ms() + breakers.OPEN_MS_MAX))
        if not is_scout:
            wake_at_ms += Millis(1_000 + int(self._context.ids.chance() * self._context.pace.held_ms))
        return Stay(at_breaker(self.rule, step, must), wake_at_ms)

    def _must_wait(self) -> MustWait | None:
        verdict = look(self.kept, now_ms=self._context.store.now_ms())
        if isinstance(verdict, MustWait):
            return verdict
        return MustWait(Instant(0)) if self._reporting is not None else None

    async def _until_changed(self, until_ms: Instant) -> None:
        self._waiting += 1
        limit = None if not until_ms or until_ms >= END_OF_TIME else until_ms - self._context.store.now_ms()
        try:
            async with asyncio.timeout(None if limit is None else max(0, limit) / 1000):
                await self._changed.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting -= 1

    # -- runs that were let go

    def park(self, run: Run) -> None:
        """The run was let go; it is woken when the breaker lets its effect begin."""
        if isinstance(look(self.kept, now_ms=self._context.store.now_ms()), MustWait):
            self.parked.add(run)
        else:  # it changed while the run was being let go
            self.parked.add(run)
            self._wake()

    def _wake(self) -> None:
        """The breaker has changed: those who wait look again."""
        self._changed.set()
        self._changed = asyncio.Event()
        match look(self.kept, now_ms=self._context.store.now_ms()):
            case MayBegin():
                self.parked.wake(len(self.parked))
            case MayProbe() if not self._waiting:
                self.parked.wake(1)
            case _:
                pass

    # -- the document

    async def _report(self) -> None:
        try:
            while self._is_due:
                self._is_due = False
                calls, failures = self._buckets.calls, self._buckets.failures
                await self._apply(CallsReported(self._context.owner(), self.kept.era, calls, failures))
        finally:
            self._reporting = None
            self._wake()

    def _tell(self, outcome: Event) -> None:
        self._do(self._tell_on(outcome))

    async def _tell_on(self, outcome: Event) -> None:
        await self._apply(outcome)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what no effect waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._telling[task] = None
        task.add_done_callback(self._telling.pop)

    async def told(self) -> None:
        """Returns when all that calls have said is written."""
        tasks: Iterable[asyncio.Task[None]] = [*self._telling, *([self._reporting] if self._reporting else [])]
        if tasks:
            await asyncio.wait(tasks)

    async def _apply(self, event: Event) -> BreakerState | None:
        """Have the breaker changed by `event`, for all replicas; None if it changes nothing."""
        async with self._turn:
            while True:
                now_ms = self._context.store.now_ms()
                after = breakers.decide(self.rule, self.kept, event, now_ms=now_ms)
                if after is None:
                    return None
                wanted = writing(self._context.namespace, self.rule.name, self._document, after, now_ms=now_ms)
                try:
                    [stored] = await self._context.store.write([wanted])
                    if stored:
                        self.see(wanted.document)
                        return after
                    await self._read()
                except TransientError as error:
                    self._decide_alone(error)
                    self._turn_to(after)
                    return after

    async def read(self) -> None:
        """Look into the store, if it can be reached. The first effect of all makes the breaker known to people."""
        store, namespace, name = self._context.store, self._context.namespace, self.rule.name
        try:
            await self._read()
            if self._document is None:
                await store.write([writing(namespace, name, None, NEW, now_ms=store.now_ms())])
                await self._read()
        except TransientError as error:
            self._decide_alone(error)
            self.is_known = True

    async def _read(self) -> None:
        place = (self._context.namespace, breakers.KIND, self.rule.name)
        self.see(await self._context.store.document(*place))

    def see(self, document: Document | None) -> None:
        """This is the document now, as far as is known."""
        if document is not None and self._document is not None and document.version < self._document.version:
            return
        self.is_known = True
        self._document = document
        if self._is_alone:
            self._is_alone = False
            self._context.emit(events.DecidesTogether("breaker", self.rule.name))
        self._turn_to(kept_in(document))

    def _turn_to(self, kept: BreakerState) -> None:
        before, self.kept = self.kept, kept
        if kept.era == before.era and kept.state == before.state:
            return
        if kept.era != before.era:
            self._buckets.clear()
            state, name = kept.state, self.rule.name
            until_ms = state.until_ms if isinstance(state, BreakerOpen) and state.until_ms < END_OF_TIME else None
            who = "" if kept.by_hand is None or kept.by_hand.at_ms != state.since_ms else kept.by_hand.who
            self._context.emit(events.BreakerChanged(name, breakers.named(state), until_ms, who))
        self._wake()

    def _decide_alone(self, error: TransientError) -> None:
        if not self._is_alone:
            self._is_alone = True
            self._context.emit(events.DecidesAlone("breaker", self.rule.name, str(error)))


def _probe_in(kept: BreakerState | None) -> Probe | None:
    """The call that is tried just now, if one is."""
    return kept.state.probe if kept is not None and isinstance(kept.state, BreakerHalfOpen) else None

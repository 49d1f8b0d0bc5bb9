"""One limit, as one replica sees it: its slots, its calls under way, and the effects that wait.

What a replica gets is decided in `kernel/effect_limits.py`.

Rules
- A call takes a slot that the replica has, without a look into the store. More slots are asked for when effects wait.
- Effects begin in the order in which they came, and never under a lease that cannot be relied on.
- Slots that are not used for a second are given back; at once if another replica wants them.
- When the lease is lost, the slots are: calls that are under way then are no longer counted anywhere. They are
  cancelled, but what cannot be cancelled goes on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from holdfast import events
from holdfast.engine.alarms import Alarm
from holdfast.engine.flow.context import FlowContext, ParkedRuns, Told
from holdfast.errors import TransientError
from holdfast.kernel import effect_limits
from holdfast.kernel.documents import Document
from holdfast.kernel.effect_limits import (
    IDLE_MS,
    NONE,
    PORTION_MS,
    TURN_MS,
    Grant,
    Limit,
    LimitSlots,
    Share,
    Wish,
    fair_share,
    portion_of,
    slots_in,
    writing,
)
from holdfast.kernel.effect_rules import Stay, at_limit
from holdfast.kernel.runs import Run
from holdfast.kernel.times import EPOCH, Instant, Millis

APPETITE_MAX = 100  # how many runs that were let go are woken ahead
CONFLICTS_MAX = 20


class LimitCall(Struct, frozen=True, gc=False):
    """A call that the limit has let begin."""

    owner: str


class _Waiter(Struct):
    step: str
    told: Told
    begun: asyncio.Future[LimitCall]


class SharedLimit:
    """A limit that all replicas share."""

    def __init__(self, rule: Limit, context: FlowContext, *, is_trusted: Callable[[], bool]) -> None:
        self.rule = rule
        self.parked = ParkedRuns(context)
        self.in_use = 0
        self.held = 0
        self.slots: LimitSlots = NONE
        self._context = context
        self._is_trusted = is_trusted
        self._document: Document | None = None
        self._is_known = False
        self._is_alone = False
        self._owner = ""
        self._share: Share = Share()
        self._due = 0  # how many slots are ours, if all have what is fair
        self._took_at_ms = EPOCH
        self._looked_at_ms = EPOCH
        self._calls = 0  # of the rate, to be begun at once
        self._granted_at_ms = EPOCH
        self._retry_at_ms = EPOCH
        self._peak = 0
        self._peak_at_ms = EPOCH
        self._waiting: deque[_Waiter] = deque()
        self._woken: dict[str, Instant] = {}
        self._alarm = Alarm()
        self._settling: asyncio.Task[None] | None = None

    # -- effects

    async def take(self, run_id: str, step: str, told: Told) -> LimitCall:
        """Let an effect begin: returns when it may."""
        self._woken.pop(run_id, None)
        if not self._waiting and self._may_begin():
            return self._begin()
        waiter = _Waiter(step, told, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        told(self.stay(step))
        self._nudge()
        try:
            return await waiter.begun
        except asyncio.CancelledError:
            if waiter.begun.done() and not waiter.begun.cancelled():
                self.end(waiter.begun.result())
            raise
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def end(self, call: LimitCall) -> None:
        """The call has come to its end."""
        if call.owner == self._owner:
            self.in_use -= 1
            self._pump()
            self._nudge()

    def stay(self, step: str) -> Stay:
        """What an effect waits for that may not begin."""
        context = self._context
        later_ms = Millis(int(context.pace.held_ms * (1 + context.ids.chance())))
        lacks = self.rule.rate is None or (self.rule.width is not None and self.in_use >= self._may_use())
        wait = at_limit(self.rule, step, self.slots, lacks_slots=lacks)
        return Stay(wait, Instant(context.store.now_ms() + later_ms))

    def _may_begin(self) -> bool:
        if self._owner != self._context.owner() or not self._owner or not self._is_trusted():
            return False
        if self.rule.width is not None and self.in_use >= self._may_use():
            return False
        if self.rule.rate is None:
            return True
        is_fresh = self._context.store.now_ms() - self._granted_at_ms < PORTION_MS
        return self._calls > 0 and is_fresh

    def _may_use(self) -> int:
        """How many of its slots the replica uses: those that are another's turn only for a moment."""
        if self.held <= self._due or self._context.store.now_ms() - self._took_at_ms < TURN_MS:
            return self.held
        return min(self.held, self._due)

    def _begin(self) -> LimitCall:
        self.in_use += 1
        self._calls = max(0, self._calls - 1)
        if self.in_use >= self._peak:
            self._peak, self._peak_at_ms = self.in_use, self._context.store.now_ms()
        return LimitCall(self._owner)

    def _pump(self) -> None:
        """Let those begin that may, the first one first."""
        while self._waiting and self._may_begin():
            waiter = self._waiting.popleft()
            if not waiter.begun.done():
                waiter.begun.set_result(self._begin())

    # -- runs that were let go

    def park(self, run: Run) -> None:
        """The run was let go; it is woken when it is nearly its turn."""
        self.parked.add(run)
        self._nudge()

    def _wake_parked(self) -> None:
        now_ms = self._context.store.now_ms()
        self._woken = {run: at for run, at in self._woken.items() if now_ms - at < self._context.pace.expected_ms}
        lacking = self._appetite() - len(self._waiting) - len(self._woken)
        if lacking > 0 and len(self.parked):
            self._woken |= dict.fromkeys(self.parked.wake(lacking), now_ms)

    def _appetite(self) -> int:
        """How many effects should wait here, so that none of what may begin is lost while runs come back."""
        by_rate = 0 if self.rule.rate is None else portion_of(self.rule.rate) * 10
        by_width = APPETITE_MAX if self.rule.width is None else max(self.held, 1)
        return min(APPETITE_MAX, by_width if self.rule.rate is None else min(by_rate, by_width))

    # -- the document

    def lose(self) -> None:
        """The lease is lost, and with it the slots."""
        self._owner, self.held, self.in_use, self._calls, self._share = "", 0, 0, 0, Share()
        self._woken.clear()
        self._nudge()

    async def leave(self) -> None:
        """Give back what is not in use: this process stops."""
        if self._settling is not None:
            self._settling.cancel()
        if self.held and self._owner:
            await self._settle(Wish(self._owner, self.in_use, self.in_use))

    def see(self, document: Document | None) -> None:
        """This is the document now, as far as is known."""
        if document is None or (self._document is not None and document.version <= self._document.version):
            return
        self._adopt(document)
        self._nudge()

    def _adopt(self, document: Document) -> None:
        taken = self.slots.taken
        self._document, self._is_known, self.slots = document, True, slots_in(document)
        share = self.slots.shares.get(self._owner, Share())
        if share.slots > self._share.slots:
            self._took_at_ms = self._context.store.now_ms()
        if share.slots != self._share.slots:
            self._context.emit(events.SlotsMoved(self.rule.name, share.slots, self.rule.width or 0))
        self._share, self.held = share, share.slots
        shares = self.slots.shares | {self._owner: share}
        self._due = 0 if self.rule.width is None else fair_share(self.rule.width, shares, self._owner)
        self._pump()
        if self.slots.taken != taken:
            for waiter in self._waiting:  # what is said of them is how the limit stands now
                waiter.told(self.stay(waiter.step))

    def _nudge(self) -> None:
        self._alarm.set()
        if self._settling is None and self._has_business():
            self._settling = asyncio.get_running_loop().create_task(self._settle_on())

    def _has_business(self) -> bool:
        return bool(self._waiting or self.held or self._share.wants or len(self.parked))

    async def _settle_on(self) -> None:
        """See to it that the replica has what it needs, and no more, as long as it has any business here."""
        try:
            while self._has_business():
                self._alarm.clear()
                try:
                    seconds = await self._look()
                except TransientError as error:
                    self._decide_alone(error)
                    self._is_known = False  # what was written may be stored all the same
                    seconds = self._context.pace.trouble_pause_seconds
                self._wake_parked()
                if not self._alarm.is_set():
                    await self._alarm.wait(seconds)
        finally:
            self._settling = None

    async def _look(self) -> float:
        """Write what is to be written now; returns the seconds after which to look again by itself."""
        owner, now_ms = self._context.owner(), self._context.store.now_ms()
        if owner != self._owner:
            self.lose()
            self._owner, self._is_known = owner, False
        if not owner:
            return self._context.pace.lease_trouble_pause_seconds
        self._pump()
        wish = self._wish(now_ms)
        if self._is_to_be_written(wish, now_ms):
            await self._settle(wish)
            now_ms = self._context.store.now_ms()
        return self._again_in_ms(now_ms) / 1000

    def _wish(self, now_ms: Instant) -> Wish:
        queued = len(self._waiting) + len(self.parked)
        if now_ms - self._peak_at_ms >= IDLE_MS or self._is_contested():
            self._peak, self._peak_at_ms = self.in_use, now_ms
        if self.rule.width is None:
            wants, room = 0, len(self._waiting)
        else:
            wants = min(self.rule.width, max(self._peak, self.in_use + queued))
            room = max(0, max(self.held, 1) - self.in_use)
        calls = 0
        if self.rule.rate is not None and not self._calls_left(now_ms) and now_ms >= self._retry_at_ms:
            calls = min(len(self._waiting), room)
        return Wish(self._owner, wants, self.in_use if self.rule.width is not None else 0, calls)

    def _calls_left(self, now_ms: Instant) -> int:
        return self._calls if now_ms - self._granted_at_ms < PORTION_MS else 0

    def _is_contested(self) -> bool:
        return any(share.slots < share.wants for owner, share in self.slots.shares.items() if owner != self._owner)

    def _is_to_be_written(self, wish: Wish, now_ms: Instant) -> bool:
        if not self._is_known:
            return self._has_business()
        if wish.calls:
            return True
        if self.rule.width is None:
            return False
        if self.held < wish.wants and (wish.wants != self._share.wants or self._may_get_more(now_ms)):
            return True
        has_too_many = self.held > self.in_use and (self.held > wish.wants or self.held > self._may_use())
        wants_less = wish.wants < self._share.wants
        return has_too_many or (wants_less and (self._is_contested() or not wish.wants))

    def _may_get_more(self, now_ms: Instant) -> bool:
        """Whether slots are free that are ours, or it is time to look whether their owners have died."""
        is_free = self.slots.taken < (self.rule.width or 0) and self.held < self._due
        return is_free or now_ms - self._looked_at_ms >= self._context.pace.slots_look_seconds * 1000

    def _again_in_ms(self, now_ms: Instant) -> float:
        waits_ms = [self._context.pace.slots_look_seconds * 1000]
        if self._waiting and self.rule.rate is not None:
            waits_ms.append(max(1.0, self._retry_at_ms - now_ms))
        if self.held:
            waits_ms.append(max(1.0, self._peak_at_ms + IDLE_MS - now_ms))
        if self.held > self._due:
            waits_ms.append(max(1.0, self._took_at_ms + TURN_MS - now_ms))
        return min(waits_ms)

    async def _settle(self, wish: Wish) -> None:
        """Write what the wish makes of the document."""
        context = self._context
        if not self._is_known:
            await self._read()
        for _ in range(CONFLICTS_MAX):
            document = self._document
            alive = await self._alive(wish)
            if self._owner != wish.owner:
                return
            if self._document is not document:
                continue  # who has come since is not among those that were alive
            wish = replace(wish, in_use=0 if self.rule.width is None else self.in_use)
            now_ms, slots = context.store.now_ms(), self.slots
            grant = effect_limits.decide(self.rule, slots, wish, alive=alive, now_ms=now_ms)
            # Before it is written: no call may begin meanwhile in a slot that is being given back.
            self.held = min(self.held, grant.slots.shares.get(wish.owner, Share()).slots)
            if grant.slots != slots:
                wanted = writing(context.namespace, self.rule.name, document, grant.slots, now_ms=now_ms)
                [stored] = await context.store.write([wanted])
                if self._owner != wish.owner:
                    return
                if not stored:
                    await self._read()
                    continue
                self._adopt(wanted.document)
            self._decide_together()
            self._spend(wish, grant)
            return

    def _spend(self, wish: Wish, grant: Grant) -> None:
        now_ms = self._context.store.now_ms()
        if grant.calls:
            self._calls, self._granted_at_ms = grant.calls, now_ms
        elif wish.calls:
            self._retry_at_ms = Instant(now_ms + grant.retry_ms)
        self._pump()

    async def _read(self) -> None:
        place = (self._context.namespace, effect_limits.KIND, self.rule.name)
        document = await self._context.store.document(*place)
        self._is_known = True
        if document is not None:
            self._adopt(document)

    async def _alive(self, wish: Wish) -> frozenset[str]:
        """The owners whose slots count. Who has died is looked for only when there are too few."""
        others = frozenset(self.slots.shares) - {wish.owner}
        free = (self.rule.width or 0) - self.slots.taken
        if self.rule.width is None or not others or wish.wants - self.held <= free:
            return others
        self._looked_at_ms = self._context.store.now_ms()
        members = await self._context.store.members(self._context.namespace)
        return others & {member.owner for member in members}

    def _decide_alone(self, error: TransientError) -> None:
        if not self._is_alone:
            self._is_alone = True
            self._context.emit(events.DecidesAlone("limit", self.rule.name, str(error)))

    def _decide_together(self) -> None:
        if self._is_alone:
            self._is_alone = False
            self._context.emit(events.DecidesTogether("limit", self.rule.name))

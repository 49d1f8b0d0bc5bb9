"""The nemesis: carries out the faults of a plan, says what becomes of every call, and writes the history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import log
from random import Random

from holdfast.kernel.leases import instance_of
from holdfast.kernel.times import Instant
from holdfast.ports.notices import Notice
from holdfast.testing.histories.history import EffectObserved, FaultApplied, FaultName, Record, StoreWrite
from holdfast.testing.simulation.hosts import Host
from holdfast.testing.simulation.network import Fate, StoreCall
from holdfast.testing.simulation.world import World
from tests.simulation.plans import Fault, Plan

STRIKES = ("call lost", "reply lost", "late")


class Nemesis:
    """Observes the store of a world, and decides by chance and plan what becomes of its calls.

    It is the world that effects touch, too: each of their calls is one line of the history.
    """

    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self.plan = plan
        self.history: list[Record] = []
        self.sometimes: Counter[str] = Counter()
        self.now_ms: Callable[[], Instant]
        self.numbers: dict[str, int] = {}  # of hosts, by their names
        self.alive: Callable[[str], bool] = lambda _: True
        self.lose_call: Callable[[], None]
        self.last_arrival = 0.0  # of the calls that arrive late
        self._way = Random(f"{plan.seed}/way")
        self._bus = Random(f"{plan.seed}/bus")
        self._struck: dict[int, list[list[object]]] = {}  # strikes that are still to come, by host
        self._left = 0  # commits that leave messages behind
        self._slow_until = self._down_until = 0.0
        self._is_healed = False
        self._begun: set[tuple[str, str, int]] = set()
        self._performed: dict[str, int] = {}
        self._fates: dict[str, str] = {}  # of changes: what was done to the call that brings them

    # -- what it is told to do

    def strike(self, fault: Fault) -> None:
        """From now on the calls of this host meet their fates."""
        self._struck.setdefault(fault.host, []).append([fault, fault.count])

    def leave_behind(self, fault: Fault) -> None:
        self._left += fault.count

    def be_slow(self, seconds: float) -> None:
        self._slow_until = max(self._slow_until, self.world.now() + seconds)

    def be_down(self, seconds: float) -> None:
        self._down_until = max(self._down_until, self.world.now() + seconds)

    def heal(self) -> None:
        """No more faults. What is under way stays under way."""
        self._is_healed = True
        self._struck.clear()
        self._left = 0
        self._slow_until = self._down_until = 0.0
        self.applied_fault("healed")

    def applied_fault(
        self,
        fault: FaultName,
        host: str = "",
        *,
        lost: tuple[str, ...] = (),
        runs: tuple[str, ...] = (),
        detail: str = "",
    ) -> None:
        self.record(FaultApplied(at_ms=self.now_ms(), fault=fault, host=host, lost=lost, runs=runs, detail=detail))

    # -- what becomes of calls

    def fate(self, call: StoreCall) -> Fate:
        way, latency = self._way, self.plan.latency
        # Exponentially distributed, as `Random.expovariate` draws it.
        there, back = -log(1.0 - way.random()) * latency, -log(1.0 - way.random()) * latency
        if self._is_healed:
            return Fate(there, back)
        now = self.world.now()
        if now < self._down_until:
            self._lose(call, _writes_of(call))
            return Fate(call_lost=True)
        if now < self._slow_until:
            there += way.random() * self.plan.limit
        fault = self._strike_of(call)
        if fault is None:
            return Fate(there, back)
        writes = _writes_of(call)
        match fault.kind:
            case "call lost":
                self._lose(call, writes)
                return Fate(call_lost=True)
            case "reply lost":
                if writes:
                    self.applied_fault("reply lost", call.host.name, lost=writes)
                self._fates |= dict.fromkeys(writes, "reply lost")
                return Fate(there, back, reply_lost=True)
            case _:
                if writes:
                    self.applied_fault("write late", call.host.name, lost=writes)
                self._fates |= dict.fromkeys(writes, "late")
                there = max(fault.seconds, self.plan.limit * 1.01)
                self.last_arrival = max(self.last_arrival, now + there)
                return Fate(there, back)

    def _lose(self, call: StoreCall, writes: tuple[str, ...]) -> None:
        self.lose_call()
        if writes:
            self.sometimes["unknown lost"] += 1
            self.applied_fault("write lost", call.host.name, lost=writes)

    def _strike_of(self, call: StoreCall) -> Fault | None:
        if not self._struck:
            return None
        waiting = self._struck.get(self.numbers.get(call.host.name, -1), ())
        for strike in waiting:
            fault, left = strike
            assert isinstance(fault, Fault)
            assert isinstance(left, int)
            if left and (call.verb == "commit" or not fault.commits_only):
                strike[1] = left - 1
                return fault
        return None

    def leaves_behind(self, call: StoreCall) -> bool:
        if not self._left:
            return False
        self._left -= 1
        self.applied_fault("reply lost", call.host.name, lost=_writes_of(call))
        return True

    def notice(self, host: Host, notice: Notice) -> tuple[float, ...]:
        bus, plan = self._bus, self.plan
        delay = -log(1.0 - bus.random()) * plan.bus_latency if plan.bus_latency else 0.0
        if not plan.bus_faults or self._is_healed or bus.random() >= plan.bus_chance:
            return (delay,)
        match plan.bus_faults[bus.randrange(len(plan.bus_faults))]:
            case "lost":
                return ()
            case "late":
                return (delay + bus.random() * plan.lease,)
            case _:
                return (delay, delay + bus.random())

    def applied(self, call: StoreCall, result: object) -> None: ...
    def replied(self, call: StoreCall) -> None: ...

    # -- what it is told by the store

    def record(self, record: Record) -> None:
        self.history.append(record)
        if isinstance(record, StoreWrite):
            self._count(record)

    def _count(self, write: StoreWrite) -> None:
        fate = self._fates.get(write.write)
        if write.outcome == "refused" and write.presented is not None and write.presented != write.fence:
            self.sometimes["stale write refused"] += 1
            if fate == "late":
                self.sometimes["late write refused"] += 1
        if fate is not None and write.outcome == "accepted":
            self.sometimes["unknown applied"] += 1
        if write.outcome == "accepted" and write.took_key_from and write.admits:
            self.sometimes["key taken over"] += 1
        if (
            write.outcome == "refused"
            and write.presented is None
            and any(each.what == "cancel" for each in write.messages)
        ):
            self.sometimes["cancel met end"] += 1

    def relayed(self, count: int) -> None:
        self.sometimes["outbox relayed"] += count

    def stolen(self, run: str, owner: str) -> None:
        if self.alive(instance_of(owner)):
            self.sometimes["lease stolen"] += 1
        self.sometimes["run rescued"] += 1

    def unheard(self, call: StoreCall) -> None:
        if writes := _writes_of(call):
            self.applied_fault("reply lost", call.host.name, lost=writes)

    def forgot(self, writes: tuple[str, ...], runs: tuple[str, ...]) -> None:
        if writes:
            self.sometimes["unknown lost"] += 1
        if writes or runs:
            self.applied_fault("forgot", lost=writes, runs=runs)

    # -- the world of the effects

    def began(self, run: str, step: str, key: str, attempt: int, *, undo: bool) -> None:
        if (run, step, attempt) in self._begun:
            self.sometimes["effect repeated"] += 1
        self._begun.add((run, step, attempt))
        self.record(
            EffectObserved(
                at_ms=self.now_ms(),
                host=self._here,
                run=run,
                step=step,
                key=key,
                phase="began",
                attempt=attempt,
                undo=undo,
            )
        )

    def ended(self, run: str, step: str, key: str, attempt: int, *, undo: bool, returned: bool, number: int) -> None:
        if returned and not undo:
            self._performed[key] = number
        self.record(
            EffectObserved(
                at_ms=self.now_ms(),
                host=self._here,
                run=run,
                step=step,
                key=key,
                phase="ended",
                attempt=attempt,
                undo=undo,
                returned=returned,
            )
        )

    def was_performed(self, key: str) -> int | None:
        return self._performed.get(key)

    @property
    def _here(self) -> str:
        host = self.world.executing
        return "" if host is None else host.name


def _writes_of(call: StoreCall) -> tuple[str, ...]:
    return tuple(change.id for change in call.args[0]) if call.verb == "commit" else ()

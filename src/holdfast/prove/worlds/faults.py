"""The boundaries that a world reaches, counted, and the faults that its schedule has there."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.prove.schedules import Boundary, BoundaryKind, FaultKind, Phase, PlannedFault
from holdfast.prove.worlds.trace import WorldTrace
from holdfast.testing.simulation.hosts import Host
from holdfast.testing.simulation.network import Fate, StoreCall
from holdfast.testing.simulation.world import World

PAST_LEASE = 2.5  # leases: so long a host stands still


class FaultInjector:
    """Is told of every boundary while `is_live`, and crashes, stops or delays there what its schedule says."""

    def __init__(
        self,
        world: World,
        trace: WorldTrace,
        faults: Iterable[PlannedFault],
        *,
        lease_seconds: float,
        kill: Callable[[Host], None],
        cancel: Callable[[], None],
    ) -> None:
        self.is_live = False  # until the hosts have joined, and when all is over, there are no boundaries
        self.boundaries: list[Boundary] = []
        self.met: list[Boundary] = []  # those with a fault
        self.held_back: list[StoreCall] = []  # calls that arrive when all else is over
        self.outstanding = 0  # what still has to arrive or to go on
        self._world = world
        self._trace = trace
        self._faults: dict[int, FaultKind] = {fault.at: fault.what for fault in faults}
        self._past_lease = lease_seconds * PAST_LEASE
        self._kill = kill
        self._cancel = cancel
        self._was_renewal = False

    def reach(
        self,
        kind: BoundaryKind,
        phase: Phase,
        host: Host,
        *,
        about: str,
        line: str = "",
        call: StoreCall | None = None,
    ) -> Fate | None:
        """The world is at a boundary. Returns the fate of `call`, which is about to be sent, if a fault decides it."""
        if not self.is_live:
            return None
        if kind == "renewal" and self._was_renewal:
            return None  # one is like the other, until something else happens
        self._was_renewal = kind == "renewal"
        boundary = Boundary(
            number=len(self.boundaries),
            kind=kind,
            phase=phase,
            host=host.name,
            after_ms=self._trace.elapsed_ms,
            about=about,
            line=line,
        )
        self.boundaries.append(boundary)
        fault = self._faults.get(boundary.number)
        if fault is None:
            return None
        self.met.append(boundary)
        words = f"cancel {boundary}" if fault == "cancel" else f"{fault} of {host.name} {boundary}"
        self._trace.tell("fault", words, host=host.name)
        return self._strike(fault, host, call)

    def _strike(self, fault: FaultKind, host: Host, call: StoreCall | None) -> Fate | None:
        match fault:
            case "crash":
                self._kill(host)
                return Fate(call_lost=True)
            case "pause":
                self._stop(host)
            case "late":
                self._stop(host)
                self._expect_arrival()
                return Fate(there=self._past_lease)
            case "stale":
                self._stop(host)
                if call is not None:
                    self.held_back.append(call)
                return Fate(call_lost=True)
            case "cancel":
                self._cancel()
        return None

    def _stop(self, host: Host) -> None:
        self.outstanding += 1

        def go_on() -> None:
            self.outstanding -= 1
            self._trace.tell("fault", f"{host.name} goes on", host=host.name)
            host.go_on()

        host.stop()
        self._world.after(self._past_lease, go_on)

    def _expect_arrival(self) -> None:
        self.outstanding += 1

        def arrived() -> None:
            self.outstanding -= 1

        self._world.after(self._past_lease + 0.1, arrived)

"""A calendar that can be turned: idle stretches of a simulated world pass at once, however long they are.

Most of what a worker does in a month is upkeep: it renews its lease, looks whether something is due, and finds nothing.
When nothing else is going on, the calendar jumps to the next moment at which something is:

    jumps                                       stands still
    ──────────────────────────────────────────  ─────────────────────────────────────────────────────
    the store's clock                           the steady clocks of the workers, and so the age of their leases
    the client's clocks and timers              the timers of their upkeep
    clocks of a process that is paused
    timers of runs and effects, in the workers

What workers keep in the store with a date on it (leases, terms of duties, announcements) is moved along, unless they
are dead or paused. So a worker does not notice a jump: neither did it do anything in that time, nor did it miss
anything. Then everyone is told that something may have changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context, ContextVar, copy_context
from heapq import heapify
from math import ceil
from typing import Any, NoReturn

from msgspec.structs import replace

from holdfast.effects import RUNNING_EFFECT
from holdfast.engine.replica import Replica
from holdfast.errors import UsageError
from holdfast.kernel import handovers, hangs, leaders, running_effects
from holdfast.kernel.documents import Document
from holdfast.kernel.leases import instance_of
from holdfast.kernel.times import Instant, Millis, Steady
from holdfast.ports.notices import ANYTHING
from holdfast.stores.memory.tables import Tables
from holdfast.testing.simulation.hosts import Host, VirtualClock
from holdfast.testing.simulation.loop import FOREVER, VirtualLoop
from holdfast.testing.simulation.network import Reliable, StoreCall, StoreModel
from holdfast.testing.simulation.world import World

UPKEEP: ContextVar[bool] = ContextVar("holdfast_upkeep", default=False)
ANNOUNCED = (handovers.CODE, running_effects.KIND, hangs.KIND)  # documents under the name of a worker's lease


class NotSimulated(UsageError):
    """Code in a simulation asked for something of the real world, which has another time."""

    code = "not_simulated"


class CalendarLoop(VirtualLoop):
    """Knows which of its timers are upkeep, and refuses whatever would leave the simulation."""

    def __init__(self, now: Callable[[], float], on_fault: Callable[[Exception], None]) -> None:
        super().__init__(lambda: now() + self.ahead_seconds)
        self._on_fault = on_fault
        self.set_task_factory(_make_task)  # pyright: ignore[reportArgumentType] - typeshed's protocol differs by version

    def next_timer_in(self) -> float:
        """The seconds until the first timer that is not upkeep; infinity if there is none."""
        timers = (when for when, _, timer in self._later if not timer.cancelled() and not is_upkeep(timer))
        return min(timers, default=FOREVER) - self.time()

    def bring_forward(self, seconds: float) -> None:
        """Let the timers that are not upkeep ring so much earlier."""
        self._later = [
            entry if is_upkeep(entry[2]) else (entry[0] - seconds, entry[1], entry[2]) for entry in self._later
        ]
        heapify(self._later)
        self.next_timer_at()

    def _refuse(self, what: str) -> NoReturn:
        scope = RUNNING_EFFECT.get()
        effect: str | None = getattr(scope, "effect", None)
        error = NotSimulated(
            f"{'code' if effect is None else f'effect {effect}'} {what}, and in a simulation there is nothing outside",
            hint=f"Stub it: hf.stub({(effect or 'effect').rpartition('.')[2]}, returns=...), or calls= with a fake; "
            "what it works with: hf.provide(resource, fake).",
        )
        self._on_fault(error)
        raise error


def _refused(name: str, what: str) -> None:
    def refuse(self: CalendarLoop, *args: Any, **kwargs: Any) -> NoReturn:  # noqa: ARG001
        self._refuse(what)

    refuse.__name__ = name
    setattr(CalendarLoop, name, refuse)


for _what, _names in {
    "calls a function in another thread": ("run_in_executor",),
    "looks up an address": ("getaddrinfo", "getnameinfo"),
    "opens a connection": (
        *("create_connection", "create_datagram_endpoint", "create_unix_connection", "connect_accepted_socket"),
        *("start_tls", "sock_connect", "sock_recv", "sock_recv_into", "sock_recvfrom", "sock_sendall", "sock_sendto"),
        *("sock_accept", "sock_sendfile", "sendfile", "add_reader", "add_writer"),
    ),
    "starts a server": ("create_server", "create_unix_server"),
    "starts a process": ("subprocess_exec", "subprocess_shell", "connect_read_pipe", "connect_write_pipe"),
    "handles signals of the process": ("add_signal_handler",),
}.items():
    for _name in _names:
        _refused(_name, _what)


def is_upkeep(timer: asyncio.Handle) -> bool:
    """Whether a timer belongs to the upkeep of a process, and not to a run, an effect or a caller."""
    context: Context = timer._context  # type: ignore[attr-defined] # noqa: SLF001
    return bool(context.get(UPKEEP))


def _make_task(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, Any],
    *,
    context: Context | None = None,
    **options: Any,
) -> asyncio.Task[Any]:
    """A task that knows whether it is one of the parts of a `Replica`, which work forever."""
    context = copy_context() if context is None else context
    context.run(UPKEEP.set, getattr(work, "__qualname__", "") == Replica._forever.__qualname__)  # noqa: SLF001
    return asyncio.Task(work, loop=loop, context=context, **options)


class CalendarClock(VirtualClock):
    """The clocks of a host, so far ahead of the world as the calendar was turned for it."""

    def __init__(self, now: Callable[[], float], ahead: Callable[[], float], turned_ms: Callable[[], Millis]) -> None:
        super().__init__(now)
        self._ahead = ahead
        self._turned_ms = turned_ms

    def wall_ms(self) -> Instant:
        return Instant(super().wall_ms() + self._turned_ms())

    def steady_ms(self) -> Steady:
        return Steady(super().steady_ms() + self._ahead() * 1000)


class CalendarHost(Host):
    """A process in a world with a calendar. That of the client goes with every jump."""

    def __init__(
        self, world: World, name: str, calendar: Calendar, *, is_client: bool, on_fault: Callable[[Exception], None]
    ) -> None:
        super().__init__(world, name, len(world.hosts) + 1)
        self.loop.close()
        self.is_client = is_client
        self.clock = CalendarClock(world.now, self._ahead, lambda: calendar.turned_ms)
        self.loop: CalendarLoop = CalendarLoop(world.now, on_fault)
        self.loop.ahead_seconds = calendar.turned_ms / 1000 if is_client else 0.0
        self.platform = replace(self.platform, clock=self.clock)
        self.attempts: dict[int, Any] = {}  # of effects that it performs now: they began as long ago as it was
        world.add(self)

    def _ahead(self) -> float:
        return self.loop.ahead_seconds

    def is_instance(self, instance: str) -> bool:
        """Whether a process of this name is this one."""
        return instance.startswith(f"{self.name}-{self.platform.pid}-")


class Calendar(Reliable):
    """The store's clock, and how it is turned. It observes the store, to know when something was last done."""

    def __init__(self, world: World) -> None:
        self.turned_ms = Millis(0)
        self.changed_at = 0.0  # when something was done, in seconds of the world
        self._world = world
        clock = CalendarClock(world.now, lambda: self.turned_ms / 1000, lambda: self.turned_ms)
        self.model = StoreModel(world, self, clock=clock)

    def applied(self, call: StoreCall, result: object) -> None:
        if call.verb == "commit" or (call.verb in {"claim", "rescue", "prune"} and _is_something(result)):
            self.changed_at = self._world.now()

    def now_ms(self) -> Instant:
        return self.model.inner.now_ms()

    @property
    def tables(self) -> Tables:
        """All that is stored. It is looked at from outside: no process of the world asks for it."""
        return self.model.inner.tables

    def _hosts(self) -> Iterator[CalendarHost]:
        return (host for host in self._world.hosts if isinstance(host, CalendarHost) and host.is_alive)

    def comes_next(self) -> Iterator[Instant]:
        """When something is due, in the past if it is now: runs, time limits, leases of the dead, timers."""
        tables, now_ms = self.tables, self.now_ms()
        for run_id in tables.waking:
            yield tables.runs[run_id].wake_at_ms or now_ms
        for document in tables.documents.values():
            if document.due_at_ms is not None and (document.expires_at_ms or now_ms + 1) > now_ms:
                yield document.due_at_ms
        held = {run.owner for run in tables.runs.values() if run.owner is not None}
        for owner, until_ms in tables.leases.items():
            if owner in held and not self._is_running(instance_of(owner)):
                yield until_ms
        for host in self._hosts():
            if host.is_running and (seconds := host.loop.next_timer_in()) != FOREVER:
                yield Instant(now_ms + max(0, ceil(seconds * 1000)))

    def expires_next(self) -> Instant | None:
        """When the retention of a run is over next."""
        runs = self.tables.runs.values()
        return min((run.expires_at_ms for run in runs if run.expires_at_ms is not None), default=None)

    def _is_running(self, instance: str) -> bool:
        return any(host.is_running and host.is_instance(instance) for host in self._hosts())

    def turn(self, jump_ms: Millis) -> None:
        """Let so much time pass in which nothing happens."""
        self.turned_ms = Millis(self.turned_ms + jump_ms)
        seconds = jump_ms / 1000
        for host in self._hosts():
            if host.is_client or not host.is_running:
                host.loop.ahead_seconds += seconds
                host.loop.next_timer_at()
            else:
                host.loop.bring_forward(seconds)
                for scope in host.attempts.values():
                    scope.began_steady_ms -= jump_ms
        tables = self.tables
        for owner, until_ms in tables.leases.items():
            if self._is_running(instance_of(owner)):
                tables.leases[owner] = Instant(until_ms + jump_ms)
        for place, document in tables.documents.items():
            if document.expires_at_ms is not None and self._is_kept_by_the_living(document):
                tables.documents[place] = replace(document, expires_at_ms=Instant(document.expires_at_ms + jump_ms))
        self.changed_at = self._world.now()
        self.model.tell_all(ANYTHING)

    def _is_kept_by_the_living(self, document: Document) -> bool:
        if document.kind == leaders.KIND:
            return self._is_running(leaders.holder_of(document).instance)
        return document.kind in ANNOUNCED and self._is_running(instance_of(document.id))


def _is_something(result: object) -> bool:
    return bool(getattr(result, "runs", result)) and not isinstance(result, Exception)

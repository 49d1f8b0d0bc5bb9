"""A simulation for tests: the real engine in virtual time, in the middle of any test that is async.

    async with Simulated(packs=[shop]) as hf:
        hf.stub(charge, returns="pay_1")
        run, _ = await hf.start(checkout("o-1"))
        assert await run.result() == "shipped"      # though it sleeps for 30 days on the way
        assert hf.ledger.count(charge) == 1

`hf` has the verbs of `Holdfast`. Behind it are workers, a client and a store in a world of their own, whose time passes
only while the test awaits something, and stretches in which nothing happens pass at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import datetime
from types import TracebackType
from typing import Any, NoReturn, Self, TypedDict, TypeVar, Unpack, cast, get_args

from msgspec import UNSET
from msgspec.structs import replace

from holdfast.assembly import Holdfast
from holdfast.client import Caller
from holdfast.engine.api.backend import Backend
from holdfast.engine.pace import Pace
from holdfast.errors import UsageError
from holdfast.events import Event
from holdfast.kernel.leases import instance_of
from holdfast.kernel.times import Instant
from holdfast.kernel.units import Duration, milliseconds, utc_of
from holdfast.pack import Effect, Pack
from holdfast.resources import Resource
from holdfast.testing.effect_ledger import EffectLedger
from holdfast.testing.simulation.bridge import Bridge, Pump
from holdfast.testing.simulation.calendar import Calendar, CalendarHost
from holdfast.testing.simulation.passing_time import PassingTime
from holdfast.testing.simulation.performing import EffectsOfWorld, FaultAt, FaultPlace, SimulatedPerformer
from holdfast.testing.simulation.world import World
from holdfast.testing.stubs import check_result, stub_of

R = TypeVar("R")
Fake = Callable[..., R] | Callable[..., Coroutine[Any, Any, R]]
_NOTHING: Any = UNSET
CLIENT_PACE = Pace(
    wake_poll_seconds=1e9,
    mail_poll_seconds=1e9,
    waiters_poll_seconds=1e9,
    tasks_poll_seconds=1e9,
    events_poll_seconds=1e9,
    code_seconds_max=0.0,
)
WORKER_PACE = Pace(code_seconds_max=0.0)  # there is no watchdog: it looks at the real clock


class SimulatedOptions(TypedDict, total=False):
    """The options of a `Holdfast` that a simulation passes on to its workers."""

    namespace: str
    lease: Duration
    concurrency: int
    strict: bool
    record_inputs: bool


class _NotEntered:
    """What the verbs ask before the simulation is entered."""

    def __getattr__(self, name: str) -> Any:
        raise UsageError("this simulation has not begun", hint="Write: async with Simulated(packs=[...]) as hf: ...")


class Simulated(Caller):
    """A Holdfast with `replicas` workers in virtual time, for tests. It has the verbs of `Holdfast`.

    `namespace`, `lease`, `concurrency`, `strict` and `record_inputs` mean what they mean there. It runs in whatever
    asyncio loop the test has. `seed` decides the ids, the jitter of retries and which process goes first: equal seeds
    give equal runs. Nothing outlives it, and nothing of it is seen by another simulation.
    """

    def __init__(
        self,
        packs: Iterable[Pack],
        *,
        replicas: int = 1,
        seed: int | str = 0,
        **options: Unpack[SimulatedOptions],
    ) -> None:
        if not isinstance(replicas, int) or isinstance(replicas, bool):
            raise UsageError(f"replicas={replicas!r:.60} is no number", hint="Use 1 or more.")
        if replicas < 1:
            raise UsageError(f"replicas={replicas} would execute nothing", hint="Use 1 or more.")
        if unknown := sorted(options.keys() - SimulatedOptions.__annotations__.keys()):
            raise UsageError(
                f"a simulation has no option {unknown[0]!r}",
                hint=f"It has {', '.join(SimulatedOptions.__annotations__)}, packs, replicas and seed.",
            )
        super().__init__(cast("Backend", cast("object", _NotEntered())))
        self.seed = seed
        self._packs = _checked(packs)
        self._options = options
        self._world = World(seed)
        self._calendar = Calendar(self._world)
        self._effects = EffectsOfWorld(self._calendar)
        self._resources: list[tuple[Resource[Any], object]] = []
        self._listeners: list[Callable[[Event], None]] = []
        self._client: CalendarHost | None = None
        self._workers: list[CalendarHost | None] = [None] * replicas
        self._performers: dict[CalendarHost, SimulatedPerformer] = {}
        self._time = PassingTime(
            self._world,
            self._calendar,
            self._effects.ledger,
            workers=self._workers,
            lease_ms=milliseconds(options.get("lease", "30s")),
        )
        self._pump: Pump | None = None
        self._is_over = False
        self._events_told = 0

    def __enter__(self) -> NoReturn:
        raise UsageError(
            "a simulation is entered by `async with`", hint="Write: async with Simulated(packs=[...]) as hf: ..."
        )

    def __exit__(self, *_: object) -> None:
        """There is nothing to leave: `with` is refused."""

    async def __aenter__(self) -> Self:
        if self._pump is not None:
            raise UsageError("this simulation has been used already", hint="Make a new one for each `async with`.")
        pump = self._pump = Pump(self._time)
        for number in range(len(self._workers)):
            self._workers[number] = self._boot(number)
        host = self._client = self._host("client", is_client=True)
        client = Holdfast(
            self._calendar.model.seen_from(host),
            packs=self._packs,
            worker=False,
            _pace=CLIENT_PACE,
            _platform=host.platform,
            **self._options,
        )
        client.listen(self._tell)
        await pump.ask(host, client.__aenter__())
        await pump.until(self._have_joined)
        self._service = cast("Backend", cast("object", Bridge(pump, host, client._service)))  # noqa: SLF001 - a Caller, too
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        if self._pump is not None:
            self._pump.close()
        self._world.close()

    # -- time

    @property
    def now(self) -> datetime:
        """The time in the simulation. It begins with the year 2026."""
        return utc_of(self._calendar.now_ms())

    async def advance(self, time: Duration) -> None:
        """Let this much time pass. What is due by then has been done when it returns."""
        at_ms = Instant(self._calendar.now_ms() + milliseconds(time))
        await self._pumped().until_ms(at_ms)

    async def until(self, condition: Callable[[], object]) -> None:
        """Let time pass until the condition is true: `await hf.until(lambda: hf.ledger.count(charge))`.

        It may be async; then it is asked again whenever something has happened. Raises `SimulationStuck` if it never
        will be true.
        """
        if not callable(condition):
            raise UsageError(
                f"until({condition!r:.60}) cannot ask again", hint="Pass a function: hf.until(lambda: ...)."
            )
        pump = self._pumped()
        found = condition()
        if not inspect.isawaitable(found):
            await pump.until(condition)
            return
        while True:
            seen = self._events_told
            if await found:
                return
            await pump.until(lambda seen=seen: self._events_told != seen)
            found = cast("Awaitable[object]", condition())

    # -- effects

    @property
    def ledger(self) -> EffectLedger:
        """What effects did, attempt by attempt."""
        return self._effects.ledger

    def stub(
        self,
        effect: Effect[..., R],
        *,
        returns: R = _NOTHING,
        fails: int | BaseException | type[BaseException] | None = None,
        then: R = _NOTHING,
        loses_reply: bool | int = False,
        latency: Duration | None = None,
        calls: Fake[R] | None = None,
    ) -> None:
        """Say what an effect does, in this simulation alone: its own function is not called.

        `returns` is what it returns; `calls` is a function that is called instead, with the same arguments. `fails=2`
        lets the first two attempts under each key fail; an error lets all fail, or the first one if `then` says what
        the others return. With `loses_reply` it happens, and the first reply under each key is lost, as when a
        connection breaks at the wrong moment: an effect with `safety="once"` then has an unknown outcome. `latency`
        is how long it takes. Where nothing says what comes back, the effect's own function is called.
        """
        made = stub_of(
            effect, returns=returns, then=then, fails=fails, loses_reply=loses_reply, latency=latency, calls=calls
        )
        name = self._name_of_effect(effect)
        for value in (returns, then):
            check_result(effect, value)
        self._effects.stubs[name] = made

    def provide(self, resource: Resource[R], value: R) -> None:
        """Let effects that use this resource get `value`: it is neither opened nor closed. Say it before they begin."""
        self._resources.append((resource, value))
        for host in self._workers:
            if host is not None and (performer := self._performers.get(host)) is not None:
                performer.provide(resource, value)

    # -- faults

    async def kill(self, worker: int | None = None) -> None:
        """End a worker as kill -9 does, in the middle of whatever it does; one that holds runs, unless it is named.

        Its runs wait for its lease to expire, and for another worker: `restart()` starts it again.
        """
        self._kill(self._chosen(worker))

    def kill_at(self, effect: Effect[..., Any], when: FaultPlace = "after", *, restart: bool = True) -> None:
        """Kill the worker that performs this effect next: `before` it, or `after` it happened and before its record.

        With `restart`, a new worker takes its place at once, as where a supervisor looks after processes.
        """
        _check_place(when)

        def strike(host: CalendarHost) -> None:
            self._kill(host)
            if restart:
                self._start_missing()

        self._effects.faults.append(FaultAt(self._name_of_effect(effect), when, strike))

    async def restart(self) -> None:
        """Start every worker again that was killed; they have joined when it returns."""
        self._start_missing()
        await self._pumped().until(self._have_joined)

    async def pause(self, worker: int | None = None) -> None:
        """Let a worker stand still as SIGSTOP does: its clocks go on, and its lease expires; see `unpause`."""
        self._chosen(worker).stop()
        self._touch()

    def pause_at(self, effect: Effect[..., Any], when: FaultPlace = "after") -> None:
        """Let the worker stand still that performs this effect next: `before` it, or `after` it has happened."""
        _check_place(when)
        self._effects.faults.append(FaultAt(self._name_of_effect(effect), when, CalendarHost.stop))

    async def unpause(self) -> None:
        """Let every worker go on that was paused."""
        for host in self._workers:
            if host is not None:
                host.go_on()
        self._touch()

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Be told every event of every process of the simulation (see `holdfast.events`)."""
        self._listeners.append(listener)

    # -- processes

    def _host(self, name: str, *, is_client: bool = False) -> CalendarHost:
        return CalendarHost(self._world, name, self._calendar, is_client=is_client, on_fault=self._time.note_fault)

    def _boot(self, number: int) -> CalendarHost:
        host = self._host(f"worker-{number}")

        def performer(**options: Any) -> SimulatedPerformer:
            made = self._performers[host] = SimulatedPerformer(self._effects, host, **options)
            for resource, value in self._resources:
                made.provide(resource, value)
            return made

        platform = replace(host.platform, performer=performer)
        hf = Holdfast(
            self._calendar.model.seen_from(host),
            packs=self._packs,
            _pace=WORKER_PACE,
            _platform=platform,
            **self._options,
        )
        hf.listen(self._tell)
        host.spawn(hf.__aenter__())
        return host

    def _start_missing(self) -> None:
        self._touch()
        for number, host in enumerate(self._workers):
            if host is not None and not host.is_alive:
                self._workers[number] = self._boot(number)

    def _kill(self, host: CalendarHost) -> None:
        host.kill()
        self._effects.lose_calls_of(host)
        self._touch()

    def _chosen(self, worker: int | None) -> CalendarHost:
        self._pumped()  # or there is none to be chosen
        if worker is not None:
            if not 0 <= worker < len(self._workers):
                raise UsageError(f"there is no worker {worker}", hint=f"There are {len(self._workers)}, from 0.")
            host = self._workers[worker]
            if host is None or not host.is_running:
                raise UsageError(f"worker {worker} does not run", hint="It was killed or paused before.")
            return host
        running = [host for host in self._workers if host is not None and host.is_running]
        if not running:
            raise UsageError("no worker runs", hint="All were killed or paused: restart() or unpause() them.")
        return max(running, key=self._runs_held_by)

    def _runs_held_by(self, host: CalendarHost) -> int:
        owners = [run.owner for run in self._calendar.tables.runs.values() if run.owner is not None]
        return sum(map(host.is_instance, owners))

    def _have_joined(self) -> bool:
        """Whether every worker that runs has a lease."""
        instances = [instance_of(owner) for owner in self._calendar.tables.leases]
        return all(any(map(host.is_instance, instances)) for host in self._workers if host and host.is_running)

    def _tell(self, event: Event) -> None:
        self._events_told += 1
        for listener in self._listeners:
            listener(event)

    def _touch(self) -> None:
        self._calendar.changed_at = self._world.now()

    def _pumped(self) -> Pump:
        if self._pump is None:
            raise UsageError(
                "this simulation has not begun", hint="Write: async with Simulated(packs=[...]) as hf: ..."
            )
        if self._is_over:
            raise UsageError("this simulation is over", hint="Ask within its `async with`.")
        return self._pump

    def _name_of_effect(self, effect: Effect[..., Any]) -> str:
        if not isinstance(effect, Effect):
            raise UsageError(f"{effect!r:.60} is not an effect", hint="Pass what @pack.effect returned.")
        known = {name for pack in self._packs for name in pack.effects}
        if effect.name not in known:
            raise UsageError(
                f"effect {effect.name!r} is in none of the packs of this simulation",
                hint=f"Its packs are {', '.join(pack.name for pack in self._packs) or 'none'}: Simulated(packs=[...]).",
            )
        return effect.name


def _checked(packs: Iterable[Pack]) -> tuple[Pack, ...]:
    if isinstance(packs, Pack) or not isinstance(packs, Iterable):
        raise UsageError(f"packs={packs!r:.60} is no list", hint="Write Simulated(packs=[shop]).")
    given = tuple(packs)
    for each in given:
        if not isinstance(each, Pack):
            raise UsageError(f"{each!r:.60} is no pack", hint="Write Simulated(packs=[shop]).")
    return given


def _check_place(when: FaultPlace) -> None:
    if when not in get_args(FaultPlace):
        raise UsageError(f"{when!r:.60} is no place of an effect", hint='Use "before" or "after".')


__all__ = ["Simulated", "SimulatedOptions"]

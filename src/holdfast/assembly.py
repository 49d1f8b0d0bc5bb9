"""The composition root: a URL and packs become a running Holdfast. Alone in naming adapters."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypedDict, Unpack, cast
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from holdfast.adapters.machine import SystemClock, SystemIds
from holdfast.adapters.payloads import PAYLOAD_MAX, JsonCodec
from holdfast.client import Caller
from holdfast.config import REDIS_SCHEMES, shown
from holdfast.engine.api.apikeys import ApiKeys
from holdfast.engine.api.registry import Registry
from holdfast.engine.bulk_pack import pack as bulk_pack
from holdfast.engine.pace import Pace
from holdfast.engine.ports import Ports
from holdfast.engine.replica import Replica
from holdfast.engine.runs.performer import Performer
from holdfast.engine.runs.threads import DaemonThreads
from holdfast.errors import InvalidConfig
from holdfast.events import Event, Events
from holdfast.kernel.journal import Value
from holdfast.kernel.keys import checked
from holdfast.kernel.leases import checked_ttl
from holdfast.kernel.units import Duration, milliseconds
from holdfast.pack import Pack
from holdfast.ports.bus import Bus
from holdfast.ports.clock import Clock
from holdfast.ports.ids import Ids
from holdfast.ports.seal import Seal, Sealed
from holdfast.ports.store import Serves, Store
from holdfast.runtime import Runtime
from holdfast.telemetry import logs

if TYPE_CHECKING:  # loaded where it is used; what OpenTelemetry and Prometheus need is not part of the core install
    from opentelemetry.trace import TracerProvider

    from holdfast.blocking import Blocking
    from holdfast.telemetry.metrics import Metrics
    from holdfast.telemetry.traces import Traces


__all__ = [
    "Holdfast",
    "Options",
    "Seal",
    "Sealed",
]


def open_store(url: str, *, clock: Clock, ids: Ids, bus: str | Bus | None = None) -> tuple[Store, Bus | None]:
    """The store that a URL names, and the bus that carries its notices if it needs one."""
    scheme = urlsplit(url).scheme
    if scheme in REDIS_SCHEMES:
        return _redis(url, clock=clock, ids=ids, bus=bus)
    if bus is not None:
        raise InvalidConfig(
            f"{scheme}: stores need no bus: their processes hear of each other without one",
            hint="Leave bus= out, or use redis://... for replicas on many machines.",
        )
    match scheme:
        case "memory":
            from holdfast.stores.memory import MemoryStore  # noqa: PLC0415 - only what is used is loaded

            return MemoryStore(clock=clock), None
        case "sqlite":
            from holdfast.stores.sqlite import SqliteStore  # noqa: PLC0415
            from holdfast.stores.sqlite.files import path_of  # noqa: PLC0415

            return SqliteStore(path_of(url), clock=clock), None
        case scheme:
            raise InvalidConfig(
                f"{shown(url)!r} names no store that Holdfast knows ({scheme or 'no scheme'})",
                hint="Use sqlite:///file.db, redis://host:6379 or memory://.",
            )


def file_of(url: str) -> Path | None:
    """The file in which the store of this URL lives; None if it lives in none."""
    if urlsplit(url).scheme != "sqlite":
        return None
    from holdfast.stores.sqlite.files import path_of  # noqa: PLC0415 - only what is used is loaded

    return path_of(url)


def _redis(url: str, *, clock: Clock, ids: Ids, bus: str | Bus | None) -> tuple[Store, Bus]:
    try:
        from holdfast.stores.redis import RedisStore  # noqa: PLC0415 - only what is used is loaded
        from holdfast.stores.redis.net import urls  # noqa: PLC0415
        from holdfast.stores.redis.net.pubsub import PubSub  # noqa: PLC0415
    except ImportError as error:
        raise InvalidConfig(
            f"the store on Redis needs {error.name}", hint="Install holdfast[redis]; with NATS as the bus, also [nats]."
        ) from error
    parsed = urls.parse(url)
    if bus is None:
        carrier: Bus = PubSub(parsed, clock=clock, ids=ids)
    else:
        carrier = _nats(bus, name=parsed.name, clock=clock, ids=ids) if isinstance(bus, str) else bus
    return RedisStore(parsed, clock=clock, bus=carrier), carrier


def sealed_store(store: Store, seal: Seal) -> tuple[Store, Callable[[Value], bytes]]:
    """`store` behind one that seals payloads, and what opens those that come out sealed."""
    from holdfast.stores.sealed import SealedStore  # noqa: PLC0415 - only what is used is loaded

    sealed = SealedStore(store, seal)
    return cast("Store", cast("object", sealed)), sealed.open_inline


def _given(store: Store, bus: str | Bus | None) -> tuple[Store, None]:
    if bus is not None:
        raise InvalidConfig(
            "a store of your own has its own ways to tell others", hint="Pass bus= to the store instead."
        )
    return store, None


def _nats(url: str, *, name: str, clock: Clock, ids: Ids) -> Bus:
    try:
        from holdfast.buses.nats import NatsBus  # noqa: PLC0415 - only what is used is loaded
    except ImportError as error:
        raise InvalidConfig(f"the bus on NATS needs {error.name}", hint="Install holdfast[nats].") from error
    return NatsBus(url, name=name, clock=clock, ids=ids)


class Options(TypedDict, total=False):
    """The options of a `Holdfast`, but `worker`."""

    packs: Iterable[Pack]
    duties: bool | None
    bus: str | Bus | None
    namespace: str
    lease: Duration
    concurrency: int
    queues: Collection[str] | None
    strict: bool | None
    traces: TracerProvider | None
    record_inputs: bool
    busy_limit: Duration | None
    seal: Seal | None


class Machine(Struct, frozen=True, kw_only=True):
    """What one Holdfast stands on: who it is, its clocks, its chance, its threads and what performs its effects.

    A simulation passes another.
    """

    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=SystemIds)
    threads: type[DaemonThreads] = DaemonThreads
    performer: Callable[..., Performer] = Performer


class Holdfast(Caller):
    """A store, the packs that run on it, and the verbs to use them.

    With `worker=True` it executes runs in this process; with `worker=False` it is a client only. With `duties=True` it
    is a candidate for what one process does for all, such as freeing the runs of dead workers; left out, it is one if
    it is a worker. `lease` bounds how long a dead process's work waits for another one. `concurrency` bounds how many
    runs and effects are at work here. A worker serves all queues unless `queues` names some. With `strict=True` (or
    HOLDFAST_STRICT=1), as in tests, a cancellation that ends in a way its workflow does not declare raises, and a call
    that a workflow does not await blocks its run. A store of your own may be passed in place of a URL. `bus` is where
    replicas on Redis tell each other what has changed: nats://host:4222, several servers with commas between them; left
    out, Redis itself carries it. `traces` is an OpenTelemetry tracer provider: runs and the attempts of their effects
    become spans. With `record_inputs=True` the arguments of effects are recorded with what came of them, unless their
    workflow says otherwise. `busy_limit` bounds how long the code of a workflow may compute without an await before it
    is interrupted and its run is blocked: 2 seconds of the processor's time, unless it says otherwise; 0 means that it
    never is. `seal` encrypts payloads at rest: every process that works on the store needs it.
    """

    def __init__(
        self,
        url: str | Store,
        *,
        packs: Iterable[Pack] = (),
        worker: bool = True,
        duties: bool | None = None,
        bus: str | Bus | None = None,
        namespace: str = "default",
        lease: Duration = "30s",
        concurrency: int = 200,
        queues: Collection[str] | None = None,
        strict: bool | None = None,
        traces: TracerProvider | None = None,
        record_inputs: bool = False,
        busy_limit: Duration | None = None,
        seal: Seal | None = None,
        _pace: Pace | None = None,
        _machine: Machine | None = None,
    ) -> None:
        if concurrency < 1:
            raise InvalidConfig(
                f"concurrency={concurrency} would run nothing", hint="Use 1 or more; 200 is the default."
            )
        machine = _machine or Machine()
        clock, ids, host, pid = machine.clock, machine.ids, machine.host, machine.pid
        instance = f"{host}-{pid}-{ids.nonce()[:4]}"
        tracing = None if traces is None else _tracing(traces)
        store, carrier = open_store(url, clock=clock, ids=ids, bus=bus) if isinstance(url, str) else _given(url, bus)
        open_value: Callable[[Value], bytes] | None = None
        if seal is not None:
            store, open_value = sealed_store(store, seal)
        self._events = Events()
        ports = Ports(
            store=store,
            clock=clock,
            ids=ids,
            codec=JsonCodec(limit=_payload_max()),
            emit=self._events,
            pace=_paced(_pace or Pace(), busy_limit),
            tracing=tracing,
            open_value=open_value,
            threads=machine.threads,
            performer=machine.performer,
        )
        self._now_ms = ports.store.now_ms
        self._metrics: Metrics | None = None
        logs.configure()
        self._events.listen(logs.log_events(instance))
        if tracing is not None:
            self._events.listen(tracing)
        registry = Registry(packs, codec=ports.codec, queues=queues, own=(bulk_pack,))
        self._replica = Replica(
            ports,
            registry,
            serves=Serves(checked(namespace), registry.served, host, pid, concurrency),
            worker=worker,
            duties=worker if duties is None else duties,
            instance=instance,
            lease_ms=checked_ttl(milliseconds(lease)),
            strict=os.environ.get("HOLDFAST_STRICT", "") not in {"", "0"} if strict is None else strict,
            record_inputs=record_inputs,
        )
        self.api_keys: ApiKeys = self._replica.api_keys
        self._runtime = Runtime(self._replica, bus=carrier, events=self._events, instance=instance)
        super().__init__(self._replica.service)

    @staticmethod
    def blocking(url: str, *, worker: bool = True, **options: Unpack[Options]) -> Blocking:
        """The same verbs for code that is not async: `with Holdfast.blocking(url, packs=[shop]) as hf: ...`.

        As a `Holdfast` does, it executes runs of its packs, in a thread of its own; with `worker=False` it is a client.
        """
        from holdfast.blocking import Blocking  # noqa: PLC0415 - only what is used is loaded

        return Blocking(lambda: Holdfast(url, worker=worker, **options))

    def namespaced(self, namespace: str) -> Caller:
        """The same verbs on the runs of another namespace of the same store.

        What they start is not executed here: that takes a worker of that namespace.
        """
        return Caller(self._replica.service_in(checked(namespace)))

    @property
    def runtime(self) -> Runtime:
        """This Holdfast as a process, for what is built on it: gateways, dashboards, middleware, probes."""
        return self._runtime

    async def __aenter__(self) -> Self:
        await self._replica.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._replica.stop()

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Be told every event of this process (see `holdfast.events`). Returns a function that stops it."""
        return self._events.listen(listener)

    def metrics(self) -> Metrics:
        """What this process does, for Prometheus; counted from the first call on. See `Metrics.render`."""
        if self._metrics is None:
            from holdfast.telemetry.metrics import Metrics  # noqa: PLC0415 - only what is used is loaded

            self._metrics = Metrics(self._runtime, instance=self._runtime.instance, now_ms=self._now_ms)
            self._events.listen(self._metrics)
        return self._metrics

    async def serve(self, *, on_ready: Callable[[], None] | None = None) -> None:
        """Work until SIGTERM or SIGINT asks this process to stop. Leaving the `async with` then stops it in order.

        A second signal does not hurry it: the stop is bounded anyway. `on_ready` is called as soon as a signal would
        stop this process in order, and not end it where it stands.
        """
        asked = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, asked.set)
        if on_ready is not None:
            on_ready()
        await asked.wait()


def _tracing(provider: TracerProvider) -> Traces:
    from holdfast.telemetry.traces import Traces  # noqa: PLC0415 - only what is used is loaded

    return Traces(provider)


def _payload_max() -> int:
    text = os.environ.get("HOLDFAST_PAYLOAD_MAX", "")
    if not text:
        return PAYLOAD_MAX
    if not text.isdigit() or int(text) < 1:
        raise InvalidConfig(
            f"HOLDFAST_PAYLOAD_MAX={text!r} is not a number of bytes", hint="Use, for example, 33554432."
        )
    return int(text)


def _paced(pace: Pace, busy_limit: Duration | None) -> Pace:
    return pace if busy_limit is None else replace(pace, code_seconds_max=milliseconds(busy_limit) / 1000)

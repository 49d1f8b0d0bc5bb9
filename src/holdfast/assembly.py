"""The composition root: a URL and packs become a running Holdfast. Alone in naming adapters."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Collection, Iterable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from holdfast.adapters.machine import SystemClock, SystemIds
from holdfast.adapters.payloads import PAYLOAD_MAX, JsonCodec
from holdfast.client import Caller
from holdfast.engine.events import Event, Events
from holdfast.engine.registry import Registry
from holdfast.engine.replica import Ports, Replica
from holdfast.errors import InvalidConfig
from holdfast.kernel.keys import checked
from holdfast.kernel.leases import checked_ttl
from holdfast.kernel.units import Duration, milliseconds
from holdfast.pack import Pack
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store
from holdfast.telemetry import logs


def open_store(url: str, clock: Clock) -> Store:
    """The store that a URL names."""
    match urlsplit(url).scheme:
        case "memory":
            from holdfast.stores.memory import MemoryStore  # noqa: PLC0415 - only what is used is loaded

            return MemoryStore(clock=clock)
        case "sqlite":
            from holdfast.stores.sqlite import SqliteStore  # noqa: PLC0415
            from holdfast.stores.sqlite.files import path_of  # noqa: PLC0415

            return SqliteStore(path_of(url), clock=clock)
        case scheme:
            raise InvalidConfig(
                f"{url!r} names no store that Holdfast knows ({scheme or 'no scheme'})",
                hint="Use sqlite:///file.db or memory://.",
            )


class Holdfast(Caller):
    """A store, the packs that run on it, and the verbs to use them.

    With `worker=True` it executes runs in this process; with `worker=False` it is a client only. `lease` bounds how
    long a dead process's work waits for another one. `concurrency` bounds how many runs and effects are at work here.
    A worker serves all queues unless `queues` names some. With `strict=True` (or HOLDFAST_STRICT=1), as in tests, a
    cancellation that ends in a way its workflow does not declare raises. A store of your own may be passed in place
    of a URL.
    """

    def __init__(
        self,
        url: str | Store,
        *,
        packs: Iterable[Pack] = (),
        worker: bool = True,
        namespace: str = "default",
        lease: Duration = "30s",
        concurrency: int = 200,
        queues: Collection[str] | None = None,
        strict: bool | None = None,
    ) -> None:
        if concurrency < 1:
            raise InvalidConfig(
                f"concurrency={concurrency} would run nothing", hint="Use 1 or more; 200 is the default."
            )
        clock = SystemClock()
        ports = Ports(
            store=open_store(url, clock) if isinstance(url, str) else url,
            clock=clock,
            ids=SystemIds(),
            codec=JsonCodec(limit=_payload_max()),
        )
        self._events = Events()
        logs.configure()
        self._events.listen(logs.log_events)
        self._replica = Replica(
            ports,
            Registry(packs, codec=ports.codec, queues=queues),
            emit=self._events,
            namespace=checked(namespace),
            worker=worker,
            lease_ms=checked_ttl(milliseconds(lease)),
            concurrency=concurrency,
            strict=os.environ.get("HOLDFAST_STRICT", "") not in {"", "0"} if strict is None else strict,
        )
        super().__init__(self._replica.service)

    async def __aenter__(self) -> Self:
        await self._replica.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._replica.stop()

    def listen(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Be told every event of this process (see `holdfast.engine.events`); the answer stops it."""
        return self._events.listen(listener)

    async def serve(self) -> None:
        """Work until SIGTERM or SIGINT asks this process to stop. Leaving the `async with` then stops it in order.

        A second signal does not hurry it: the stop is bounded anyway.
        """
        asked = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, asked.set)
        await asked.wait()


def _payload_max() -> int:
    text = os.environ.get("HOLDFAST_PAYLOAD_MAX", "")
    if not text:
        return PAYLOAD_MAX
    if not text.isdigit() or int(text) < 1:
        raise InvalidConfig(
            f"HOLDFAST_PAYLOAD_MAX={text!r} is not a number of bytes", hint="Use, for example, 33554432."
        )
    return int(text)

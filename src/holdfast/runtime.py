"""What is built on a `Holdfast` needs: gateways, dashboards, middleware, probes and metrics. See `Holdfast.runtime`.

The verbs of `Holdfast` are for code that starts runs and asks about them. What is here is about the process itself: its
store and its bus, the lease under which it works, the duties that it leads, and small records beside the runs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.engine import announcements
from holdfast.engine.api.apikeys import ApiKeys
from holdfast.engine.api.documents import COMMON, Documents
from holdfast.engine.api.rate_limits import RateLimits
from holdfast.engine.duties import hangs
from holdfast.engine.duties.leaders import DUTIES, leaders_of
from holdfast.engine.remote.tasks import Tasks
from holdfast.events import Event, Events
from holdfast.kernel.apikeys import ApiKey, Scope
from holdfast.kernel.keys import checked
from holdfast.ports.bus import Bus
from holdfast.ports.store import Backlog, Finding, Member, Store

if TYPE_CHECKING:
    from holdfast.engine.replica import Replica

__all__ = [
    "ApiKey",
    "ApiKeys",
    "Bus",
    "Documents",
    "Finding",
    "RateLimits",
    "Runtime",
    "Scope",
    "Store",
    "Tasks",
]

CHANGES_SECONDS = 15.0  # a notice may be lost: then those who watch for any change look again after this time


class Runtime:
    """One `Holdfast` as a process: what a gateway, a dashboard or a middleware needs besides the verbs."""

    def __init__(self, replica: Replica, *, bus: Bus | None, events: Events, instance: str) -> None:
        self._replica = replica
        self._queries = replica.service.queries
        self._namespace = replica.service.namespace
        self._bus = bus
        self._events = events
        self._instance = instance

    @property
    def instance(self) -> str:
        """The name of this `Holdfast` in logs, metrics and leases."""
        return self._instance

    @property
    def store(self) -> Store:
        """Where the runs live."""
        return self._replica.store

    @property
    def bus(self) -> Bus | None:
        """What carries the store's notices to other processes; None if they need none."""
        return self._bus

    @property
    def poll_reason(self) -> str:
        """Why this process has to look for what others commit; empty if they tell it."""
        return self.store.poll_reason

    @property
    def documents(self) -> Documents:
        """Small records beside the runs of this namespace."""
        return self._replica.documents_in(self._namespace)

    @property
    def common_documents(self) -> Documents:
        """Small records that belong to no namespace: all of them share these."""
        return self._replica.documents_in(COMMON)

    def documents_in(self, namespace: str) -> Documents:
        """Small records beside the runs of a namespace."""
        return self._replica.documents_in(checked(namespace))

    def tasks_in(self, namespace: str) -> Tasks:
        """The verbs of remote workers, on the tasks of a namespace: claim, heartbeat, complete, fail."""
        return self._replica.tasks_in(checked(namespace))

    async def hook_schema(self, run_id: str, hook: str) -> dict[str, Any] | None:
        """The JSON Schema of what an open hook of a run takes; None if nothing is known about it."""
        known = await self.store.hook(run_id, hook)
        return None if known is None or known.schema is None else msgspec.json.decode(known.schema)

    def result_schema(self, effect: str) -> dict[str, Any] | None:
        """The JSON Schema of what an effect returns; None if it is not defined here, or its type has none."""
        return self._replica.service.registry.result_schema_of_effect(effect)

    @property
    def owner(self) -> str | None:
        """The name under which this process holds runs; None if it executes none."""
        return self._replica.lease.owner if self._replica.lease else None

    @property
    def lease_reliable(self) -> bool | None:
        """Whether this process may begin work under its lease; None if it executes none."""
        return self._replica.lease.is_reliable() if self._replica.lease else None

    @property
    def duties_led(self) -> dict[str, bool]:
        """For each duty that this process is a candidate for, whether it leads it at this moment."""
        return self._replica.leaders.led if self._replica.leaders else {}

    async def leaders(self) -> dict[str, str | None]:
        """Which process leads each duty, by its `instance`; None if no process does."""
        return await leaders_of(self.store, DUTIES)

    @property
    def limits(self) -> RateLimits:
        """What gateways and `limit` count with."""
        return self._replica.limits

    @property
    def limits_by_itself(self) -> bool:
        """Whether the store does not count limits, so that this process does, to its share."""
        return self._replica.limits.is_away

    @property
    def threads_given_up(self) -> int:
        """How many threads of this process still run sync effects that no run waits for any more."""
        return self._replica.threads_given_up

    async def workers(self) -> list[Member]:
        """The live workers of this namespace, in the order in which they joined."""
        return await self._queries.members()

    async def backlog(self) -> Backlog:
        """How much there is to do in this namespace."""
        return await self._queries.backlog()

    async def inspect(self) -> tuple[Finding, ...]:
        """Whether the store can keep its promises, by settings, room, clock and schema.

        Besides, whether threads hang, and whether runs wait for a version that no worker serves.
        """
        workers = await self.workers()
        of_bus = () if self._bus is None else await self._bus.inspect()
        return (
            *await self.store.inspect(),
            *of_bus,
            await hangs.found_in(self.store, self._namespace, workers),
            await announcements.found_in(self.store, self._namespace, workers),
        )

    async def changes(self) -> AsyncIterator[None]:
        """Yields when something in the store may have changed, here or in another process; at once the first time.

        Changes that happen before the next one is asked for are yielded as one.
        """
        with self._replica.subscriptions.following_anything() as changed:
            while True:
                changed.clear()
                yield
                with contextlib.suppress(TimeoutError):  # a notice may be lost
                    async with asyncio.timeout(CHANGES_SECONDS):
                        await changed.wait()

    def emit(self, event: Event) -> None:
        """Tell all listeners of this `Holdfast` that something happened."""
        self._events.emit(event)

    def wind_down(self) -> None:
        """Begin nothing more; what is under way has ten seconds from now on. Leaving the `async with` stops the rest.

        For a process that has to close something else first, such as a gateway.
        """
        self._replica.wind_down()

"""The way from a host to the store and back: slow, lossy, late; and what the store model is like behind it.

A call of a store is a message. What becomes of it, a `Fate` decides:

    fate                  the store                        the caller
    ────────────────────  ───────────────────────────────  ──────────────────────────────────────────────
    `Fate(there, back)`   applies it after `there`         gets the reply after `back` more
    `reply_lost=True`     applies it after `there`         is told that the store is unavailable, in time
    `call_lost=True`      never sees it                    the same
    `there` > the limit   applies it, late                 the same, before it was applied

What was sent arrives, whatever became of the sender. Notices are hints, and travel by a bus that may lose them, delay
them and deliver them twice.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, cast

from holdfast.errors import StoreUnavailable
from holdfast.kernel.runs import Run
from holdfast.kernel.times import Instant
from holdfast.ports.notices import NOTHING, Notice
from holdfast.ports.store import Batches, Store
from holdfast.stores.memory import MemoryStore
from holdfast.testing.simulation.hosts import Host, VirtualClock
from holdfast.testing.simulation.notices import notice_of
from holdfast.testing.simulation.world import World

LIMIT_SECONDS = 5.0  # for the reply of a call, unless a model says otherwise


class Fate(NamedTuple):
    """What becomes of one call."""

    there: float = 0.0
    back: float = 0.0
    call_lost: bool = False
    reply_lost: bool = False


class StoreCall(NamedTuple):
    """A call of a store, as it is sent."""

    host: Host
    verb: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Observer(Protocol):
    """Is told what the store was asked for, and what it did. It may kill hosts, and say what becomes of calls."""

    def fate(self, call: StoreCall) -> Fate: ...
    def notice(self, host: Host, notice: Notice) -> tuple[float, ...]:
        """After how many seconds a notice arrives at this host: once for each; never, if there are none."""
        ...

    def applied(self, call: StoreCall, result: object) -> None: ...
    def replied(self, call: StoreCall) -> None: ...


class Reliable:
    """Nothing is lost, and nothing takes time."""

    def fate(self, call: StoreCall) -> Fate:  # noqa: ARG002
        return Fate()

    def notice(self, host: Host, notice: Notice) -> tuple[float, ...]:  # noqa: ARG002
        return (0.0,)

    def applied(self, call: StoreCall, result: object) -> None: ...
    def replied(self, call: StoreCall) -> None: ...


class StoreModel:
    """One store of the world, and the ways to it."""

    def __init__(
        self,
        world: World,
        observer: Observer | None = None,
        *,
        clock: VirtualClock | None = None,
        limit_seconds: float = LIMIT_SECONDS,
    ) -> None:
        self.world = world
        self.observer: Observer = observer or Reliable()
        self.limit_seconds = limit_seconds
        self.clock = clock or VirtualClock(world.now)
        self.inner = MemoryStore(clock=self.clock)
        self._watchers: list[tuple[Host, Callable[[Notice], bool]]] = []

    def seen_from(self, host: Host) -> Store:
        """The store, as this host knows it."""
        return cast("Store", cast("object", HostStore(self, host)))

    def send(self, call: StoreCall, reply: asyncio.Future[Any]) -> None:
        """Put a call on its way."""
        fate = self.observer.fate(call)
        world = self.world
        if fate.call_lost or fate.reply_lost or fate.there + fate.back > self.limit_seconds:
            self.give_up_on(call, reply)
        if not fate.call_lost:
            world.after(fate.there, partial(self._apply, call, reply, fate))

    def give_up_on(self, call: StoreCall, reply: asyncio.Future[Any]) -> None:
        """Tell the caller, in time, that there was no reply."""
        seconds = self.limit_seconds
        self.world.after(seconds, lambda: call.host.deliver(lambda: _fail(reply, call.verb, seconds)))

    def apply_late(self, call: StoreCall) -> None:
        """A call arrives that was held up on its way. Its sender does not wait for the reply any more."""
        self._apply(call, asyncio.Future(loop=call.host.loop), Fate(reply_lost=True))

    def _apply(self, call: StoreCall, reply: asyncio.Future[Any], fate: Fate) -> None:
        try:
            result, error = _result_of(getattr(self.inner, call.verb)(*call.args, **call.kwargs)), None
        except Exception as raised:  # noqa: BLE001 - it belongs to the caller
            result, error = None, raised
        self.observer.applied(call, result if error is None else error)
        if error is None:
            self._tell_others(call.host, notice_of(call.verb, call.args, result, self._rows))
        if not fate.reply_lost and fate.there + fate.back <= self.limit_seconds:
            self.world.after(fate.back, partial(self._reply, call, reply, result, error))

    def _reply(self, call: StoreCall, reply: asyncio.Future[Any], result: object, error: Exception | None) -> None:
        self.observer.replied(call)
        call.host.deliver(_settle, reply, result, error)

    def watch(self, host: Host, on_notice: Callable[[Notice], bool]) -> None:
        """Deliver notices to this host."""
        self._watchers.append((host, on_notice))

    def tell_all(self, notice: Notice) -> None:
        """Deliver a notice to every host that watches."""
        for host, on_notice in self._watchers:
            if host.is_alive:
                self._tell(host, on_notice, notice)

    def _rows(self, run_ids: Sequence[str]) -> list[Run]:
        return cast("list[Run]", _result_of(self.inner.runs(run_ids)))

    def _tell_others(self, sender: Host, notice: Notice) -> None:
        if notice is not NOTHING and notice != NOTHING:
            for host, on_notice in self._watchers:
                if host is not sender and host.is_alive:
                    self._tell(host, on_notice, notice)

    def _tell(self, host: Host, on_notice: Callable[[Notice], bool], notice: Notice) -> None:
        for seconds in self.observer.notice(host, notice):
            self.world.after(seconds, partial(host.deliver, on_notice, notice))


class HostStore:
    """Sends every verb of the store as a call."""

    caution = ""
    poll_reason = ""

    def __init__(self, model: StoreModel, host: Host) -> None:
        self._model = model
        self._host = host

    @property
    def batches(self) -> Batches:
        return self._model.inner.batches

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    def now_ms(self) -> Instant:
        return self._model.inner.now_ms()

    def id_for(self, run_id: str, *, namespace: str, workflow: str, key: str | None, lane: str = "") -> str:
        return self._model.inner.id_for(run_id, namespace=namespace, workflow=workflow, key=key, lane=lane)

    def watch(self, on_notice: Callable[[Notice], bool]) -> None:
        self._model.watch(self._host, on_notice)


def _sent(verb: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def send(self: HostStore, *args: Any, **kwargs: Any) -> Any:
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._model.send(StoreCall(self._host, verb, args, kwargs), reply)
        return await reply

    return send


VERBS = tuple(
    name
    for name, verb in vars(MemoryStore).items()
    if inspect.iscoroutinefunction(verb) and name not in {"open", "close"}
)
for _verb in VERBS:
    setattr(HostStore, _verb, _sent(_verb))


def _result_of(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("the store model waited")


def _settle(reply: asyncio.Future[Any], result: object, error: Exception | None) -> None:
    if reply.done():
        return
    if error is None:
        reply.set_result(result)
    else:
        reply.set_exception(error)


def _fail(reply: asyncio.Future[Any], verb: str, seconds: float) -> None:
    if not reply.done():
        reply.set_exception(StoreUnavailable(f"no reply to {verb} in {seconds:g} s"))

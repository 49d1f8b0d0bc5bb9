"""The load: clients that do what clients do. They start work by key, send signals, wait for results, and try again.

Rules
- Every order is started three times over: one request at one gateway, the same request at another one, as a client
  repeats it whose answer was lost, and a second request under the same key, as another caller would make it.
- Every signal is sent twice, under one dedupe id.
- What can be tried again is tried again, at the next gateway, under the same ids. What still fails when the patience
  is over, or fails in any other way, has failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from itertools import count
from types import TracebackType
from typing import Any, Self, TypeVar

from holdfast.adapters.machine import SystemIds
from holdfast.calls import Call as BoundCall
from holdfast.client import Run
from holdfast.errors import RunError, TransientError
from holdfast.gateway_client import Client
from holdfast.kernel.times import NO_TIME, Instant, Millis
from holdfast.lab.gate.evidence import AcceptedStart, FailedCall, Heard, KeyUse, OtherOrder, Searched, SentWord
from holdfast.lab.gate.pack import GO, errand, go_word
from holdfast.pack import Call
from holdfast.ports.clock import Clock

T = TypeVar("T")
PATIENCE_MS = Millis(90_000)
PAUSE_SECONDS = 0.1
AVOID_SECONDS = 1.0  # a gateway that did not answer, as a load balancer would
RESULT_MS = Millis(20_000)  # each time that one asks
# At the ledger: so at any moment there are effects under way, and a process that is killed is killed in some.
HOLD_MS = Millis(200)


class Load:
    """The clients of one scenario, and all that they were told."""

    def __init__(
        self,
        name: str,
        urls: Sequence[str],
        clock: Clock,
        *,
        api_key: str | None = None,
        patience_ms: Millis = PATIENCE_MS,
    ) -> None:
        self.name = name
        self.orders: list[str] = []
        self.others: list[OtherOrder] = []
        self.accepted_starts: list[AcceptedStart] = []
        self.failed: list[FailedCall] = []
        self.sent: list[SentWord] = []
        self.heard: list[Heard] = []
        self.searched: list[Searched] = []
        self.key_uses: list[KeyUse] = []
        self.done = 0
        self.urls = tuple(urls)
        self._clock = clock
        self._api_key = api_key
        self._patience_ms = patience_ms
        self._ids = SystemIds()
        self._clients: list[Client] = []
        self._numbers = count(1)
        self._avoided_until_steady_ms: dict[int, float] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        clients = (Client(url, api_key=self._api_key) for url in self.urls)
        self._clients = [await self._stack.enter_async_context(client) for client in clients]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def flow(self, clients: int, goes_on: Callable[[], bool]) -> None:
        """Order after order, by so many clients at once, for as long as `goes_on` says so."""

        async def one() -> None:
            while goes_on():
                await self.order(hold_ms=HOLD_MS)

        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(one())

    async def order(self, *, hold_ms: Millis = NO_TIME) -> None:
        """One order, from its start to its result."""
        number, order = self.numbered()
        self.orders.append(order)
        call = errand(order, hold_ms)
        first, second = self._ids.nonce(), self._ids.nonce()
        started = await asyncio.gather(
            self.start(order, call, request=first, gateway=number),
            self.start(order, call, request=first, gateway=number + 1),
            self.start(order, call, request=second, gateway=number + 1),
        )
        run_id = next((run_id for run_id in started if run_id is not None), None)
        if run_id is None:
            return
        dedupe = self._ids.nonce()
        await asyncio.gather(*(self._signal(order, run_id, dedupe, number + nth) for nth in range(2)))
        if await self.result(order, run_id, number):
            self.done += 1

    async def other(self, call: Callable[[str], Call[Any]], *, delay_ms: Millis = NO_TIME) -> bool:
        """One run of another workflow, from its start to its result; `call` is given the order's name."""
        number, order = self.numbered()
        wanted = call(order)
        assert isinstance(wanted, BoundCall)
        self.others.append(OtherOrder(workflow=wanted.target.name, key=order, delay_ms=delay_ms))
        run_id = await self.start(order, wanted, request=self._ids.nonce(), gateway=number, delay_ms=delay_ms)
        is_done = run_id is not None and await self.result(order, run_id, number)
        self.done += is_done
        return is_done

    def now_ms(self) -> Instant:
        """The clock of all that this load has been told."""
        return self._clock.wall_ms()

    def numbered(self) -> tuple[int, str]:
        """The next order: its number and its name."""
        number = next(self._numbers)
        return number, f"{self.name}-{number:05}"

    async def ask(self, verb: str, action: Callable[[Client], Awaitable[T]], *, about: str, first: int = 0) -> T | None:
        """What some gateway returns; None if the call has failed for good."""
        return await self._asked(verb, lambda client, _url, _tries: action(client), about=about, first=first)

    async def start(
        self, order: str, call: Call[Any], *, request: str, gateway: int, delay_ms: Millis = NO_TIME
    ) -> str | None:
        """The id of the run that a start returned."""
        first_asked_at_ms = self._clock.wall_ms()

        async def start(client: Client, url: str, tries: int) -> str:
            asked_at_ms = self._clock.wall_ms()
            run, created = await client.start(call, request_id=request, delay=f"{delay_ms}ms" if delay_ms else None)
            answer = AcceptedStart(
                order=order,
                run=run.id,
                created=created,
                request=request,
                gateway=url,
                tries=tries,
                at_ms=self._clock.wall_ms(),
                asked_at_ms=asked_at_ms,
                first_asked_at_ms=first_asked_at_ms,
            )
            self.accepted_starts.append(answer)
            return run.id

        return await self._asked("start", start, about=order, first=gateway)

    async def _signal(self, order: str, run_id: str, dedupe: str, gateway: int) -> None:
        async def signal(client: Client) -> None:
            await (await client.get(run_id)).signal(GO, go_word(order), dedupe=dedupe)

        await self.ask("signal", signal, about=order, first=gateway)

    async def result(self, order: str, run_id: str, gateway: int) -> bool:
        """Whether the run has completed."""

        async def result(client: Client) -> bool:
            run: Run[Any] = await client.get(run_id)
            try:
                await run.result(timeout=f"{min(RESULT_MS, self._patience_ms)}ms")
            except RunError:  # how it ended is read from the run itself, later
                return False
            return True

        return await self.ask("result", result, about=order, first=gateway) is True

    def _gateway(self, wish: int) -> int:
        """The gateway that is wished for, or one behind it that has not failed a moment ago."""
        places = [(wish + step) % len(self._clients) for step in range(len(self._clients))]
        now_steady_ms = self._clock.steady_ms()
        return next((at for at in places if self._avoided_until_steady_ms.get(at, 0.0) <= now_steady_ms), places[0])

    async def _asked(
        self, verb: str, action: Callable[[Client, str, int], Awaitable[T]], *, about: str, first: int
    ) -> T | None:
        give_up_steady_ms = self._clock.steady_ms() + self._patience_ms
        for tries in count(1):
            at = self._gateway(first + tries)
            try:
                return await action(self._clients[at], self.urls[at], tries)
            except TransientError as error:
                self._avoided_until_steady_ms[at] = self._clock.steady_ms() + AVOID_SECONDS * 1000
                if self._clock.steady_ms() > give_up_steady_ms:
                    self.failed.append(FailedCall(about, verb, f"still after {tries} tries: {error}"))
                    return None
            except Exception as error:  # noqa: BLE001 - whatever else a client is made to see is a failed call
                self.failed.append(FailedCall(about, verb, f"{type(error).__name__}: {error}"))
                return None
            await self._clock.pause(PAUSE_SECONDS)
        raise AssertionError  # pragma: no cover - there is always another try

"""Streams: readers of events that come back at another gateway after every few events, while gateways die.

Each names the last event that it has seen. Together its connections must have told it every entry of the journal, once
and in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import count
from typing import cast

from holdfast.errors import HoldfastError
from holdfast.gateway_client import Client
from holdfast.journal import RunEvent
from holdfast.kernel.times import Millis
from holdfast.lab.gate.cluster import of_role
from holdfast.lab.gate.evidence import Heard
from holdfast.lab.gate.load import Load
from holdfast.lab.gate.scenario import Findings, ScenarioContext
from holdfast.lab.gate.verdict import Proof

ORDERS = 8
HOLD_MS = Millis(60)
EVENTS_EACH = 2  # of one connection
READ_SECONDS = 2.0  # so long a reader waits for the next event before it comes back
BEGUN_SECONDS = 10.0
PAUSE_SECONDS = 0.05


async def streams(context: ScenarioContext) -> Findings:
    async with context.load("streams") as load:
        async with asyncio.TaskGroup() as group:
            reading = [group.create_task(_ordered_and_read(context, load, nth)) for nth in range(ORDERS)]
            await context.until(lambda: len(load.accepted_starts) >= ORDERS, seconds=BEGUN_SECONDS)
            victim = of_role(context.cluster, "gateway")[0]
            context.tell(f"SIGKILL {victim}", load.done)
            await context.nemesis.kill(victim)
            await context.nemesis.start(victim)
            await asyncio.wait(reading)
        checked = await context.checked(load)
    again = sum(heard.connections > 1 for heard in load.heard)
    proofs = (
        Proof("events told", checked.counts.events, ORDERS),
        Proof("readers that came back", again, ORDERS),
    )
    return Findings(checked=(checked,), proofs=proofs)


async def _ordered_and_read(context: ScenarioContext, load: Load, nth: int) -> None:
    """An order, and a reader that follows its run from the first answer on."""
    ordering = asyncio.create_task(load.order(hold_ms=HOLD_MS))

    def run_id() -> str | None:
        orders = load.orders[nth : nth + 1]
        return next((answer.run for answer in load.accepted_starts if answer.order in orders), None)

    await context.until(lambda: run_id() is not None or ordering.done(), seconds=BEGUN_SECONDS)
    if (known := run_id()) is not None and (heard := await _read(context, load, known, nth)) is not None:
        load.heard.append(heard)
    await ordering


async def _read(context: ScenarioContext, load: Load, run_id: str, first: int) -> Heard | None:
    """All events of a run, over as many connections as it takes; None if its end was not seen in time.

    A reader that gave up proves nothing, neither for nor against: it might have been told the rest.
    """
    cursors: list[int] = []
    give_up_steady_ms = context.clock.steady_ms() + context.options.patience_ms
    for connections in count(1):
        url = load.urls[(first + connections) % len(load.urls)]
        try:
            has_ended = await _read_some(Client(url, api_key=context.cluster.api_key), run_id, cursors)
        except (HoldfastError, TimeoutError):
            has_ended = False
            await context.pause(PAUSE_SECONDS)
        if has_ended:
            return Heard(run_id, tuple(cursors), connections)
        if context.clock.steady_ms() > give_up_steady_ms:
            return None
    raise AssertionError  # pragma: no cover - there is always another connection


async def _read_some(client: Client, run_id: str, cursors: list[int]) -> bool:
    """A few events behind the last one. Whether the run has ended, and all was told."""
    async with client, asyncio.timeout(READ_SECONDS):
        run = await client.get(run_id)
        async with aclosing(cast("AsyncGenerator[RunEvent]", run.events(cursors[-1] if cursors else None))) as events:
            told = 0
            async for event in events:
                cursors.append(event.cursor)
                told += 1
                if told == EVENTS_EACH:
                    return False
    return True

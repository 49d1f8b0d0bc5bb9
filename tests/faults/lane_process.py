"""A process of a test that starts runs of one lane, or executes them; on a store's verbs alone, without an engine.

The ledger has a line for each run that was started, one when it is begun, and one before the commit that ends it. So at
no time more runs are begun and not ended, by the ledger, than may be active.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from holdfast.adapters.machine import SystemClock, SystemIds
from holdfast.assembly import open_store
from holdfast.errors import StoreUnavailable
from holdfast.kernel import starts, transitions
from holdfast.kernel.changes import Committed
from holdfast.kernel.lanes import Entering
from holdfast.ports.store import Claim, Serves, Store
from tests.builders import a_value, wanted
from tests.faults.holdfast_process import say
from tests.faults.ledger import Ledger

LANE, WORKFLOW = "account:{7}", "shop.checkout"
LEASE_MS = 1_000
T = TypeVar("T")


class LanePlan(Struct, frozen=True, kw_only=True):
    """What the process is to do until the file `stop` exists; a client ends with its last start."""

    url: str
    ledger: str
    stop: str
    client: str = ""  # the name of a client; a process without is a worker
    starts: int = 0
    width: int = 1


async def act(plan: LanePlan) -> None:
    store = open_store(plan.url, clock=SystemClock(), ids=SystemIds(), bus=None)[0]
    await _patiently(store.open)
    say("ready")
    book = Ledger(Path(plan.ledger))
    try:
        await (_start_all(store, plan, book) if plan.client else _work(store, plan, book))
    finally:
        await store.close()
    say("done")


async def _start_all(store: Store, plan: LanePlan, book: Ledger) -> None:
    for n in range(plan.starts):
        key = f"{plan.client}:{n}" if n % 2 else None
        name = f"{plan.client}-{n:04}"
        run_id = store.id_for(name, namespace="default", workflow=WORKFLOW, key=key, lane=LANE)
        entering = Entering(LANE, plan.width, parked_max=10_000)
        change = starts.admission(wanted(run_id, key=key, enters=entering), now_ms=store.now_ms(), hand=None)
        [answer] = await _patiently(lambda change=change: store.commit([change]))
        assert isinstance(answer, Committed), answer
        book.write(started=name)


async def _work(store: Store, plan: LanePlan, book: Ledger) -> None:
    owner = f"worker-{os.getpid()}"
    await _patiently(lambda: store.join(owner, LEASE_MS, Serves("default", (WORKFLOW,))))
    duties = asyncio.create_task(_attend(store, owner))
    while not Path(plan.stop).exists():
        claim = Claim("default", owner, owner, (WORKFLOW,), 2)
        claimed = await _patiently(lambda claim=claim: store.claim(claim))
        for run in claimed.runs:
            name = run.id[:7]
            book.write(begun=name)
            await asyncio.sleep(0)
            book.write(ended=name)
            change = transitions.decide(run, transitions.RunReturned(a_value("done")), now_ms=store.now_ms())
            await _patiently(lambda change=change: store.commit([change]))
        if not claimed.runs:
            await asyncio.sleep(0.01)
    duties.cancel()
    with contextlib.suppress(StoreUnavailable):
        await store.leave(owner)


async def _attend(store: Store, owner: str) -> None:
    while True:
        with contextlib.suppress(StoreUnavailable):
            await store.renew(owner, LEASE_MS)
            await store.rescue(100)
            await store.relay(100)
        await asyncio.sleep(0.2)


async def _patiently(verb: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await verb()
        except StoreUnavailable:
            await asyncio.sleep(0.05)


def main(options: Any) -> None:
    asyncio.run(act(msgspec.convert(options, LanePlan)))

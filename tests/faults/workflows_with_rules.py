"""Effects that a breaker or a limit stands before. The service that they call is down while a file is missing."""

from __future__ import annotations

import asyncio
import time

from holdfast import Breaker, Limit, Pack, Rate, Retry
from tests.faults import ledger
from tests.faults.workflows_checkout import note
from tests.faults.workflows_held_by_flags import flag, raised

rules = Pack("rules")
RULES = "tests.faults.workflows_with_rules:rules"
OF = 12
WIDTH = 10
PER_SECOND = 40

REMOTE = Breaker("remote", of=OF, stays="2s")
SLOW = Breaker("slow", of=1, stays="300ms")
SLOTS = Limit("slots", width=WIDTH)
PACED = Limit("paced", rate=Rate(PER_SECOND, per="1s"))
FOREVER = Retry(attempts=100_000, base=0, cap=0)


@rules.effect(breaker=REMOTE, retry=FOREVER)
async def ask(name: str) -> str:
    note("ask", name, at=time.time())
    if not flag("up").exists():
        raise ConnectionError("the service is down")
    return name


@rules.effect(breaker=SLOW, retry=FOREVER, timeout="3s")
async def probe(name: str) -> str:
    """The first call fails; the next one is the probe, and hangs until the test says go."""
    note("probe", name)
    if len(ledger.here().calls("probe")) == 1:
        raise ConnectionError("the service is down")
    await raised("go")
    return name


@rules.effect(limit=SLOTS, retry=FOREVER)
async def hold(name: str, seconds: float) -> str:
    """Says when it begins and when it ends: no more may be under way than there are slots."""
    ledger.here().write(begins=name)
    try:
        if seconds < 0:
            await raised("go")
        else:
            await asyncio.sleep(seconds)
    finally:
        ledger.here().write(ends=name)
    return name


@rules.effect(limit=PACED)
async def pace(name: str) -> str:
    note("pace", name, at=time.time())
    return name


@rules.workflow(key="{effect}:{name}")
async def use(effect: str, name: str, seconds: float = 0) -> str:
    match effect:
        case "ask":
            return await ask(name)
        case "probe":
            return await probe(name)
        case "hold":
            return await hold(name, seconds)
        case _:
            return await pace(name)

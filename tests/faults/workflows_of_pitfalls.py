"""Small workflows for the pitfalls: each is as short as the defect that it would have shown."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from holdfast import Pack, Retry, attempt, hook, sleep
from tests.faults.workflows_checkout import note
from tests.faults.workflows_held_by_flags import raised

fall = Pack("fall")
RUN = "tests.faults.workflows_of_pitfalls:fall"


@fall.workflow
async def guard(token: str, number: int) -> list[Any]:
    """Owns the token, or goes away."""
    del number
    gate = hook("gate", token=token)
    return [] if await gate.conflict() is not None else [await gate]


@fall.workflow(key="relief:{name}")
async def relief(name: str) -> Any:
    del name
    return await hook("relief")


@fall.effect
async def sleeper(name: str, number: int) -> int:
    note(f"sleeper {number}", name)
    await asyncio.sleep(0.01)
    return number


@fall.workflow(key="tracks:{name}")
async def tracks(name: str) -> list[list[int]]:
    """Three sequences side by side, each of the same effect."""

    async def track(first: int) -> list[int]:
        return [await sleeper(name, first + n) for n in range(3)]

    return list(await asyncio.gather(track(10), track(20), track(30)))


@fall.effect
async def last(name: str) -> str:
    note("last", name)
    await raised(f"go-{name}")
    return "x" * 300_000


@fall.workflow(key="lasting:{name}")
async def lasting(name: str) -> str:
    return await last(name)


@fall.effect
async def wait(name: str) -> int:
    note("wait", name)
    await raised(f"go-{name}")
    return 0


@fall.workflow(key="chain:{name}:{depth}")
async def chain(name: str, depth: int) -> int:
    """Each waits for the next."""
    return await wait(name) if depth == 0 else 1 + await chain(name, depth - 1)


@fall.effect
async def runner(name: str, number: int) -> int:
    note(f"runner {number}", name)
    await asyncio.sleep(0.005)
    return number


@fall.effect
async def crown(name: str, number: int) -> int:
    note(f"crown {number}", name)
    return number


@fall.workflow(key="race:{name}")
async def race(name: str) -> int:
    """Three run side by side; the first one is crowned, then the others may arrive."""
    tasks = [asyncio.ensure_future(_run(name, number)) for number in range(3)]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    winner = next(number for number, task in enumerate(tasks) if task in done)
    crowned = await crown(name, winner)
    await asyncio.gather(*tasks)
    return crowned


async def _run(name: str, number: int) -> int:
    return await runner(name, number)


@fall.effect
async def sweep(name: str) -> None:
    note("sweep", name)
    gc.collect()
    await raised(f"go-{name}")
    gc.collect()


@fall.workflow(key="forget:{name}")
async def forget(name: str) -> str:
    """No variable keeps the task; its result comes by a queue that it alone knows."""
    kept: asyncio.Queue[str] = asyncio.Queue()

    async def work() -> None:
        await sweep(name)
        await kept.put("kept")

    asyncio.create_task(work())  # noqa: RUF006 - that is the point
    return await kept.get()


@fall.effect(retry=Retry(attempts=2, base=0.01))
async def slip(name: str) -> int:
    """The first attempt waits for the test's word, and fails; the second does not."""
    note("slip", name)
    if attempt() == 1:
        await raised(f"go-{name}")
        raise OSError("slipped")
    return attempt()


@fall.workflow(key="slips:{name}")
async def slips(name: str) -> int:
    return await slip(name)


@fall.workflow(key="pile:{name}")
async def pile(name: str, count: int) -> list[int]:
    """Takes what comes by its token."""
    heap = hook("heap", token=f"heap-{name}")
    return [await heap for _ in range(count)]


@fall.effect
async def wake(name: str, number: int) -> int:
    note(f"wake {number}", name)
    return number


@fall.workflow(key="naps:{name}")
async def naps(name: str, seconds: float) -> list[int]:
    """Three waits of different lengths side by side."""

    async def nap(number: int) -> int:
        await sleep(number * seconds)
        return await wake(name, number)

    return list(await asyncio.gather(nap(3), nap(1), nap(2)))

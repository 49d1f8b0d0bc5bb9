"""What flow rules cost: W1 with none, with each of them, and with several, in turns on one file.

W1 is keyed starts of a one-effect workflow, 50 at a time, to the last completion. The rates of the throttles are so
high that no run waits, and there is one run per key, so what is measured is the rules themselves. A debounced run waits
for a millisecond by its nature, and is never handed to a worker at once: its ratio is no cost of the rule alone.

    python -m bench.flow_rules [sqlite|redis://...] [--quick]

What is counted is processor time of this process, which hardly depends on what else the machine does; ratios of one run
of this program hold.
"""

import argparse
import asyncio
import itertools
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from holdfast import Batch, Debounce, Holdfast, Pack, Rate

CONCURRENCY = 50
RUNS, RUNS_QUICK = 2_000, 300
TURNS, TURNS_QUICK = 5, 2
TENANTS = 20
FAST = Rate(1_000_000, per="1s", burst=1_000_000, by="{tenant}")

pack = Pack("bench")
Start = Callable[[Holdfast, int], Awaitable[Any]]


@pack.effect
async def work(order: str) -> str:
    return order


@pack.workflow(key="{order}")
async def none(tenant: str, order: str) -> str:
    return await work(f"{tenant} {order}")


@pack.workflow(key="{order}", throttle=FAST)
async def throttle(tenant: str, order: str) -> str:
    return await work(f"{tenant} {order}")


@pack.workflow(key="{order}", fair="{tenant}")
async def fair(tenant: str, order: str) -> str:
    return await work(f"{tenant} {order}")


@pack.workflow(key="{order}", throttle=FAST, fair="{tenant}")
async def throttle_and_fair(tenant: str, order: str) -> str:
    return await work(f"{tenant} {order}")


@pack.workflow(key="{order}", debounce=Debounce("1ms"))
async def debounce(tenant: str, order: str) -> str:
    return await work(f"{tenant} {order}")


@pack.workflow(key="{order}", throttle=FAST, fair="{tenant}", debounce=Debounce("1ms"))
async def throttle_fair_and_debounce(tenant: str, order: str) -> str:
    return await work(f"{tenant} {order}")


@pack.workflow(batch=Batch(50, wait="5ms"))
async def batch(items: list[str]) -> list[str]:
    await work(items[0])
    return items


numbers = itertools.count()


def _run_of(workflow: Any) -> Start:
    return lambda hf, n: hf.start(workflow(f"t{n % TENANTS}", f"{workflow.step_name}-{n}"))


SIBLINGS: dict[str, Start] = {
    **{each.step_name: _run_of(each) for each in (none, throttle, fair, throttle_and_fair)},
    **{each.step_name: _run_of(each) for each in (debounce, throttle_fair_and_debounce)},
    "batch": lambda hf, n: hf.start(batch.item(f"i{n}")),
}


async def turn(hf: Holdfast, start: Start, runs: int) -> float:
    """Microseconds of the processor for each run."""
    left = [next(numbers) for _ in range(runs)]

    async def one_after_the_other() -> None:
        while left:
            await (await start(hf, left.pop())).run.result(timeout="120s")

    began = time.process_time()
    await asyncio.gather(*(one_after_the_other() for _ in range(CONCURRENCY)))
    return (time.process_time() - began) / runs * 1e6


async def measured(url: str, *, runs: int, turns: int) -> dict[str, list[float]]:
    """The costs of each sibling, in turns, so that whatever else the machine does meets all of them."""
    costs: dict[str, list[float]] = {name: [] for name in SIBLINGS}
    async with Holdfast(url, packs=[pack]) as hf:
        for start in SIBLINGS.values():
            await turn(hf, start, CONCURRENCY)
        for _ in range(turns):
            for name, start in SIBLINGS.items():
                costs[name].append(await turn(hf, start, runs))
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("url", nargs="?", default="sqlite")
    parser.add_argument("--quick", action="store_true", help="shows that it works")
    asked = parser.parse_args()
    runs, turns = (RUNS_QUICK, TURNS_QUICK) if asked.quick else (RUNS, TURNS)
    with tempfile.TemporaryDirectory() as directory:
        url = f"sqlite:///{Path(directory) / 'bench.db'}" if asked.url == "sqlite" else asked.url
        costs = asyncio.run(measured(url, runs=runs, turns=turns))
    base = costs["none"]
    for name, found in costs.items():
        ratio = statistics.median(each / of for each, of in zip(found, base, strict=True))
        print(f"{name:28} {statistics.median(found):>8.0f} µs   {ratio:.2f} of W1 without rules")


if __name__ == "__main__":
    main()

"""What a run asks for does not depend on the process: neither on the order of its imports nor on memory addresses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

WORKFLOWS = """
from holdfast import Holdfast, Pack, effect_key

shop = Pack("shop")
called = {}


@shop.effect
async def charge(amount: int) -> int:
    called[effect_key()] = amount
    return amount


async def one(amount):
    return await charge(amount)


async def once_completed(awaitables):
    for next_one in as_completed(awaitables):
        await next_one


@shop.workflow
async def of_calls() -> None:
    await once_completed([charge(amount) for amount in range(20)])


@shop.workflow
async def of_coroutines() -> None:
    await once_completed([one(amount) for amount in range(20)])


@shop.workflow
async def of_a_set_of_calls() -> None:
    await once_completed({charge(amount) for amount in range(20)})


@shop.workflow
async def over_a_set_of_calls() -> None:
    for call in {charge(amount) for amount in range(20)}:
        await call


@shop.workflow
async def of_gathers() -> None:
    gathers = [asyncio.gather(one(amount), charge(amount)) for amount in range(20)]
    done, _ = await asyncio.wait(gathers)
    for each in done:
        await charge(each.result()[0])


async def main():
    workflows = [of_calls, of_coroutines, of_a_set_of_calls, over_a_set_of_calls, of_gathers]
    asked = {}
    async with Holdfast("memory://", packs=[shop]) as hf:
        for workflow in workflows:
            called.clear()
            run, _ = await hf.start(workflow())
            await run.result()
            asked[workflow.name] = {key.partition("/")[2]: amount for key, amount in called.items()}
    print(json.dumps(asked))


asyncio.run(main())
"""
BEFORE = "import asyncio, json\nfrom asyncio import as_completed\nimport holdfast\n"
AFTER = "import asyncio, json\nimport holdfast\nfrom asyncio import as_completed\n"
WRAPPED = """
import asyncio, functools, json

def wrap(function):
    @functools.wraps(function)
    def wrapper(*args, **options):
        return function(*args, **options)
    return wrapper

asyncio.as_completed = wrap(asyncio.as_completed)
from asyncio import as_completed
"""
# So that addresses differ from process to process, and do not grow in the order in which objects are made.
NOISE = "import random\nnoise = [object() for _ in range(100_000)]\nrandom.shuffle(noise)\ndel noise[::2]\n"


def printed(program: str, *, seed: int = 0) -> Any:
    """What a fresh process prints, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("imports", [BEFORE, AFTER, WRAPPED], ids=["as_completed first", "holdfast first", "wrapped"])
def test_an_effect_key_has_one_input_in_every_process(imports):
    processes = [printed(NOISE + imports + WORKFLOWS, seed=seed) for seed in (1, 2, 3)]
    for workflow in processes[0]:
        assert [asked[workflow] for asked in processes[1:]] == [processes[0][workflow]] * 2, workflow


IMPORTED = """
import asyncio, asyncio.staggered, concurrent.futures, contextvars, gc, json, random, selectors, signal, socket
import sys, threading, time, types, typing_extensions, warnings, weakref

modules = {name: module for name, module in sys.modules.items() if isinstance(module, types.ModuleType)}
before = {name: dict(vars(module)) for name, module in modules.items()}


def process():
    return (
        list(gc.callbacks),
        gc.isenabled(),
        gc.get_threshold(),
        sys.get_asyncgen_hooks(),
        sys.excepthook,
        sys.unraisablehook,
        threading.excepthook,
        [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)],
        threading.active_count(),
        list(warnings.filters),
        asyncio.as_completed.__code__,
    )


state = process()
import holdfast, holdfast.assembly, holdfast.engine.replica

changed = [
    f"{name}.{attribute}"
    for name, attributes in before.items()
    for attribute, value in attributes.items()
    if vars(modules[name]).get(attribute) is not value and callable(value)
]
print(json.dumps([changed, state == process()]))
"""


def test_the_import_of_holdfast_changes_nothing_in_the_process():
    changed, same = printed(IMPORTED)
    assert changed == []
    assert same

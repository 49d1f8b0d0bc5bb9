"""Workflows that can be held at the one place where a fault is to strike. Flags are files beside the ledger."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from holdfast import NotPerformed, Pack, Retry, RetryAfter, TimedOut, attempt, sleep
from tests.faults import ledger
from tests.faults.workflows_checkout import note

trial = Pack("trial")
RUN = "tests.faults.workflows_held_by_flags:trial"


def flag(name: str) -> Path:
    return ledger.here().path.parent / name


async def raised(name: str) -> None:
    """Wait until the test raises the flag."""
    while not flag(name).exists():
        await asyncio.sleep(0.01)


# -- held in the middle of an effect, until the test says go


@trial.effect
async def grip(name: str) -> str:
    note("grip", name)
    await raised(f"go-{name}")
    return name


@trial.effect
def clutch(name: str, seconds: float) -> str:
    """A sync effect that nothing can interrupt."""
    note("clutch", name)
    time.sleep(seconds)
    return name


@trial.effect
async def freeze(name: str, seconds: float) -> str:
    """Holds up the whole event loop the first time it is called: until another process has called it, too."""
    note("freeze", name)
    give_up = time.monotonic() + seconds
    while _frozen(name) == 1 and time.monotonic() < give_up:
        time.sleep(0.05)
    return name


def _frozen(name: str) -> int:
    return len([call for call in ledger.here().calls("freeze") if call["order"] == name])


@trial.effect
async def touch(name: str) -> str:
    note("touch", name)
    return name


@trial.workflow(key="hold:{name}")
async def hold(name: str) -> str:
    await grip(name)
    return await touch(name)


@trial.workflow(key="both:{name}")
async def both(name: str) -> list[str]:
    """With room for one effect at a time, the second one waits for the first."""
    return await asyncio.gather(grip(name), touch(name))


@trial.workflow(key="clench:{name}")
async def clench(name: str, seconds: float) -> str:
    await clutch(name, seconds)
    return await touch(name)


@trial.workflow(key="chill:{name}")
async def chill(name: str, seconds: float) -> str:
    await freeze(name, seconds)
    return await touch(name)


# -- much of the same


@trial.effect
async def step(name: str, number: int) -> int:
    note(f"step {number}", name)
    await asyncio.sleep(0.05)
    return number


@trial.workflow(key="walk:{name}")
async def walk(name: str, steps: int) -> int:
    return sum([await step(name, number) for number in range(steps)])


@trial.workflow(key="tap:{name}")
async def tap(name: str) -> str:
    """The shortest useful run."""
    return await touch(name)


@trial.workflow(key="nap:{name}")
async def nap(name: str, seconds: float) -> str:
    await sleep(seconds)
    return await touch(name)


# -- attempts


@trial.effect(retry=Retry(attempts=5))
async def stumble(name: str) -> int:
    """Fails at once, and once more; then it has to wait before the third attempt, which waits for the test's word."""
    note("stumble", name)
    if attempt() <= 2:
        raise RetryAfter(0.01 if attempt() == 1 else 2.0)
    await raised(f"go-{name}")
    return attempt()


@trial.workflow(key="climb:{name}")
async def climb(name: str) -> int:
    return await stumble(name)


# -- never twice


@trial.effect(safety="once")
async def launch(name: str) -> str:
    note("launch", name)
    await raised(f"go-{name}")
    return f"{name} launched"


@trial.workflow(key="fly:{name}")
async def fly(name: str) -> str:
    launched = await launch(name)
    await touch(name)
    return launched


@trial.effect(safety="once")
def ignite(name: str) -> str:
    """A sync one."""
    note("ignite", name)
    return f"{name} ignited"


@trial.workflow(key="burn:{name}")
async def burn(name: str) -> str:
    return await ignite(name)


@trial.effect(safety="once", timeout="100ms")
def smoulder(name: str) -> str:
    """A sync one that outlives its time: what it does to the world, it does at its end."""
    ledger.here().write(entered=name)
    while not flag(f"go-{name}").exists():
        time.sleep(0.01)
    note("smoulder", name)
    return f"{name} burnt"


@trial.workflow(key="char:{name}")
async def char(name: str) -> str:
    return await smoulder(name)


async def look_up(key: str) -> str:
    """Asks the world, which is the ledger, whether the launch of this key has happened."""
    ledger.here().write(reconciled=key)
    for line in ledger.here().calls("launch"):
        if line["call"] == key:
            return f"{line['order']} launched"
    raise NotPerformed(key)


def look_for_fire(key: str) -> str:
    ledger.here().write(reconciled=key)
    for line in (*ledger.here().calls("ignite"), *ledger.here().calls("smoulder")):
        if line["call"] == key:
            return f"{line['order']} {'ignited' if line['step'] == 'ignite' else 'burnt'}"
    raise NotPerformed(key)


reconciled_trial = (
    trial.with_policy("launch", reconcile=look_up)
    .with_policy("ignite", reconcile=look_for_fire)
    .with_policy("smoulder", reconcile=look_for_fire)
)
RECONCILED = "tests.faults.workflows_held_by_flags:reconciled_trial"


# -- by a deadline


@trial.effect(retry=Retry(attempts=9, deadline="1500ms"))
async def hurry(name: str) -> str:
    note("hurry", name)
    await raised(f"go-{name}")
    return name


@trial.effect(retry=Retry(attempts=9, deadline="1500ms"))
def hurry_in_a_thread(name: str) -> str:
    note("hurry", name)
    time.sleep(60)
    return name


@trial.workflow(key="rush:{name}")
async def rush(name: str, in_a_thread: bool) -> str:
    try:
        return await (hurry_in_a_thread(name) if in_a_thread else hurry(name))
    except TimedOut as error:
        return error.message


# -- threads that hang


@trial.effect(timeout="50ms", retry=Retry(attempts=1))
def hang(name: str) -> None:
    note("hang", name)
    time.sleep(3600)


@trial.effect(retry=Retry(attempts=1), timeout="30s")
def pass_by(name: str) -> int:
    note("pass by", name)
    return attempt()


@trial.workflow(key="dangle:{name}")
async def dangle(name: str) -> str:
    try:
        await hang(name)
    except TimedOut:
        return "given up"
    return "never"


@trial.workflow(key="pass:{name}")
async def passing(name: str) -> int:
    return await pass_by(name)

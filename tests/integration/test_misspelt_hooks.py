"""A signal to a hook that the run does not wait for: the sender is told which hooks it waits for."""

from __future__ import annotations

import warnings

import pytest

from holdfast import Pack, hook, sleep
from holdfast.events import RunLetGo
from holdfast.warnings import HookNotOpen
from tests.integration.conftest import Home, heard

shop = Pack("shop")


@shop.workflow
async def approve() -> str:
    return await hook("approval")


@shop.workflow
async def both() -> str:
    typed = hook("typed", type=str)
    first = await hook("first")
    return first + await typed


@shop.workflow
async def later() -> str:
    await sleep("1h")
    return await hook("approval")


async def test_the_sender_is_warned_with_the_open_hooks_and_the_signal_is_kept(home: Home) -> None:
    home.paced(idle_ms=0)
    async with home.holdfast(shop) as hf:
        run = (await hf.start(approve())).run
        await heard(hf).until(RunLetGo)
        with pytest.warns(HookNotOpen, match=r"no open hook 'aproval': it waits for 'approval'\. Did you mean") as told:
            await run.signal("aproval", "lost")
        assert told[0].filename == __file__
        await heard(hf).until(RunLetGo, count=2)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await run.signal("approval", "yes")
        assert await run.result("30s") == "yes"


async def test_a_hook_that_is_known_to_be_open_is_no_mistake(home: Home) -> None:
    home.paced(idle_ms=0)
    async with home.holdfast(shop) as hf:
        run = (await hf.start(both())).run
        await heard(hf).until(RunLetGo)
        await run.signal("typed", "b")
        await run.signal("first", "a")
        assert await run.result("30s") == "ab"


async def test_a_run_that_waits_for_no_hook_may_open_any_later(home: Home) -> None:
    home.paced(idle_ms=0)
    async with home.holdfast(shop) as hf:
        run = (await hf.start(later())).run
        await heard(hf).until(RunLetGo)
        await run.signal("approval", "early")

"""What one feature does to another: time limits and retries, undoing and new code, patches and hand-overs."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from holdfast import NotAllowedNow, Pack, Permanent, RunFailed, continue_as_new, hook, patched
from holdfast.errors import RunTimedOut
from holdfast.events import RunHandedOver
from holdfast.kernel.timeouts import TimeLimit
from tests.integration.conftest import Home, eventually, heard, worker_of
from tests.integration.test_deploys import Act, Release, careless, finished, occupied, old, signalled, until, waiting


async def test_a_run_that_is_retried_after_its_time_limit_is_left_alone(home: Home) -> None:
    home.paced(timeouts_seconds=0.02)
    shop = Pack("shop")

    @shop.workflow
    async def order() -> str:
        return await hook("word", type=str)

    async with home.holdfast(shop) as hf:
        run = (await hf.start(order(), timeout="200ms")).run
        at_ms = int(run.times_out_at.timestamp() * 1000) if run.times_out_at else 0
        with pytest.raises(RunTimedOut):
            await run.result("30s")
        await run.retry()
        operations, now_ms = hf._replica.service.operations, hf._replica._ports.store.now_ms()
        limit = TimeLimit("default", run.id, at_ms, 200, "fail", 1, asked_until_ms=now_ms)
        assert await operations.time_out(limit) is None
        # Nor does a limit that another start has written under its id.
        assert await operations.time_out(replace(limit, at_ms=at_ms + 1, asked_until_ms=None)) is None
        await run.signal("word", "x")
        assert await run.result("30s") == "x"


async def test_a_run_that_is_being_undone_does_not_continue_as_new_by_other_code(home: Home) -> None:
    log: list[str] = []
    going_on = asyncio.Event()

    def release(*, continues: bool) -> Pack:
        pack = Pack("shop")

        @pack.effect
        async def release_it(name: str) -> None:
            log.append(f"release {name}")
            await going_on.wait()

        @pack.effect(undo=release_it)
        async def take(name: str) -> None:
            log.append(f"take {name}")

        @pack.workflow(key="order", on_failure="undo")
        async def order(n: int) -> str:
            await take("a")
            if not continues:
                raise Permanent("no")
            if n == 0:
                continue_as_new(order(1))
            return "done"

        return pack

    async with home.holdfast(release(continues=False)) as hf:
        run = (await hf.start(hf.call("order", {"n": 0}))).run
        await eventually(lambda: "release a" in log)
        worker_of(hf).drop_all()  # as if the process had died
    going_on.set()
    async with home.holdfast(release(continues=True)) as hf:
        with pytest.raises(RunFailed):
            await (await hf.get(run.id)).result("30s")
    assert log.count("take a") == 1


async def with_patch(act: Act) -> list[str]:
    done = [await act("a")]
    patched("p")
    await hook("word")
    return [*done, await act("b")]


async def contradicts(act: Act) -> list[str]:
    done = [await act("z"), await act("a")]
    await hook("word")
    return [*done, await act("b")]


async def test_a_run_that_was_given_away_over_a_patch_comes_back_if_no_other_code_fits(home: Home) -> None:
    home.paced(idle_ms=10, uptake_seconds=0.1)
    done: list[str] = []
    run_id = await waiting(home, Release(with_patch, done))
    other = Release(contradicts, done)
    async with occupied(home, other), home.holdfast(Release(old, done).pack) as fits:
        run = await signalled(fits, run_id)
        await heard(fits).until(RunHandedOver)
        other.go_on.set()
        assert await finished(run) == ["a", "b"]


async def test_what_the_code_has_undone_itself_is_not_undone_again(home: Home) -> None:
    log: list[str] = []
    shop = Pack("shop")

    @shop.effect
    async def refund(order: str) -> None:
        log.append(f"refund {order}")

    @shop.effect(undo=refund)
    async def charge(order: str) -> None:
        log.append(f"charge {order}")

    @shop.workflow(on_failure="undo")
    async def order() -> None:
        await charge("o")
        await refund("o")
        raise Permanent("no")

    async with home.holdfast(shop) as hf:
        with pytest.raises(RunFailed):
            await (await hf.start(order())).run.result("30s")
    assert log == ["charge o", "refund o"]


async def test_a_completed_run_that_was_taken_up_once_cannot_be_retried(home: Home) -> None:
    home.paced(idle_ms=10, uptake_seconds=0.1)
    done: list[str] = []
    first = Release(old, done)
    run_id = await waiting(home, first)
    async with home.holdfast(Release(careless, done).pack) as hf:
        await (await hf.get(run_id)).signal("word")
        await until(hf, run_id, "blocked")
    async with home.holdfast(first.pack) as hf:
        run = await until(hf, run_id, "completed")
        with pytest.raises(NotAllowedNow):
            await run.retry()

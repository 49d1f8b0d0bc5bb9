"""The verbs that change nothing, over a store in memory."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.engine.api.start_options import StartOptions
from holdfast.errors import UnknownRun, UsageError
from holdfast.kernel.runs import Run
from holdfast.kernel.searches import Search
from holdfast.ports.store import Serves
from tests.unit.engine.api.conftest import Api, checkout


async def started(api: Api, order: str = "o-1") -> Run:
    run, _ = await api.service.start(checkout(order), StartOptions())
    return run


async def test_runs_are_found(api: Api) -> None:
    runs = [await started(api, f"o-{n}") for n in range(3)]
    found = await api.queries.search(Search(namespace="default", limit=10))
    assert sorted(run.id for run in found) == sorted(run.id for run in runs)


async def test_whether_a_workflow_is_served_is_asked_only_if_a_run_waits_for_a_worker(api: Api) -> None:
    run = await started(api)
    claimed = await api.claim()
    assert await api.queries.served([claimed]) is None
    assert api.store.asked_for_served == 0
    assert await api.queries.served([run]) == frozenset()
    assert api.store.asked_for_served == 1


async def test_that_a_workflow_is_served_is_believed_for_a_while(api: Api) -> None:
    run = await started(api)
    await api.store.join("w-1", 60_000, Serves("default", ("shop.checkout",)))
    for _ in range(3):
        assert await api.queries.served([run]) == frozenset({"shop.checkout"})
    assert api.store.asked_for_served == 1
    api.clock.advance(api.pace.served_ms + 1)
    await api.queries.served([run])
    assert api.store.asked_for_served == 2


async def test_a_run_says_that_it_waits_for_a_worker(api: Api) -> None:
    run = await started(api)
    assert [wait.kind for wait in api.queries.waits_of(run, frozenset())] == ["no_worker"]
    story = await api.queries.explain(run.id)
    assert [wait.kind for wait in story.waiting_on] == ["no_worker"]


async def test_a_run_is_followed_until_it_has_ended(api: Api) -> None:
    await started(api)
    run = await api.claim()
    seen: list[tuple[int, str]] = []

    async def follow() -> None:
        async for event in api.queries.events(run.id, None):
            seen.append((event.cursor, event.entry.what))  # noqa: PERF401 - each is looked at when it comes

    following = asyncio.create_task(follow())
    async with asyncio.timeout(30):
        while not seen:
            await asyncio.sleep(0)
    await api.end(run)
    api.subscriptions.changed(run.id)
    await asyncio.wait_for(following, 30)
    assert seen == [(0, "started"), (1, "completed")]
    assert [event.cursor async for event in api.queries.events(run.id, 0)] == [1]
    assert [entry.what for entry in await api.queries.journal(run.id)] == ["started", "completed"]


async def test_what_is_not_there_cannot_be_looked_at(api: Api) -> None:
    for verb in (api.queries.explain("a"), api.queries.journal("a"), anext(api.queries.events("a", None))):
        with pytest.raises(UnknownRun):
            await verb


async def test_nothing_is_read_before_it_is_open(api: Api) -> None:
    api.is_open = False
    for verb in (
        api.queries.search(Search(namespace="default", limit=1)),
        api.queries.members(),
        api.queries.backlog(),
    ):
        with pytest.raises(UsageError, match="not open"):
            await verb


async def test_members_and_backlog_are_those_of_the_store(api: Api) -> None:
    await started(api)
    await api.store.join("w-1", 60_000, Serves("default", ("shop.checkout",)))
    assert [member.owner for member in await api.queries.members()] == ["w-1"]
    assert (await api.queries.backlog()) == await api.store.backlog("default")

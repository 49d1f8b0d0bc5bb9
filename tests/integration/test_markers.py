"""Markers: the states of progress that a workflow declares, and the ways between them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Marker, NotAllowedNow, Pack, RunFailed, UsageError, hook, mark
from holdfast.events import EffectBegan
from holdfast.kernel.journal import Marked
from tests.builders import FakeClock
from tests.integration.conftest import Home, eventually, heard

LINE = ("pending", "charged", "shipped")
GRAPH = {"draft": ("sent", "dropped"), "sent": ("read", "draft"), "read": ("sent",)}


def _marking(markers: Any) -> tuple[Pack, Any]:
    """A workflow that marks what it is told to; it answers what was refused."""
    pack = Pack("p")

    @pack.effect
    async def act() -> None: ...

    @pack.workflow(markers=markers)
    async def work(marks: list[str], *, catch: bool = True) -> list[str]:
        refused: list[str] = []
        for marker in marks:
            try:
                await mark(marker)
            except NotAllowedNow:
                if not catch:
                    raise
                refused.append(marker)
            await act()
        return refused

    return pack, work


@pytest.mark.parametrize(
    ("markers", "marks", "reached", "refused"),
    [
        (LINE, [], [], []),
        (LINE, ["charged", "shipped"], ["charged", "shipped"], []),
        (LINE, ["charged", "charged", "charged"], ["charged"], []),
        (LINE, ["shipped"], [], ["shipped"]),
        (LINE, ["charged", "pending"], ["charged"], ["pending"]),
        (LINE, ["shipped", "charged", "shipped", "charged"], ["charged", "shipped"], ["shipped", "charged"]),
        (LINE, ["paid"], [], ["paid"]),
        ((), ["pending"], [], ["pending"]),
        (GRAPH, ["sent", "draft", "dropped"], ["sent", "draft", "dropped"], []),
        (GRAPH, ["sent", "read", "sent", "read"], ["sent", "read", "sent", "read"], []),
        (GRAPH, ["read", "sent"], ["sent"], ["read"]),
        (GRAPH, ["dropped", "draft"], ["dropped"], ["draft"]),
    ],
)
async def test_a_run_goes_only_the_ways_that_its_workflow_declares(
    home: Home, markers: Any, marks: list[str], reached: list[str], refused: list[str]
) -> None:
    pack, work = _marking(markers)
    async with home.holdfast(pack) as hf:
        run = (await hf.start(work(marks))).run
        assert run.markers == ()
        assert await run.result(timeout=30) == refused
        run = await run.refresh()
        assert [marker.name for marker in run.markers] == reached
        assert [entry.marker for entry in await run.journal() if isinstance(entry, Marked)] == reached


async def test_the_first_marker_may_be_said_too(home: Home) -> None:
    pack, work = _marking(LINE)
    async with home.holdfast(pack) as hf:
        run = (await hf.start(work(["pending", "charged"]))).run
        assert await run.result(timeout=30) == []
        assert (await run.refresh()).markers[-1].name == "charged"


async def test_an_illegal_marker_fails_the_run_if_nobody_catches_it(home: Home) -> None:
    pack, work = _marking(LINE)
    async with home.holdfast(pack) as hf:
        for marker, named in (("shipped", "pending"), ("paid", "charged")):
            run = (await hf.start(work([marker], catch=False))).run
            with pytest.raises(RunFailed) as caught:
                await run.result(timeout=30)
            cause = caught.value.__cause__
            assert isinstance(cause, NotAllowedNow)
            assert marker in cause.message
            assert named in str(cause)  # what may come instead
            assert (await run.refresh()).markers == ()


async def test_a_marker_has_the_time_at_which_it_was_reached(home: Home) -> None:
    clock = home.clock = FakeClock()
    pack = Pack("p")

    @pack.workflow(markers=LINE)
    async def work() -> None:
        await mark("charged")
        await hook("go")
        await mark("shipped")

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run

        async def marked() -> bool:
            return bool((await run.refresh()).markers)

        await eventually(marked)
        clock.advance(5_000)
        await run.signal("go")
        await run.result(timeout=30)
        charged, shipped = (await run.refresh()).markers
        assert charged == Marker("charged", run.created_at)
        assert shipped.at == charged.at + timedelta(seconds=5)
        assert charged.at.tzinfo is UTC
        assert "reached marker 'shipped'" in str(await run.explain())
    assert charged.at == datetime.fromtimestamp((clock.wall - 5_000) / 1000, UTC)


async def test_a_replay_marks_nothing_again(home: Home) -> None:
    pack = Pack("p")
    calls: list[int] = []

    @pack.effect
    async def act(n: int) -> None:
        calls.append(n)

    @pack.workflow(markers=LINE)
    async def work() -> None:
        await mark("charged")
        await act(1)
        await hook("go")
        await mark("shipped")
        await act(2)

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        await heard(hf).until(EffectBegan)
    async with home.holdfast(pack) as hf:
        run = await hf.get(run.id)
        before = run.markers
        await run.signal("go")
        await run.result(timeout=30)
        run = await run.refresh()
        assert [marker.name for marker in run.markers] == ["charged", "shipped"]
        assert run.markers[:1] == before
        assert sum(isinstance(entry, Marked) for entry in await run.journal()) == 2
    assert calls == [1, 2]


@pytest.mark.parametrize("wrong", ["pending", ("a", "a"), ("",), ("x" * 300,), {"a": ("",)}])
def test_what_cannot_be_declared_is_said_at_once(wrong: Any) -> None:
    with pytest.raises(UsageError):
        _marking(wrong)

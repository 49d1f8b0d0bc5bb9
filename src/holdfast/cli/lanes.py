"""Lanes: `lanes list`, `lanes show`, `lanes set`, `lanes pause`, `lanes resume`."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast import wire
from holdfast.cli import render
from holdfast.cli.session import Session
from holdfast.client import Lane
from holdfast.lanes import PAGE, PAGE_MAX
from holdfast.wire import outbound

Who = Annotated[str | None, typer.Option(help="Who sets it. It is recorded.")]
LaneName = Annotated[str, typer.Argument(metavar="LANE", help="Name of the lane, as `lanes list` has it.")]


async def list_lanes(
    session: Session,
    after: Annotated[str | None, typer.Option(help="Begin behind the lane of this name.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=PAGE_MAX, help="How many lanes at most.")] = PAGE,
) -> None:
    """List the lanes: how wide each is, how many of its runs are active, and how many wait."""
    async with session.caller() as caller:
        page = await caller.lanes().page(after=after, limit=limit)
        session.out.show(
            wire.LanesView([outbound.lane(each) for each in page.lanes], page.next), render.lanes(page.lanes, page.next)
        )


async def show(session: Session, lane: LaneName) -> None:
    """Show a lane, and the first of its runs in the order in which they go."""
    async with session.caller() as caller:
        _show(session, await caller.lane(lane))


async def set_lane(
    session: Session,
    lane: LaneName,
    *,
    width: Annotated[int, typer.Option(help="How many of its runs may be active at once.")],
    by: Who = None,
) -> None:
    """Make a lane wider or narrower. Runs that are active stay so."""
    async with session.caller() as caller:
        _show(session, await caller.set_lane(lane, width=width, by=by))


async def pause(session: Session, lane: LaneName, *, by: Who = None) -> None:
    """Pause a lane: no further run of it begins. Runs that are active go on."""
    async with session.caller() as caller:
        _show(session, await caller.set_lane(lane, paused=True, by=by))


async def resume(session: Session, lane: LaneName, *, by: Who = None) -> None:
    """Let a paused lane go on."""
    async with session.caller() as caller:
        _show(session, await caller.set_lane(lane, paused=False, by=by))


def _show(session: Session, lane: Lane) -> None:
    session.out.show(outbound.lane(lane), render.lane(lane))

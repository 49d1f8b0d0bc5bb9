"""What stands before effects: `breakers list`, `show`, `open` and `close`, and `slots`, the limits at effects."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from holdfast.cli import render
from holdfast.cli.output import plain
from holdfast.cli.session import Session
from holdfast.kernel.breakers import BreakerStatus
from holdfast.kernel.effect_limits import LimitStatus
from holdfast.wire import rules

Name = Annotated[str, typer.Argument(help="Name of the breaker, as `breakers list` has it.")]
By = Annotated[str | None, typer.Option(help="Who does it. It is kept with the breaker.")]


async def list_breakers(session: Session) -> None:
    """List the circuit breakers of effects: how each stands, and until when."""
    async with session.caller() as caller:
        found = await caller.breakers()
        rows = [(plain(each.name), each.state, _until(each), _seen(each), _by(each)) for each in found]
        table = render.table("breaker", "state", "until", "", "by hand", rows=rows, nothing="No breakers yet.")
        session.out.show(rules.breakers(found), table)


async def show(session: Session, name: Name) -> None:
    """Show a circuit breaker."""
    async with session.caller() as caller:
        _show(session, await caller.breaker(name))


async def open_(
    session: Session,
    name: Name,
    *,
    by: By = None,
    lasts: Annotated[str | None, typer.Option(help="For how long: 10m. If not given: until closed.")] = None,
) -> None:
    """Open a circuit breaker: its effects wait. Who did it is recorded."""
    async with session.caller() as caller:
        _show(session, await caller.open_breaker(name, by=by, lasts=lasts))


async def close(session: Session, name: Name, *, by: By = None) -> None:
    """Close a circuit breaker: its effects begin at once. Who did it is recorded."""
    async with session.caller() as caller:
        _show(session, await caller.close_breaker(name, by=by))


async def slots(session: Session) -> None:
    """List the limits at effects: how many calls each lets be under way, and which instance has which slots."""
    async with session.caller() as caller:
        found = await caller.effect_limits()
        rows = [row for each in found for row in _rows(each)]
        table = render.table("limit", "in use", "instance", "slots", "wants", rows=rows, nothing="No limits yet.")
        session.out.show(rules.limits(found), table)


def _rows(limit: LimitStatus) -> list[tuple[str | Text, ...]]:
    total = "a rate alone" if limit.width is None else f"{limit.taken} of {limit.width}"
    shares = [(each.instance, str(each.slots), str(each.wants)) for each in limit.shares] or [("", "", "")]
    return [(plain(limit.name) if n == 0 else "", total if n == 0 else "", *row) for n, row in enumerate(shares)]


def _show(session: Session, breaker: BreakerStatus) -> None:
    told = [f"breaker {plain(breaker.name)} is {breaker.state}", _until(breaker), _seen(breaker), _by(breaker)]
    session.out.show(rules.breaker(breaker), ", ".join(filter(None, told)))


def _until(breaker: BreakerStatus) -> str:
    if breaker.until is not None:
        return f"until {breaker.until:%Y-%m-%d %H:%M:%S}Z"
    return "until it is closed by hand" if breaker.state == "open" else ""


def _seen(breaker: BreakerStatus) -> str:
    if breaker.prober:
        return f"probed by {breaker.prober}"
    return f"{breaker.failures} of {breaker.calls} calls failed" if breaker.calls else ""


def _by(breaker: BreakerStatus) -> str:
    if breaker.by_at is None:
        return ""
    return f"{breaker.did} by {plain(breaker.by) or 'hand'} at {breaker.by_at:%Y-%m-%d %H:%M:%S}Z"

"""`limits`: what a gateway limits and how much of it is left, or what is left of a limit of one's own."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group, RenderableType

from holdfast import wire
from holdfast.assembly import Holdfast
from holdfast.cli import render
from holdfast.cli.output import plain
from holdfast.cli.session import Session
from holdfast.client import LimitVerdict
from holdfast.config import Config
from holdfast.errors import UsageError
from holdfast.gateway_client import Client
from holdfast.kernel import limits as kernel
from holdfast.kernel.limits import Cost
from holdfast.wire.times import duration

COUNTED_FOR = {"address": "address", "api_key": "API key", "tenant": "namespace", "start": "namespace, each start"}


async def limits(
    session: Session,
    name: Annotated[str | None, typer.Argument(help="A limit of your own, as `hf.limit` names it.")] = None,
    rate: Annotated[str | None, typer.Option(help="Its rate, by which it is counted: 5/1h, 5/1h burst 10.")] = None,
) -> None:
    """Show what the gateway limits and how much of it is left; or of a limit of your own. Takes nothing."""
    if (name is None) is not (rate is None):
        raise UsageError(
            "a limit of your own is counted by its name and its rate",
            hint="Name both: holdfast limits mail:ada --rate 5/1h. Without them, the limits of the gateway are shown.",
        )
    async with session.caller() as caller:
        if name is not None and rate is not None:
            verdict = await caller.limit(name, kernel.parse(rate), cost=0)
            session.out.show(_view_of(verdict), _left(name, rate, verdict))
        else:
            shown = await caller.limits() if isinstance(caller, Client) else await _configured(caller, session.config)
            session.out.show(shown, _table(shown))


async def _configured(hf: Holdfast, config: Config) -> wire.LimitsView:
    """What the settings say that this command has read, and what the store says about this namespace."""
    found: list[wire.LimitView] = []
    for limit, rate in config.rate_limits.by_name.items():
        remaining = reset_after = None
        if limit in {"tenant", "start"}:
            [verdict] = await hf.runtime.limits.spend(hf.namespace, [Cost(limit, "", rate, 0)])
            remaining, reset_after = verdict.remaining, verdict.reset_ms / 1000
        view = wire.LimitView(
            limit=limit,  # pyright: ignore[reportArgumentType] - the names of the settings
            rate=kernel.text_of(rate),
            remaining=remaining,
            reset_after=reset_after,
        )
        found.append(view)
    counting = hf.runtime.limits
    return wire.LimitsView(limits=found, by_itself=counting.is_away, replicas=counting.replicas)


def _table(shown: wire.LimitsView) -> RenderableType:
    rows = [
        (each.limit, each.rate, COUNTED_FOR[each.limit], _number(each.remaining), _seconds(each.reset_after))
        for each in shown.limits
    ]
    table = render.table("limit", "rate", "for each", "left", "full in", rows=rows, nothing="Nothing is limited.")
    if not shown.by_itself:
        return table
    words = f"The store does not count: each of {shown.replicas} replicas lets its share pass."
    return Group(table, plain(words))


def _left(name: str, rate: str, verdict: LimitVerdict) -> RenderableType:
    full = "it is full" if not verdict.reset_after else f"it is full in {_seconds(verdict.reset_after)}"
    return plain(f"{name} at {rate}: {verdict.remaining} left, {full}")


def _view_of(verdict: LimitVerdict) -> wire.LimitVerdictView:
    return wire.LimitVerdictView(
        allowed=verdict.allowed,
        remaining=verdict.remaining,
        retry_after=verdict.retry_after,
        reset_after=verdict.reset_after,
    )


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    return "–" if value is None else duration(int(value * 1000))

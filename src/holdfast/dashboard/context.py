"""A visit: who asks for a page, and what a page is before it is rendered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from holdfast.client import Caller
from holdfast.dashboard.form_dedupe import FormDedupe
from holdfast.dashboard.forms import NOTHING, Form
from holdfast.dashboard.limit_counts import LimitCounts
from holdfast.dashboard.live import WaitSlots
from holdfast.dashboard.tallies import Tallies
from holdfast.dashboard.throughput import Throughput
from holdfast.errors import HoldfastError
from holdfast.kernel.apikeys import Scope, allows
from holdfast.kernel.rates import Rate
from holdfast.kernel.times import Instant
from holdfast.kernel.units import utc_of
from holdfast.runtime import Runtime
from holdfast.statuses import status_of


@dataclass(frozen=True, slots=True)
class Visit:
    """A request of a known visitor, with all the data that they may see within reach."""

    request: Request
    caller: Caller
    scope: Scope
    who: str  # the name of their API key; empty where none is needed
    throughput: Throughput
    wait_limit: WaitSlots
    form_dedupe: FormDedupe
    cancel_seconds_max: float
    tallies: Tallies
    runtime: Runtime
    rates: Mapping[str, Rate]  # what the gateway beside the pages limits
    limit_counts: LimitCounts
    now_ms: Instant
    form: Form = NOTHING

    @property
    def now(self) -> datetime:
        return utc_of(self.now_ms)

    def may(self, scope: Scope) -> bool:
        return allows(self.scope, scope)

    def part(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    async def until_gone(self) -> None:
        """Returns when the visitor has hung up. The form has been read by then."""
        while (await self.request.receive())["type"] != "http.disconnect":
            pass


@dataclass(frozen=True, slots=True)
class HtmlPage:
    """A template and what it shows."""

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    status: int = 200


Handler = Callable[[Visit], Awaitable[HtmlPage | Response]]


def see(path: str) -> RedirectResponse:
    """Where to look now."""
    return RedirectResponse(path, status_code=303)


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as a person reads it: what happened, and what to do now."""

    message: str
    hint: str
    status: int
    run_id: str = ""  # of a run that stands in the way


def problem_of(error: HoldfastError) -> Problem:
    return Problem(error.message, error.hint, status_of(error), str(getattr(error, "run_id", "")))

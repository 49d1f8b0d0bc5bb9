"""The dashboard as routes.

    GET                               POST
    /                  overview       /runs/{run_id}/{signal, cancel, retry, resume, decide, fork, release_key}
    /runs              search         /runs/{run_id}/retry_now, /workflows/{name}/start
    /bulk              many runs      /bulk
    /runs/{run_id}     one run        /login, /logout
    /runs/{run_id}/children           those that it has started
    /runs/{run_id}/input, /output     its values, whole
    /workflows, /workflows/{name}, /workers, /limits
    /rules             breakers, limits   /rules/{name}/{open, close}
    /lanes             by name
    /lanes/one         a lane         /lanes/one
    /login             where API keys are required
    /live              ticks
    /static/{name}     style, script, icon

Data is reached through `visit.caller`, which knows the visitor's namespace and no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from starlette.routing import BaseRoute, Route

from holdfast.assembly import Holdfast
from holdfast.dashboard import actions, bulk, children, limits, pages, rules, run_page
from holdfast.dashboard.context import Handler
from holdfast.dashboard.filters import Filters
from holdfast.dashboard.live import WaitSlots
from holdfast.dashboard.middleware import PageGuard
from holdfast.dashboard.timeline_view import PARAMETERS
from holdfast.kernel.apikeys import Scope
from holdfast.kernel.rates import Rate

NO_RATES: Mapping[str, Rate] = MappingProxyType({})


class PageRoute(NamedTuple):
    """A path, its handler, and the scope that it needs."""

    method: str
    path: str
    handler: Handler
    scope: Scope
    parameters: tuple[str, ...] = ()  # that its query may have


PAGE_ROUTES: tuple[PageRoute, ...] = (
    PageRoute("GET", "/", pages.overview, "read"),
    PageRoute("GET", "/runs", pages.runs, "read", Filters.__struct_fields__),
    PageRoute("GET", "/bulk", bulk.page, "write", bulk.PARAMETERS),
    PageRoute("GET", "/runs/{run_id}", run_page.run, "read", ("journal", "done", *PARAMETERS)),
    PageRoute("GET", "/runs/{run_id}/children", children.children, "read", ("after",)),
    PageRoute("GET", "/runs/{run_id}/input", run_page.raw_input, "read"),
    PageRoute("GET", "/runs/{run_id}/output", run_page.raw_output, "read"),
    PageRoute("GET", "/workflows", pages.workflows, "read"),
    PageRoute("GET", "/workflows/{name}", pages.workflow, "read"),
    PageRoute("GET", "/lanes", pages.lanes, "read", ("after",)),
    PageRoute("GET", "/lanes/one", pages.one_lane, "read", ("name",)),
    PageRoute("GET", "/workers", pages.workers, "read"),
    PageRoute("GET", "/limits", limits.page, "read"),
    PageRoute("GET", "/rules", rules.page, "read"),
    PageRoute("POST", "/rules/{name}/open", rules.open_breaker, "write"),
    PageRoute("POST", "/rules/{name}/close", rules.close_breaker, "write"),
    PageRoute("POST", "/workflows/{name}/start", actions.start, "write"),
    PageRoute("POST", "/bulk", bulk.start, "write"),
    PageRoute("POST", "/lanes/one", actions.set_lane, "write"),
    *(
        PageRoute("POST", f"/runs/{{run_id}}/{name}", actions.on_run(name, action), run_page.scope_of(name))
        for name, action in actions.ON_RUNS.items()
    ),
)


def routes(
    hf: Holdfast,
    *,
    require_keys: bool,
    wait_limit: WaitSlots,
    cancel_seconds_max: float,
    rates: Mapping[str, Rate] = NO_RATES,
) -> list[BaseRoute]:
    """All of it. With `require_keys` every page needs an API key; without, all visitors may do everything.

    A visitor who cancels a run waits for `cancel_seconds_max` at most; the cancellation may take longer.
    `rates` are what the gateway beside it limits.
    """
    guard = PageGuard(
        hf, require_keys=require_keys, wait_limit=wait_limit, cancel_seconds_max=cancel_seconds_max, rates=rates
    )
    return [
        *(
            Route(place.path, guard.to(place.handler, place.scope, place.parameters), methods=[place.method])
            for place in PAGE_ROUTES
        ),
        Route("/login", guard.guarded(guard.login_page), methods=["GET"]),
        Route("/login", guard.guarded(guard.login), methods=["POST"]),
        Route("/logout", guard.guarded(guard.logout), methods=["POST"]),
        Route("/live", guard.guarded(guard.live), methods=["GET"]),
        Route("/static/{name}", guard.static, methods=["GET"]),
    ]

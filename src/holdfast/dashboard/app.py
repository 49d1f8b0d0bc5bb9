"""The dashboard as routes.

    GET                               POST
    /                  overview       /runs/{run_id}/{signal, cancel, retry, resume, fork, release_key}
    /runs              search         /workflows/{name}/start
    /runs/{run_id}     one run        /login, /logout
    /runs/{run_id}/input, /output     its values, whole
    /workflows, /workflows/{name}, /workers
    /login             where API keys are required
    /live              ticks
    /static/{name}     style, script, icon

Data is reached through `visit.caller`, which knows the visitor's namespace and no other.
"""

from __future__ import annotations

from typing import NamedTuple

from starlette.routing import BaseRoute, Route

from holdfast.assembly import Holdfast
from holdfast.dashboard import actions, pages, run_page
from holdfast.dashboard.context import Handler
from holdfast.dashboard.live import Lobby
from holdfast.dashboard.middleware import FrontDoor
from holdfast.kernel.apikeys import Scope


class Place(NamedTuple):
    """A path, what is there, and who may have it."""

    method: str
    path: str
    handler: Handler
    scope: Scope


PLACES: tuple[Place, ...] = (
    Place("GET", "/", pages.overview, "read"),
    Place("GET", "/runs", pages.runs, "read"),
    Place("GET", "/runs/{run_id}", run_page.run, "read"),
    Place("GET", "/runs/{run_id}/input", run_page.raw_input, "read"),
    Place("GET", "/runs/{run_id}/output", run_page.raw_output, "read"),
    Place("GET", "/workflows", pages.workflows, "read"),
    Place("GET", "/workflows/{name}", pages.workflow, "read"),
    Place("GET", "/workers", pages.workers, "read"),
    Place("POST", "/workflows/{name}/start", actions.start, "write"),
    *(
        Place("POST", f"/runs/{{run_id}}/{name}", actions.on_run(name, action), run_page.scope_of(name))
        for name, action in actions.ON_RUNS.items()
    ),
)


def routes(hf: Holdfast, *, require_keys: bool, lobby: Lobby) -> list[BaseRoute]:
    """All of it. With `require_keys` nobody sees anything without an API key; without, everybody may do everything."""
    door = FrontDoor(hf, require_keys=require_keys, lobby=lobby)
    return [
        *(Route(place.path, door.to(place.handler, place.scope), methods=[place.method]) for place in PLACES),
        Route("/login", door.guarded(door.login_page), methods=["GET"]),
        Route("/login", door.guarded(door.login), methods=["POST"]),
        Route("/logout", door.guarded(door.logout), methods=["POST"]),
        Route("/live", door.guarded(door.live), methods=["GET"]),
        Route("/static/{name}", door.static, methods=["GET"]),
    ]

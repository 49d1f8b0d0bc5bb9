"""Pages become HTML. Everything that comes from outside is escaped, and a name that is not defined is an error."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

from holdfast.dashboard.context import HtmlPage, Visit
from holdfast.dashboard.files import Files
from holdfast.kernel.units import utc_of
from holdfast.wire import times

NAVIGATION = (
    ("/", "Overview"),
    ("/runs", "Runs"),
    ("/workflows", "Workflows"),
    ("/lanes", "Lanes"),
    ("/limits", "Limits"),
    ("/rules", "Rules"),
    ("/workers", "Workers"),
)


def part(text: str) -> str:
    """A part of a path: nothing in it ends the part."""
    return quote(text, safe="")


def plain(value: object) -> str:
    """The value of an attribute."""
    if isinstance(value, datetime):
        return times.exact(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


FILTERS = {each.__name__: each for each in (times.ago, times.duration, times.exact, utc_of, times.instant, part, plain)}


class Renderer:
    """The templates."""

    def __init__(self, files: Files) -> None:
        self._environment = Environment(
            loader=PackageLoader("holdfast.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        cast("dict[str, Any]", self._environment.filters).update(FILTERS)
        cast("dict[str, Any]", self._environment.globals).update(address=files.address, navigation=NAVIGATION)

    def response(self, page: HtmlPage, *, visit: Visit | None, token: str, path: str) -> HTMLResponse:
        """The response for a visitor; None if the visitor is not known yet."""
        html = self._environment.get_template(page.template).render(
            page.values,
            title=page.title,
            token=token,
            path=path,
            visit=visit,
            now=None if visit is None else visit.now,
        )
        return HTMLResponse(html, status_code=page.status)

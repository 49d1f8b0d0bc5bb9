"""What stands round every page: who the visitor is, what is asked of every form, and the headers of every response.

Rules
- Where keys are required, a visitor shows one once, at login; without, all visitors may do everything.
- What changes something is posted, with the token of the session, or refused.
- Nothing inline: the policy of every response forbids scripts and styles that are not files of ours.
- A fault of ours is told as an event, and the visitor gets a page.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response

from holdfast.assembly import Holdfast
from holdfast.client import Caller
from holdfast.dashboard import forms
from holdfast.dashboard.context import Handler, HtmlPage, Visit, problem_of, see
from holdfast.dashboard.files import Files
from holdfast.dashboard.form_dedupe import FormDedupe
from holdfast.dashboard.forms import NOTHING, Form
from holdfast.dashboard.limit_counts import LimitCounts
from holdfast.dashboard.live import Ticks, WaitSlots
from holdfast.dashboard.rendering import Renderer
from holdfast.dashboard.sessions import COOKIE, LIFETIME_MS, BrowserSession, Sessions
from holdfast.dashboard.tallies import Tallies
from holdfast.dashboard.throughput import Throughput
from holdfast.errors import HoldfastError, NotAuthenticated, NotPermitted, UsageError
from holdfast.events import PartFailed
from holdfast.kernel.apikeys import Scope
from holdfast.kernel.rates import Rate

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Guarded = Callable[[Request, BrowserSession, Form], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]


class FormForged(NotPermitted):
    """A form without the token of this session: another site may have sent it."""

    code = "form_forged"
    hint = "Load the page again and repeat what you did."


class PageGuard:
    """Turns the handlers of pages into endpoints."""

    def __init__(
        self,
        hf: Holdfast,
        *,
        require_keys: bool,
        wait_limit: WaitSlots,
        cancel_seconds_max: float,
        rates: Mapping[str, Rate],
    ) -> None:
        self._rates = rates
        self._limit_counts = LimitCounts(hf.runtime.store.now_ms)
        hf.listen(self._limit_counts)
        self._hf = hf
        self._require_keys = require_keys
        self._wait_limit = wait_limit
        self._cancel_seconds_max = cancel_seconds_max
        self._sessions = Sessions(hf.runtime.common_documents)
        self._throughput = Throughput(hf)
        self._form_dedupe = FormDedupe()
        self._tallies = Tallies()
        self._files = Files()
        self._renderer = Renderer(self._files)

    def to(self, handler: Handler, scope: Scope, parameters: Sequence[str] = ()) -> Endpoint:
        """The endpoint of a page, or of an action, for those who may. A query has no other `parameters`."""

        async def page(request: Request, session: BrowserSession, form: Form) -> Response:
            try:
                visit = await self._visit(request, session, form)
            except NotAuthenticated:
                if request.method == "POST":
                    raise
                return see(f"/login?next={quote(_address(request), safe='')}")
            if not visit.may(scope):
                raise NotPermitted(f"this needs the scope {scope!r}; your key has {visit.scope!r}")
            _check_parameters(request, parameters)
            shown = await handler(visit)
            return shown if isinstance(shown, Response) else self._render(shown, request, session, visit)

        return self.guarded(page)

    async def _visit(self, request: Request, session: BrowserSession, form: Form = NOTHING) -> Visit:
        """Whose session this is. Raises `NotAuthenticated`."""
        caller, scope, who = await self._who(session)
        now_ms = self._hf.runtime.common_documents.now_ms()
        return Visit(
            request,
            caller,
            scope,
            who,
            self._throughput,
            self._wait_limit,
            self._form_dedupe,
            self._cancel_seconds_max,
            self._tallies,
            self._hf.runtime,
            self._rates,
            self._limit_counts,
            now_ms,
            form,
        )

    async def _who(self, session: BrowserSession) -> tuple[Caller, Scope, str]:
        if not self._require_keys:
            return self._hf, "admin", ""
        if not session.key_id:
            raise NotAuthenticated("no visitor is logged in", hint="Log in with an API key.")
        key = await self._hf.api_keys.known(session.key_id)
        return self._hf.namespaced(key.namespace), key.scope, key.name

    # -- coming and going

    async def login_page(self, request: Request, session: BrowserSession, form: Form) -> Response:
        if not self._require_keys:
            return see("/")
        del form
        values = {"next": _local(request.query_params.get("next", "")), "problem": None}
        return self._render(HtmlPage("login.html", "Log in", values), request, session, None)

    async def login(self, request: Request, session: BrowserSession, form: Form) -> Response:
        try:
            key = await self._hf.api_keys.authenticate(form["key"])
        except NotAuthenticated as error:
            values = {"next": _local(form["next"]), "problem": problem_of(error)}
            return self._render(HtmlPage("login.html", "Log in", values, status=401), request, session, None)
        response = see(_local(form["next"]))
        self._set_cookie(response, request, self._sessions.begin(key.id))
        return response

    async def logout(self, request: Request, session: BrowserSession, form: Form) -> Response:
        del session, form
        response = see("/login" if self._require_keys else "/")
        self._set_cookie(response, request, self._sessions.begin())
        return response

    # -- what is no page

    async def live(self, request: Request, session: BrowserSession, form: Form) -> Response:
        await self._visit(request, session, form)
        if request.method == "HEAD":  # a body that is left out would never end
            return Response(media_type="text/event-stream")
        return Ticks(self._hf, self._wait_limit)

    async def static(self, request: Request) -> Response:
        response = self._files.response(str(request.path_params["name"]), request)
        response.headers["X-Content-Type-Options"] = HEADERS["X-Content-Type-Options"]
        return response

    # -- what holds for all

    def guarded(self, page: Guarded) -> Endpoint:
        """Session, token of the form, errors and headers round a page."""

        async def endpoint(request: Request) -> Response:
            session: BrowserSession | None = None
            held: BrowserSession | None = None
            try:
                await self._sessions.prepare()
                held = self._sessions.known(request.cookies.get(COOKIE))
                if held is None and request.method == "GET" and request.headers.get("sec-fetch-site") == "cross-site":
                    # A link on another site led here, so the browser kept the cookie back. Asked again, from here, it
                    # sends it; a new session would replace the one that it has.
                    return _with_headers(HTMLResponse(_AGAIN))
                session = self._sessions.begin() if held is None else self._sessions.renewed(held)
                response = await page(request, session, await self._form(request, session))
            except ClientDisconnect:
                return Response(status_code=499)  # no one receives it
            except HoldfastError as error:
                response = self._refusal_page(error, request, session)
            except Exception as error:  # noqa: BLE001 - a fault of ours must not end the connection without a response
                self._hf.runtime.emit(
                    PartFailed(f"{request.method} {request.url.path}", f"{type(error).__name__}: {error}")
                )
                response = self._refusal_page(HoldfastError("this page has failed"), request, session)
            if session is not None and session != held and "set-cookie" not in response.headers:
                self._set_cookie(response, request, session)
            return _with_headers(response)

        return endpoint

    async def _form(self, request: Request, session: BrowserSession) -> Form:
        if request.method != "POST":
            return NOTHING
        form = await forms.read(request)
        if not self._sessions.fits(session, form["token"]):
            raise FormForged("the form does not have the token of your session")
        return form

    def _render(self, page: HtmlPage, request: Request, session: BrowserSession, visit: Visit | None) -> Response:
        return self._renderer.response(page, visit=visit, token=self._sessions.token(session), path=request.url.path)

    def _refusal_page(self, error: HoldfastError, request: Request, session: BrowserSession | None) -> Response:
        problem = problem_of(error)
        page = HtmlPage("problem.html", "Not possible", {"problem": problem}, status=problem.status)
        token = "" if session is None else self._sessions.token(session)
        return self._renderer.response(page, visit=None, token=token, path=request.url.path)

    def _set_cookie(self, response: Response, request: Request, session: BrowserSession) -> None:
        response.set_cookie(
            COOKIE,
            self._sessions.cookie(session),
            max_age=LIFETIME_MS // 1_000,
            httponly=True,
            samesite="strict",
            # TLS ends at a proxy in front. A visitor who claims it wrongly only loses their own cookie.
            secure="https" in {request.url.scheme, request.headers.get("x-forwarded-proto", "")},
        )


_AGAIN = '<!doctype html><meta http-equiv="refresh" content="0"><title>Holdfast</title>'


def _with_headers(response: Response) -> Response:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def _check_parameters(request: Request, known: Sequence[str]) -> None:
    """A parameter that is ignored would show another page than the one that was asked for."""
    for name in request.query_params:
        if name not in known:
            listed = f"Known parameters: {', '.join(known)}." if known else "This page takes no parameters."
            raise UsageError(f"this page does not know the parameter {name[:40]!r}", hint=listed)


def _local(path: str) -> str:
    """Where to go after the login: a path of ours, whatever the link said."""
    ours = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if ours else "/"


def _address(request: Request) -> str:
    return f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path

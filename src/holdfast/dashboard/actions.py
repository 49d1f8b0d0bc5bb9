"""What people do on the pages. Each is a form that is posted, and ends on the page that shows what came of it.

A form that is sent twice counts once:

    start         its nonce is the request id
    signal        its nonce is the dedupe id
    fork          its nonce tells it from the next one; what it made is remembered, in this process (`once`)
    the others    find done what the first has done, and change nothing or are refused

Only a retry counts again if the run has failed again in between.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from starlette.responses import RedirectResponse

from holdfast.client import Run
from holdfast.dashboard import pages, run_page
from holdfast.dashboard.context import Handler, HtmlPage, Visit, problem_of, see
from holdfast.errors import HoldfastError, UsageError
from holdfast.run import send

DEADLINE = "30s"
Action = Callable[[Run[Any], Visit], Awaitable[str]]  # returns the id of the run to be shown


async def signal(run: Run[Any], visit: Visit) -> str:
    form = visit.form
    if not form["hook"]:
        raise UsageError("the signal names no hook", hint="Say which hook it is for.")
    await send(run, form["hook"], form.json("payload"), dedupe=form["dedupe"] or form["nonce"] or None)
    return run.id


async def cancel(run: Run[Any], visit: Visit) -> str:
    """Waits for the receipt, for a while. What takes longer goes on without us, and the page of the run says so."""
    form = visit.form
    with visit.wait_limit.slot():
        cancelling = await run.ask_cancel(form["reason"] or None, deadline=form["deadline"] or DEADLINE)
        seconds = visit.cancel_seconds_max
        done = await visit.wait_limit.first_of(cancelling.receipt(), seconds=seconds, gone=visit.until_gone)
    if done is not None:
        done.result()  # raises what it raised
    return run.id


async def retry(run: Run[Any], visit: Visit) -> str:
    del visit
    return (await run.retry()).id


async def retry_now(run: Run[Any], visit: Visit) -> str:
    form = visit.form
    return (await run.retry_now(form["step"] or None, by=form["by"] or None, reason=form["reason"] or None)).id


async def decide(run: Run[Any], visit: Visit) -> str:
    """Exactly what was chosen counts: what stands in the fields of another choice was typed before, and left there."""
    form = visit.form
    said: dict[str, Any] = {}
    match form["outcome"]:
        case "returned":
            said["returned"] = form.json("returned")
        case "failed" if form["failed"]:
            said["failed"] = form["failed"]
        case "failed":
            raise UsageError("the decision does not say why it failed", hint="The code of the run gets the reason.")
        case "not_performed":
            said["not_performed"] = True
        case _:
            raise UsageError("the decision says nothing", hint="Choose what came of the step.")
    if not form["by"]:
        raise UsageError("the decision does not say who decides", hint="A name will do. It is recorded.")
    return (await run.decide(form["step"], **said, by=form["by"], reason=form["reason"] or None)).id


async def resume(run: Run[Any], visit: Visit) -> str:
    del visit
    return (await run.resume()).id


async def fork(run: Run[Any], visit: Visit) -> str:
    form = visit.form

    async def make() -> str:
        return (await run.fork(form["at"], key=form["key"] or None)).id

    # Without a nonce a second fork like the first could not be asked for.
    return await visit.form_dedupe.make_once((run.id, form.digest), make) if form["nonce"] else await make()


async def release_key(run: Run[Any], visit: Visit) -> str:
    return (await run.release_key(visit.form["reason"] or None)).id


ON_RUNS: dict[str, Action] = {
    "signal": signal,
    "cancel": cancel,
    "retry": retry,
    "retry_now": retry_now,
    "resume": resume,
    "decide": decide,
    "fork": fork,
    "release_key": release_key,
}


def on_run(name: str, action: Action) -> Handler:
    """The handler of this action's form."""

    async def handler(visit: Visit) -> HtmlPage | RedirectResponse:
        run = await visit.caller.get(visit.part("run_id"))
        try:
            shown = await action(run, visit)
        except HoldfastError as error:
            return await run_page.run(visit, problem=problem_of(error), refused=name)
        return see(f"/runs/{quote(shown, safe='')}?done={name}")

    return handler


async def start(visit: Visit) -> HtmlPage | RedirectResponse:
    form = visit.form
    try:
        call = visit.caller.call(visit.part("name"), (form["input"] or "{}").encode())
        run, created = await visit.caller.start(
            call,
            key=form["key"] or None,
            delay=form["delay"] or None,
            timeout=form["timeout"] or None,
            priority=_whole(form["priority"]),
            lane=form["lane"] or None,
            request_id=form["nonce"] or None,
        )
    except HoldfastError as error:
        return await pages.workflow(visit, problem=problem_of(error))
    return see(f"/runs/{quote(run.id, safe='')}?done={'started' if created else 'joined'}")


async def set_lane(visit: Visit) -> HtmlPage | RedirectResponse:
    """Done twice it is done once: what is set is what the form says, and not a step from what was there."""
    name, form = visit.form["name"], visit.form
    try:
        match form["set"]:
            case "width":
                await visit.caller.set_lane(name, width=_whole(form["width"], what="width"), by=visit.who)
            case "pause" | "resume":
                await visit.caller.set_lane(name, paused=form["set"] == "pause", by=visit.who)
            case _:
                raise UsageError("the form says nothing of the lane", hint="Send the form of the page.")
    except HoldfastError as error:
        return await pages.lane(visit, name, problem=problem_of(error))
    return see(f"/lanes/one?name={quote(name, safe='')}")


def _whole(text: str, *, what: str = "priority") -> int:
    try:
        return int(text or "0")
    except ValueError:
        raise UsageError(f"the {what} {text!r:.40} is not a whole number", hint="Use 0, or leave it out.") from None

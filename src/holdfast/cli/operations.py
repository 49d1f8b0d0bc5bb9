"""Moving runs: `signal`, `cancel`, `receipt`, `resume`, `retry`, `retry-now`, `decide`, `fork`, `release-key`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from msgspec import UNSET

from holdfast.cli import render
from holdfast.cli.arguments import Reason, RunReference, json_or_text
from holdfast.cli.session import Session, find_run
from holdfast.client import Run
from holdfast.run import send
from holdfast.wire import outbound


async def signal(
    session: Session,
    run: RunReference,
    hook: Annotated[str, typer.Argument(help="Name of the hook.")],
    payload: Annotated[str, typer.Argument(help="JSON, or else text.")] = "null",
    dedupe: Annotated[str | None, typer.Option(help="Deliver once per this id.")] = None,
) -> None:
    """Send a payload to a hook of a run, durably."""
    async with session.caller() as caller:
        found = await find_run(caller, run)
        said = await send(found, hook, json_or_text(payload), dedupe=dedupe)
        _show_run(session, await found.refresh(), f"sent to hook {hook} of run {found.id}")
        if said:
            session.out.warning(said)


async def resume_hook(
    session: Session,
    token: Annotated[str, typer.Argument(help="Token of the hook.")],
    payload: Annotated[str, typer.Argument(help="JSON, or else text.")] = "null",
    dedupe: Annotated[str | None, typer.Option(help="Deliver once per this id.")] = None,
) -> None:
    """Send a payload to whichever live run holds a token."""
    async with session.caller() as caller:
        found = await caller.resume_hook(token, json_or_text(payload), dedupe=dedupe)
        _show_run(session, found, f"sent to run {found.id}")


async def cancel(
    session: Session,
    run: RunReference,
    reason: Reason = None,
    deadline: Annotated[str, typer.Option(help="How long its cleanup may take.")] = "30s",
) -> None:
    """Cancel a run, wait until it has ended, and say what it left behind."""
    async with session.caller() as caller:
        found = await find_run(caller, run)
        with session.out.waiting(f"run {found.id} is being cancelled"):
            receipt = await found.cancel(reason, deadline=deadline)
        session.out.show(outbound.receipt(receipt), render.receipt(receipt))


async def receipt(session: Session, run: RunReference) -> None:
    """Say again what a cancelled or failed run left behind."""
    async with session.caller() as caller:
        left = await (await find_run(caller, run)).receipt()
        session.out.show(outbound.receipt(left), render.receipt(left))


async def resume(session: Session, run: RunReference) -> None:
    """Let a cancelled run go on as if it had not been cancelled."""
    async with session.caller() as caller:
        found = await (await find_run(caller, run)).resume()
        _show_run(session, found, f"run {found.id} goes on")


async def retry(session: Session, run: RunReference) -> None:
    """Try a failed or blocked run again from its last record."""
    async with session.caller() as caller:
        found = await (await find_run(caller, run)).retry()
        _show_run(session, found, f"run {found.id} is tried again")


async def decide(
    session: Session,
    run: RunReference,
    step: Annotated[str, typer.Argument(help="The step in doubt: transfer#1.")],
    *,
    returned: Annotated[str | None, typer.Option(help="It happened: what it returned, as JSON or else text.")] = None,
    failed: Annotated[str | None, typer.Option(help="It failed for good: why.")] = None,
    not_performed: Annotated[bool, typer.Option("--not-performed", help="It never happened: call it.")] = False,
    by: Annotated[str | None, typer.Option(help="Who says so.")] = None,
    reason: Reason = None,
) -> None:
    """Say what came of a step whose outcome is not known, and let the run go on. It is recorded."""
    value = UNSET if returned is None else json_or_text(returned)
    async with session.caller() as caller:
        found = await (await find_run(caller, run)).decide(
            step, returned=value, failed=failed, not_performed=not_performed, by=by, reason=reason
        )
        _show_run(session, found, f"run {found.id} goes on")


async def retry_now(
    session: Session,
    run: RunReference,
    step: Annotated[str | None, typer.Argument(help="The step: charge#1. Without it, every one that waits.")] = None,
    *,
    by: Annotated[str | None, typer.Option(help="Who says so.")] = None,
    reason: Reason = None,
) -> None:
    """Let the next attempt of an effect begin at once, instead of at the end of its pause. It is recorded."""
    async with session.caller() as caller:
        found = await (await find_run(caller, run)).retry_now(step, by=by, reason=reason)
        _show_run(session, found, f"the next attempt in run {found.id} begins")


async def fork(
    session: Session,
    run: RunReference,
    at: Annotated[str, typer.Option(help="The step from which on it may differ: charge#1.")],
    key: Annotated[str | None, typer.Option(help="Another key, for a fork of a live run.")] = None,
) -> None:
    """Start a new run that begins with what this one did before a step."""
    async with session.caller() as caller:
        found = await (await find_run(caller, run)).fork(at, key=key)
        _show_run(session, found, f"run {found.id} begins before step {at}")


async def release_key(session: Session, run: RunReference, reason: Reason = None) -> None:
    """Take the key from a run, so that it can be used again. It is recorded."""
    async with session.caller() as caller:
        found = await (await find_run(caller, run)).release_key(reason)
        _show_run(session, found, f"run {found.id} no longer holds key {found.key}")


def _show_run(session: Session, run: Run[Any], words: str) -> None:
    session.out.show(outbound.run(run), words)

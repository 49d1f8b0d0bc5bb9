"""Starting work, and waiting for what comes of it: `start`, `result`, `input`."""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from holdfast import wire
from holdfast.adapters.machine import SystemClock
from holdfast.cli.arguments import RunReference, Timeout, WorkflowName, attributes_of, json_of, json_or_text, pair
from holdfast.cli.output import encoded
from holdfast.cli.session import Session, find_run
from holdfast.client import Run
from holdfast.errors import UsageError
from holdfast.warnings import NoWorker
from holdfast.wire import outbound

LOOK_SECONDS = 1.0


async def start(
    session: Session,
    workflow: WorkflowName,
    pairs: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=VALUE", help="Arguments: JSON, or else text.")
    ] = None,
    *,
    input: Annotated[
        str | None, typer.Option("--input", "-i", help="All arguments as a JSON object: JSON, @file, or - for stdin.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="The key, if not the workflow's own.")] = None,
    attribute: Annotated[list[str] | None, typer.Option(help="NAME=VALUE by which the run is found.")] = None,
    retention: Annotated[str | None, typer.Option(help="How long key and result are kept: 30d.")] = None,
    delay: Annotated[str | None, typer.Option(help="When it may begin: 5m.")] = None,
    run_timeout: Annotated[str | None, typer.Option(help="How long the run may take: 1h.")] = None,
    priority: Annotated[int, typer.Option(help="Higher goes first.")] = 0,
    lane: Annotated[str | None, typer.Option(help="The lane in which it waits for its turn.")] = None,
    width: Annotated[int | None, typer.Option(help="How many runs of the lane may be active at once.")] = None,
    if_free: Annotated[bool, typer.Option("--if-free", help="Start it only if the lane has no runs.")] = False,
    signal: Annotated[str | None, typer.Option(help="HOOK=PAYLOAD: signal the run of this key, or start it.")] = None,
    dedupe: Annotated[str | None, typer.Option(help="Deliver the signal once per this id.")] = None,
    replace: Annotated[str | None, typer.Option(metavar="RUN", help="The owner of the key, to supersede.")] = None,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for the result.")] = False,
    timeout: Timeout = None,
) -> None:
    """Start a run, once per key: if a live run holds the key, that run is joined.

    On a store it needs `--pack`.
    """
    arguments = _arguments(input, pairs or ())
    async with session.caller(creates=True) as caller:
        started = await caller.start(
            caller.call(workflow, arguments),
            key=key,
            retention=retention,
            attributes=attributes_of(attribute or ()),
            replace=None if replace is None else await find_run(caller, replace),
            signal=_signal(signal, dedupe),
            delay=delay,
            timeout=run_timeout,
            priority=priority,
            lane=lane,
            width=width,
            if_free=if_free,
        )
        run = started.run
        verb = "started" if started.created else "joined"
        under = "" if run.key is None else f" under key {run.key}"
        words = f"{verb} run {run.id} of {run.workflow}{under}"
        if not wait:
            session.out.show(with_created(outbound.run(run), created=started.created), words)
            for lacking in (each for each in run.waiting_on if each.kind == "no_worker"):
                session.out.note(f"It waits for {lacking}.", "yellow")
            return
        session.out.note(words)
        value = await _result(session, run, timeout)
        document = msgspec.structs.replace(outbound.run(await run.refresh()), result=msgspec.Raw(encoded(value)))
        session.out.value(with_created(document, created=started.created), value)


async def result(session: Session, run: RunReference, timeout: Timeout = None) -> None:
    """Wait for a run's result, and print it. Exit code 1 if the run failed, was cancelled or is blocked."""
    async with session.caller() as caller:
        value = await _result(session, await find_run(caller, run), timeout)
        session.out.value(wire.ResultView(msgspec.Raw(encoded(value))), value)


async def input_(session: Session, run: RunReference) -> None:
    """Print the arguments that a run was started with."""
    async with session.caller() as caller:
        value = await (await find_run(caller, run)).input()
        session.out.value(value, value)


async def _result(session: Session, run: Run[Any], timeout: str | None) -> Any:
    """The result; people see meanwhile what the run waits for."""
    for lacking in (each for each in run.waiting_on if each.kind == "no_worker"):
        session.out.note(f"It waits for {lacking}.", "yellow")
    with session.out.waiting(f"run {run.id} is {run.status}") as say, warnings.catch_warnings():
        warnings.simplefilter("ignore", NoWorker)  # it has just been said
        looking = asyncio.create_task(_look(run, say)) if session.out.is_watched else None
        try:
            return await run.result(timeout)
        finally:
            if looking is not None:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)


async def _look(run: Run[Any], say: Callable[[str], None]) -> None:
    clock = SystemClock()
    while True:
        await clock.pause(LOOK_SECONDS)
        run = await run.refresh()
        why = "; ".join(f"waits for {wait}" for wait in run.waiting_on)
        say(f"run {run.id} is {run.status}: {why}")


def with_created(view: wire.RunView, *, created: bool) -> dict[str, Any]:
    """The run as the HTTP API returns it. Whether it is new, HTTP says by its status, and this by one more field."""
    return {**msgspec.json.decode(encoded(view), type=dict[str, msgspec.Raw]), "created": created}


def _arguments(given: str | None, pairs: Sequence[str]) -> dict[str, Any]:
    whole: Any = {} if given is None else json_of(_read(given), what="--input")
    if not isinstance(whole, dict):
        raise UsageError("--input is not a JSON object", hint='Write the arguments by name: {"order": "o-1"}.')
    return {**whole, **dict(map(pair, pairs))}


def _read(given: str) -> str:
    try:
        if given == "-":
            return sys.stdin.read()
        return Path(given[1:]).read_text(encoding="utf-8") if given.startswith("@") else given
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--input {given} cannot be read: {error}", hint="Name a file with UTF-8 text.") from error


def _signal(text: str | None, dedupe: str | None) -> tuple[str, Any] | tuple[str, Any, str] | None:
    if text is None:
        return None
    hook, _, payload = text.partition("=")
    value = json_or_text(payload) if payload else None
    return (hook, value) if dedupe is None else (hook, value, dedupe)

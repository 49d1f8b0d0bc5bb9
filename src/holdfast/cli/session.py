"""A session: one command, from its options to its exit code.

    HoldfastError        exit   means
    ───────────────────  ─────  ──────────────────────────────────────────
    (none)               0      done
    RunError             1      the run failed, was cancelled, or is blocked
    UsageError           2      the call is wrong; so does Typer for options
    TransientError       75     nothing was decided: try again
    Ctrl-C               130

Commands are async functions whose first parameter is the session. `command` gives them the options that all commands
have, and is the only place where errors become messages and exit codes.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

import typer

from holdfast import config as settings
from holdfast.assembly import Holdfast, file_of
from holdfast.cli import packs
from holdfast.cli.output import Output
from holdfast.client import Caller, Run
from holdfast.config import Config
from holdfast.engine.api.registry import Description
from holdfast.errors import (
    HoldfastError,
    InvalidConfig,
    RunError,
    TransientError,
    UnknownRun,
    UnknownWorkflow,
    UsageError,
)
from holdfast.telemetry import traces
from holdfast.wire import short_ids

if TYPE_CHECKING:
    from holdfast.gateway_client import Client

P = ParamSpec("P")
EXIT_CODES = ((UsageError, 2), (TransientError, 75), (RunError, 1), (HoldfastError, 1))
INTERRUPTED = 130
PANEL = "Where"

Url = Annotated[
    str | None,
    typer.Option(
        help="Store or gateway: sqlite:///file.db, redis://host:port, http://host:port.", rich_help_panel=PANEL
    ),
]
Bus = Annotated[
    str | None,
    typer.Option(help="What carries notices: nats://host:port. Unset: the store itself.", rich_help_panel=PANEL),
]
ApiKey = Annotated[str | None, typer.Option(help="API key for a gateway.", rich_help_panel=PANEL)]
Namespace = Annotated[str | None, typer.Option(help="Whose runs are meant.", rich_help_panel=PANEL)]
PackNames = Annotated[
    list[str] | None, typer.Option("--pack", help="Module with packs; may be repeated.", rich_help_panel=PANEL)
]
File = Annotated[Path | None, typer.Option("--config", help="Settings file: holdfast.toml.", rich_help_panel=PANEL)]
AsJson = Annotated[bool, typer.Option("--json", help="For programs: JSON instead of tables.", rich_help_panel=PANEL)]
COMMON: dict[str, tuple[Any, Any]] = {
    "url": (Url, None),
    "bus": (Bus, None),
    "api_key": (ApiKey, None),
    "namespace": (Namespace, None),
    "pack": (PackNames, None),
    "config": (File, None),
    "json": (AsJson, False),
}
Action = Callable[Concatenate["Session", P], Coroutine[Any, Any, None]]


class Session:
    """The settings and the output of one command, and the way to the runs."""

    def __init__(self, read: Callable[[], Config], out: Output) -> None:
        self._read = read
        self.out = out

    @cached_property
    def config(self) -> Config:
        """Read when it is first asked for: raises `InvalidConfig` with all faults."""
        return self._read()

    def on(self, config: Config) -> Session:
        """The same session with other settings."""
        return Session(lambda: config, self.out)

    @asynccontextmanager
    async def caller(self, *, creates: bool = False) -> AsyncGenerator[Holdfast | Client]:
        """The verbs, on a store or over a gateway. A file that is not there yet is made only if asked for."""
        config = self.config
        if config.is_gateway:
            from holdfast.gateway_client import Client  # noqa: PLC0415 - only what is used is loaded

            if config.namespace != Config().namespace:
                raise InvalidConfig(
                    f"--namespace {config.namespace} cannot be chosen at a gateway", hint="The API key decides it."
                )
            async with Client(config.url, api_key=config.api_key) as client:
                yield client
            return
        async with self.holdfast(creates=creates) as hf:
            yield hf

    async def workflows(self) -> tuple[Description, ...]:
        """What the workflows declare. Packs say it by themselves: no store is opened for it."""
        if not self.config.is_gateway:
            return await self.holdfast(creates=True).workflows()
        async with self.caller() as caller:
            return await caller.workflows()

    def holdfast(self, *, creates: bool = False, worker: bool = False, duties: bool | None = None) -> Holdfast:
        """A Holdfast on the store with the packs that are named, to be entered."""
        config = self.config
        if config.is_gateway:
            raise InvalidConfig(
                f"{config.url_shown} is a gateway; this needs a store",
                hint="Use --url sqlite:///file.db or --url redis://host:port.",
            )
        if not creates and (path := missing_file(config)) is not None:
            raise InvalidConfig(
                f"there is no store at {path}",
                hint="Check --url, HOLDFAST_URL and the current directory; `holdfast dev` makes one.",
            )
        return Holdfast(
            config.url,
            packs=packs.load(config.packs),
            worker=worker,
            duties=duties,
            bus=config.bus,
            namespace=config.namespace,
            lease=config.lease,
            concurrency=config.concurrency,
            busy_limit=config.busy_limit,
            queues=config.queues,
            record_inputs=config.record_inputs,
            seal=None if config.seal is None else packs.load_seal(config.seal),
            traces=traces.configured(),  # after the packs: a module of theirs may set it up
        )


def missing_file(config: Config) -> Path | None:
    """The file that the store would be, if there is none yet. Other stores say so by themselves."""
    path = file_of(config.url)
    return None if path is None or path.exists() else path


async def find_run(caller: Caller, reference: str) -> Run[Any]:
    """The run that a person means: by its id, by the beginning or the end of it, or by `workflow/key`."""
    workflow, slash, key = reference.partition("/")
    if not slash:
        try:
            return await caller.get(reference)
        except UnknownRun:
            if not short_ids.is_short(reference):
                raise
            return await short_ids.find(caller, reference)
    try:
        return await caller.find(workflow, key)
    except UnknownWorkflow:
        return await _find_by_key(caller, workflow, key)


async def _find_by_key(caller: Caller, workflow: str, key: str) -> Run[Any]:
    """The run that holds a key of the workflow with this short name, though no pack says which one that is."""
    found = [
        run
        async for run in caller.runs(key_prefix=key)
        if run.key == key and run.holds_key and run.workflow.partition(".")[2] == workflow
    ]
    if not found:
        raise UnknownRun(
            f"no run of a workflow {workflow!r} holds the key {key!r}",
            hint="`holdfast runs --key-prefix` finds keys. A key is free again when its retention is over.",
        )
    if len(found) > 1:
        names = ", ".join(sorted(run.workflow for run in found))
        raise UnknownRun(
            f"{len(found)} runs of workflows named {workflow!r} hold the key {key!r}: {names}",
            hint=f"Write the workflow's full name: {found[0].workflow}/{key}.",
        )
    return found[0]


def exit_code_of(error: HoldfastError) -> int:
    return next(code for kind, code in EXIT_CODES if isinstance(error, kind))


def command(action: Action[P]) -> Callable[..., None]:
    """What Typer calls: `action`, with the common options and a session of its own."""
    signature = inspect.signature(action, eval_str=True)
    own = list(signature.parameters.values())[1:]
    common = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in COMMON.items()
    ]

    @wraps(action)
    def run(**given: Any) -> None:
        shared = {name: given.pop(name) for name in COMMON}
        out = Output(as_json=shared["json"])
        try:
            session = Session(lambda: _config(shared), out)
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(action(session, **given))  # pyright: ignore[reportCallIssue] - Typer has read the signature
        except HoldfastError as error:
            code = exit_code_of(error)
            out.problem(error, code)
            raise typer.Exit(code) from None
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None

    keyword = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
    run.__signature__ = signature.replace(parameters=[*keyword, *common])  # pyright: ignore[reportAttributeAccessIssue] - as inspect reads it
    run.__annotations__ = {each.name: each.annotation for each in [*keyword, *common]}
    return run


def _config(shared: dict[str, Any]) -> Config:
    options = {"packs": shared["pack"], **{name: shared[name] for name in ("url", "bus", "api_key", "namespace")}}
    return settings.read(file=shared["config"] or _named_file(), environment=os.environ, options=options)


def _named_file() -> Path | None:
    named = os.environ.get("HOLDFAST_CONFIG", "")
    return Path(named) if named else None


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop

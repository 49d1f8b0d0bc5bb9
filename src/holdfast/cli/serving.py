"""Commands that stay: `dev` (all in one), `serve` (by roles), `worker`. SIGTERM and Ctrl-C stop them in order.

    role         what a process does that has it
    ───────────  ─────────────────────────────────────────────────────────────────────────────
    gateway      serves the HTTP API and the dashboard
    worker       executes runs
    scheduler    attends to what one process does for all, as a candidate: see `engine.leaders`

Without the role `gateway` there is still a port, for those who watch over the process: `/livez`, `/readyz`, `/metrics`.

With `--processes N` the command is a supervisor of N processes that run the same command: see `supervisor`.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from msgspec.structs import replace

from holdfast import config as settings
from holdfast.adapters.cores import usable_cores
from holdfast.adapters.machine import SystemClock
from holdfast.assembly import Holdfast
from holdfast.cli.banner import banner
from holdfast.cli.evidence import WithoutEvidence, require_evidence
from holdfast.cli.lifeline import Lifeline, inherited
from holdfast.cli.output import plain
from holdfast.cli.reloading import supervise
from holdfast.cli.session import Session
from holdfast.cli.supervisor import Supervisor, command_again
from holdfast.config import Config
from holdfast.errors import HoldfastError, InvalidConfig
from holdfast.telemetry import logs

PORTS_TRIED = 20

PackArguments = Annotated[
    list[str] | None, typer.Argument(metavar="PACK", help="Modules with packs: shop.orders, shop.orders:pack.")
]
Host = Annotated[str | None, typer.Option(help="Address to listen on.")]
Port = Annotated[int | None, typer.Option(min=0, max=65_535, help="Port to listen on; 0 takes a free one.")]
Concurrency = Annotated[int | None, typer.Option(min=1, help="How many runs and effects at once.")]
Queues = Annotated[list[str] | None, typer.Option("--queue", help="Serve only this queue; may be repeated.")]
Roles = Annotated[
    str | None, typer.Option(help="What this process does: gateway, worker, scheduler; several with commas.")
]
Processes = Annotated[
    str | None,
    typer.Option(metavar="N", help="How many processes, each a replica of its own; auto is one for each core."),
]
RequireKeys = Annotated[
    bool | None, typer.Option("--require-keys/--open", help="Whether requests need an API key. Open: loopback only.")
]


async def dev(
    session: Session,
    packs: PackArguments = None,
    *,
    port: Port = None,
    ephemeral: Annotated[bool, typer.Option("--ephemeral", help="A temporary store, gone afterwards.")] = False,
    ephemeral_in: Annotated[
        str | None, typer.Option("--ephemeral-in", hidden=True, help="Where the temporary store of --reload lies.")
    ] = None,
    reload: Annotated[bool, typer.Option("--reload", help="Start again when the code of a pack changes.")] = False,
) -> None:
    """Start engine, HTTP API and dashboard on one SQLite file, for development on this machine."""
    config = _with(session.config, packs=_all(session, packs), roles=settings.ROLES)
    if not config.packs:
        raise InvalidConfig("dev has no packs to run", hint="Name a module: holdfast dev shop.orders")
    with ExitStack() as stack:
        directory = ephemeral_in
        if ephemeral:
            directory = stack.enter_context(TemporaryDirectory(prefix="holdfast-", ignore_cleanup_errors=True))
        if reload:
            again = [argument for argument in sys.argv[1:] if argument not in {"--reload", "--ephemeral"}]
            # The store outlives the process that is started again for a change of the code.
            await supervise(again + ([f"--ephemeral-in={directory}"] if directory else []), config.packs, session.out)
            return
        os.environ.setdefault("HOLDFAST_LOG", "text")  # one wants to see what happens
        if directory is not None:
            config = replace(config, url=f"sqlite:///{directory}/holdfast.db", bus=None)
        # A port that was asked for is that one or none: the person who asked will look for us there.
        taken = _free_port(config.host, config.port) if port is None else port
        if port is None and taken != config.port:
            session.out.note(f"Port {config.port} is taken; this is {taken}.", "yellow")
        async with session.on(config).holdfast(creates=True, worker=True) as hf:
            await _serve(hf, replace(config, port=taken), on_ready=await banner(hf, config, session.out))


async def serve(
    session: Session,
    packs: PackArguments = None,
    *,
    host: Host = None,
    port: Port = None,
    roles: Roles = None,
    processes: Processes = None,
    dashboard: Annotated[bool, typer.Option("--dashboard/--no-dashboard", help="Serve the dashboard, too.")] = True,
    require_keys: RequireKeys = None,
    without_evidence: WithoutEvidence = None,
) -> None:
    """Serve the HTTP API and the dashboard, execute runs, attend to duties: what the roles say."""
    config = _with(session.config, packs=_all(session, packs), host=host, port=port, require_keys=require_keys)
    config = _with(config, roles=None if roles is None else settings.roles(roles), processes=_count(processes))
    worker = "worker" in config.roles
    if worker and not config.packs:
        raise InvalidConfig(
            "the worker has no packs to run",
            hint=f"Name a module: holdfast serve --roles {','.join(config.roles)} shop.orders",
        )
    lifeline = inherited()
    if lifeline is None:
        require_evidence(config, processes=_processes_of(config), waived=without_evidence)
    if lifeline is None and _processes_of(config) > 1:
        await _supervise_gateways(session, config)
        return
    say = partial(_ready, session, config) if lifeline is None else lifeline.say_ready
    async with session.on(config).holdfast(creates=True, worker=worker, duties="scheduler" in config.roles) as hf:
        await _serve(hf, config, dashboard=dashboard, on_ready=say, lifeline=lifeline)


async def worker(
    session: Session,
    packs: PackArguments = None,
    queue: Queues = None,
    concurrency: Concurrency = None,
    processes: Processes = None,
    *,
    without_evidence: WithoutEvidence = None,
) -> None:
    """Execute runs, and attend to duties, until told to stop. It listens on no port."""
    queues = tuple(queue) if queue else None
    config = _with(session.config, packs=_all(session, packs), queues=queues, concurrency=concurrency)
    config = _with(config, roles=("worker", "scheduler"), processes=_count(processes))
    if not config.packs:
        raise InvalidConfig("the worker has no packs to run", hint="Name a module: holdfast worker shop.orders")
    lifeline = inherited()
    if lifeline is None:
        require_evidence(config, processes=_processes_of(config), waived=without_evidence)
    if lifeline is None and _processes_of(config) > 1:
        await _supervise(session, config)
        return
    say = partial(_ready, session, config) if lifeline is None else lifeline.say_ready
    async with session.on(config).holdfast(creates=True, worker=True) as hf:
        await hf.serve(on_ready=lambda: say(None))


async def _supervise_gateways(session: Session, config: Config) -> None:
    from holdfast.server import shared_port  # noqa: PLC0415 - other commands need no web server

    count = _processes_of(config)
    with shared_port(config.host, config.port, require_keys=config.require_keys, processes=count) as (url, sockets):
        await _supervise(session, config, url=url, sockets=sockets)


async def _supervise(
    session: Session, config: Config, *, url: str | None = None, sockets: Sequence[Sequence[socket.socket | None]] = ()
) -> None:
    """Keep as many processes with this very command alive as are wanted, until told to stop."""
    logs.configure()
    supervisor = Supervisor(
        _processes_of(config),
        command_again(),
        sockets=sockets,
        clock=SystemClock(),
        emit=logs.log_events(f"{socket.gethostname()}-{os.getpid()}"),
        on_ready=partial(_ready, session, config, url),
    )
    finish = await supervisor.run()
    if finish.reason:
        raise HoldfastError(finish.reason, hint="What it said itself is above. All processes were stopped.")
    if finish.code:
        raise typer.Exit(finish.code)


async def _serve(
    hf: Holdfast,
    config: Config,
    *,
    on_ready: Callable[[str], None],
    dashboard: bool = True,
    lifeline: Lifeline | None = None,
) -> None:
    """Until told to stop. Without the role gateway there are only the paths for those who watch over the process."""
    from holdfast.server import SharedPort, serve as serve_http  # noqa: PLC0415 - other commands need no web server

    await serve_http(
        hf,
        host=config.host,
        port=config.port,
        api="gateway" in config.roles,
        dashboard=dashboard,
        require_keys=config.require_keys,
        rate_limits=config.rate_limits,
        shared=SharedPort(*lifeline.sockets) if lifeline else None,
        is_orphaned=lifeline.cut.is_set if lifeline else lambda: False,
        on_ready=on_ready,
    )


def _with(config: Config, **changed: object) -> Config:
    return replace(config, **{name: value for name, value in changed.items() if value is not None})


def _count(processes: str | None) -> object:
    return None if processes is None else settings.processes(processes)


def _processes_of(config: Config) -> int:
    return usable_cores() if config.processes == "auto" else config.processes


def _all(session: Session, packs: list[str] | None) -> tuple[str, ...]:
    return (*session.config.packs, *(packs or ()))


def _ready(session: Session, config: Config, url: str | None, pids: Sequence[int] = ()) -> None:
    """Say where we are. `pids` are the processes that we supervise, if we do."""
    roles = ", ".join(config.roles)
    words = f"Serving {config.url_shown} at {url}" if url else f"Working on {config.url_shown}"
    here = f"process {os.getpid()}"
    if pids:
        here = f"{len(pids)} processes, {', '.join(map(str, pids))}, of supervisor {os.getpid()}"
    document = {
        "store": config.url_shown,
        "namespace": config.namespace,
        "url": url,
        "pid": os.getpid(),
        "roles": config.roles,
    } | ({"processes": list(pids)} if pids else {})
    session.out.line(document, plain(f"{words} as {roles} ({here}). Ctrl-C stops it in order."))
    if "worker" not in config.roles:
        session.out.note("It executes no runs itself: give it the role worker, or start `holdfast worker` beside it.")
    elif "scheduler" not in config.roles:
        session.out.note("It attends to no duties: some process needs the role scheduler.")
    from holdfast.server import keys_are_required  # noqa: PLC0415 - other commands need no web server

    if url is not None and keys_are_required(config.host, config.require_keys):
        session.out.note("Requests need an API key: `holdfast keys create NAME` makes one.")


def _free_port(host: str, wanted: int) -> int:
    """`wanted`, or the next port that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in range(wanted, min(wanted + PORTS_TRIED, 65_536)) if wanted else ():
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                continue
            return port
    return wanted

"""`holdfast cluster`: Redis, NATS and replicas of every role as real processes on this machine, to play with.

`up` runs them, shows them, and ends them with itself. The other commands look at what `up` has written into its
directory, or ask it for something. Nothing is started again by itself: one wants to see what a loss does.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from holdfast.cli import packs as pack_names, render
from holdfast.cli.extras import require_lab
from holdfast.cli.output import Output, plain
from holdfast.cli.session import Session
from holdfast.errors import HoldfastError, InvalidConfig, TransientError

if TYPE_CHECKING:  # other commands import nothing of the lab
    from holdfast.lab.cluster.local_cluster import LocalCluster
    from holdfast.lab.cluster.members import MemberStatus
    from holdfast.lab.cluster.processes import State
    from holdfast.lab.cluster.state_file import Action, ClusterState, MemberRequest, StateDirectory

DIRECTORY = Path(".holdfast-cluster")
LOOK_SECONDS = 0.2
DOWN_SECONDS = 60.0
REPLICAS_MAX = 16
STYLES: dict[State, str] = {"running": "green", "stopped": "yellow", "dead": "bold red"}
IN_ORDER = (0, -signal.SIGTERM)  # how a part exits that was asked to stop

PackArguments = Annotated[
    list[str] | None, typer.Argument(metavar="PACK", help="Modules with packs: shop.orders, shop.orders:pack.")
]
Directory = Annotated[Path, typer.Option(help="Where its data, logs and state are. Emptied by `up`.")]
PartName = Annotated[str, typer.Argument(metavar="PART", help="Name of the part, as `cluster status` has it.")]


async def up(
    session: Session,
    packs: PackArguments = None,
    *,
    redis: Annotated[
        Literal["single", "cluster", "sentinel"],
        typer.Option(
            help="One server; 3 primaries with 2 replicas each; or a primary and 2 replicas with 3 Sentinels."
        ),
    ] = "single",
    nats: Annotated[Literal["0", "1", "3"], typer.Option(help="NATS servers. 0: Redis carries the wake-ups.")] = "1",
    gateways: Annotated[int, typer.Option(min=0, max=REPLICAS_MAX, help="How many processes serve the HTTP API.")] = 2,
    workers: Annotated[int, typer.Option(min=0, max=REPLICAS_MAX, help="How many execute runs.")] = 2,
    schedulers: Annotated[int, typer.Option(min=0, max=REPLICAS_MAX, help="How many stand for the duties.")] = 2,
    directory: Directory = DIRECTORY,
) -> None:
    """Start Redis, NATS and replicas of every role on this machine; show them until Ctrl-C, which ends them all."""
    state_directory = _state_directory(directory)
    from holdfast.lab.cluster.local_cluster import LocalCluster, Plan  # noqa: PLC0415 - other commands start no servers

    named = (*session.config.packs, *(packs or ()))
    if not named:
        raise InvalidConfig("the cluster has no packs to run", hint="Name a module: holdfast cluster up shop.orders")
    pack_names.load(named)  # better one message here than one in each log
    plan = Plan(
        redis=redis,
        nats=cast("Literal[0, 1, 3]", int(nats)),
        gateways=gateways,
        workers=workers,
        schedulers=schedulers,
        packs=named,
    )
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    with state_directory.occupy():
        cluster = LocalCluster(state_directory.path, plan)
        with session.out.waiting("Starting servers and replicas ..."):
            await asyncio.to_thread(cluster.up)
        session.out.note(
            "Another terminal may kill, stop, pause, resume and start parts: `holdfast cluster kill redis-1`."
        )
        try:
            await _attend(cluster, state_directory, asked, session.out)
        finally:
            with session.out.waiting("Ending all of them ..."):
                await asyncio.to_thread(cluster.down)
    session.out.note("All parts have ended.")


async def status(session: Session, directory: Directory = DIRECTORY) -> None:
    """Show the parts of the cluster that is up."""
    state = _state_directory(directory).read()
    session.out.show(state, _table(state))


async def kill(session: Session, part: PartName, directory: Directory = DIRECTORY) -> None:
    """Kill a part (SIGKILL), as a crash would."""
    await _ask(session, "kill", part, directory)


async def stop(session: Session, part: PartName, directory: Directory = DIRECTORY) -> None:
    """End a part in order (SIGTERM)."""
    await _ask(session, "stop", part, directory)


async def pause(session: Session, part: PartName, directory: Directory = DIRECTORY) -> None:
    """Freeze a part (SIGSTOP): it is there, and does nothing."""
    await _ask(session, "pause", part, directory)


async def resume(session: Session, part: PartName, directory: Directory = DIRECTORY) -> None:
    """Let a frozen part go on (SIGCONT), unaware that time has passed."""
    await _ask(session, "resume", part, directory)


async def start(session: Session, part: PartName, directory: Directory = DIRECTORY) -> None:
    """Start a part again that has ended, on its port and its data."""
    await _ask(session, "start", part, directory)


async def down(session: Session, directory: Directory = DIRECTORY) -> None:
    """End the cluster that is up, and wait until all of it is gone."""
    state_directory = _state_directory(directory)
    os.kill(state_directory.pid(), signal.SIGTERM)
    state_directory.wait_until_free(DOWN_SECONDS)
    session.out.note("All parts have ended.")


def _state_directory(directory: Path) -> StateDirectory:
    require_lab("cluster")
    from holdfast.lab.cluster.state_file import StateDirectory  # noqa: PLC0415 - what this module imports, every command does

    return StateDirectory(directory)


async def _attend(cluster: LocalCluster, state_directory: StateDirectory, asked: asyncio.Event, out: Output) -> None:
    """Show what changes, and do what is wanted, until asked to end."""
    with _showing(out) as show:
        while not asked.is_set():
            for request in state_directory.requests():
                try:
                    await asyncio.to_thread(_do, cluster, request)
                except HoldfastError as error:
                    out.note(str(error), "red")
                state_directory.write(cluster.state())
                state_directory.mark_done(request)
            state = cluster.state()
            state_directory.write(state)
            show(state)
            with suppress(TimeoutError):
                await asyncio.wait_for(asked.wait(), LOOK_SECONDS)


@contextmanager
def _showing(out: Output) -> Generator[Callable[[ClusterState], None]]:
    """How a cluster is shown again and again: drawn in place on a terminal, else what has changed."""
    if out.is_live:
        with Live(console=out.console, auto_refresh=False) as live:
            yield lambda state: live.update(_table(state), refresh=True)
        return
    last: ClusterState | None = None

    def changes(state: ClusterState) -> None:
        nonlocal last
        if state != last:
            known = () if last is None else last.parts
            news = [_sentence(part) for part in state.parts if part not in known]
            out.line(state, Group(*([_where(state)] if last is None else []), *news))
        last = state

    yield changes


def _table(state: ClusterState) -> RenderableType:
    rows = [
        (part.name, part.role, str(part.port), str(part.pid), _state(part), render.ago(part.since))
        for part in state.parts
    ]
    names = ("part", "role", "port", "pid", "state", "since")
    return Group(_where(state), "", render.table(*names, rows=rows, nothing="No parts."))


def _where(state: ClusterState) -> RenderableType:
    told = {"store": state.store, "bus": state.bus or "Redis", "gateways": " ".join(state.gateways) or "none"}
    return Group(*(Text.assemble((f"{name:<10}", "bold"), plain(url)) for name, url in told.items()))


def _sentence(part: MemberStatus) -> Text:
    return Text.assemble(f"{part.name} (port {part.port}, process {part.pid}) is ", _state(part))


def _state(part: MemberStatus) -> Text:
    return Text(_word(part) + _how(part.exit_code), style=STYLES[part.state])


def _word(part: MemberStatus) -> str:
    """The state, in the words of the commands: `pause` makes a part paused, `stop` makes it stopped."""
    if part.state == "stopped":  # as Unix calls a process that got SIGSTOP
        return "paused"
    return "stopped" if part.state == "dead" and part.exit_code in IN_ORDER else part.state


def _how(exit_code: int | None) -> str:
    """How a process has ended, as people name it."""
    if exit_code is None:
        return ""
    return f" ({signal.Signals(-exit_code).name})" if exit_code < 0 else f" (exit {exit_code})"


async def _ask(session: Session, action: Action, name: str, directory: Path) -> None:
    part = _state_directory(directory).ask(action, name)
    if action == "start" and part.state == "dead":
        raise TransientError(f"{name} did not start", hint=f"Its log is {part.log}.")
    session.out.show(part, _sentence(part))


def _do(cluster: LocalCluster, request: MemberRequest) -> None:
    match request.action:
        case "kill":
            cluster.kill(request.part)
        case "stop":
            cluster.end(request.part)
        case "pause":
            cluster.stop_signal(request.part)
        case "resume":
            cluster.cont(request.part)
        case "start":
            cluster.start(request.part)

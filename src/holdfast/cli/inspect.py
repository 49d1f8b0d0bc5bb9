"""What is there beside the runs: `workflows`, `workers`; and whether new code fits old journals: `replay-check`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from holdfast import wire
from holdfast.cli import divergences, packs, render
from holdfast.cli.arguments import Watch
from holdfast.cli.completions import workflow_names
from holdfast.cli.session import Session
from holdfast.cli.watch import View, keep_showing
from holdfast.client import LIVE, Replayed
from holdfast.errors import InvalidConfig, UsageError
from holdfast.kernel.runs import Status
from holdfast.testing import replay_exported
from holdfast.wire import outbound


async def workflows(session: Session) -> None:
    """List the workflows, and what each takes."""
    described = await session.workflows()
    session.out.show(wire.WorkflowsView([outbound.workflow(each) for each in described]), render.workflows(described))


async def workers(session: Session, *, watch: Watch = False) -> None:
    """List the live workers, and how much there is to do."""
    async with session.caller() as caller:

        async def look() -> View:
            members, backlog = await caller.workers(), await caller.backlog()
            document = {"workers": [outbound.worker(each) for each in members], "backlog": outbound.backlog(backlog)}
            return View(document, render.workers(members, backlog))

        if watch:
            await keep_showing(session.out, look)
        else:
            view = await look()
            session.out.show(view.document, view.shown)


async def replay_check(
    session: Session,
    workflow: Annotated[str | None, typer.Option(help="Only of this workflow.", autocompletion=workflow_names)] = None,
    status: Annotated[list[Status] | None, typer.Option(help="Those in this status; else all that live.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="At most so many, newest first.")] = None,
    journals: Annotated[
        Path | None, typer.Option(help="A directory of exported journals; no store is needed.", show_default=False)
    ] = None,
) -> None:
    """Replay stored journals against the code of today. Exit code 1 if one does not fit. Changes nothing."""
    if (journals is not None or not session.config.is_gateway) and not session.config.packs:
        raise InvalidConfig(
            "there is no code to replay against", hint="Name it: holdfast replay-check --pack shop.orders"
        )
    if journals is not None:
        if status or limit is not None:
            raise UsageError("--status and --limit choose runs of a store", hint="Use them with `journals export`.")
        _show_replayed(session, replay_exported(journals, packs=packs.load(session.config.packs), workflow=workflow))
        return
    async with session.caller() as caller:
        with session.out.waiting("replaying"):
            statuses = [each.value for each in status] if status else LIVE
            replayed = await caller.replay_check(workflow, statuses, limit)
    _show_replayed(session, replayed)


def _show_replayed(session: Session, replayed: Sequence[Replayed]) -> None:
    """Which journals do not fit. Exit code 1 if there is one."""
    causes = divergences.by_cause(replayed)
    fits = f"{len(replayed)} runs replayed, all of them fit."
    document = {"replayed": [each._asdict() for each in replayed], "diverged": sum(map(len, causes))}
    session.out.show(document, divergences.shown(causes) if causes else Text(fits, style="dim"))
    if causes:
        raise typer.Exit(1)

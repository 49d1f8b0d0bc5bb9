"""`journals export`: stored journals as files, for a replay check where the store is not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.completions import workflow_names
from holdfast.cli.session import Session
from holdfast.client import LIVE
from holdfast.engine.api.exporting import EXPORTED_MAX
from holdfast.kernel.runs import Status


async def export(
    session: Session,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where to; it is made if it is not there.")],
    workflow: Annotated[str | None, typer.Option(help="Only of this workflow.", autocompletion=workflow_names)] = None,
    status: Annotated[list[Status] | None, typer.Option(help="Those in this status; else all that live.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many, newest first.")] = EXPORTED_MAX,
) -> None:
    """Write journals into a directory, one file per run, with payloads. `replay-check --journals` reads them."""
    async with session.caller() as caller:
        with session.out.waiting("exporting"):
            statuses = [each.value for each in status] if status else LIVE
            exported = await caller.export_journals(directory, workflow, statuses, limit)
        document = {"files": [str(path) for path in exported.files], "left_out": exported.left_out}
        words = f"{len(exported.files)} journals written into {directory}"
        if exported.left_out:
            words += f"; left out, as they are too large: {', '.join(exported.left_out)}"
        session.out.show(document, words)

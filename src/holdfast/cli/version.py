"""`version`. It needs no session, so nothing of the engine is loaded for it."""

from __future__ import annotations

from importlib import metadata

import typer


def version() -> None:
    """Print the version."""
    typer.echo(metadata.version("holdfast"))

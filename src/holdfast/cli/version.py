"""`version`, and `holdfast --version`. They need no session, so nothing of the engine is loaded for them."""

from __future__ import annotations

import json as json_text
from importlib import metadata
from typing import Annotated

import typer

from holdfast.cli.help_page import VERSION

AsJson = Annotated[bool, typer.Option("--json", help="For programs: JSON instead of text.")]


def version(*, json: AsJson = False) -> None:
    """Print the version."""
    number = metadata.version("holdfast")
    typer.echo(json_text.dumps({"version": number}) if json else number)


def _shown(value: bool) -> None:  # noqa: FBT001 - Typer's shape
    if value:
        version()
        raise typer.Exit


VersionOption = Annotated[bool, typer.Option("--version", help=VERSION, callback=_shown, is_eager=True)]

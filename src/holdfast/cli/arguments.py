"""Arguments that several commands have, and how the text of a person becomes a value."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer

from holdfast.adapters.machine import SystemClock
from holdfast.cli.completions import run_ids, workflow_names
from holdfast.errors import UsageError
from holdfast.kernel.attributes import Scalar
from holdfast.kernel.units import utc_of
from holdfast.wire.filters import value_of
from holdfast.wire.times import instant_of

RunReference = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Run id, the beginning or end of one, or workflow/key.",
        autocompletion=run_ids,
        show_default=False,
    ),
]
WorkflowName = Annotated[
    str,
    typer.Argument(metavar="WORKFLOW", help="Name of the workflow.", autocompletion=workflow_names, show_default=False),
]
Timeout = Annotated[str | None, typer.Option(help="Wait no longer than this: 30s. Exit code 75 then.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show it again whenever it changes.")]
Reason = Annotated[str | None, typer.Option(help="Why, for the record.")]


def json_of(text: str, *, what: str) -> Any:
    """The value of a JSON text, or a `UsageError` that says where it breaks."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise UsageError(
            f"{what} is not JSON: {error}", hint='Quote it for the shell: \'{"order": "o-1"}\'.'
        ) from error


def json_or_text(text: str) -> Any:
    """The value that a person means: JSON if it is some, else the text itself."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
    except RecursionError as error:
        raise UsageError("a value is nested too deeply", hint="Send less depth.") from error


def pair(text: str) -> tuple[str, Any]:
    """NAME=VALUE."""
    name, value = _split(text)
    return name, json_or_text(value)


def attributes_of(texts: Sequence[str]) -> dict[str, Scalar]:
    """Attributes to set: values are read as `runs --attribute` reads them, so that it finds the run again."""
    return {name: value_of(value) for name, value in map(_split, texts)}


def moment_of(text: str | None) -> datetime | None:
    """An instant, or how long ago it was: 2h, 3d."""
    return instant_of(text, now=utc_of(SystemClock().wall_ms()))


def _split(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{text!r} is not NAME=VALUE", hint="For example: order=o-1 items='{\"pen\": 2}'.")
    return name, value

"""Arguments that several commands have, and how the text of a person becomes a value."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
import typer

from holdfast import wire
from holdfast.adapters.machine import SystemClock
from holdfast.cli.completions import run_ids, workflow_names
from holdfast.errors import UsageError
from holdfast.kernel.attributes import Scalar
from holdfast.kernel.searches import Range
from holdfast.kernel.units import milliseconds, utc_of

RunReference = Annotated[
    str, typer.Argument(metavar="RUN", help="Run id, or workflow/key.", autocompletion=run_ids, show_default=False)
]
WorkflowName = Annotated[
    str,
    typer.Argument(metavar="WORKFLOW", help="Name of the workflow.", autocompletion=workflow_names, show_default=False),
]
Timeout = Annotated[str | None, typer.Option(help="Wait no longer than this: 30s. Exit code 75 then.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show it anew as it changes.")]
Reason = Annotated[str | None, typer.Option(help="Why, for the record.")]

_BOUNDS = {">=": "ge", "<=": "le", ">": "gt", "<": "lt"}


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
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"{text!r} is not NAME=VALUE", hint="For example: order=o-1 items='{\"pen\": 2}'.")
    return name, json_or_text(value)


def attributes_of(texts: Sequence[str]) -> dict[str, Scalar]:
    """Attributes to set."""
    return {name: _scalar(value) for name, value in map(pair, texts)}


def conditions_of(texts: Sequence[str]) -> dict[str, Scalar | Range]:
    """Attributes to search by: NAME=VALUE, or one or two of NAME>=VALUE, NAME>VALUE, NAME<=VALUE, NAME<VALUE."""
    exact: dict[str, Scalar | Range] = {}
    ranges: dict[str, dict[str, Any]] = {}
    for text in texts:
        name, sign, value = _parted(text)
        if name in exact or (sign == "=" and name in ranges):
            raise UsageError(f"{text!r} is one condition too many", hint=f"Say one value of {name!r}, or one range.")
        if sign == "=":
            exact[name] = _scalar(json_or_text(value))
        else:
            ranges.setdefault(name, {})[_BOUNDS[sign]] = _scalar(json_or_text(value))
    return exact | {name: Range(**bounds) for name, bounds in ranges.items()}


def _parted(text: str) -> tuple[str, str, str]:
    at = min((text.find(sign) for sign in "<>=" if sign in text), default=0)
    sign = text[at : at + 2] if text[at : at + 2] in _BOUNDS else text[at : at + 1]
    if at == 0:
        raise UsageError(f"{text!r} is no condition", hint="Write customer=c-1, cents>=1000 or cents<2000.")
    return text[:at], sign, text[at + len(sign) :]


def _scalar(value: Any) -> Scalar:
    """Instants are written as on the wire: {"at": "2026-11-01T00:00:00Z"}."""
    if not isinstance(value, dict):
        return value
    try:
        return msgspec.convert(value, wire.At).at
    except msgspec.ValidationError as error:
        raise UsageError(
            f"an attribute cannot be {value}", hint='Instants are written {"at": "2026-01-31T12:00:00Z"}.'
        ) from error


def instant_of(text: str | None) -> datetime | None:
    """An instant: RFC 3339 (UTC if it names no zone), or how long ago it was: 2h, 3d."""
    if text is None:
        return None
    try:
        ago = timedelta(milliseconds=milliseconds(text))
        return utc_of(SystemClock().wall_ms()) - ago
    except UsageError:
        pass
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is no instant", hint="Write 2026-01-31T12:00:00Z, or how long ago: 2h.") from error
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)

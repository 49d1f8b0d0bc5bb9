"""The options of a start over HTTP, both ways: `join` in the query, `traceparent` in a header, all others in the body.

An option that `StartBody` and `StartOptions` both have is carried by its name, so a new one needs no line here unless
JSON has it in another form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET, Raw, Struct

from holdfast.engine.api.start_options import PLAIN, StartOptions
from holdfast.kernel.units import Duration, milliseconds
from holdfast.wire import inbound, outbound
from holdfast.wire.types import SentSignalBody, StartBody

TRACEPARENT = "traceparent"
# What these become at the gateway depends on the request: who sends it, and what else it says.
OF_THE_REQUEST = frozenset({"key", "request_id", "replace", "signal"})
UNLESS_GIVEN = ("timeout", "lane", "width", "if_free")  # an earlier gateway refuses what it does not know
CARRIED = tuple(
    name
    for name in StartBody.__struct_fields__
    if name in StartOptions.__struct_fields__ and name not in OF_THE_REQUEST
)


def _seconds(duration: Duration) -> float:
    return milliseconds(duration) / 1000


WRITE: Mapping[str, Callable[[Any], Any]] = {
    "attributes": outbound.scalars,
    "retention": _seconds,
    "delay": _seconds,
    "timeout": _seconds,
}
READ: Mapping[str, Callable[[Any], Any]] = {"attributes": inbound.scalars}


class StartRequest(Struct, frozen=True):
    """What a client sends."""

    body: StartBody
    query: Mapping[str, str]
    headers: Mapping[str, str]


def request(
    options: StartOptions,
    *,
    input: Raw,
    signal: SentSignalBody | None,
    request_id: str,
) -> StartRequest:
    """The start with these options. A signal and a request that have no id get theirs from the client."""
    carried = _carried(options, WRITE)
    carried |= {name: UNSET for name in UNLESS_GIVEN if getattr(options, name) == getattr(PLAIN, name)}
    body = StartBody(
        input=input,
        key=options.key,
        replace=None if options.replace is None else options.replace.id,
        signal=signal,
        request_id=request_id,
        **carried,
    )
    return StartRequest(
        body,
        query={} if options.join else {"join": "false"},
        headers={} if options.traceparent is None else {TRACEPARENT: options.traceparent},
    )


def options_of(body: StartBody) -> dict[str, Any]:
    """The options of the body that mean the same in every request, as keywords of `Caller.start`."""
    return {name: value for name, value in _carried(body, READ).items() if value is not UNSET}


def _carried(source: StartOptions | StartBody, forms: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    given = {name: getattr(source, name) for name in CARRIED}
    for name, form in forms.items():
        if given[name] is not None and given[name] is not UNSET:
            given[name] = form(given[name])
    return given

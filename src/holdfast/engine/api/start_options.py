"""The options of a start, declared once. Client, service, gateway and its client hand them on as this struct.

To add one:

1. Its field here, with its default; and in `check`, if its type has values that are not possible.
2. The keyword of the same name, type and default in `Caller.start`, with a sentence in the docstring there. The
   blocking client has it by that.
3. What becomes of it: `Service._wanted`, and the kernel.
4. How it is written elsewhere: a field of `wire.StartBody`, which is carried by its name, and an option of
   `holdfast start`.

`tests/unit/test_start_options.py` fails until every place that takes starts carries it, or says why it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct

from holdfast.errors import UsageError
from holdfast.kernel import keys, lane_options
from holdfast.kernel.attributes import Scalar
from holdfast.kernel.runs import Run
from holdfast.kernel.units import Duration

PRIORITY_MAX = 1_000_000
Priority = Annotated[int, Meta(ge=-PRIORITY_MAX, le=PRIORITY_MAX)]


class Signal(NamedTuple):
    """A payload for a hook, to be sent with a start; delivered once per `dedupe` and hook."""

    hook: str
    payload: Any = None
    dedupe: str | None = None


class StartOptions(Struct, frozen=True, kw_only=True):
    """How a run is to be started, beyond its input."""

    key: str | None = None  # if not the workflow's own
    retention: Duration | None = None  # how long key and result are kept after the end, if not the workflow's own
    attributes: Mapping[str, Scalar] | None = None  # what the run is found by
    replace: Run | None = None  # the owner of the key, which is superseded
    signal: Signal | tuple[str, Any] | tuple[str, Any, str] | None = None  # for the owner of the key, or the new run
    request_id: str | None = None  # a repetition under the same one is the same start
    delay: Duration | None = None  # until it may begin
    priority: Priority = 0  # of the runs that are ready, a higher one goes first
    traceparent: str | None = None  # the span that causes the start; if None, the current one
    join: bool = True  # whether a live run of another start will do
    timeout: Duration | None = None  # how long the run may take, if not as long as the workflow says
    lane: str | None = None  # where it goes one after the other with others, if not in the workflow's own
    width: int | None = None  # how many runs of the lane may be active at once, if not as many as now
    if_free: bool = False  # whether to start it only if the lane has no runs

    @property
    def are_plain(self) -> bool:
        """Whether there is nothing but perhaps a key and a request id."""
        return self == PLAIN or self == StartOptions(key=self.key, request_id=self.request_id)

    def check(self) -> None:
        """Raises `UsageError` if an option has a value that is not possible."""
        if type(self.priority) is not int or not -PRIORITY_MAX <= self.priority <= PRIORITY_MAX:
            raise UsageError(
                f"priority {self.priority!r} is not possible", hint=f"Use a whole number, ±{PRIORITY_MAX:,} at most."
            )
        if self.request_id is not None:
            keys.checked(self.request_id, what="request id")
        lane_options.check(self.lane, self.width, if_free=self.if_free)


PLAIN = StartOptions()


def signal_of(given: Any) -> Signal:
    """What was given as `signal=`, which may be a plain tuple. Raises `UsageError` if it is neither."""
    if not isinstance(given, tuple) or len(given) not in {2, 3}:  # pyright: ignore[reportUnknownArgumentType]
        raise UsageError(f"signal={given!r:.60} is not Signal(hook, payload, dedupe)")
    return Signal(*given)

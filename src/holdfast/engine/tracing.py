"""What the engine asks of distributed tracing, if there is any: who causes a start, and a span around each attempt."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from msgspec import Struct

from holdfast.engine.attempts import AttemptOutcome, AttemptRefused
from holdfast.kernel.runs import Run


class Tried(Struct, frozen=True):
    """An attempt of an effect that is about to be made."""

    run: Run
    effect: str
    step: str
    attempt: int
    key: str


class Tracing(Protocol):
    """Takes part in traces that may have begun elsewhere and may go on elsewhere."""

    def traceparent(self) -> str | None:
        """The span that is current where this is called, as a W3C `traceparent`; None if there is none."""
        ...

    def around(
        self, work: Coroutine[Any, Any, AttemptOutcome | AttemptRefused], tried: Tried
    ) -> Coroutine[Any, Any, AttemptOutcome | AttemptRefused]:
        """`work`, with a span of its own that is current while it lasts. Whatever goes wrong here, it is done."""
        ...

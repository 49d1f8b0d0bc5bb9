"""The outside of one Holdfast, as all parts of its engine see it."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from holdfast.engine.pace import Pace
from holdfast.engine.runs.performer import Performer
from holdfast.engine.runs.threads import DaemonThreads
from holdfast.engine.tracing import Tracing
from holdfast.events import Emit
from holdfast.kernel.journal import Value
from holdfast.ports.clock import Clock
from holdfast.ports.codec import Codec
from holdfast.ports.ids import Ids
from holdfast.ports.store import Store


class Ports(Struct, frozen=True, kw_only=True):
    """What the engine works with, whom it tells what happens, and at which pace it works."""

    store: Store
    clock: Clock
    ids: Ids
    codec: Codec
    emit: Emit
    pace: Pace
    tracing: Tracing | None = None
    open_value: Callable[[Value], bytes] | None = None  # a sealed one that is kept inline; None: there is no seal
    threads: type[DaemonThreads] = DaemonThreads  # what calls sync effects
    performer: Callable[..., Performer] = Performer  # what performs effects; it has the parameters of a `Performer`

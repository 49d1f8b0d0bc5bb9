"""Holdfast: durable execution for Python, in which doing a thing once is the point.

Here are the names that most programs need. The others are in public modules, each with an `__all__`:

    holdfast.errors          every error
    holdfast.events          what `hf.listen` hands to a listener
    holdfast.journal         what `run.journal()` and `run.events()` are made of
    holdfast.client          the types that the verbs take and return
    holdfast.blocking        the same verbs for code that is not async
    holdfast.pack, holdfast.workflow, holdfast.effects    what authors use, with the types of its signatures
    holdfast.runtime         what is built on a Holdfast needs: gateways, dashboards, middleware
"""

from holdfast.assembly import Holdfast
from holdfast.client import Marker, Range, Receipt, Run, Signal, Started, Story, Wait
from holdfast.effects import attempt, cancel_requested, effect_key, heartbeat
from holdfast.errors import (
    HoldfastError,
    InFlight,
    InputMismatch,
    NotAllowedNow,
    NotPerformed,
    Overtaken,
    Permanent,
    RetryAfter,
    RunCancelled,
    RunError,
    RunFailed,
    TimedOut,
    TransientError,
    UnknownRun,
    UsageError,
)
from holdfast.gateway_client import Client
from holdfast.pack import Call, Effect, Pack, Retry, Workflow
from holdfast.workflow import (
    ChildRun,
    Hook,
    continue_as_new,
    current,
    hook,
    mark,
    now,
    patched,
    random,
    set_attributes,
    shield,
    sleep,
    spawn,
    timeout,
    uuid4,
)

__all__ = [
    "Call",
    "ChildRun",
    "Client",
    "Effect",
    "Holdfast",
    "HoldfastError",
    "Hook",
    "InFlight",
    "InputMismatch",
    "Marker",
    "NotAllowedNow",
    "NotPerformed",
    "Overtaken",
    "Pack",
    "Permanent",
    "Range",
    "Receipt",
    "Retry",
    "RetryAfter",
    "Run",
    "RunCancelled",
    "RunError",
    "RunFailed",
    "Signal",
    "Started",
    "Story",
    "TimedOut",
    "TransientError",
    "UnknownRun",
    "UsageError",
    "Wait",
    "Workflow",
    "attempt",
    "cancel_requested",
    "continue_as_new",
    "current",
    "effect_key",
    "heartbeat",
    "hook",
    "mark",
    "now",
    "patched",
    "random",
    "set_attributes",
    "shield",
    "sleep",
    "spawn",
    "timeout",
    "uuid4",
]

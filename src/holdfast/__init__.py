"""Holdfast: durable execution for Python, in which doing a thing once is the point.

Here are the names that most programs need. The others are in public modules, each with an `__all__`:

    holdfast.errors          every error
    holdfast.warnings        what Holdfast warns of
    holdfast.events          what `hf.listen` hands to a listener
    holdfast.journal         what `run.journal()` and `run.events()` are made of
    holdfast.client          the types that the verbs take and return
    holdfast.blocking        the same verbs for code that is not async
    holdfast.pack, holdfast.workflow, holdfast.effects, holdfast.resources    what authors use, with its types
    holdfast.runtime         what is built on a Holdfast needs: gateways, dashboards, middleware
    holdfast.testing         what tests of workflows need

A name is imported when it is first asked for, so that `holdfast --help` loads nothing else and a `Client` no engine.
"""

TYPE_CHECKING = False  # type checkers take it for true, as that of `typing`, whose import costs more than this module
if TYPE_CHECKING:
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
    from holdfast.pack import Batch, Breaker, Call, Debounce, Effect, Limit, Pack, Rate, Retry, Workflow
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
    "Batch",
    "Breaker",
    "Call",
    "ChildRun",
    "Client",
    "Debounce",
    "Effect",
    "Holdfast",
    "HoldfastError",
    "Hook",
    "InFlight",
    "InputMismatch",
    "Limit",
    "Marker",
    "NotAllowedNow",
    "NotPerformed",
    "Overtaken",
    "Pack",
    "Permanent",
    "Range",
    "Rate",
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

# Where each name is that the imports above show to type checkers; beside them, the other public modules.
_HOMES = {
    "assembly": "Holdfast",
    "blocking": "",
    "client": "Marker Range Receipt Run Signal Started Story Wait",
    "effects": "attempt cancel_requested effect_key heartbeat",
    "errors": (
        "HoldfastError InFlight InputMismatch NotAllowedNow NotPerformed Overtaken Permanent "
        "RetryAfter RunCancelled RunError RunFailed TimedOut TransientError UnknownRun UsageError"
    ),
    "events": "",
    "gateway_client": "Client",
    "journal": "",
    "pack": "Batch Breaker Call Debounce Effect Limit Pack Rate Retry Workflow",
    "resources": "",
    "runtime": "",
    "testing": "",
    "warnings": "",
    "workflow": (
        "ChildRun Hook continue_as_new current hook mark now patched random set_attributes shield sleep spawn timeout "
        "uuid4"
    ),
}

if not TYPE_CHECKING:  # a type checker that saw `__getattr__` would let every misspelt name pass

    def __getattr__(name: str) -> object:
        """The name, imported from its module; or a public module, which `import holdfast` alone is enough to reach."""
        from importlib import import_module  # noqa: PLC0415 - this module imports nothing by itself

        for home, names in _HOMES.items():
            if name == home or name in names.split():
                try:
                    module = import_module(f"holdfast.{home}")
                except AttributeError as error:  # Python would say that there is no such name, and hide what is wrong
                    raise ImportError(f"holdfast.{home} cannot be imported: {error}") from error
                globals()[name] = found = module if name == home else getattr(module, name)
                return found
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}", name=name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, *_HOMES})

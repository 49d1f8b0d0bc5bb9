"""Which HTTP status an error is: the one table, for the gateway, the dashboard and the middleware alike."""

from __future__ import annotations

from holdfast import errors
from holdfast.errors import HoldfastError

# The first that fits counts, so that what is special comes first.
STATUS: tuple[tuple[type[HoldfastError], int], ...] = (
    (errors.UnknownRun, 404),
    (errors.UnknownWorkflow, 404),
    (errors.UnknownHook, 404),
    (errors.UnknownTask, 404),
    (errors.UnknownApiKey, 404),
    (errors.UnknownBreaker, 404),
    (errors.UnknownLane, 404),
    (errors.InputMismatch, 422),
    (errors.InputRefused, 422),
    (errors.PayloadRefused, 422),
    (errors.NotSerializable, 422),
    (errors.PayloadTooLarge, 413),
    (errors.InFlight, 409),
    (errors.LaneBusy, 409),
    (errors.LaneFull, 429),
    (errors.Overtaken, 409),
    (errors.HookTaken, 409),
    (errors.NotAllowedNow, 409),
    (errors.NotAuthenticated, 401),
    (errors.NotPermitted, 403),
    (errors.UsageError, 400),
    (errors.RunError, 409),
    (errors.GatewayFault, 500),
    (errors.LimitExceeded, 429),
    (errors.TransientError, 503),
)


def status_of(error: HoldfastError) -> int:
    return next((status for kind, status in STATUS if isinstance(error, kind)), 500)


def title_of(kind: type[HoldfastError]) -> str:
    """What such an error means: the first line of its documentation."""
    return (kind.__doc__ or kind.__name__).partition("\n")[0].removesuffix(".")

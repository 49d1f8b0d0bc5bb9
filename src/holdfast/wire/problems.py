"""Errors as `application/problem+json` (RFC 9457): the same document from the gateway and from the middleware."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.errors import HoldfastError, RunFailed
from holdfast.statuses import title_of
from holdfast.wire.types import ErrorView, ProblemView

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 1


def encode(error: HoldfastError, *, status: int, instance: str) -> bytes:
    """The body of a response to a request that ended with `error`; `instance` is the path of the request."""
    problem = ProblemView(
        type=f"urn:holdfast:problem:{error.code}",
        title=title_of(type(error)),
        status=status,
        detail=error.message,
        code=error.code,
        hint=error.hint,
        instance=instance,
        run_id=getattr(error, "run_id", UNSET),
        error=_cause(error),
    )
    return msgspec.json.encode(problem)


def _cause(error: HoldfastError) -> ErrorView | UnsetType:
    """What the run itself raised, where that is why the request failed."""
    if not isinstance(error, RunFailed):
        return UNSET
    return ErrorView(type=error.error_type, message=error.error_message, line=error.line)

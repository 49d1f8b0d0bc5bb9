"""What went wrong, as `application/problem+json`: the one place where errors become responses of the gateway."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from starlette.responses import Response

from holdfast import errors
from holdfast.errors import HoldfastError, UsageError
from holdfast.statuses import status_of
from holdfast.wire.problems import MEDIA_TYPE, RETRY_AFTER_SECONDS, encode

RETRY_AFTER = {"Retry-After": f"{RETRY_AFTER_SECONDS}"}

HEADERS: tuple[tuple[type[HoldfastError], Mapping[str, str]], ...] = (
    (errors.NotAuthenticated, {"WWW-Authenticate": "Bearer"}),
    (errors.InFlight, RETRY_AFTER),
    (errors.LaneBusy, RETRY_AFTER),
    (errors.LaneFull, RETRY_AFTER),
    (errors.GatewayFault, {}),
    (errors.TransientError, RETRY_AFTER),
)


class Malformed(UsageError):
    """A request that cannot be understood."""

    code = "malformed_request"
    status: ClassVar[int] = 400


class NoSuchPath(Malformed):
    """No route has this path."""

    code = "no_such_place"
    status = 404
    hint = "See /docs or /openapi.json for what there is."


class NoSuchMethod(Malformed):
    """The path is known, but not with this method."""

    code = "no_such_method"
    status = 405

    def __init__(self, method: str, path: str, allowed: str) -> None:
        super().__init__(f"{path} does not take {method}", hint=f"It takes {allowed}.")
        self.allowed = allowed


class NotJson(Malformed):
    """A body of another kind."""

    code = "not_json"
    status = 415
    hint = "Send JSON, with `Content-Type: application/json`."


class BodyTooLarge(Malformed):
    """The body is over the limit."""

    code = "body_too_large"
    status = 413


class TooSlow(Malformed):
    """The body did not arrive in time."""

    code = "too_slow"
    status = 408
    hint = "Send the whole request at once."


class KeyOfAnotherRequest(Malformed):
    """The Idempotency-Key belongs to another request."""

    code = "request_mismatch"
    status = 422
    hint = "Take a new key for a new request; a repetition has the workflow and the body of the first one."


def response(error: Exception, instance: str) -> Response:
    """The response to a request that ended with `error`. An error that was not foreseen is not shown to the outside."""
    if not isinstance(error, HoldfastError):
        error = errors.GatewayFault("this request failed by a fault of the gateway")
    if isinstance(error, Malformed):
        headers = {"Allow": error.allowed} if isinstance(error, NoSuchMethod) else {}
        return _response(error, error.status, headers, instance)
    return _response(error, status_of(error), _headers_of(error), instance)


def _headers_of(error: HoldfastError) -> Mapping[str, str]:
    if isinstance(error, errors.LimitExceeded):
        return {"Retry-After": f"{math.ceil(error.retry_after)}"}
    for kind, headers in HEADERS:
        if isinstance(error, kind):
            return headers
    return {}


def _response(error: HoldfastError, status: int, headers: Mapping[str, str], instance: str) -> Response:
    return Response(encode(error, status=status, instance=instance), status, dict(headers), MEDIA_TYPE)

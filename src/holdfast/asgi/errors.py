"""Why a request is not executed, and the messages that say so as `application/problem+json`."""

from __future__ import annotations

from typing import ClassVar

from holdfast.asgi.messages import Response, Scope, response
from holdfast.errors import TransientError, UsageError
from holdfast.wire.problems import MEDIA_TYPE, RETRY_AFTER_SECONDS, encode


class Refusal(UsageError):
    """A request that is not executed."""

    status: ClassVar[int] = 400
    try_again: ClassVar[bool] = False


class KeyMissing(Refusal):
    """The request has no Idempotency-Key, and needs one."""

    code = "idempotency_key_missing"
    hint = "Send one that names this request, for example a UUID, and the same one whenever you send it again."


class KeyMalformed(Refusal):
    """The Idempotency-Key cannot be one."""

    code = "idempotency_key_malformed"


class RequestTooLarge(Refusal):
    """The body is over the limit."""

    code = "body_too_large"
    hint = "Send less at once, or send it without an Idempotency-Key where that is allowed."
    status = 413


class AtWork(Refusal):
    """A request with this Idempotency-Key is being executed."""

    code = "in_flight"
    hint = "Send it again a little later: it returns what the first one returned."
    status = 409
    try_again = True


class AnotherRequest(Refusal):
    """The Idempotency-Key belongs to another request."""

    code = "request_mismatch"
    hint = "Take a new key for a new request; a repetition has the method, path, query and body of the first one."
    status = 422


class NotKept(Refusal):
    """The request has been executed, but its response was not kept."""

    code = "reply_not_kept"
    hint = "It is done and is not done again. Look at what it has made; take a new key only for a new request."
    status = 409


def problem(error: Refusal | TransientError, scope: Scope) -> Response:
    """The response to a request that ended with `error`."""
    status, try_again = (error.status, error.try_again) if isinstance(error, Refusal) else (503, True)
    data = encode(error, status=status, instance=scope["path"])
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", b"%d" % len(data))]
    if try_again:
        headers.append((b"retry-after", b"%d" % RETRY_AFTER_SECONDS))
    return response(status, headers, data)

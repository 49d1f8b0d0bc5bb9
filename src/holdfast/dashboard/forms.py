"""Forms: what a browser posts."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request

from holdfast.errors import PayloadTooLarge, TimedOut, UsageError

BODY_BYTES_MAX = 1024 * 1024
BODY_SECONDS_MAX = 30.0
FIELDS_MAX = 50


class NotAForm(UsageError):
    """A body that no form of ours has sent."""

    code = "not_a_form"


class Form:
    """The fields of a form, without blanks around them. A field that is missing is empty."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        return self._fields.get(name, "")

    @property
    def digest(self) -> bytes:
        """The same for the same fields with the same values. The token is among them, so sessions differ."""
        return hashlib.sha256(msgspec.json.encode(sorted(self._fields.items()))).digest()

    def json(self, name: str, *, default: str = "null") -> Any:
        """The value that a field holds as JSON."""
        try:
            return msgspec.json.decode(self[name] or default)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UsageError(f"the {name} is not JSON: {error}", hint='Text needs quotes: "yes".') from None


NOTHING = Form({})


async def read(request: Request) -> Form:
    """The form that was posted, if it is not too large and does not take too long."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/x-www-form-urlencoded":
        raise NotAForm(f"the body is {media or 'of no media type'!r}", hint="Send the form of the page.")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            async for part in request.stream():
                size += len(part)
                if size > BODY_BYTES_MAX:
                    raise PayloadTooLarge("the form", size, BODY_BYTES_MAX)
                parts.append(part)
    except TimeoutError:
        raise TimedOut(f"the form did not arrive within {BODY_SECONDS_MAX:g} s") from None
    try:
        text = b"".join(parts).decode("ascii")
        fields = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX)
    except ValueError as error:
        raise NotAForm(f"the body is no form: {error}", hint="Send the form of the page.") from None
    # Browsers send line breaks as CR LF, whatever the text area held.
    return Form({name: value.replace("\r\n", "\n").strip() for name, value in fields})

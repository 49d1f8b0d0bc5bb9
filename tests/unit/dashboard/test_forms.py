from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import Request

from holdfast.dashboard import forms
from holdfast.dashboard.forms import BODY_BYTES_MAX, Form, NotAForm
from holdfast.errors import PayloadTooLarge, UsageError

FORM = "application/x-www-form-urlencoded"


def posted(body: bytes, media: str = FORM) -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request({"type": "http", "method": "POST", "headers": [(b"content-type", media.encode())]}, receive)


async def test_fields_are_read_without_the_blanks_around_them():
    form = await forms.read(posted(b"hook=+approval+&payload=%7B%0D%0A%7D&reason=na%C3%AFve"))
    assert (form["hook"], form["payload"], form["reason"], form["missing"]) == ("approval", "{\n}", "naïve", "")


@pytest.mark.parametrize(
    ("body", "media"),
    [(b"{}", "application/json"), (b"a=%FF", FORM), (b"\xff", FORM), (b"&".join([b"a=1"] * 100), FORM), (b"", "")],
)
async def test_what_no_form_has_sent_is_refused(body: bytes, media: str):
    with pytest.raises(NotAForm):
        await forms.read(posted(body, media))


async def test_a_form_that_is_too_large_is_refused_before_it_is_kept():
    with pytest.raises(PayloadTooLarge):
        await forms.read(posted(b"a=" + b"x" * BODY_BYTES_MAX))


def test_a_field_holds_json_or_says_what_is_wrong_with_it():
    assert Form({"payload": '{"a": 1}'}).json("payload") == {"a": 1}
    assert Form({}).json("payload") is None
    with pytest.raises(UsageError, match="the payload is not JSON"):
        Form({"payload": "yes"}).json("payload")

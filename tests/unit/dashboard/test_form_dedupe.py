from __future__ import annotations

import asyncio

import pytest

from holdfast.dashboard.form_dedupe import FormDedupe
from holdfast.dashboard.forms import Form
from holdfast.errors import UsageError


class Maker:
    """Makes things with numbers, when it may."""

    def __init__(self) -> None:
        self.count = 0
        self.may = asyncio.Event()

    async def make(self) -> str:
        self.count += 1
        number = self.count
        await self.may.wait()
        return f"thing {number}"


async def refuse() -> str:
    raise UsageError("no")


async def test_what_is_sent_at_the_same_time_is_made_once():
    forms, maker = FormDedupe(), Maker()
    both = asyncio.gather(forms.make_once("a", maker.make), forms.make_once("a", maker.make))
    maker.may.set()
    assert await both == ["thing 1", "thing 1"]
    assert await forms.make_once("a", maker.make) == "thing 1"
    assert await forms.make_once("b", maker.make) == "thing 2"


async def test_what_was_refused_can_be_tried_again():
    forms, maker = FormDedupe(), Maker()
    maker.may.set()
    with pytest.raises(UsageError):
        await forms.make_once("a", refuse)
    assert await forms.make_once("a", maker.make) == "thing 1"


async def test_it_is_made_although_who_sent_it_first_has_gone():
    forms, maker = FormDedupe(), Maker()
    first = asyncio.create_task(forms.make_once("a", maker.make))
    second = asyncio.create_task(forms.make_once("a", maker.make))
    await asyncio.sleep(0)  # both have begun
    first.cancel()
    maker.may.set()
    assert await second == "thing 1"
    assert first.cancelled()


async def test_the_oldest_is_forgotten_first():
    forms, maker = FormDedupe(remembered_max=2), Maker()
    maker.may.set()
    for form in "abc":
        await forms.make_once(form, maker.make)
    assert await forms.make_once("c", maker.make) == "thing 3"
    assert await forms.make_once("a", maker.make) == "thing 4"


def test_forms_with_the_same_fields_are_the_same_whatever_their_order():
    assert Form({"a": "1", "b": "2"}).digest == Form({"b": "2", "a": "1"}).digest
    assert Form({"a": "1", "b": "2"}).digest != Form({"a": "1", "b": "3"}).digest
    assert Form({"a": "12"}).digest != Form({"a1": "2"}).digest

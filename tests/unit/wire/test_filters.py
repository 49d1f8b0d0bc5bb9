from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.errors import UsageError
from holdfast.kernel.searches import Range
from holdfast.wire.filters import parse, parse_each, value_of


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("", {}),
        ("customer=ada", {"customer": "ada"}),
        ("customer=ada  stage=open", {"customer": "ada", "stage": "open"}),
        ('name="Ada Lovelace" vip=true', {"name": "Ada Lovelace", "vip": True}),
        ("cents=500", {"cents": 500}),
        ("rate=0.5 debt=-3", {"rate": 0.5, "debt": -3}),
        ('order="42"', {"order": "42"}),
        ("cents>=500", {"cents": Range(ge=500)}),
        ("cents>5 cents<=9.5", {"cents": Range(gt=5, le=9.5)}),
        ("due<2026-12-01", {"due": Range(lt=datetime(2026, 12, 1, tzinfo=UTC))}),
        ("due>=2026-12-01T10:00:00+00:00", {"due": Range(ge=datetime(2026, 12, 1, 10, tzinfo=UTC))}),
        ("holdfast.parent=01ab", {"holdfast.parent": "01ab"}),
        ('due={"at": "2026-12-01T10:00:00Z"}', {"due": datetime(2026, 12, 1, 10, tzinfo=UTC)}),
        ("sku=1234-ab order=007 id=a{b}", {"sku": "1234-ab", "order": "007", "id": "a{b}"}),
    ],
)
def test_conditions_mean_what_people_write(text: str, means: dict[str, object]):
    assert parse(text) == means


@pytest.mark.parametrize(
    "text",
    [
        "customer",
        "=ada",
        "a==b c",
        'a="open',
        "a>ada",
        "a>true",
        "a=1 a>2",
        "a>1 a>=2",
        "1a=2",
        "due<2026-13-01",
        "a=1 a=2",
        "a=[1]",
        "a=null",
    ],
)
def test_what_is_unclear_is_refused_with_a_hint(text: str):
    with pytest.raises(UsageError) as refused:
        parse(text)
    assert refused.value.hint


@pytest.mark.parametrize(
    "text",
    ["customer=ada", "cents>=500", "vip=true", 'order="42"', "due<2026-12-01", 'due={"at": "2026-12-01T10:00:00Z"}'],
)
def test_a_condition_means_the_same_in_a_field_and_as_an_argument(text: str):
    assert parse_each([text]) == parse(text)


def test_an_argument_ends_where_the_shell_says():
    assert parse_each(["name=Ada Lovelace", "cents>5", "cents<9"]) == {
        "name": "Ada Lovelace",
        "cents": Range(gt=5, lt=9),
    }


@pytest.mark.parametrize("texts", [["=1"], ["a"], ["a>=x"], ["a=1", "a>0"], ["a>0", "a=1"]])
def test_arguments_that_are_unclear_are_refused_with_a_hint(texts: list[str]):
    with pytest.raises(UsageError) as refused:
        parse_each(texts)
    assert refused.value.hint


def test_a_quoted_text_that_is_no_json_is_the_text_between_its_quotes():
    assert value_of('"C:\\x"') == "C:\\x"

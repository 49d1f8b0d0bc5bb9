from __future__ import annotations

from datetime import UTC, datetime

import pytest
from starlette.datastructures import QueryParams

from holdfast.dashboard import filters
from holdfast.dashboard.filters import Filters, conditions
from holdfast.errors import UsageError
from holdfast.kernel.searches import Range


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
    ],
)
def test_conditions_mean_what_people_write(text: str, means: dict[str, object]):
    assert conditions(text) == means


@pytest.mark.parametrize(
    "text",
    ["customer", "=ada", "a==b c", 'a="open', "a>ada", "a>true", "a=1 a>2", "a>1 a>=2", "1a=2", "due<2026-13-01"],
)
def test_what_is_unclear_is_refused_with_a_hint(text: str):
    with pytest.raises(UsageError) as refused:
        conditions(text)
    assert refused.value.hint


def test_filters_live_in_the_query():
    query = QueryParams("workflow=shop.checkout&status=failed&status=blocked&key=a%26b&after=1.x&unknown=1")
    found = filters.from_query(query)
    assert found == Filters(workflow="shop.checkout", status=("failed", "blocked"), key="a&b", after="1.x")
    assert filters.from_query(QueryParams(found.query())) == found
    assert found.query(after="") == "workflow=shop.checkout&status=failed&status=blocked&key=a%26b"


def test_a_cursor_alone_is_no_filter():
    assert not Filters(after="1.x").is_set
    assert Filters(key="a").is_set

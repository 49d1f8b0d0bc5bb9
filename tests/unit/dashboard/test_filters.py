from __future__ import annotations

from starlette.datastructures import QueryParams

from holdfast.dashboard import filters
from holdfast.dashboard.filters import Filters


def test_filters_live_in_the_query():
    query = QueryParams("workflow=shop.checkout&status=failed&status=blocked&key=a%26b&after=1.x&unknown=1")
    found = filters.from_query(query)
    assert found == Filters(workflow="shop.checkout", status=("failed", "blocked"), key="a&b", after="1.x")
    assert filters.from_query(QueryParams(found.query())) == found
    assert found.query(after="") == "workflow=shop.checkout&status=failed&status=blocked&key=a%26b"


def test_a_cursor_alone_is_no_filter():
    assert not Filters(after="1.x").is_set
    assert Filters(key="a").is_set

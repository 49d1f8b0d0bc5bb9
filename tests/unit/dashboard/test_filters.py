from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from starlette.datastructures import QueryParams

from holdfast.dashboard import filters
from holdfast.dashboard.filters import Filters
from holdfast.errors import UsageError
from holdfast.wire.run_queries import RunQuery

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


def test_filters_live_in_the_query():
    query = QueryParams("workflow=shop.checkout&status=failed&status=blocked&key=a%26b&after=1.x&unknown=1")
    found = filters.from_query(query)
    assert found == Filters(workflow="shop.checkout", status=("failed", "blocked"), key="a&b", after="1.x")
    assert filters.from_query(QueryParams(found.query())) == found
    assert found.query(after="") == "workflow=shop.checkout&status=failed&status=blocked&key=a%26b"


def test_a_cursor_alone_is_no_filter():
    assert not Filters(after="1.x").is_set
    assert not Filters(children="shown").is_set
    assert Filters(key="a").is_set


def test_what_links_have_always_said_is_one_line_of_the_search_box():
    found = Filters(
        workflow="shop.checkout", status=("failed", "blocked"), key="a b", attributes="cents>=5", q="o-1", after="1.x"
    )
    assert found.text == 'workflow:shop.checkout status:failed,blocked key:"a b" cents>=5 o-1'
    assert found.in_one_line == Filters(q=found.text, after="1.x")
    one = Filters(status=("failed",), created_after="2026-11-16T12:00").meant(NOW)
    assert one == RunQuery(statuses=("failed",), created_after=NOW)


def test_a_lone_word_among_attributes_is_a_mistake():
    with pytest.raises(UsageError, match="'customer' is not a condition on an attribute"):
        Filters(attributes="customer").meant(NOW)


def test_links_lead_to_what_a_line_means():
    assert filters.link("") == "/runs"
    assert filters.link("status:failed") == "/runs?q=status%3Afailed"
    assert filters.link("a=b", children=True) == "/runs?q=a%3Db&children=shown"


def test_how_long_ago_is_an_instant_once_it_is_settled():
    now = datetime(2026, 1, 2, tzinfo=UTC)
    wanted = filters.from_query(QueryParams("q=failed+created_after:2h&children=shown"))
    settled = wanted.settled(now)
    assert settled.meant(now + timedelta(days=1)) == wanted.meant(now)
    assert settled == settled.settled(now + timedelta(days=1))
    assert not settled.roots_only

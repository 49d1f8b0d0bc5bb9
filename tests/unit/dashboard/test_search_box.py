from __future__ import annotations

from holdfast.dashboard.filters import Filters
from holdfast.dashboard.search_box import Choice, SearchBox, search_box
from holdfast.dashboard.tallies import Tally

TALLY = Tally({"failed": 3, "completed": 1_000})


def box(filters: Filters) -> SearchBox:
    return search_box(filters, workflows=["shop.checkout"], tally=TALLY)


def chosen(choices: tuple[Choice, ...]) -> list[str]:
    return [each.label for each in choices if each.is_on]


def test_each_status_says_how_many_there_are_and_leads_to_them():
    found = {each.label: each for each in box(Filters(q="customer=ada")).statuses}
    assert found["failed"] == Choice("failed", "/runs?q=customer%3Dada+status%3Afailed", is_on=False, number="3")
    assert found["completed"].number == "1,000+"
    assert found["blocked"].number == "0"


def test_what_is_chosen_is_marked_and_a_click_takes_it_back():
    found = box(Filters(q="status:failed created_after:24h workflow:shop.checkout", children="shown", after="1.x"))
    assert chosen(found.statuses) == ["failed"]
    assert chosen(found.times) == ["24 h"]
    assert chosen(found.workflows) == ["shop.checkout"]
    assert found.toggle.is_on
    assert found.total == "3"
    failed = next(each for each in found.statuses if each.label == "failed")
    assert failed.href == "/runs?q=created_after%3A24h+workflow%3Ashop.checkout&children=shown"  # at its first page
    assert "children" not in found.toggle.href


def test_nothing_is_built_on_a_line_that_is_unclear():
    found = box(Filters(q='customer="ada'))
    assert found.text == 'customer="ada'
    assert found.statuses[0].href == "/runs?q=status%3Apending"


def test_all_of_what_is_chosen_is_counted():
    assert box(Filters(q="status:failed,completed")).total == "1,003+"

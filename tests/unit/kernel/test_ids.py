"""Ids that follow from texts: distinct texts never meet, and what was named before keeps its name."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from holdfast.kernel import hooks, ids, tasks

# Few letters, so that examples meet often; the separator, digits as in lengths, and nothing at all are among them.
names = st.text("/1a", max_size=6)


@given(st.tuples(names, names, names), st.tuples(names, names, names))
def test_distinct_texts_never_give_one_name(one, other):
    assert (ids.joined(*one) == ids.joined(*other)) is (one == other)


@given(st.tuples(names, names), st.tuples(names, names))
def test_distinct_pairs_never_give_one_name(one, other):
    assert (ids.joined(*one) == ids.joined(*other)) is (one == other)


@pytest.mark.parametrize(
    ("texts", "name"),
    [
        # As it was before lengths were written: requests and dedupe ids of earlier versions must be found.
        (("default", "shop.checkout", "r-1"), "default/shop.checkout/r-1"),
        (("default", "shop.checkout", "a/b//c"), "default/shop.checkout/a/b//c"),
        (("default", "", "r-1"), "default//r-1"),
        # These could be taken for one another.
        (("default/shop.checkout", "shop.checkout", "r-1"), "/21/default/shop.checkout13/shop.checkout3/r-1"),
        (("", "shop.checkout", "r-1"), "/0/13/shop.checkout3/r-1"),
        (("/", "1/a", ""), "/1//3/1/a0/"),
        (("alone",), "/5/alone"),
    ],
)
def test_only_texts_that_could_be_taken_for_others_get_another_name_than_before(texts, name):
    assert ids.joined(*texts) == name


def test_what_follows_from_a_run_keeps_its_id():
    run_id = "0190a1b2c3d4" + "0" * 20
    assert ids.derived(run_id, "0.1/charge#2") == "0190a1b2c3d4" + "64351678623f01a47a54"
    assert tasks.id_of(run_id, (), "0.1/charge#2", 3, first=7) == "af9b48d9fd4f37a75d01a4f25db55a57"
    assert hooks.key_scope("a/b", "shop.checkout", "k/1") == "key/3/a/b/shop.checkout/k/1"


@given(st.tuples(names, names, names), st.tuples(names, names, names))
def test_scopes_of_distinct_keys_never_meet(one, other):
    assert (hooks.key_scope(*one) == hooks.key_scope(*other)) is (one == other)


@given(st.tuples(names, names), st.tuples(names, names))
def test_scopes_of_distinct_tokens_and_ids_of_distinct_signals_never_meet(one, other):
    assert (hooks.token_scope(*one) == hooks.token_scope(*other)) is (one == other)
    assert (hooks.signal_id(*one) == hooks.signal_id(*other)) is (one == other)

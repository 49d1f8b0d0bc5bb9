"""What there is to prove of some modules."""

from __future__ import annotations

import pytest

from holdfast.errors import UsageError
from holdfast.prove.cases import Case, Unproved, find, packs_of, proofs_of
from holdfast.testing.proofs import DELIVERIES
from tests.unit.prove import cases_of_shop, test_cases as proofs_elsewhere
from tests.unit.prove.cases_of_shop import checkout, shop, two_orders

here = two_orders  # a module of proofs beside the tests


def test_packs_are_found_in_a_module_and_where_the_workflows_of_its_proofs_are():
    assert packs_of([cases_of_shop]) == (shop,)
    assert packs_of([proofs_elsewhere]) == (shop,)
    assert packs_of([cases_of_shop, proofs_elsewhere]) == (shop,)
    assert proofs_of([cases_of_shop]) == [two_orders]


def test_each_run_of_a_proof_is_a_case_and_a_workflow_without_one_gets_a_sample():
    cases = [case for case in find([cases_of_shop], [shop]) if isinstance(case, Case)]
    told = [(case.name, case.call.arguments, case.deliver) for case in cases]
    assert told == [
        ("prover_shop.checkout (two_orders, run 1)", {"order": "o-1", "cents": 1}, ("late",)),
        ("prover_shop.checkout (two_orders, run 2)", {"order": "o-2", "cents": 2}, ("late",)),
        ("prover_shop.look", {}, DELIVERIES),
    ]


@pytest.mark.parametrize(
    ("only", "names"),
    [("look", ["prover_shop.look"]), ("prover_shop.look", ["prover_shop.look"]), (None, None)],
)
def test_one_workflow_can_be_asked_for_with_and_without_its_pack(only, names):
    found = [each.name for each in find([cases_of_shop], [shop], only=only) if isinstance(each, Case)]
    assert names is None or found == names


def test_a_workflow_that_is_not_there_is_refused():
    with pytest.raises(UsageError, match="there is no workflow 'nothing' to prove"):
        find([cases_of_shop], [shop], only="nothing")


def test_a_workflow_for_which_no_sample_can_be_made_is_not_proved(monkeypatch):
    monkeypatch.setattr("holdfast.prove.cases.call_of", lambda _: "no sample fits")
    found = find([cases_of_shop], [shop], only="look")
    assert found == [Unproved("prover_shop.look", "no sample fits")]


def test_each_world_has_stubs_of_its_own():
    [case, *_] = [case for case in find([cases_of_shop], [shop]) if isinstance(case, Case)]
    one, other = case.fake_world(), case.fake_world()
    assert one.stubs is not other.stubs
    assert one.stubs.keys() == {"prover_shop.charge"}
    assert case.call.target is checkout

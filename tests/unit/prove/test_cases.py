"""What there is to prove of some modules."""

from __future__ import annotations

from functools import partial
from types import ModuleType

import pytest

from holdfast.errors import UsageError
from holdfast.prove.cases import Case, Unproved, find, packs_of, proofs_of
from holdfast.testing import FakeWorld, prove
from holdfast.testing.proofs import DELIVERIES
from tests.unit.prove import cases_of_shop, test_cases as proofs_elsewhere
from tests.unit.prove.cases_of_shop import checkout, look, shop, two_orders

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


def a_module(name: str, source: str) -> ModuleType:
    module = ModuleType(name)
    head = "from holdfast.testing import FakeWorld, prove\nfrom tests.unit.prove.cases_of_shop import look\n"
    exec(compile(head + source, f"{name}.py", "exec"), vars(module))
    return module


A_PROOF = """
@prove(look)
def world(world: FakeWorld) -> None: ...
"""


def test_proofs_of_one_name_in_two_modules_are_two_cases():
    modules = [a_module("one", A_PROOF), a_module("other", A_PROOF)]
    found = [each.name for each in find(modules, [shop], only="look") if isinstance(each, Case)]
    assert found == ["prover_shop.look (one.world)", "prover_shop.look (other.world)"]


def test_a_second_proof_of_one_name_in_one_module_is_refused_with_the_line_of_the_first():
    with pytest.raises(UsageError, match=r"two proofs named 'world' in one module: one\.py:4 and one\.py:7"):
        a_module("one", A_PROOF + A_PROOF)


def test_a_module_with_a_proof_may_be_loaded_again():
    module = a_module("one", A_PROOF)
    head = "from holdfast.testing import FakeWorld, prove\nfrom tests.unit.prove.cases_of_shop import look\n"
    exec(compile(head + A_PROOF, "one.py", "exec"), vars(module))
    assert len(proofs_of([module])) == 1


def test_a_proof_that_is_imported_elsewhere_is_one_proof():
    assert proofs_of([cases_of_shop, proofs_elsewhere]) == [two_orders]


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([], "has no runs"),
        (["ab"], "the run 'ab' of the proof nothing .* is no tuple of arguments"),
        ([7], "the run 7 of the proof nothing .* is no tuple"),
        ("ab", "runs='ab' of the proof nothing .* is no list of runs"),
    ],
)
def test_runs_that_are_none_are_refused_with_the_name_of_the_proof(runs, words):
    def nothing(world: FakeWorld) -> None: ...

    with pytest.raises(UsageError, match=words) as refused:
        prove(look, runs=runs)(nothing)
    assert "test_cases.py:" in refused.value.message
    assert "tuple" in refused.value.hint


@pytest.mark.parametrize("arguments", [("o-1",), ("o-1", object())])
def test_a_run_that_does_not_fit_the_workflow_names_its_proof(arguments):
    def too_little(world: FakeWorld) -> None: ...

    module = ModuleType("one")
    module.too_little = prove(checkout, runs=[arguments])(too_little)  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=r"of the proof too_little \(test_cases\.py:"):
        find([module], [shop])


def test_an_observation_that_raises_is_named_with_its_line():
    world = FakeWorld()
    world.observe("rows", lambda: {}["none"])
    with pytest.raises(UsageError, match=r"the observation 'rows' raises KeyError: 'none' \(test_cases\.py:\d+\)"):
        world.look()


def test_an_observation_without_python_code_is_named_all_the_same():
    world = FakeWorld()
    world.observe("rows", partial(int, "none"))
    with pytest.raises(UsageError, match=r"the observation 'rows' raises ValueError: .* \(functools\.partial"):
        world.look()

"""Everything that can be wrong with a definition is said when its module is imported, or where the call is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from holdfast.adapters.payloads import JsonCodec
from holdfast.engine.api.registry import Registry
from holdfast.errors import UnknownWorkflow, UsageError
from holdfast.kernel.retries import DEFAULT, ONCE, Retry
from holdfast.pack import Call, Effect, Pack, Workflow


@pytest.fixture
def shop() -> Pack:
    return Pack("shop")


async def checkout(order: str, cents: int = 0) -> str: ...


def price(cents: int) -> int:
    return cents * 2


OTHER = Pack("other")


@OTHER.effect
async def refund(order: str, cents: int = 0, *, result: str | None = None) -> None: ...


async def price_of(order: str) -> None: ...


# -- what a definition becomes


def test_a_kernel_stays_the_function_that_it_is(shop):
    """E4, E7: it is called like any other and never retried."""
    assert shop.kernel(price) is price
    assert shop.kernels == {"price": price}
    assert Pack("other").kernel()(price) is price


def test_an_effect_and_a_workflow_are_known_by_pack_and_function(shop):
    @shop.effect
    async def charge(order: str) -> str:
        """Take the money."""

    @shop.workflow
    async def sell(order: str) -> None: ...

    assert isinstance(charge, Effect)
    assert isinstance(sell, Workflow)
    assert (charge.name, charge.step_name, sell.name) == ("shop.charge", "charge", "shop.sell")
    assert charge.__doc__ == "Take the money."
    assert shop.effects == {"shop.charge": charge}
    assert shop.workflows == {"shop.sell": sell}


def test_a_call_is_data_and_executes_nothing(shop):
    called = []

    @shop.effect(key="charge:{order}")
    def charge(order: str, cents: int = 5) -> None:
        called.append(order)

    call = charge("o-1")
    assert isinstance(call, Call)
    assert call.arguments == {"order": "o-1", "cents": 5}
    assert repr(call) == "shop.charge(order='o-1', cents=5)"
    assert call.target is charge
    assert not called


def test_effects_may_be_sync_or_async(shop):
    @shop.effect
    def sync() -> None: ...

    @shop.effect
    async def not_sync() -> None: ...

    assert (sync.is_async, not_sync.is_async) == (False, True)


def test_the_policy_of_an_effect_defaults_to_three_attempts_and_of_a_once_effect_to_one(shop):
    def define(**options: Any) -> Effect[..., Any]:
        return Pack("shop").effect(**options)(checkout)

    assert define().policy.retry == DEFAULT
    assert define(safety="natural").policy.retry == DEFAULT
    assert define(safety="once").policy.retry == ONCE
    assert define(safety="once", retry=Retry(attempts=2)).policy.retry.attempts == 2
    assert define(timeout="3s").policy.timeout_ms == 3_000
    assert define(timeout=timedelta(seconds=2)).policy.timeout_ms == 2_000
    assert define(safety="once", reconcile=print).policy.reconcile is print


@pytest.mark.parametrize(("retention", "ms"), [("30d", 2_592_000_000), (5, 5_000), (timedelta(0), 0)])
def test_a_workflow_keeps_its_result_for_its_retention(shop, retention, ms):
    assert shop.workflow(retention=retention)(checkout).retention_ms == ms


def test_keys_are_filled_from_the_arguments(shop):
    sell = shop.workflow(key="sell:{order}:{cents}")(checkout)
    assert sell.key is not None
    assert sell.key.fill(sell("o-1", cents=7).arguments) == "sell:o-1:7"


def test_the_undo_of_an_effect_takes_its_arguments_by_name_and_its_result(shop):
    """It may be an effect of any pack; what it does not name, it does not get."""
    charge = shop.effect(undo=refund)(checkout)
    assert charge.undo is refund
    assert charge.undo_needs_result
    undo = charge.undo_call(charge("o-1", 5).arguments, "p-1")
    assert (undo.target, undo.arguments) == (refund, {"order": "o-1", "cents": 5, "result": "p-1"})

    @shop.effect
    async def forget(order: str, why: str = "cancelled") -> None: ...

    async def remember(order: str, size: int) -> None: ...

    effect = shop.effect(undo=forget)(remember)
    assert not effect.undo_needs_result
    assert effect.undo_call({"order": "o-1", "size": 3}, None).arguments == {"order": "o-1", "why": "cancelled"}
    assert not forget.undo_needs_result


@pytest.mark.parametrize(
    ("declared", "ways"),
    [
        ((), {}),
        (("a",), {"a": ()}),
        (("a", "b", "c"), {"a": ("b",), "b": ("c",), "c": ()}),
        (["a", "b"], {"a": ("b",), "b": ()}),
        ({"a": ("b", "c"), "b": ["a"]}, {"a": ("b", "c"), "b": ("a",), "c": ()}),
        ({"a": ("a",)}, {"a": ("a",)}),
    ],
    ids=str,
)
def test_markers_are_a_sequence_or_a_graph(shop, declared, ways):
    """C5."""
    assert shop.workflow(markers=declared)(checkout).markers == ways


def test_the_first_marker_that_is_declared_is_where_a_run_begins(shop):
    assert next(iter(shop.workflow(markers={"new": ("old",), "old": ()})(checkout).markers)) == "new"


@pytest.mark.parametrize(
    ("outcomes", "pauses"), [(None, False), ((), False), (("partial",), False), ({"resumable", "no_effects"}, True)]
)
def test_a_workflow_that_declares_to_be_resumable_pauses(shop, outcomes, pauses):
    """C4."""
    workflow = shop.workflow(outcomes=outcomes)(checkout)
    assert workflow.pauses is pauses
    assert (None if workflow.outcomes is None else set(workflow.outcomes)) == (
        None if outcomes is None else set(outcomes)
    )


def test_a_workflow_has_a_version_if_it_declares_one(shop):
    assert shop.workflow(version="2")(checkout).version == "2"
    assert Pack("other").workflow(checkout).version is None


# -- what is refused


@pytest.mark.parametrize("kind", ["workflow", "kernel"])
def test_retry_anywhere_but_on_an_effect_is_refused_with_the_reason(shop, kind):
    """E4."""
    with pytest.raises(UsageError, match=f"retry= was given to a {kind}") as caught:
        getattr(shop, kind)(retry=Retry())
    assert "Retries belong to effects alone" in caught.value.hint
    assert "Put retry= on the effect" in caught.value.hint


def test_retry_none_is_refused_too(shop):
    with pytest.raises(UsageError, match="retry= was given to a workflow"):
        shop.workflow(retry=None)


@pytest.mark.parametrize("kind", ["effect", "workflow", "kernel"])
def test_an_unknown_option_is_named(shop, kind):
    with pytest.raises(UsageError, match=f"{kind} does not take keys, retries"):
        getattr(shop, kind)(retries=3, keys="x")


REFUSED: list[tuple[str, str, Callable[[Pack], Any]]] = [
    ("a workflow that is not async", "'price' is not async", lambda shop: shop.workflow(price)),
    ("an async kernel", "kernel 'checkout' is async", lambda shop: shop.kernel(checkout)),
    ("safety", "safety='twice' is not known", lambda shop: shop.effect(safety="twice")),
    ("reconcile", "only asked for an effect with safety='once'", lambda shop: shop.effect(reconcile=print)),
    ("timeout", "'soon' is not a duration", lambda shop: shop.effect(timeout="soon")),
    ("retention", "'forever' is not a duration", lambda shop: shop.workflow(retention="forever")),
    ("template", "names 'number', which is not a parameter", lambda shop: shop.workflow(key="{number}")(checkout)),
    ("effect template", "unmatched brace", lambda shop: shop.effect(key="{order")(checkout)),
    ("retry is a number", "retry", lambda shop: shop.effect(retry=3)(checkout)),
    ("retry is a class", "retry", lambda shop: shop.effect(retry=Retry)(checkout)),
    ("key is a number", "key", lambda shop: shop.effect(key=7)(checkout)),
    ("a positional key", "effect", lambda shop: shop.effect("charge:{order}")),
    ("a positional key of a workflow", "workflow", lambda shop: shop.workflow("sell:{order}")),
    ("reconcile is text", "reconcile", lambda shop: shop.effect(safety="once", reconcile="ask")(checkout)),
    ("undo is a function", "undo=.* is not an effect", lambda shop: shop.effect(undo=checkout)(price)),
    ("undo is a workflow", "undo=.* is not an effect", lambda shop: shop.effect(undo=OTHER.workflow(price_of))(price)),
    ("undo is text", "undo='refund' is not an effect", lambda shop: shop.effect(undo="refund")(price)),
    ("undo needs more", "which needs order", lambda shop: shop.effect(undo=refund)(price)),
    ("markers are one text", "markers='pending'", lambda shop: shop.workflow(markers="pending")(checkout)),
    ("markers are a number", "markers=3", lambda shop: shop.workflow(markers=3)(checkout)),
    ("a marker twice", "a marker twice", lambda shop: shop.workflow(markers=("a", "b", "a"))(checkout)),
    ("a marker without a name", "the marker ''", lambda shop: shop.workflow(markers=("a", ""))(checkout)),
    ("a marker that is long", "the marker 'xxx", lambda shop: shop.workflow(markers=("x" * 256,))(checkout)),
    ("a marker that is a number", "the marker 1", lambda shop: shop.workflow(markers=(1, 2))(checkout)),
    ("a way that is one text", "after 'a'", lambda shop: shop.workflow(markers={"a": "b"})(checkout)),
    ("a way that is a number", "after 'a'", lambda shop: shop.workflow(markers={"a": 3})(checkout)),
    ("a way to a number", "the marker 1", lambda shop: shop.workflow(markers={"a": (1,)})(checkout)),
    ("an unknown outcome", "'half' is no outcome", lambda shop: shop.workflow(outcomes=("partial", "half"))(checkout)),
    ("outcomes are one text", "outcomes='partial'", lambda shop: shop.workflow(outcomes="partial")(checkout)),
    ("outcomes are a number", "outcomes=3", lambda shop: shop.workflow(outcomes=3)(checkout)),
    ("version is a number", "version=2 is not", lambda shop: shop.workflow(version=2)(checkout)),
    ("version is empty", "version=''", lambda shop: shop.workflow(version="")(checkout)),
    ("version is long", "version='xxx", lambda shop: shop.workflow(version="x" * 256)(checkout)),
]


@pytest.mark.parametrize(("says", "define"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_a_definition_that_cannot_work_is_refused_at_once(shop, says, define):
    with pytest.raises(UsageError, match=says):
        define(shop)
    assert not shop.effects
    assert not shop.workflows
    assert not shop.kernels


def test_a_generator_can_neither_be_an_effect_nor_a_workflow(shop):
    async def stream():
        yield 1

    def numbers():
        yield 1

    for define in (shop.effect, shop.workflow):
        for function in (stream, numbers):
            with pytest.raises(UsageError):
                define(function)


@pytest.mark.parametrize("kind", ["effect", "workflow"])
def test_parameters_without_a_name_are_refused(shop, kind):
    async def star(*orders: str) -> None: ...

    async def double_star(**orders: str) -> None: ...

    for function in (star, double_star):
        with pytest.raises(UsageError, match=rf"{kind} 'shop\.\w+' \(test_pack\.py:\d+\) takes \*orders") as caught:
            getattr(shop, kind)(function)
        assert "stored by name" in caught.value.hint


@pytest.mark.parametrize("first", ["kernel", "effect", "workflow"])
@pytest.mark.parametrize("second", ["kernel", "effect", "workflow"])
def test_a_name_is_defined_once_in_a_pack(shop, first, second):
    async def act() -> None: ...

    def act_purely() -> None: ...

    act_purely.__name__ = "act"
    getattr(shop, first)(act_purely if first == "kernel" else act)
    with pytest.raises(UsageError, match="pack 'shop' defines 'act' twice"):
        getattr(shop, second)(act_purely if second == "kernel" else act)


@pytest.mark.parametrize("kind", ["effect", "workflow", "kernel"])
def test_a_name_that_could_be_taken_for_the_step_of_a_task_is_refused(kind):
    async def step() -> None: ...

    def rule() -> None: ...

    fn = rule if kind == "kernel" else step
    fn.__name__ = "0/charge"
    with pytest.raises(UsageError, match="'0/charge' contains '/'"):
        getattr(Pack("shop"), kind)(fn)


@pytest.mark.parametrize("name", ["", "my shop", "shop.eu", "1shop", "shop-eu"])
def test_a_pack_needs_a_name_that_is_an_identifier(name):
    with pytest.raises(UsageError, match="is not a pack name"):
        Pack(name)


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((), {}, "missing a required argument: 'order'"),
        (("o-1", 1, 2), {}, "too many positional arguments"),
        (("o-1",), {"price": 1}, "unexpected keyword argument 'price'"),
        (("o-1",), {"order": "o-2"}, "multiple values for argument 'order'"),
    ],
)
@pytest.mark.parametrize("kind", ["effect", "workflow"])
def test_wrong_arguments_are_refused_where_the_call_is_made(shop, kind, args, kwargs, says):
    call = getattr(shop, kind)(checkout)
    with pytest.raises(
        UsageError, match=rf"{kind} 'shop.checkout' was called with wrong arguments: .*{says}"
    ) as caught:
        call(*args, **kwargs)
    assert "order: 'str', cents: 'int' = 0" in caught.value.hint


# -- signatures


def test_arguments_are_bound_by_name_whatever_their_kind(shop):
    @shop.effect
    async def mixed(first: int, /, second: int, *, third: int = 3) -> None: ...

    signature = mixed.signature
    for call in (mixed(1, 2), mixed(1, second=2), mixed(1, third=3, second=2)):
        assert call.arguments == {"first": 1, "second": 2, "third": 3}
    seen = signature.apply(lambda *args, **kwargs: (args, kwargs), mixed(1, 2).arguments)
    assert seen == ((1, 2), {"third": 3})


def test_stored_arguments_are_read_back_by_the_annotations(shop):
    @dataclass
    class Item:
        name: str

    @shop.workflow
    async def sell(item: Item, note, count: int = 2, *, tags: set[str] | None = None) -> list[Item]: ...

    signature = sell.signature
    stored = JsonCodec().encode({"item": Item("lamp"), "note": [1], "tags": {"a"}}, what="x")
    decoded = signature.named(JsonCodec().decode(stored, signature.arguments_type))
    assert decoded == {"item": Item("lamp"), "note": [1], "count": 2, "tags": {"a"}}
    assert signature.returns == list[Item]
    assert signature.names == {"item", "note", "count", "tags"}


def test_a_function_without_annotations_takes_and_gives_plain_json(shop):
    @shop.workflow
    async def sell(order): ...

    assert sell.signature.returns is Any
    assert sell.signature.named(JsonCodec().decode(b'{"order":{"a":1}}', sell.signature.arguments_type)) == {
        "order": {"a": 1}
    }


def test_anything_annotated_as_object_is_plain_json(shop):
    @shop.workflow
    async def sell(order: object) -> object: ...

    assert sell.signature.named(JsonCodec().decode(b'{"order":[1]}', sell.signature.arguments_type)) == {"order": [1]}
    assert sell.signature.returns is Any


# -- policies of operators


def test_an_operator_changes_the_policy_and_leaves_the_pack_as_it_is(shop):
    """C9."""

    @shop.effect(retry=Retry(attempts=2), timeout="1s", safety="once")
    async def charge() -> None: ...

    patient = shop.with_policy("charge", retry=Retry(attempts=9))
    slow = patient.with_policy("shop.charge", timeout="1m", reconcile=print)
    codec = JsonCodec()
    policies = [Registry([pack], codec=codec).policy_of(charge) for pack in (shop, patient, slow)]
    assert [policy.retry.attempts for policy in policies] == [2, 9, 9]
    assert [policy.timeout_ms for policy in policies] == [1_000, 1_000, 60_000]
    assert [policy.reconcile for policy in policies] == [None, None, print]
    assert charge.policy.retry.attempts == 2


def test_a_policy_for_an_unknown_effect_is_refused(shop):
    shop.effect(checkout)
    with pytest.raises(UsageError, match="has no effect 'charge'") as caught:
        shop.with_policy("charge", timeout=1)
    assert "shop.checkout" in caught.value.hint
    with pytest.raises(UsageError) as caught:
        Pack("empty").with_policy("charge", timeout=1)
    assert caught.value.hint == "Its effects: none."


# -- registries


def test_a_workflow_is_found_by_its_full_name_or_by_its_own_if_that_is_unambiguous(shop):
    other = Pack("other")
    sell = shop.workflow(checkout)
    other.workflow(checkout)

    async def only() -> None: ...

    alone = other.workflow(only)
    registry = Registry([shop, other], codec=JsonCodec())
    assert registry.workflow("shop.checkout") is sell
    assert registry.workflow("only") is alone
    registry.require(sell)
    for name in ("checkout", "nothing"):
        with pytest.raises(UnknownWorkflow, match=name) as caught:
            registry.workflow(name)
        assert "shop.checkout, other.checkout, other.only" in caught.value.hint


def test_a_workflow_of_another_pack_is_not_known(shop):
    sell = Pack("shop").workflow(checkout)
    shop.workflow(checkout)
    with pytest.raises(UnknownWorkflow):
        Registry([shop], codec=JsonCodec()).require(sell)


def test_two_packs_of_one_name_are_refused(shop):
    with pytest.raises(UsageError, match="two packs are named 'shop'"):
        Registry([shop, Pack("shop")], codec=JsonCodec())


@dataclass
class One:
    x: int


@dataclass
class Two:
    y: int


@pytest.mark.parametrize("kind", ["effect", "workflow"])
def test_a_result_that_could_never_be_read_back_is_refused_before_anything_runs(shop, kind):
    async def sell() -> One | Two: ...

    getattr(shop, kind)(sell)
    with pytest.raises(UsageError, match=r"the result of shop\.sell"):
        Registry([shop], codec=JsonCodec())


def test_an_input_that_could_never_be_read_back_is_refused_before_anything_runs(shop):
    async def sell(item: One | Two) -> None: ...

    shop.workflow(sell)
    with pytest.raises(UsageError, match=r"the input of shop\.sell"):
        Registry([shop], codec=JsonCodec())


def test_an_annotation_that_cannot_be_resolved_is_refused_before_anything_runs(shop):
    async def sell(item: NoSuchType) -> None: ...  # noqa: F821 # pyright: ignore[reportUndefinedVariable]

    shop.workflow(sell)
    with pytest.raises(UsageError, match=r"annotation of workflow 'shop\.sell' cannot be resolved: .*NoSuchType"):
        Registry([shop], codec=JsonCodec())


def test_only_workflows_of_the_named_queues_are_served(shop):
    shop.workflow(queue="slow")(checkout)

    async def quick() -> None: ...

    shop.workflow(quick)
    codec = JsonCodec()
    assert Registry([shop], codec=codec).served == ("shop.checkout", "shop.quick")
    assert Registry([shop], codec=codec, queues=["slow"]).served == ("shop.checkout",)
    assert Registry([shop], codec=codec, queues=[]).served == ()
    assert Registry([shop], codec=codec, queues=["slow"]).workflow_names == ("shop.checkout", "shop.quick")


# -- annotations that could never be read back


class Session:
    pass


@pytest.mark.parametrize(
    ("annotation", "cure"),
    [(dict[str, object], "Write Any"), (list[Session], "Use a dataclass"), (Callable[[], int], "Use a dataclass")],
    ids=str,
)
def test_a_result_that_could_never_be_read_back_is_refused_at_import(annotation: Any, cure: str) -> None:
    pack = Pack("shop")

    async def sell() -> Any: ...

    sell.__annotations__["return"] = annotation
    for decorate, kind in ((pack.effect, "effect"), (pack.workflow, "workflow")):
        with pytest.raises(
            UsageError, match=rf"{kind} 'shop\.sell' \(test_pack\.py:\d+\) declares its result"
        ) as found:
            decorate(sell)
        assert "could never be read back" in found.value.message
        assert found.value.hint.startswith(cure)


def test_a_parameter_of_a_workflow_that_could_never_be_read_back_is_refused_at_import() -> None:
    pack = Pack("shop")

    async def sell(order: str, options: dict[str, object]) -> None: ...

    with pytest.raises(UsageError, match=r"parameter 'options' as dict\[str, object\].*Write Any"):
        pack.workflow(sell)
    pack.effect(sell)  # what an effect is given is stored as a digest, and never read back


def test_an_annotation_that_is_defined_later_is_refused_when_the_pack_is_used() -> None:
    pack = Pack("shop")

    @pack.workflow
    async def sell() -> list[Later]:  # noqa: F821 - defined below
        return []

    globals()["Later"] = Session
    try:
        with pytest.raises(UsageError, match="Session says nothing about its values"):
            Registry([pack], codec=JsonCodec())
    finally:
        del globals()["Later"]

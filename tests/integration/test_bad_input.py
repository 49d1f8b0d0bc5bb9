"""Bad input: a `UsageError` with a hint, at the earliest moment at which it can be known."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import (
    Holdfast,
    Pack,
    Retry,
    RunFailed,
    UnknownRun,
    UsageError,
    attempt,
    current,
    effect_key,
    heartbeat,
    now,
    random,
    sleep,
    spawn,
    timeout,
    uuid4,
)
from holdfast.errors import InvalidConfig, NotSerializable, PayloadTooLarge, ReservedKey, UnknownWorkflow
from holdfast.kernel import keys
from tests.integration.conftest import Home


def _refused(build: Any, *words: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        build()
    return _checked(caught.value, *words)


def _checked(error: BaseException | None, *words: str) -> UsageError:
    assert isinstance(error, UsageError), repr(error)
    assert error.hint, error
    for word in words:
        assert word in str(error), str(error)
    return error


def _shop() -> tuple[Pack, Any, Any]:
    pack = Pack("shop")

    @pack.effect(key="charge:{order}")
    async def charge(order: str, cents: int) -> None: ...

    @pack.workflow(key="checkout:{order}")
    async def checkout(order: str, cents: int = 1) -> None:
        await charge(order, cents)

    return pack, checkout, charge


# -- at import


def test_a_retry_on_a_workflow_or_a_kernel() -> None:
    pack = Pack("p")
    _refused(lambda: pack.workflow(retry=Retry()), "retry=", "workflow", "effect")  # pyright: ignore[reportCallIssue]
    _refused(lambda: pack.kernel(retry=Retry()), "retry=", "kernel", "effect")  # pyright: ignore[reportCallIssue]


def test_an_option_that_does_not_exist() -> None:
    pack = Pack("p")
    for kind in ("workflow", "kernel", "effect"):
        _refused(lambda kind=kind: getattr(pack, kind)(retires=3), "retires", kind)


def test_a_workflow_that_is_not_async() -> None:
    def plain() -> None: ...

    _refused(lambda: Pack("p").workflow(plain), "plain", "async def")  # pyright: ignore[reportArgumentType]


def test_a_kernel_that_is_async() -> None:
    async def awaits() -> None: ...

    _refused(lambda: Pack("p").kernel(awaits), "awaits", "I/O")


def test_a_key_that_names_no_parameter() -> None:
    async def work(order: str) -> None: ...

    _refused(lambda: Pack("p").workflow(key="k:{user}")(work), "user", "order")
    _refused(lambda: Pack("p").effect(key="k:{user}")(work), "user", "order")


@pytest.mark.parametrize("template", ["k:{", "k:}", "{order}{order}", "k:{}", "k:{0}", "k:{order!r}", "k:{order:>3}"])
def test_a_key_template_that_cannot_work(template: str) -> None:
    async def work(order: str) -> None: ...

    with pytest.raises(UsageError):
        Pack("p").workflow(key=template)(work)


def test_a_key_field_whose_values_could_give_one_key() -> None:
    """1 and "1" are two orders, and their key would be one."""

    async def work(order: int | str) -> None: ...

    for declare in (Pack("p").workflow(key="k:{order}"), Pack("p").effect(key="k:{order}")):
        _refused(lambda declare=declare: declare(work), "'order'", "int or str", "one type")
    # Beside the key, and where each start chooses its own, such a parameter is as good as any.
    Pack("p").workflow(work)
    Pack("p").workflow(key="nightly")(work)


Later: Any = None


def test_a_key_field_whose_type_is_defined_later_is_looked_at_when_its_pack_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(globals(), "Later")
    pack = Pack("p")

    async def work(order: "Later") -> None: ...  # noqa: UP037 - it is not there yet

    pack.workflow(key="k:{order}")(work)
    monkeypatch.setitem(globals(), "Later", int | str)
    _refused(lambda: Holdfast("memory://", packs=[pack]), "'order'", "int or str")


def test_parameters_without_names() -> None:
    async def work(*orders: str) -> None: ...
    async def other(**orders: str) -> None: ...

    _refused(lambda: Pack("p").workflow(work), "orders")
    _refused(lambda: Pack("p").effect(other), "orders")


def test_one_name_for_two_things() -> None:
    pack = Pack("p")

    @pack.effect
    async def work() -> None: ...

    _refused(lambda: pack.kernel(_named("work")), "work", "twice")


def _named(name: str) -> Any:
    def fn() -> None: ...

    fn.__name__ = name
    return fn


def test_a_pack_whose_name_is_no_name() -> None:
    for name in ("", "my pack", "a.b", "1st", "a/b"):
        _refused(lambda name=name: Pack(name), repr(name))


@pytest.mark.parametrize(
    "duration", ["", "soon", "5 parsecs", "-1s", -1, float("nan"), float("inf"), True, None, "1e9d"]
)
def test_a_duration_that_is_none(duration: Any) -> None:
    async def work() -> None: ...

    _refused(lambda: Pack("p").workflow(retention=duration)(work))


def test_a_policy_that_makes_no_sense() -> None:
    _refused(lambda: Retry(attempts=0), "attempts")
    _refused(lambda: Retry(factor=0.5), "factor")
    _refused(lambda: Retry(base="soon"), "soon")
    _refused(lambda: Retry(on=OSError), "on")  # pyright: ignore[reportArgumentType]
    _refused(lambda: Pack("p").effect(safety="maybe"), "maybe", "once")  # pyright: ignore[reportArgumentType, reportCallIssue]
    _refused(lambda: Pack("p").effect(reconcile=lambda key: key), "reconcile", "once")
    _refused(lambda: Pack("p").effect(timeout="never"), "never")


# -- when the call is built


def test_wrong_arguments() -> None:
    _, checkout, charge = _shop()
    _refused(checkout, "checkout", "order")
    _refused(lambda: checkout("o-1", 1, 2), "checkout")
    _refused(lambda: checkout("o-1", colour="red"), "colour")
    _refused(lambda: charge("o-1"), "charge", "cents")


async def test_an_effect_or_workflow_awaited_outside_a_workflow() -> None:
    _, checkout, charge = _shop()
    for call, cure in ((charge("o-1", 5), "workflow"), (checkout("o-1"), "hf.start")):
        with pytest.raises(UsageError) as caught:
            await call
        _checked(caught.value, "outside", cure)


async def test_what_belongs_in_a_workflow_used_outside_one() -> None:
    for name, use in {
        "now": now,
        "uuid4": uuid4,
        "random": random,
        "current": current,
        "timeout": lambda: timeout(1),
    }.items():
        _refused(use, name, "@pack.workflow")
    _, checkout, _ = _shop()
    for name, wait in {"sleep": sleep(1), "spawn": spawn(checkout("o-1"))}.items():
        with pytest.raises(UsageError) as caught:
            await wait
        _checked(caught.value, name, "@pack.workflow")


def test_what_belongs_in_an_effect_used_outside_one() -> None:
    for use in (effect_key, attempt, heartbeat):
        _refused(use, use.__name__, "@pack.effect")


# -- when Holdfast is made or opened


@pytest.mark.parametrize(
    "url", ["", "shop.db", "postgres://host/db", "sqlite://", "sqlite:///", "sqlite:///:memory:", "/var/lib/shop.db"]
)
def test_a_url_that_names_no_store(url: str) -> None:
    assert isinstance(_refused(lambda: Holdfast(url), url), InvalidConfig)


def test_options_that_cannot_work(tmp_path: Path) -> None:
    _refused(lambda: Holdfast("memory://", concurrency=0), "concurrency")
    _refused(lambda: Holdfast("memory://", lease="1ms"), "lease")
    _refused(lambda: Holdfast("memory://", lease="soon"), "soon")
    _refused(lambda: Holdfast("memory://", namespace=""))
    pack = Pack("p")
    _refused(lambda: Holdfast("memory://", packs=[pack, Pack("p")]), "'p'")


def test_an_environment_that_cannot_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_PAYLOAD_MAX", "much")
    _refused(lambda: Holdfast("memory://"), "HOLDFAST_PAYLOAD_MAX", "much")
    monkeypatch.delenv("HOLDFAST_PAYLOAD_MAX")
    monkeypatch.setenv("HOLDFAST_LOG", "loud")
    _refused(lambda: Holdfast("memory://"), "HOLDFAST_LOG", "loud")


async def test_an_annotation_that_cannot_be_resolved() -> None:
    pack = Pack("p")

    async def work(item: "NoSuchType") -> None: ...  # noqa: F821, UP037 # pyright: ignore[reportUndefinedVariable]

    pack.workflow(work)
    _refused(lambda: Holdfast("memory://", packs=[pack]), "NoSuchType")


async def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig) as caught:
        async with Holdfast(f"sqlite:///{tmp_path}/no/such/shop.db"):
            pass
    _checked(caught.value, "mkdir -p")


async def test_a_holdfast_that_is_not_open(home: Home) -> None:
    pack, checkout, _ = _shop()
    hf = home.holdfast(pack)
    with pytest.raises(UsageError) as caught:
        await hf.start(checkout("o-1"))
    _checked(caught.value, "async with")
    async with hf:
        await hf.start(checkout("o-1"))
    with pytest.raises(UsageError) as caught:
        await hf.start(checkout("o-2"))
    _checked(caught.value, "async with")


# -- when a run is started


async def test_a_start_that_cannot_work(home: Home) -> None:
    pack, checkout, charge = _shop()
    _, foreign, _ = _shop()
    async with home.holdfast(pack) as hf:
        for start, words in [
            (lambda: hf.start(foreign("o-1")), ["shop.checkout", "packs="]),
            (lambda: hf.start(charge("o-1", 5)), ["effect", "workflow"]),
            (lambda: hf.start(checkout("o" * 300)), ["255"]),
            (lambda: hf.start(checkout("o-1"), key="k" * 256), ["255"]),
            (lambda: hf.start(checkout("o-1"), key=""), ["empty"]),
            (lambda: hf.start(checkout("o-1"), key=5), ["text"]),
            (lambda: hf.start(checkout("o-1"), key="\ud800"), []),
            (lambda: hf.start(checkout("o-1"), request_id="\ud800"), []),
            (lambda: hf.start(checkout("o-1"), request_id=5), []),
            (lambda: hf.start(checkout("o-1"), priority=10**9), ["priority"]),
            (lambda: hf.start(checkout("o-1"), priority=1.5), ["priority"]),
            (lambda: hf.start(checkout("o-1"), priority="high"), ["priority"]),
            (lambda: hf.start(checkout("o-1"), delay="soon"), ["soon"]),
            (lambda: hf.start(checkout("o-1"), delay=-1), ["-1"]),
            (lambda: hf.start(checkout("o-1"), retention="long"), ["long"]),
            (lambda: hf.start(checkout("o-1", cents={"a": object()})), ["cents", "'a'"]),
            (lambda: hf.start(checkout("o-1", cents="x" * 17_000_000)), ["the limit"]),
            (lambda: hf.start(checkout("o-1", cents="five")), ["cents"]),
            (lambda: hf.start("checkout"), []),
            (lambda: hf.start(checkout), []),
        ]:
            with pytest.raises(UsageError) as caught:
                await start()  # pyright: ignore[reportArgumentType, reportCallIssue]
            _checked(caught.value, *words)
        rows = home.rows()
        assert rows.get("runs", rows.get("_runs")) == 0


async def test_the_errors_of_a_start_have_their_own_types(home: Home) -> None:
    pack, checkout, _ = _shop()
    _, foreign, _ = _shop()
    async with home.holdfast(pack) as hf:
        with pytest.raises(UnknownWorkflow):
            await hf.start(foreign("o-1"))
        with pytest.raises(NotSerializable):
            await hf.start(checkout("o-1", cents=object()))
        with pytest.raises(PayloadTooLarge):
            await hf.start(checkout("o-1", cents="x" * 17_000_000))
        with pytest.raises(UnknownWorkflow):
            await hf.find("nosuch", "k")
        with pytest.raises(UnknownRun):
            await hf.find(checkout, "k")


async def test_a_key_field_of_which_nobody_knows_the_one_text(home: Home) -> None:
    pack = Pack("p")

    @pack.workflow(key="k:{value}")
    async def work(value: Any) -> None: ...

    @pack.workflow(key="k:{order.id}")
    async def by_path(order: Any) -> None: ...

    async with home.holdfast(pack) as hf:
        for value in ([1], {"a": 1}, None, datetime(2024, 1, 1), timedelta(1)):
            with pytest.raises(UsageError) as caught:
                await hf.start(work(value))
            _checked(caught.value, "value")
        with pytest.raises(UsageError):
            await hf.start(by_path("no such attribute"))


async def test_a_key_that_only_holdfast_makes(home: Home) -> None:
    pack = Pack("p")

    @pack.workflow(key="{a}:{b}:{c}")
    async def work(a: str, b: str, c: str) -> str:
        return a

    @pack.workflow
    async def plain() -> None: ...

    _refused(lambda: Pack("q").workflow(key="idem:{order}")(_by_order), "idem:")
    async with home.holdfast(pack) as hf:
        run = (await hf.start(plain())).run
        for refused in (
            hf.start(plain(), key="idem:caller:1"),
            hf.start(work("idem", "caller", "1")),
            hf.start(plain(), key="idem:caller:1", replace=run),
        ):
            with pytest.raises(ReservedKey) as caught:
                await refused
            _checked(caught.value, "idem:caller:1")
        # The owner of such a key may be succeeded: it is named together with it.
        made = (await hf.start(plain(), key=keys.of_request("caller:1"))).run
        assert made.key == "idem:caller:1"
        successor, created = await hf.start(plain(), key=made.key, replace=made)
        assert (successor.key, created) == ("idem:caller:1", True)
        await successor.result(timeout=30)
    Pack("q").effect(key="idem:{order}")(_by_order)  # the keys of effects are for others, and begin as these like


async def _by_order(order: str) -> None: ...


# -- in a workflow


async def _ends_with(home: Home, body: Any, *words: str, packs: tuple[Pack, ...] = ()) -> None:
    """A workflow that does `body` fails with a usage error, and the worker goes on."""
    pack = Pack("p")

    @pack.workflow
    async def work() -> None:
        result = body()
        if asyncio.iscoroutine(result) or hasattr(result, "__await__"):
            await result

    @pack.workflow
    async def fine() -> str:
        return "fine"

    async with home.holdfast(pack, *packs) as hf:
        with pytest.raises(RunFailed) as caught:
            await (await hf.start(work())).run.result(timeout=30)
        _checked(caught.value.__cause__, *words)
        assert await (await hf.start(fine())).run.result(timeout=30) == "fine"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (lambda: time.sleep(0.001), ["sleep"]),
        (lambda: socket.create_connection(("127.0.0.1", 9), timeout=0.01), ["effect"]),
        (lambda: socket.getaddrinfo("localhost", 80), ["effect"]),
        (lambda: subprocess.run(["true"], check=False), ["effect"]),
        (lambda: os.system("true"), ["effect"]),
        (lambda: Path("/etc/hostname").read_text(), ["effect"]),
    ],
    ids=["sleep", "connect", "resolve", "process", "system", "file"],
)
async def test_a_blocking_call_in_a_workflow(home: Home, body: Any, words: list[str]) -> None:
    await _ends_with(home, body, *words)


@pytest.mark.parametrize(
    "body",
    [
        lambda: asyncio.to_thread(time.monotonic),
        lambda: asyncio.get_running_loop().run_in_executor(None, time.monotonic),
        lambda: asyncio.open_connection("127.0.0.1", 9),
        lambda: asyncio.create_subprocess_exec("true"),
        lambda: asyncio.get_running_loop().getaddrinfo("localhost", 80),
    ],
    ids=["thread", "executor", "connection", "process", "resolve"],
)
async def test_the_outside_world_in_a_workflow(home: Home, body: Any) -> None:
    await _ends_with(home, body, "@pack.effect")


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
async def test_a_request_in_a_workflow_says_the_same_to_an_address_as_to_a_name(home: Home, host: str) -> None:
    async def ask() -> None:
        async with httpx.AsyncClient(trust_env=False, verify=False) as client:
            await client.get(f"http://{host}:9/")

    await _ends_with(home, ask, "@pack.effect", "reaches the outside world")


async def test_effect_functions_in_a_workflow(home: Home) -> None:
    await _ends_with(home, effect_key, "@pack.effect")


async def test_spawning_an_effect(home: Home) -> None:
    _, _, charge = _shop()
    await _ends_with(home, lambda: spawn(charge("o-1", 5)), "effect", "workflow")


async def test_a_child_of_an_unknown_pack(home: Home) -> None:
    _, checkout, _ = _shop()
    await _ends_with(home, lambda: checkout("o-1"), "shop.checkout", "packs=")


@pytest.mark.parametrize("how", ["spawn", "awaited"])
async def test_a_child_with_a_key_that_only_holdfast_makes(home: Home, how: str) -> None:
    pack = Pack("q")

    @pack.workflow(key="{a}:{b}")
    async def child(a: str, b: str) -> None: ...

    def body() -> Any:
        return child("idem", "1") if how == "awaited" else spawn(child("a", "b"), key="idem:1")

    await _ends_with(home, body, "idem:1", packs=(pack,))


async def test_an_effect_awaited_in_an_effect(home: Home) -> None:
    pack = Pack("p")
    calls = 0

    @pack.effect
    async def inner() -> None: ...

    @pack.effect
    async def outer() -> None:
        nonlocal calls
        calls += 1
        await inner()

    @pack.workflow
    async def work() -> None:
        await outer()

    async with home.holdfast(pack) as hf:
        with pytest.raises(RunFailed) as caught:
            await (await hf.start(work())).run.result(timeout=30)
        _checked(caught.value.__cause__, "outside a workflow")
    assert calls == 1


async def test_heartbeat_details_that_cannot_be_stored(home: Home) -> None:
    pack = Pack("p")

    @pack.effect
    async def beat() -> None:
        heartbeat({"at": object()})

    @pack.workflow
    async def work() -> None:
        await beat()

    async with home.holdfast(pack) as hf:
        with pytest.raises(RunFailed) as caught:
            await (await hf.start(work())).run.result(timeout=30)
        _checked(caught.value.__cause__, "heartbeat", "'at'")

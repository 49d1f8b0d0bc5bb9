"""What does not belong in a workflow is refused, and the error names the cure."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import holdfast
from holdfast.engine.code.sandbox import forbid_blocking_calls
from holdfast.errors import UsageError
from tests.unit.engine.driving import Play, workflow_of
from tests.unit.engine.shop import charge, notify, pay, shop

forbid_blocking_calls()


async def _in_executor() -> None:
    await asyncio.get_running_loop().run_in_executor(None, print)


async def _in_thread() -> None:
    await asyncio.to_thread(print)


async def _connection() -> None:
    await asyncio.open_connection("localhost", 80)


async def _unix_connection() -> None:
    await asyncio.open_unix_connection("none.sock")


async def _server() -> None:
    await asyncio.start_server(lambda *_: None, "localhost", 0)


async def _subprocess() -> None:
    await asyncio.create_subprocess_exec("true")


async def _shell() -> None:
    await asyncio.create_subprocess_shell("true")


async def _address() -> None:
    await asyncio.get_running_loop().getaddrinfo("localhost", 80)


async def _reader() -> None:
    asyncio.get_running_loop().add_reader(0, print)


async def _signal_handler() -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, print)


async def _threadsafe() -> None:
    asyncio.get_running_loop().call_soon_threadsafe(print)


async def _another_loop() -> None:
    coroutine = asyncio.sleep(0)
    try:
        asyncio.get_running_loop().run_until_complete(coroutine)
    finally:
        coroutine.close()


@pytest.mark.parametrize(
    "use",
    [
        _in_executor,
        _in_thread,
        _connection,
        _unix_connection,
        _server,
        _subprocess,
        _shell,
        _address,
        _reader,
        _signal_handler,
        _threadsafe,
        _another_loop,
    ],
)
def test_the_loop_refuses_what_reaches_the_outside_world(use: Callable[[], Awaitable[None]]):
    @workflow_of
    async def code() -> None:
        await charge(1)
        await use()

    play = Play(code).perform("charge#1", 0)
    with pytest.raises(UsageError, match="which reaches the outside world") as caught:
        _ = play.result
    assert "@pack.effect" in caught.value.hint


BLOCKING: dict[str, Callable[[Path], Any]] = {
    "time.sleep": lambda _: time.sleep(0),
    "open": lambda path: open(path / "data.txt"),  # noqa: PTH123, SIM115
    "open ": lambda path: (path / "data.txt").read_text(),
    "os.system": lambda _: os.system("true"),
    "subprocess.Popen": lambda _: subprocess.run(["true"], check=True),
    "socket.connect": lambda _: socket.create_connection(("127.0.0.1", 9), timeout=0.1),
    "socket.getaddrinfo": lambda _: socket.getaddrinfo("localhost", 80),
}


@pytest.mark.parametrize("name", BLOCKING)
def test_a_call_that_would_block_every_run_is_refused(name, tmp_path):
    (tmp_path / "data.txt").write_text("x")

    @workflow_of
    async def code() -> None:
        BLOCKING[name](tmp_path)

    with pytest.raises(UsageError, match=r"blocks every run of this process") as caught:
        _ = Play(code).result
    assert "Use " in caught.value.hint
    if name == "time.sleep":
        assert "holdfast.sleep" in caught.value.hint


@pytest.mark.parametrize("name", BLOCKING)
async def test_elsewhere_the_same_calls_are_nobodys_business(name, tmp_path):
    (tmp_path / "data.txt").write_text("x")
    try:
        result = BLOCKING[name](tmp_path)
    except OSError:
        return  # nobody listens at that port
    if hasattr(result, "close"):
        result.close()


def test_what_python_itself_opens_is_allowed():
    @workflow_of
    async def code() -> str:
        import colorsys  # an import reads files

        return f"{colorsys.__name__} {ZoneInfo('Europe/Berlin').key}"

    assert Play(code).result == "colorsys Europe/Berlin"


@pytest.mark.parametrize("call", [charge(1), notify("x"), pay(1)], ids=repr)
async def test_a_call_awaited_outside_a_workflow_says_where_it_belongs(call):
    with pytest.raises(UsageError, match=f"'{call.target.name}' was awaited outside a workflow") as caught:
        await call
    assert ("hf.start" in caught.value.hint) is (call.target.name == "shop.pay")


@pytest.mark.parametrize(
    ("asked", "use"),
    [
        ("now()", holdfast.now),
        ("uuid4()", holdfast.uuid4),
        ("random()", holdfast.random),
        ("current()", holdfast.current),
        ("timeout()", lambda: holdfast.timeout(1)),
    ],
)
async def test_what_belongs_in_a_workflow_is_refused_elsewhere(asked, use):
    with pytest.raises(UsageError) as caught:
        use()
    assert caught.value.message == f"{asked} was used outside a workflow"
    assert "@pack.workflow" in caught.value.hint


async def test_waiting_durably_is_refused_elsewhere():
    with pytest.raises(UsageError, match=r"sleep\(\) was used outside a workflow"):
        await holdfast.sleep(1)
    with pytest.raises(UsageError, match=r"spawn\(\) was used outside a workflow"):
        await holdfast.spawn(pay(1))
    with pytest.raises(UsageError, match=r"ChildRun.result was used outside a workflow"):
        await holdfast.ChildRun("run-1", "shop.pay", None, int).result()


@pytest.mark.parametrize("use", [holdfast.effect_key, holdfast.attempt, holdfast.heartbeat])
def test_what_belongs_in_an_effect_is_refused_in_a_workflow(use):
    @workflow_of
    async def code() -> None:
        use()

    with pytest.raises(UsageError, match=f"{use.__name__}\\(\\) was called outside an effect"):
        _ = Play(code).result


def test_a_value_that_cannot_be_stored_is_refused_where_it_is_passed():
    """E14: the path is named, and the run can go on."""

    @workflow_of
    async def code() -> str:
        try:
            await strange({"deep": [1, object()]})
        except holdfast.errors.NotSerializable as error:
            return error.message
        return "stored"

    assert "the input of shop.strange['thing']['deep'][1] is object" in Play(code).result


@shop.effect
async def strange(thing: Any) -> None: ...

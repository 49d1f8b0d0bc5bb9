"""What a dead process has left between two shards: delivered late, delivered twice, and harmless either way."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.errors import EngineFault
from holdfast.kernel import hooks, transitions
from holdfast.kernel.changes import Change, HookOpen
from holdfast.kernel.journal import Value
from holdfast.kernel.messages import Watcher
from holdfast.lab.cluster.redis import RedisServer
from holdfast.stores.redis import RedisStore
from holdfast.stores.redis.net.client import LuaSource, ScriptCall
from holdfast.stores.redis.pace import RedisPace
from tests.builders import performed
from tests.contract.helpers import (
    A_BLOB,
    WORKFLOW,
    a_signal,
    admission,
    committed,
    completion,
    held,
    opening,
    unread,
)
from tests.paces import redis_store

HOOK = HookOpen("paid", "payment:77", b'{"type":"string"}')
Opens = Callable[[], Awaitable[RedisStore]]
_numbers = itertools.count()


@pytest.fixture
async def processes(redis_server: RedisServer) -> AsyncIterator[Opens]:
    """Opens stores on the same data, as further processes would."""
    url = f"{redis_server.url}?name=outbox-{os.getpid()}-{next(_numbers)}&shards=4"
    pace = RedisPace(outbox_age_ms=-60_000)  # relay what has just been left, too
    async with AsyncExitStack() as stack:

        async def one() -> RedisStore:
            store = redis_store(url, pace)
            await store.open()
            stack.push_async_callback(store.close)
            return store

        yield one


def named(store: RedisStore, run_id: str, key: str | None = None) -> str:
    return store.id_for(run_id, namespace="default", workflow=WORKFLOW, key=key)


class Died(Exception):
    """The process has died here."""


async def die_after(store: RedisStore, change: Change, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit a change, and die before what it leaves for other shards is delivered."""

    async def deliver(_: object) -> Any:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(store._outbox, "deliver", deliver)
        with pytest.raises(Died):
            await store.commit([change])


async def relayed(store: RedisStore) -> int:
    return await store.relay(100)


async def test_what_was_left_is_delivered_by_others_and_once(processes: Opens, monkeypatch: pytest.MonkeyPatch) -> None:
    dying, one, two = await processes(), await processes(), await processes()
    parent, child = named(one, "parent"), named(one, "child")
    await held(one, parent, key=None)
    run = await held(one, child, key=None, watcher=Watcher(parent, "child#1"))
    await die_after(dying, completion(one, run), monkeypatch)
    assert await unread(one, parent) == ()
    assert (await relayed(one), await relayed(two), await relayed(one)) == (1, 0, 0)
    assert len(await unread(one, parent)) == 1


async def test_a_large_outcome_reaches_the_parent_even_if_its_run_is_gone_by_then(
    processes: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying, one = await processes(), await processes()
    parent, child = named(one, "parent"), named(one, "child")
    await held(one, parent, key=None)
    run = await held(one, child, key=None, watcher=Watcher(parent, "child#1"), retention_ms=0)
    value = Value(blob=A_BLOB.digest, size=len(A_BLOB.data))
    end = transitions.decide(
        run, transitions.RunReturned(value), recorded=transitions.Recorded(blobs=(A_BLOB,)), now_ms=one.now_ms() - 1_000
    )
    await die_after(dying, end, monkeypatch)
    await one.prune(100)
    await relayed(one)
    assert len(await unread(one, parent)) == 1
    assert await one.blob(parent, A_BLOB.digest) == A_BLOB.data


async def test_a_token_that_was_closed_does_not_come_back_with_a_repeated_delivery(
    processes: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying, one = await processes(), await processes()
    # It dies after the delivery, before it has tidied up.
    monkeypatch.setattr(dying._outbox, "take_tidying_calls", list)
    run = await committed(dying, replace(admission(one, named(one, "fork"), key=None, owner="w-1"), opens=(HOOK,)))
    assert await _owner(one) == run.id
    recorded = transitions.Recorded((performed("close#1"),), closes=(HOOK,))
    await committed(one, transitions.decide(run, transitions.Progressed(), recorded=recorded, now_ms=one.now_ms()))
    assert await _owner(one) is None
    assert await relayed(one) == 1
    assert await _owner(one) is None
    assert await one.hook(run.id, "paid") is None


async def _owner(store: RedisStore) -> str | None:
    known = await store.hook_of_token("default", HOOK.token or "")
    return None if known is None else known.run.id


async def test_a_signal_by_token_whose_sender_died_is_received_once(
    processes: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying, one = await processes(), await processes()
    run = await held(one, named(one, "run", "1"), key="1")
    await committed(one, opening(run, HOOK))
    signal = hooks.to_token(run.id, "default", HOOK.token or "", a_signal(hook="paid"))

    async def handed_over(*_: object) -> Any:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(dying._outbox, "signal", handed_over)
        with pytest.raises(Died):
            await dying.commit([signal])
    assert await relayed(one) == 1
    assert len(await unread(one, run.id)) == 1
    assert await committed(one, signal) == await one.run("default", run.id)  # sent again: received before
    assert len(await unread(one, run.id)) == 1


async def test_a_signal_by_token_whose_sender_of_an_earlier_version_died_is_received_once(
    processes: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lies in the outbox under the id that such signals had; who sends again hands over that one."""
    dying, one = await processes(), await processes()
    run = await held(one, named(one, "run", "1"), key="1")
    await committed(one, opening(run, HOOK))
    token = HOOK.token or ""
    message = hooks.token_signal(token, "paid", b"1", dedupe="d", nonce="")
    former = replace(message, id=hooks.former_id(message.id))

    async def handed_over(*_: object) -> Any:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(dying._outbox, "signal", handed_over)
        with pytest.raises(Died):
            await dying.commit([hooks.to_token(run.id, "default", token, former)])
    for _ in range(2):
        assert (await committed(one, hooks.to_token(run.id, "default", token, message))).unread == 1
    assert await unread(one, run.id) == (former,)
    assert await relayed(one) == 0
    assert await unread(one, run.id) == (former,)


async def test_two_processes_that_relay_at_once_deliver_everything_once(
    processes: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying, one, two = await processes(), await processes(), await processes()
    parent = named(one, "parent")
    await held(one, parent, key=None)
    for number in range(20):
        run = await held(one, named(one, f"child-{number}"), key=None, watcher=Watcher(parent, f"child#{number}"))
        await die_after(dying, completion(one, run), monkeypatch)
    await asyncio.gather(*(relayed(store) for store in (one, two, one, two)))
    assert len(await unread(one, parent)) == 20
    [row] = await one.runs([parent])
    assert row.unread == 20
    assert await relayed(one) == 0


async def test_a_commit_whose_reply_was_lost_answers_as_before_and_leaves_nothing_twice(
    processes: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying, one = await processes(), await processes()
    parent = named(one, "parent")
    await held(one, parent, key=None)
    run = await held(one, named(one, "child"), key=None, watcher=Watcher(parent, "child#1"))
    end = completion(one, run)
    await die_after(dying, end, monkeypatch)
    again = await committed(one, end)
    assert again == await one.run("default", run.id)
    assert await relayed(one) == 1
    assert len(await unread(one, parent)) == 1


async def test_a_message_that_nobody_understands_does_not_keep_the_others_from_arriving(
    processes: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying, one = await processes(), await processes()
    parent, child = named(one, "parent"), named(one, "child")
    await held(one, parent, key=None)
    leave = LuaSource("return redis.call('XADD', KEYS[1], '1-1', 'm', cmsgpack.pack({'nonsense', 'x'}))")
    out = one._shards.out(one._shards.of_run(child))
    await one._client.run([ScriptCall(leave, (out,), ())], writes=True)
    run = await held(one, child, key=None, watcher=Watcher(parent, "child#1"))
    await die_after(dying, completion(one, run), monkeypatch)
    with pytest.raises(EngineFault, match="nonsense"):  # said, and not in the way
        await relayed(one)
    assert len(await unread(one, parent)) == 1

"""A client of one server: what is executed, what is not, and what is not known."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import InvalidConfig, StoreUnavailable
from holdfast.lab.cluster.redis import RedisServer
from holdfast.lab.cluster.redis_commands import RedisCommandError
from holdfast.stores.redis.net.client import LuaSource, ScriptCall, ScriptFailed
from tests.redis.calls import add, echo, read, until
from tests.redis.conftest import Opens, Starts
from tests.redis.proxy import proxy_to


async def test_replies_come_in_the_order_of_the_calls(redis_server: RedisServer, opened: Opens, tag: bytes) -> None:
    client = await opened(redis_server.url)
    calls = [
        echo(tag, b"first"),
        ScriptCall(LuaSource("return {1, false, {'a'}}"), (tag,), ()),
        add(tag + b"n"),
        read(tag + b"none"),
        echo(tag, b"last"),
    ]
    assert await client.run(calls, writes=True) == [b"first", [1, None, [b"a"]], 1, None, b"last"]


async def test_a_script_that_fails_is_an_answer_among_the_others(
    redis_server: RedisServer, opened: Opens, tag: bytes
) -> None:
    client = await opened(redis_server.url)
    one, failed, two = await client.run(
        [add(tag), ScriptCall(LuaSource("error('no such thing')"), (tag,), ()), add(tag)], writes=True
    )
    assert (one, two) == (1, 2)
    assert isinstance(failed, ScriptFailed)
    assert "no such thing" in failed.message


async def test_a_server_that_has_forgotten_the_scripts_gets_them_again(opened: Opens, started: Starts) -> None:
    server = started()
    client = await opened(server.url)
    assert await client.run([add(b"n"), add(b"n")], writes=True) == [1, 2]
    server.ask("SCRIPT", "FLUSH")
    assert await client.run([add(b"n"), add(b"n")], writes=True) == [3, 4]


async def test_a_lost_reply_is_told_as_unknown_and_the_call_is_not_repeated(
    redis_server: RedisServer, opened: Opens, tag: bytes
) -> None:
    async with proxy_to(redis_server.port) as proxy:
        client = await opened(f"redis://127.0.0.1:{proxy.port}")
        assert await client.run([add(tag)], writes=True) == [1]
        proxy.lose_next_reply()
        with pytest.raises(StoreUnavailable, match="not known"):
            await client.run([add(tag)], writes=True)
        assert redis_server.ask("GET", tag.decode()) == "2"
        assert await client.run([add(tag)], writes=True) == [3]


async def test_a_read_whose_reply_was_lost_is_asked_again(redis_server: RedisServer, opened: Opens, tag: bytes) -> None:
    async with proxy_to(redis_server.port) as proxy:
        client = await opened(f"redis://127.0.0.1:{proxy.port}")
        assert await client.run([add(tag)], writes=True) == [1]
        proxy.lose_next_reply()
        assert await client.run([read(tag), echo(tag, b"word")], writes=False) == [b"1", b"word"]


async def test_a_read_that_nobody_answers_is_an_error_in_the_end(
    redis_server: RedisServer, opened: Opens, tag: bytes
) -> None:
    async with proxy_to(redis_server.port) as proxy:
        client = await opened(f"redis://127.0.0.1:{proxy.port}?timeout=100ms", patience_seconds=0.3)
        proxy.delay(0.2)
        with pytest.raises(StoreUnavailable, match="in time"):
            await client.run([read(tag)], writes=False)


async def test_what_was_sent_as_a_read_cannot_write(redis_server: RedisServer, opened: Opens, tag: bytes) -> None:
    client = await opened(redis_server.url)
    assert await client.run([add(tag)], writes=True) == [1]
    [failed] = await client.run([add(tag)], writes=False)
    assert isinstance(failed, ScriptFailed)
    assert await client.run([read(tag)], writes=False) == [b"1"]


async def test_a_reply_that_comes_too_late_is_never_taken_for_another_one(
    redis_server: RedisServer, opened: Opens, tag: bytes
) -> None:
    async with proxy_to(redis_server.port) as proxy:
        client = await opened(f"redis://127.0.0.1:{proxy.port}?timeout=200ms")
        assert await client.run([echo(tag, b"warm")], writes=False) == [b"warm"]
        proxy.delay(0.5)
        with pytest.raises(StoreUnavailable, match="in time"):
            await client.run([echo(tag, b"late")], writes=True)
        proxy.heal()
        assert await client.run([echo(tag, b"own")], writes=False) == [b"own"]


async def test_a_caller_that_goes_away_shifts_nobody_elses_replies(
    redis_server: RedisServer, opened: Opens, tag: bytes
) -> None:
    client = await opened(redis_server.url)
    await client.run([echo(tag, b"warm")], writes=False)
    gone = asyncio.create_task(client.run([echo(tag, b"gone")], writes=False))
    await asyncio.sleep(0)  # it has sent its call
    gone.cancel()
    assert await client.run([echo(tag, b"here")], writes=False) == [b"here"]


async def test_many_callers_share_a_connection(redis_server: RedisServer, opened: Opens, tag: bytes) -> None:
    client = await opened(redis_server.url)
    words = [b"%d" % number for number in range(200)]
    found = await asyncio.gather(*(client.run([echo(tag, word), add(tag)], writes=True) for word in words))
    assert [word for word, _ in found] == words
    assert redis_server.ask("GET", tag.decode()) == "200"


async def test_a_server_that_is_away_for_a_moment_is_waited_for(opened: Opens, started: Starts) -> None:
    server = started()
    client = await opened(server.url)
    assert await client.run([add(b"n")], writes=True) == [1]
    server.kill()
    await until(lambda: client._topology.node(b"n").connection("calls") is None)
    waiting = asyncio.create_task(client.run([add(b"n")], writes=True))
    await asyncio.to_thread(server.start)
    assert await waiting == [2]


async def test_a_server_that_stays_away_is_an_error_that_says_so(opened: Opens, started: Starts) -> None:
    server = started()
    client = await opened(server.url, patience_seconds=0.3)
    server.kill()
    await until(lambda: client._topology.node(b"n").connection("calls") is None)
    with pytest.raises(StoreUnavailable, match=f"{server.address} cannot be reached"):
        await client.run([add(b"n")], writes=True)


async def test_a_server_that_loads_its_data_is_waited_for(opened: Opens, started: Starts) -> None:
    server = started(key_load_delay=200)  # microseconds; it looks up from its file every 1024 commands
    client = await opened(server.url)
    fill = LuaSource("for i = 1, 4000 do redis.call('SET', KEYS[1], i) end return 1")
    await client.run([ScriptCall(fill, (b"k",), ()), add(b"n")], writes=True)
    await client.close()
    server.stop()
    server.process.start()

    def loads() -> bool:
        try:
            server.ask("GET", "n")
        except RedisCommandError as refusal:
            return "LOADING" in str(refusal)
        except OSError:
            return False
        raise AssertionError("it has loaded everything already")

    await until(loads)
    again = await opened(server.url)
    assert await again.run([add(b"n")], writes=True) == [2]


async def test_a_primary_that_is_made_a_replica_is_waited_for_until_it_is_one_again(
    opened: Opens, started: Starts
) -> None:
    server = started(replica_serve_stale_data="yes")
    client = await opened(server.url)
    assert await client.run([add(b"n")], writes=True) == [1]
    server.ask("REPLICAOF", "127.0.0.1", "1")
    waiting = asyncio.create_task(client.run([add(b"n"), add(b"n")], writes=True))
    await until(lambda: "errorstat_READONLY" in server.info("errorstats"))
    server.ask("REPLICAOF", "NO", "ONE")
    assert await waiting == [2, 3]


async def test_a_replica_is_not_taken_for_a_store(opened: Opens, started: Starts) -> None:
    server = started(replicaof="127.0.0.1 1")
    with pytest.raises(StoreUnavailable, match="replica"):
        await opened(server.url, patience_seconds=0.2)


async def test_full_memory_is_an_error_with_a_hint_and_changes_nothing(opened: Opens, started: Starts) -> None:
    server = started()
    client = await opened(server.url)
    await client.run([add(b"n")], writes=True)
    server.ask("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StoreUnavailable, match="maxmemory"):
        await client.run([add(b"n"), add(b"n")], writes=True)
    assert await client.run([read(b"n")], writes=False) == [b"1"]
    server.ask("CONFIG", "SET", "maxmemory", "0")
    assert await client.run([add(b"n")], writes=True) == [2]


async def test_a_server_that_may_drop_state_is_refused(opened: Opens, started: Starts) -> None:
    server = started(maxmemory_policy="allkeys-lru")
    with pytest.raises(InvalidConfig, match="allkeys-lru"):
        await opened(server.url)


@pytest.mark.parametrize(
    ("login", "said"), [("", "NOAUTH"), (":wrong@", "WRONGPASS"), ("somebody:secret@", "WRONGPASS")]
)
async def test_a_wrong_password_is_refused_at_once_and_never_shown(
    opened: Opens, started: Starts, login: str, said: str
) -> None:
    server = started(requirepass="secret")
    with pytest.raises(InvalidConfig, match=said) as caught:
        await opened(f"redis://{login}{server.address}")
    assert "wrong" not in str(caught.value)
    client = await opened(f"redis://:secret@{server.address}")
    assert await client.run([add(b"n")], writes=True) == [1]


async def test_a_password_that_nobody_wants_is_refused(redis_server: RedisServer, opened: Opens) -> None:
    with pytest.raises(InvalidConfig, match="without any password"):
        await opened(f"redis://:secret@{redis_server.address}")


async def test_a_database_that_is_not_there_is_refused(redis_server: RedisServer, opened: Opens) -> None:
    with pytest.raises(InvalidConfig, match="DB index"):
        await opened(f"{redis_server.url}/999")


async def test_a_connection_that_is_given_up_while_it_is_made_is_closed(
    redis_server: RedisServer, opened: Opens
) -> None:
    async with proxy_to(redis_server.port) as proxy:
        proxy.blackhole()
        opening = asyncio.create_task(opened(f"redis://127.0.0.1:{proxy.port}"))
        await until(lambda: proxy.connections == 1)
        opening.cancel()
        await until(lambda: proxy.connections == 0)


async def test_a_closed_client_says_so(redis_server: RedisServer, opened: Opens, tag: bytes) -> None:
    client = await opened(redis_server.url)
    await client.close()
    with pytest.raises(StoreUnavailable, match="not open"):
        await client.run([add(tag)], writes=True)


async def test_the_time_is_the_servers(redis_server: RedisServer, opened: Opens, tag: bytes) -> None:
    client = await opened(redis_server.url)
    first = (await client.time(tag)).there_ms
    second = (await client.time(tag)).there_ms
    assert first <= second
    [ahead] = (await client.clocks_ms()).values()
    assert abs(ahead) < 1_000  # the same machine

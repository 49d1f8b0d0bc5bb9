"""The next attempt of an effect begins when a person says so over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Client, NotAllowedNow, Run
from tests.gateway.conftest import Gateway, Serve
from tests.integration.conftest import eventually
from tests.integration.test_retry_now import STEP, Bank, by_hand


async def waiting(gateway: Gateway, bank: Bank) -> Run[Any]:
    """A run that waits for an hour, while the bank is open again."""
    run = (await gateway.hf.start(bank.pay())).run

    async def waits() -> bool:
        return (await run.refresh()).status == "waiting"

    await eventually(waits)
    bank.is_open = True
    return run


async def test_the_next_attempt_begins_over_http(serve: Serve) -> None:
    bank = Bank()
    gateway = await serve(bank.pack)
    started = await waiting(gateway, bank)
    async with Client(gateway.url) as client:
        run = await client.get(started.id)
        assert (await run.explain()).next_actions[0] == "retry_now"
        with pytest.raises(NotAllowedNow, match="does not wait"):
            await run.retry_now("other#1")
        run = await run.retry_now(STEP, by="eve", reason="the bank is back")
        assert await run.result(timeout=30) == "charged in attempt 2"
        [said] = await by_hand(run)
        assert (said.by, said.reason, said.retry_now) == ("eve", "the bank is back", True)
        with pytest.raises(NotAllowedNow, match="no step waits"):
            await run.retry_now()
    assert bank.attempts == [1, 2]


async def test_it_needs_a_key_that_may_write_and_is_recorded_with_its_name(serve: Serve) -> None:
    bank = Bank()
    gateway = await serve(bank.pack, keys=True)
    run = await waiting(gateway, bank)
    refused = await (await gateway.client(scope="read")).post(f"/v1/runs/{run.id}/retry-now", json={})
    assert (refused.status_code, bank.attempts) == (403, [1])
    token, _ = await gateway.hf.api_keys.create("night desk", namespace=gateway.hf.namespace, scope="write")
    async with Client(gateway.url, api_key=token) as client:
        await (await client.get(run.id)).retry_now(by="eve")
    assert await run.result(timeout=30) == "charged in attempt 2"
    assert [each.by for each in await by_hand(run)] == ["night desk (eve)"]


async def test_the_next_attempt_begins_by_a_blocking_client(serve: Serve) -> None:
    bank = Bank()
    gateway = await serve(bank.pack)
    run = await waiting(gateway, bank)

    def blocking() -> str:
        with Client.blocking(gateway.url) as client:
            return client.get(run.id).retry_now(by="eve").result(timeout=30)

    assert await asyncio.to_thread(blocking) == "charged in attempt 2"

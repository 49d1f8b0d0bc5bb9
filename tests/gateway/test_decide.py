"""A person decides a step in doubt over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Client, NotAllowedNow, Run, UsageError
from holdfast.errors import UnknownOutcome
from holdfast.journal import Performed
from tests.gateway.conftest import Gateway, Serve
from tests.integration.test_once import Bank


async def test_a_step_in_doubt_is_decided_over_http(serve: Serve) -> None:
    bank = Bank(timeout=0.03, reconcile=False)
    gateway = await serve(bank.pack)
    started = (await gateway.hf.start(bank.pay(5))).run
    async with Client(gateway.url) as client:
        run = await client.get(started.id)
        with pytest.raises(UnknownOutcome):
            await run.result(timeout=30)
        with pytest.raises(UsageError, match="does not fit"):
            await run.decide("transfer#1", returned=7)
        run = await run.decide("transfer#1", returned="sent", by="eve", reason="statement 7")
        assert await run.result(timeout=30) == "sent"
        assert (await run.decide("transfer#1", returned="sent")).status == "completed"
        with pytest.raises(NotAllowedNow, match="otherwise"):
            await run.decide("transfer#1", failed="lost")
        [entry] = [each for each in await run.journal() if isinstance(each, Performed)]
        assert entry.by_hand is not None
        assert (entry.by_hand.by, entry.by_hand.reason) == ("eve", "statement 7")
    assert bank.calls == ["transfer:5"]


async def test_deciding_needs_a_key_that_may_write(serve: Serve) -> None:
    bank = Bank(timeout=0.03, reconcile=False)
    gateway = await serve(bank.pack, keys=True)
    run = await (await gateway.hf.start(bank.pay(5))).run.wait(timeout=30)
    path, body = f"/v1/runs/{run.id}/decide", {"step": "transfer#1", "returned": "sent"}
    assert (await (await gateway.client(scope="read")).post(path, json=body)).status_code == 403
    assert (await (await gateway.client(scope="write")).post(path, json=body)).status_code == 200


async def _who(run: Run[Any]) -> str:
    [entry] = [each for each in await run.journal() if isinstance(each, Performed)]
    assert entry.by_hand is not None
    return entry.by_hand.by


@pytest.mark.parametrize(("said", "recorded"), [(None, "night desk"), ("eve", "night desk (eve)")])
async def test_a_decision_is_recorded_with_the_name_of_the_api_key_whatever_the_caller_says(
    serve: Serve, said: str | None, recorded: str
) -> None:
    bank = Bank(timeout=0.03, reconcile=False)
    gateway = await serve(bank.pack, keys=True)
    run = await (await gateway.hf.start(bank.pay(5))).run.wait(timeout=30)
    token, _ = await gateway.hf.api_keys.create("night desk", namespace=gateway.hf.namespace, scope="write")
    async with Client(gateway.url, api_key=token) as client:
        await (await client.get(run.id)).decide("transfer#1", returned="sent", by=said)
    assert await _who(run) == recorded
    assert f"; decided by {recorded}" in str(await run.explain())


async def test_a_step_in_doubt_is_decided_by_a_blocking_client(serve: Serve) -> None:
    bank = Bank(timeout=0.03, reconcile=False)
    gateway: Gateway = await serve(bank.pack)
    run = await (await gateway.hf.start(bank.pay(5))).run.wait(timeout=30)

    def blocking() -> str:
        with Client.blocking(gateway.url) as client:
            found = client.get(run.id)
            with pytest.raises(UsageError, match="one of"):
                found.decide("transfer#1")
            return found.decide("transfer#1", returned="sent", by="eve").result(timeout=30)

    assert await asyncio.to_thread(blocking) == "sent"
    assert await _who(run) == "eve"

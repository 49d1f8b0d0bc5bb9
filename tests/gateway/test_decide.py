"""A person decides a step in doubt over HTTP."""

from __future__ import annotations

import pytest

from holdfast import Client, NotAllowedNow, UsageError
from holdfast.errors import UnknownOutcome
from holdfast.journal import Performed
from tests.gateway.conftest import Serve
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

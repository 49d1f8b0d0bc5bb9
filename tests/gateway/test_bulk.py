"""Bulk verbs over HTTP, and by clients of a gateway."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Client, InputMismatch, Range, UsageError
from holdfast.client import BulkReport
from tests.gateway.conftest import Gateway, Serve
from tests.integration.test_bulk import Shop, orders, settled

RETRY = {"verb": "retry", "runs": {"workflow": "shop.checkout", "status": ["failed"]}, "reason": "it is back"}


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def gateway(serve: Serve, shop: Shop) -> Gateway:
    return await serve(shop.pack)


async def test_one_request_retries_all_that_failed(gateway: Gateway, shop: Shop) -> None:
    runs = await shop.failed(gateway.hf, *orders(4))
    shop.broken = False
    dry = await gateway.http.post("/v1/bulk/dry-run", json={"verb": "retry", "runs": RETRY["runs"], "first": 2})
    assert dry.status_code == 200
    assert (dry.json()["matched"], dry.json()["is_all"]) == (4, True)
    assert [each["refusal"] for each in dry.json()["first"]] == ["", ""]
    assert {each["run"]["id"] for each in dry.json()["first"]} <= {run.id for run in runs}
    started = await gateway.http.post("/v1/bulk", json=RETRY | {"rate": "100/1s"})
    run = started.json()
    assert (started.status_code, started.headers["location"]) == (201, f"/v1/runs/{run['id']}")
    assert (run["workflow"], run["attributes"]["verb"]) == ("holdfast.bulk", "retry")
    result = await gateway.http.get(f"/v1/runs/{run['id']}/result", params={"wait": "30s"})
    assert result.json()["result"] == {
        "verb": "retry", "matched": 4, "done": 4, "skipped": {}, "failed": 0, "errors": []
    }  # fmt: skip
    shown = (await gateway.http.get(f"/v1/runs/{run['id']}")).json()["attributes"]
    assert (shown["matched"], shown["done"], shown["skipped"], shown["failed"]) == (4, 4, 0, 0)
    assert await settled(runs) == ["completed"] * 4


async def test_a_request_that_is_repeated_starts_one_bulk_run(gateway: Gateway, shop: Shop) -> None:
    await shop.failed(gateway.hf, "a")
    header = {"Idempotency-Key": "once"}
    first, again = [await gateway.http.post("/v1/bulk", json=RETRY, headers=header) for _ in range(2)]
    assert (first.status_code, again.status_code, again.json()["id"]) == (201, 201, first.json()["id"])
    other = await gateway.http.post("/v1/bulk", json={"verb": "cancel"}, headers=header)
    assert (other.status_code, other.json()["code"]) == (422, "input_mismatch")
    keyed = [await gateway.http.post("/v1/bulk", json=RETRY | {"key": "outage"}) for _ in range(2)]
    assert [each.status_code for each in keyed] == [201, 200]
    assert keyed[1].headers["idempotency-replayed"] == "true"


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"verb": "burn"}, 400, "burn"),
        ({"verb": "retry", "runs": {"status": ["completed"]}}, 400, "a run that is completed cannot be retried"),
        ({"verb": "retry", "runs": {"colour": "red"}}, 400, "colour"),
        ({"verb": "retry", "rate": "soon"}, 400, "not a rate"),
        ({"verb": "signal"}, 400, "names no hook"),
        ({"verb": "cancel", "runs": {"limit": 0}}, 400, "limit"),
        ({"verb": "cancel", "runs": {"workflow": "nothing"}}, 404, "nothing"),
        ({"verb": "cancel", "runs": {"workflow": "holdfast.bulk"}}, 400, "bulk runs are not moved"),
    ],
)
async def test_what_cannot_be_is_refused(gateway: Gateway, body: Any, status: int, text: str) -> None:
    refused = await gateway.http.post("/v1/bulk", json=body)
    assert (refused.status_code, text in refused.text) == (status, True), refused.text
    assert (await gateway.http.get("/v1/runs")).json()["runs"] == []


async def test_it_takes_a_key_that_may_write(serve: Serve, shop: Shop) -> None:
    gateway = await serve(shop.pack, keys=True)
    for path, body, status in (("/v1/bulk", RETRY, 201), ("/v1/bulk/dry-run", {"verb": "retry"}, 200)):
        assert (await (await gateway.client(scope="read")).post(path, json=body)).status_code == 403
        assert (await (await gateway.client(scope="write")).post(path, json=body)).status_code == status


async def test_a_client_has_the_same_verbs(gateway: Gateway, shop: Shop) -> None:
    runs = await shop.failed(gateway.hf, *orders(3), cents=7, due=datetime(2026, 1, 1, tzinfo=UTC))
    await shop.failed(gateway.hf, "cheap", cents=1)
    shop.broken = False
    async with Client(gateway.url) as client:
        filters: dict[str, Any] = {
            "attributes": {"cents": Range(gt=1, le=7), "due": datetime(2026, 1, 1, tzinfo=UTC)},
            "key_prefix": "checkout:",
            "created_after": datetime.now(UTC) - timedelta(hours=1),
            "created_before": datetime.now(UTC) + timedelta(hours=1),
            "finished_after": datetime.now(UTC) - timedelta(hours=1),
            "finished_before": datetime.now(UTC) + timedelta(hours=1),
        }
        found = client.runs("shop.checkout", "failed", **filters)
        preview = await found.dry_run("retry", first=2)
        assert (preview.matched, preview.is_all, len(preview.first)) == (3, True, 2)
        assert (await preview.first[0].run.refresh()).status == "failed"
        run, created = await found.retry(rate="2/1ms", reason="it is back", key="outage")
        report = await run.result("30s")
        assert (created, report) == (True, BulkReport("retry", 3, 3, {}, 0, ()))
        again, created = await found.retry(rate="2/1ms", reason="it is back", key="outage")
        assert (again.id, created) == (run.id, False)
        with pytest.raises(InputMismatch):
            await client.runs("shop.checkout").cancel(key="outage")
        with pytest.raises(UsageError, match="cannot be resumed"):
            await client.runs(status="failed").resume()
        order = (await run.input())["order"]
        assert (order.verb, order.reason, order.rate.count, order.limit) == ("retry", "it is back", 2, None)
    assert await settled(runs) == ["completed"] * 3


async def test_a_signal_of_a_client_reaches_all(gateway: Gateway, shop: Shop) -> None:
    runs = await shop.waiting(gateway.hf, *orders(2))
    async with Client(gateway.url) as client:
        run, _ = await client.runs("shop.approval").signal("approval", "yes")
        assert (await run.result("30s")).done == 2
    assert [await each.result("30s") for each in runs] == ["yes", "yes"]


async def test_a_blocking_client_has_them_too(gateway: Gateway, shop: Shop) -> None:
    runs = await shop.waiting(gateway.hf, *orders(2))

    def cancel() -> BulkReport:
        with Client.blocking(gateway.url) as client:
            assert client.runs("shop.approval").dry_run("cancel").matched == 2
            return client.runs("shop.approval").cancel("closing", deadline="5s").run.result("30s")

    assert (await asyncio.to_thread(cancel)).done == 2
    assert await settled(runs) == ["cancelled"] * 2

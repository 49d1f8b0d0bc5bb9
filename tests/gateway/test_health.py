from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Pack
from holdfast.errors import StoreUnavailable
from holdfast.gateway.app import ENDPOINTS
from holdfast.gateway.endpoints import GatewaySettings
from tests.gateway.conftest import Serve
from tests.integration.conftest import Home


class Troubled:
    """A store that can be made to fail, or to hang."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.trouble = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def document(self, *of: Any) -> Any:
        if self.trouble == "hangs":
            await asyncio.Event().wait()
        if self.trouble == "fails":
            raise StoreUnavailable("the disk is gone")
        return await self._store.document(*of)


async def test_a_gateway_with_a_worker_is_ready(serve: Serve, home: Home) -> None:
    gateway = await serve(Pack("p"), on=home)
    answer = await gateway.http.get("/readyz")
    assert (answer.status_code, answer.json()) == (
        200,
        {"ready": True, "parts": {"gateway": "ok", "store": "ok", "worker": "ok"}},
    )


async def test_without_a_worker_there_is_no_lease_to_be_lost(serve: Serve) -> None:
    gateway = await serve(worker=False)
    answer = await gateway.http.get("/readyz")
    assert (answer.status_code, answer.json()["parts"]) == (200, {"gateway": "ok", "store": "ok"})


@pytest.mark.parametrize(("trouble", "state"), [("fails", "failing"), ("hangs", "slow")])
async def test_a_store_in_trouble_makes_it_unready_but_not_dead(serve: Serve, trouble: str, state: str) -> None:
    settings = GatewaySettings(require_keys=False, store_seconds_max=0.05)
    gateway = await serve(through=Troubled, settings=settings)
    store = gateway.hf.runtime.store
    assert isinstance(store, Troubled)
    store.trouble = trouble

    ready, live = await gateway.http.get("/readyz"), await gateway.http.get("/livez")

    assert (ready.status_code, ready.json()["ready"], ready.json()["parts"]["store"]) == (503, False, state)
    assert (live.status_code, live.json()) == (200, {"status": "ok"})
    store.trouble = ""
    assert (await gateway.http.get("/readyz")).status_code == 200


async def test_a_worker_whose_lease_cannot_be_relied_on_makes_it_unready(serve: Serve) -> None:
    gateway = await serve(Pack("p"))
    lease = gateway.hf._replica.lease
    assert lease is not None
    lease._reliable_until_steady_ms = 0.0
    answer = await gateway.http.get("/readyz")
    assert (answer.status_code, answer.json()["parts"]["worker"]) == (503, "lost")


async def test_a_gateway_that_closes_is_unready(serve: Serve) -> None:
    gateway = await serve()
    gateway.context.wait_limit.close()
    answer = await gateway.http.get("/readyz")
    assert (answer.status_code, answer.json()["parts"]["gateway"]) == (503, "closing")


async def test_health_and_the_reference_need_no_key_and_nothing_else_does_without(serve: Serve) -> None:
    gateway = await serve(keys=True)
    assert [endpoint.path for endpoint in ENDPOINTS if endpoint.scope is None] == ["/livez", "/readyz", "/docs"]
    assert (await gateway.http.get("/livez")).status_code == 200
    assert (await gateway.http.get("/readyz")).status_code == 200


async def test_metrics_are_for_those_who_may_read_the_namespace_of_the_process(serve: Serve) -> None:
    gateway = await serve(Pack("p"), keys=True)
    ours, theirs = await gateway.client(scope="read"), await gateway.client(scope="admin", namespace="theirs")

    assert (await gateway.http.get("/metrics")).status_code == 401
    assert (await theirs.get("/metrics")).status_code == 404
    answer = await ours.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert "# TYPE holdfast_runs_started_total counter" in answer.text

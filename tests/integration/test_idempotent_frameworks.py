"""`Idempotent` in FastAPI and in Litestar, each with middleware as its own documentation adds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi import FastAPI
from httpx2 import ASGITransport, AsyncClient
from litestar import Litestar, post
from litestar.middleware import DefineMiddleware
from litestar.params import JSONBody
from msgspec import Struct
from pydantic import BaseModel

from holdfast import Holdfast
from holdfast.asgi import Idempotent

Make = Callable[[Holdfast, list[str]], Any]


class Order(BaseModel):
    sku: str


class Parcel(Struct):
    sku: str


def fastapi_app(hf: Holdfast, done: list[str]) -> FastAPI:
    app = FastAPI()
    app.add_middleware(Idempotent, holdfast=hf)

    @app.post("/orders", status_code=201)
    async def order(order: Order) -> dict[str, Any]:
        done.append(order.sku)
        return {"sku": order.sku, "number": len(done)}

    return app


def litestar_app(hf: Holdfast, done: list[str]) -> Litestar:
    @post("/orders")
    async def order(data: JSONBody[Parcel]) -> dict[str, Any]:
        done.append(data.sku)
        return {"sku": data.sku, "number": len(done)}

    return Litestar([order], middleware=[DefineMiddleware(Idempotent, holdfast=hf)])


@pytest.mark.parametrize("make", [fastapi_app, litestar_app])
async def test_a_repeated_request_is_executed_once_and_answered_alike(make: Make) -> None:
    done: list[str] = []
    key = {"Idempotency-Key": "k-1"}
    async with Holdfast("memory://") as hf:
        app = make(hf, done)
        async with AsyncClient(transport=ASGITransport(app), base_url="http://shop") as http:
            first = await http.post("/orders", json={"sku": "tea"}, headers=key)
            again = await http.post("/orders", json={"sku": "tea"}, headers=key)
            other = await http.post("/orders", json={"sku": "rope"}, headers=key)
            free = await http.post("/orders", json={"sku": "rope"})
    assert (first.status_code, first.json()) == (201, {"sku": "tea", "number": 1})
    assert (again.status_code, again.json(), again.headers["idempotency-replayed"]) == (201, first.json(), "true")
    assert other.status_code == 422
    assert (free.status_code, done) == (201, ["tea", "rope"])

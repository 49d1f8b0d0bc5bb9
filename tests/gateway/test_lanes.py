"""/v1/lanes, and starts that go into lanes: over HTTP, by the client, and without async."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import httpx2
import pytest

from holdfast import Client, Pack, UsageError, hook
from holdfast.client import Caller
from holdfast.errors import LaneBusy, LaneFull, UnknownLane
from tests.gateway.conftest import Gateway, Serve
from tests.gateway.works import problem
from tests.integration.conftest import SqliteHome

pack = Pack("p")
LANE = "account:a/b {ü}"  # what a path has to be written for


@pack.workflow(key="{name}")
async def wait(name: str) -> str:
    await hook("go")
    return name


@pack.workflow(lane="narrow:{of}", lane_max=1)
async def narrow(of: str) -> None:
    await hook("go")


@pytest.fixture
async def gateway(serve: Serve, sqlite_home: SqliteHome) -> Gateway:
    return await serve(pack, on=sqlite_home)


async def test_a_lane_is_listed_shown_and_set(gateway: Gateway) -> None:
    http, path = gateway.http, "/v1/lanes/account%3Aa%2Fb%20%7B%C3%BC%7D"
    problem(await http.get(path), 404, "unknown_lane")
    runs = []
    for name in ("a", "b", "c"):
        body = {"input": {"name": name}, "lane": LANE, "width": 1}
        runs.append((await http.post("/v1/workflows/wait/runs", json=body)).json())
    assert [run["lane"] for run in runs] == [LANE] * 3
    [turn] = runs[2]["waiting_on"]
    assert turn["kind"] == "lane"
    assert turn["lane"] | {"since": None} == {"ahead": 2, "first": runs[0]["id"], "since": None, "paused": False}
    shown = (await http.get(path)).json()
    assert shown["head"]["id"] == runs[0]["id"]
    assert {name: shown[name] for name in ("name", "width", "active", "parked", "paused")} == {
        "name": LANE,
        "width": 1,
        "active": 1,
        "parked": 2,
        "paused": False,
    }
    assert (shown["active_runs"], shown["parked_runs"]) == ([runs[0]["id"]], [runs[1]["id"], runs[2]["id"]])
    shown = (await http.patch(path, json={"width": 2, "paused": True})).json()
    assert (shown["width"], shown["paused"], shown["active"]) == (2, True, 1)
    shown = (await http.patch(path, json={"paused": False})).json()
    assert (shown["width"], shown["active"], shown["parked"]) == (2, 2, 1)
    await http.patch("/v1/lanes/other", json={"width": 7})
    page = (await http.get("/v1/lanes", params={"limit": 1})).json()
    assert ([each["name"] for each in page["lanes"]], page["next"]) == ([LANE], LANE)
    page = (await http.get("/v1/lanes", params={"after": page["next"]})).json()
    assert ([each["name"] for each in page["lanes"]], page["next"]) == (["other"], None)


@pytest.mark.parametrize("body", [{}, {"width": 0}, {"width": "2"}, {"paused": 1}, {"colour": "red"}])
async def test_what_cannot_be_set_is_refused(gateway: Gateway, body: dict[str, object]) -> None:
    assert (await gateway.http.patch("/v1/lanes/x", json=body)).status_code == 400
    assert (await gateway.http.get("/v1/lanes/x")).status_code == 404


async def test_setting_a_lane_takes_a_key_that_may_write(serve: Serve) -> None:
    gateway = await serve(pack, keys=True)
    reader, writer = await gateway.client(scope="read"), await gateway.client(scope="write")
    assert (await reader.patch("/v1/lanes/x", json={"paused": True})).status_code == 403
    assert (await writer.patch("/v1/lanes/x", json={"paused": True})).status_code == 200
    assert (await reader.get("/v1/lanes/x")).json()["paused"] is True


async def test_a_lane_without_room_is_a_problem_to_come_back_to(gateway: Gateway) -> None:
    async def start(workflow: str, **body: object) -> httpx2.Response:
        return await gateway.http.post(f"/v1/workflows/{workflow}/runs", json=body)

    first = (await start("narrow", input={"of": "x"})).json()
    await start("narrow", input={"of": "x"})
    full = await start("narrow", input={"of": "x"}, key="k")
    problem(full, 429, "lane_full")
    busy = await start("wait", input={"name": "a"}, lane="narrow:x", if_free=True)
    assert problem(busy, 409, "lane_busy")["run_id"] == first["id"]
    assert full.headers["retry-after"] == busy.headers["retry-after"] == "1"
    assert (await gateway.http.get("/v1/workflows/narrow/holder", params={"key": "k"})).status_code == 404
    problem(await start("wait", input={"name": "a"}, if_free=True), 400, "usage")


@pytest.fixture(params=["holdfast", "client"])
async def hf(request: pytest.FixtureRequest, gateway: Gateway) -> AsyncGenerator[Caller]:
    if request.param == "holdfast":
        yield gateway.hf
        return
    async with Client(gateway.url, packs=[pack]) as client:
        yield client


async def test_a_client_has_the_same_lanes(hf: Caller) -> None:
    with pytest.raises(UnknownLane):
        await hf.lane(LANE)
    runs = [(await hf.start(wait(name), lane=LANE)).run for name in ("a", "b", "c")]
    assert [run.lane for run in runs] == [LANE] * 3
    with pytest.raises(LaneBusy, match="is not free") as busy:
        await hf.start(wait("d"), lane=LANE, if_free=True)
    assert busy.value.run == await runs[0].refresh()
    lane = await hf.lane(LANE)
    assert lane.head == await runs[0].refresh()
    assert (lane.name, lane.width, lane.active, lane.parked, lane.paused) == (LANE, 1, 1, 2, False)
    assert (lane.active_runs, lane.parked_runs) == ((runs[0].id,), (runs[1].id, runs[2].id))
    await hf.set_lane(LANE, paused=True)
    [turn] = (await runs[2].refresh()).waiting_on
    assert turn.place is not None
    assert (turn.place.ahead, turn.place.first, turn.place.paused) == (2, runs[0].id, True)
    assert (await runs[2].explain()).waiting_on == (turn,)
    lane = await hf.set_lane(LANE, paused=False, width=3)
    assert (lane.active, lane.parked) == (3, 0)
    await hf.set_lane("other", width=2)
    assert [each.name async for each in hf.lanes()] == [LANE, "other"]
    assert (await hf.lanes().page(limit=1)).next == LANE
    for run in runs:
        await run.signal("go")
    assert [await run.result(30) for run in runs] == ["a", "b", "c"]
    for mistake in ({}, {"width": 0}):
        with pytest.raises(UsageError):
            await hf.set_lane(LANE, **mistake)


async def test_a_client_is_told_that_a_lane_is_full(hf: Caller) -> None:
    await hf.start(narrow("y"))
    await hf.start(narrow("y"))
    with pytest.raises(LaneFull, match="lane 'narrow:y' is full"):
        await hf.start(narrow("y"))


async def test_lanes_without_async(gateway: Gateway) -> None:
    def visit() -> None:
        with Client.blocking(gateway.url, packs=[pack]) as hf:
            run, _ = hf.start(wait("a"), lane=LANE)
            behind, _ = hf.start(wait("b"), lane=LANE, width=1)
            assert [each.kind for each in behind.waiting_on] == ["lane"]
            lane = hf.lane(LANE)
            assert lane.head is not None
            assert lane.head.id == run.id
            assert hf.set_lane(LANE, paused=True).paused
            assert [each.name for each in hf.lanes()] == [LANE]
            lane.head.signal("go")
            assert run.result(30) == "a"
            assert hf.set_lane(LANE, paused=False).active_runs == (behind.id,)

    await asyncio.to_thread(visit)

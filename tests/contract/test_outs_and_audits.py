"""What leaves with a commit, and what is kept of an act: in order, once, and only if the commit was written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.kernel import hooks
from holdfast.kernel.audits import Audit
from holdfast.kernel.changes import Change
from holdfast.kernel.lanes import LaneSetting
from holdfast.kernel.outs import Out
from holdfast.ports.store import Store
from tests.builders import performed
from tests.contract.helpers import (
    a_signal,
    admission,
    committed,
    completion,
    held,
    let_go,
    offer,
    progress,
    refused,
)


def out(name: str, *, namespace: str = "default") -> Out:
    return Out(namespace, name, "orders", "o-1", b"\x00\xff not text", 7)


def audit(name: str, *, namespace: str = "default") -> Audit:
    return Audit(namespace, name, "u-7", "run.start", "run-1", 7, b'{"why":"because"}')


def keeping(change: Change, *names: str) -> Change:
    return replace(change, outs=tuple(map(out, names)), audits=tuple(map(audit, names)))


async def outs(store: Store, **bounds: Any) -> list[str]:
    return [each.out.id for each in (await store.outs("default", **bounds)).kept]


async def audits(store: Store, **bounds: Any) -> list[str]:
    return [each.audit.id for each in (await store.audits("default", **bounds)).kept]


async def test_they_come_back_as_they_were(store: Store) -> None:
    change = replace(admission(store), outs=(out("o"),), audits=(audit("a"),))
    await committed(store, change)
    assert [each.out for each in (await store.outs("default")).kept] == [out("o")]
    assert [each.audit for each in (await store.audits("default")).kept] == [audit("a")]


async def test_each_change_of_a_run_may_bring_them_and_they_are_in_its_order(store: Store) -> None:
    run = await committed(store, keeping(admission(store, owner="w-1"), "admitted"))
    run = await committed(store, keeping(progress(store, run, performed()), "recorded", "recorded too"))
    assert await outs(store) == ["admitted", "recorded", "recorded too"]
    await committed(store, keeping(let_go(store, run), "let go"))
    await committed(store, keeping(_signal(run.id), "signalled"))
    expected = ["admitted", "recorded", "recorded too", "let go", "signalled"]
    assert await outs(store) == await audits(store) == expected


def _signal(run_id: str) -> Change:
    return hooks.to_run(run_id, a_signal())


async def test_a_change_that_is_offered_again_brings_them_once(store: Store) -> None:
    first = keeping(admission(store, owner="w-1"), "first")
    run = await committed(store, first)
    changes = [
        first,
        keeping(progress(store, run, performed()), "second"),
        keeping(_signal(run.id), "third"),
    ]
    for change in changes:
        for _ in range(2):
            await committed(store, change)
    assert await outs(store) == await audits(store) == ["first", "second", "third"]


async def test_a_change_that_is_refused_brings_none(store: Store) -> None:
    run = await held(store)
    await committed(store, completion(store, run))
    await refused(store, keeping(admission(store, "run-2"), "key is held"))
    await refused(store, keeping(progress(store, run, performed()), "fence is lost"))
    await refused(store, keeping(_signal(run.id), "has ended"))
    assert await outs(store) == await audits(store) == []


async def test_a_page_goes_on_where_the_last_one_ended(store: Store) -> None:
    for n in range(7):
        await offer(store, keeping(admission(store, f"run-{n}", key=f"order:{n}"), f"{n}"))
    seen, after = list[str](), ""
    while (page := await store.outs("default", after=after, limit=3)).kept:
        assert len(page.kept) <= 3
        seen, after = [*seen, *(each.out.id for each in page.kept)], page.after
    assert sorted(seen) == [f"{n}" for n in range(7)]
    for n in range(7, 12):
        await offer(store, keeping(admission(store, f"run-{n}", key=f"order:{n}"), f"{n}"))
    assert sorted(await outs(store, after=after)) == ["10", "11", "7", "8", "9"]
    assert (await store.outs("default", limit=0)).kept == ()


async def test_what_is_dropped_is_gone_and_its_place_does_not_come_again(store: Store) -> None:
    await committed(store, keeping(admission(store, owner="w-1"), "a", "b", "c"))
    page, audited = await store.outs("default"), await store.audits("default")
    for _ in range(2):
        await store.drop_outs("default", [page.kept[0].place, page.kept[2].place])
        await store.drop_audits("default", [audited.kept[1].place])
    assert await outs(store) == ["b"]
    assert await audits(store) == ["a", "c"]
    await store.drop_outs("other", [page.kept[1].place])
    await store.drop_outs("default", [page.kept[1].place])
    run, *_ = await store.runs(["run-1"])
    await committed(store, keeping(progress(store, run, performed()), "d"))
    assert await outs(store, after=page.after) == ["d"]


async def test_each_namespace_has_its_own(store: Store) -> None:
    change = admission(store)
    await committed(
        store, replace(change, outs=(out("x", namespace="other"),), audits=(audit("y", namespace="\0{z}"),))
    )
    assert await outs(store) == await audits(store) == []
    assert [each.out.id for each in (await store.outs("other")).kept] == ["x"]
    assert [each.audit.id for each in (await store.audits("\0{z}")).kept] == ["y"]


async def test_they_stay_when_the_run_is_gone(store: Store, clock: Any) -> None:
    run = await committed(store, keeping(admission(store, owner="w-1", retention_ms=0), "a"))
    await committed(store, completion(store, run))
    clock.advance(1)
    assert await store.prune(10) == 1
    assert await outs(store) == await audits(store) == ["a"]


@pytest.mark.parametrize("used", [True, False])
async def test_a_lane_that_is_set_by_hand_is_audited(store: Store, *, used: bool) -> None:
    if used:
        await store.set_lane(LaneSetting("default", "deploy", width=2))
    await store.set_lane(LaneSetting("default", "deploy", width=3, paused=True, by="u-7"))
    found = (await store.audits("default")).kept[-1].audit
    assert (found.actor, found.action, found.subject) == ("u-7", "lane.set", "deploy")
    before = {"width": 2, "paused": False} if used else None
    assert json.loads(found.detail) == {"before": before, "after": {"width": 3, "paused": True}}

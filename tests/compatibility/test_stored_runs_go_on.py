"""What an earlier commit has stored is opened by the present code, and every run goes on to its end.

The fixtures were written in the middle of work (see `story`): a timer and a retry that are far away, a hook with a
token, a run that is blocked, cancelled, paused, failed, forked, superseded, delayed, finished, one with a large result,
a parent and its children, markers and attributes, an effect that must happen once and has begun, and remote tasks.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from holdfast import Holdfast, InputMismatch, NotAllowedNow, Run, RunCancelled
from tests.compatibility.conftest import Stored
from tests.compatibility.shop import LARGE, Shop
from tests.compatibility.story import runtime_of

PATIENCE_SECONDS = 60.0


async def test_every_stored_run_goes_on_to_its_end_and_does_nothing_twice(stored: Stored) -> None:
    shop, told = Shop(), stored.told
    async with Holdfast(stored.store(), packs=[shop.pack]) as hf:

        async def run(name: str) -> Run[Any]:
            return await hf.get(told.runs[name])

        async def result(name: str) -> Any:
            return await (await run(name)).result(timeout=PATIENCE_SECONDS)

        # What people and other processes do.
        await hf.resume_hook("token of approval", True, dedupe="approved")
        await (await run("drifting")).retry()
        await (await run("pausing")).resume()
        await (await run("pausing")).signal("word", "go on")
        await (await run("shipping")).retry()
        await (await run("fork of choosing")).signal("c", "second choice")
        await (await run("child of parent")).signal("word", "from the second")
        await (await run("tracked")).signal("go", "away")
        await (await run("counting")).signal("numbers", 5, dedupe="five")  # has been received before
        await (await run("counting")).signal("numbers", 0)
        tasks = runtime_of(hf).tasks_in("default")
        await tasks.complete(told.task, fence=told.fence, result=b'"small dog"')
        [handed] = await tasks.claim(["shop.resize"], worker="other", wait=PATIENCE_SECONDS)
        assert (handed.task.run_id, handed.task.key) == (told.runs["cat"], "resize:cat.png")
        await tasks.complete(handed.place.name, fence=handed.claim.fence, result=b'"small cat"')

        assert {name: await result(name) for name in told.runs if name not in {"buying", "superseded"}} == {
            "approval": "approved",
            "cat": "small cat",
            "child of parent": "from the second",
            "choosing": ["a", "b", "first choice"],
            "counting": 5,
            "delayed": "finished",
            "dog": "small dog",
            "drifting": ["one", "gone", "unread", "two"],
            "finished": "finished",
            "fork of choosing": ["a", "b", "second choice"],
            "labelling": "printed",
            "large": LARGE,
            "parent": ["from the second", "from the first", "all of them"],
            "pausing": ["paid", "go on", "packed"],
            "paying": "sent, says the bank",
            "shipping": "delivered",
            "spawned by parent": "from the first",
            "superseding": "after",
            "timer": "after",
            "tracked": "new away",
        }
        for name in ("buying", "superseded"):
            with pytest.raises(RunCancelled):
                await result(name)
        assert [marker.name for marker in (await run("tracked")).markers] == ["packed", "sent"]
        assert (await hf.backlog()).depths == ()
    assert Counter(shop.done) == Counter(
        {
            "note after": 2,
            "note approved": 1,
            "note two": 1,
            "note packed": 1,
            "note finished": 1,
            "note from the second": 1,
            "note all of them": 1,
            "deliver shipping": 1,
            "print labelling": 1,
            "asked about transfer:paying": 1,
        }
    )


async def test_no_stored_run_diverges(stored: Stored) -> None:
    async with Holdfast(stored.store(), packs=[Shop().pack], worker=False) as hf:
        checked = await hf.replay_check(status=None)
        assert {each.run_id for each in checked} == set(stored.told.runs.values())
        assert [each for each in checked if each.divergence] == []


async def test_a_stored_key_still_names_its_run(stored: Stored) -> None:
    shop = Shop()
    async with Holdfast(stored.store(), packs=[shop.pack], worker=False) as hf:
        started = await hf.start(shop.finished("finished"))
        assert (started.run.id, started.created) == (stored.told.runs["finished"], False)
        again = await hf.start(shop.buying("buying"), request_id="request-1")
        assert (again.run.id, again.created) == (stored.told.runs["buying"], True)
        with pytest.raises(InputMismatch):
            await hf.start(shop.finished("another"), key="finished")
        assert (await hf.find(shop.choosing, "choosing")).id == stored.told.runs["fork of choosing"]
        assert (await hf.find(shop.timer, "superseded")).id == stored.told.runs["superseding"]


async def test_stored_runs_are_found_and_explained_as_before(stored: Stored) -> None:
    told = stored.told
    async with Holdfast(stored.store(), packs=[Shop().pack], worker=False) as hf:

        async def names(**search: Any) -> set[str]:
            found = {run.id async for run in hf.runs(**search)}
            return {name for name, run_id in told.runs.items() if run_id in found}

        assert await names(attributes={"colour": "red", "weight": 3, "fragile": True}) == {"tracked"}
        assert await names(attributes={"shelf": 4}) == {"finished"}
        assert await names(status="failed") == {"shipping"}
        assert await names(status="blocked") == {"drifting"}
        assert await names(status="cancelled") == {"buying", "pausing", "superseded"}
        assert await names(status="running") == {"cat", "dog", "paying"}
        assert await names(workflow="timer") == {"timer", "superseded", "superseding"}
        assert await names() == set(told.runs)
        waits = {
            name: [wait.kind for wait in (await hf.get(told.runs[name])).waiting_on]
            for name in ("timer", "approval", "labelling", "parent", "delayed", "drifting", "counting")
        }
        assert waits == {
            "timer": ["no_worker"],  # it is due by now
            "approval": ["hook"],
            "labelling": ["no_worker"],
            "parent": ["child"],
            "delayed": ["no_worker"],
            "drifting": ["blocked"],
            "counting": ["hook"],
        }
        for run_id in told.runs.values():
            assert str(await hf.explain(run_id))


async def test_a_stored_cancellation_keeps_its_receipt(stored: Stored) -> None:
    async with Holdfast(stored.store(), packs=[Shop().pack], worker=False) as hf:
        buying = await hf.get(stored.told.runs["buying"])
        receipt = await buying.receipt()
        assert (receipt.outcome, receipt.reason, receipt.stopped) == ("compensated", "changed my mind", False)
        assert [(str(left), left.state) for left in receipt.effects] == [("charge:buying", "undone")]
        with pytest.raises(NotAllowedNow):
            await buying.resume()
        pausing = await (await hf.get(stored.told.runs["pausing"])).receipt()
        assert (pausing.outcome, pausing.reason) == ("resumable", "a pause")


async def test_a_stored_api_key_still_opens(stored: Stored) -> None:
    async with Holdfast(stored.store(), worker=False) as hf:
        key = await hf.api_keys.authenticate(stored.told.token)
        assert (key.name, key.namespace, key.scope) == ("a till", "default", "write")

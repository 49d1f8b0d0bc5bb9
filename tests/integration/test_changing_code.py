"""Code changes while runs are under way: `patched`, `version`, `replay_check`, and what a divergence says (C9, C10)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import (
    Pack,
    Retry,
    RetryAfter,
    Run,
    continue_as_new,
    current,
    effect_key,
    hook,
    patched,
    set_attributes,
    sleep,
)
from holdfast.errors import ReplayDiverged
from holdfast.events import EffectWillRetry, RunBlocked
from holdfast.kernel.journal import Patched
from tests.integration.conftest import PATIENCE_SECONDS, Home, eventually, heard
from tests.integration.ledgers import ONCE, Ledger, lefts, until_recorded

Act = Callable[[str], Awaitable[str]]
Body = Callable[[Act], Awaitable[list[str]]]


class Release:
    """One state of the code: the same names, another body."""

    def __init__(self, body: Body, *, ledger: Ledger, version: str | None = None) -> None:
        self.pack = Pack("shop")

        @self.pack.effect(key="{name}", retry=ONCE)
        async def act(name: str) -> str:
            return await ledger.act()

        @self.pack.workflow(key="order:{n}", version=version)
        async def order(n: int = 1) -> list[str]:
            return await body(act)

        self.act, self.order = act, order


async def old(act: Act) -> list[str]:
    done = [await act("a"), await act("b")]
    await hook("word")
    return [*done, await act("c")]


async def changed(act: Act) -> list[str]:
    """A new step, for runs that have not passed its place."""
    done = [await act("a")]
    if patched("check first"):
        done.append(await act("check"))
    done.append(await act("b"))
    await hook("word")
    return [*done, await act("c")]


async def changed_without_care(act: Act) -> list[str]:
    done = [await act("a"), await act("check"), await act("b")]
    await hook("word")
    return [*done, await act("c")]


async def finished(run: Run[Any]) -> Any:
    return await run.result(timeout=PATIENCE_SECONDS)


async def test_a_run_that_had_passed_a_patch_takes_the_old_way_and_a_new_one_the_new(home: Home) -> None:
    ledger = Ledger()
    first = Release(old, ledger=ledger)
    async with home.holdfast(first.pack) as hf:
        before = (await hf.start(first.order(1))).run
        await until_recorded(before, "act#2")
    release = Release(changed, ledger=ledger)
    async with home.holdfast(release.pack) as hf:
        before = await hf.get(before.id)
        after = (await hf.start(release.order(2))).run
        for run, result in ((before, ["a", "b", "c"]), (after, ["a", "check", "b", "c"])):
            await run.signal("word")
            assert await finished(run) == result
        assert not any(isinstance(entry, Patched) for entry in await before.journal())
        assert [entry.name for entry in await after.journal() if isinstance(entry, Patched)] == ["check first"]
        assert [each.divergence for each in await hf.replay_check(status="completed")] == ["", ""]
    assert ledger.done.count("check") == 1


async def test_a_run_that_has_not_come_to_a_patch_takes_the_new_way(home: Home) -> None:
    ledger = Ledger()
    ledger.hold("a")
    first = Release(old, ledger=ledger)
    async with home.holdfast(first.pack) as hf:
        run = (await hf.start(first.order())).run
        await ledger.until_begun("a")
        asyncio.get_running_loop().call_later(0.02, ledger.let_go)
    release = Release(changed, ledger=ledger)
    async with home.holdfast(release.pack) as hf:
        run = await hf.get(run.id)
        await run.signal("word")
        assert await finished(run) == ["a", "check", "b", "c"]


async def test_a_patch_is_answered_alike_in_every_life(home: Home) -> None:
    ledger, answers = Ledger(), list[bool]()

    async def asks_often(act: Act) -> list[str]:
        answers.append(patched("p"))
        await act("a")
        answers.append(patched("p"))
        await hook("word")
        return [str(patched("p")), str(patched("late"))]

    release = Release(asks_often, ledger=ledger)
    async with home.holdfast(release.pack) as hf:
        run = (await hf.start(release.order())).run
        await until_recorded(run, "act#1")
    async with home.holdfast(release.pack) as hf:
        run = await hf.get(run.id)
        await run.signal("word")
        assert await finished(run) == ["True", "True"]
        assert [entry.name for entry in await run.journal() if isinstance(entry, Patched)] == ["p", "late"]
    assert answers == [True, True] * 2


async def test_old_runs_that_passed_a_patch_stay_on_the_old_way_in_a_loop(home: Home) -> None:
    """Once answered, a patch stays what it was for this run: both ways never mix in one."""
    ledger = Ledger()

    async def loop(act: Act) -> list[str]:
        done = list[str]()
        for n in range(4):
            done.append(await act(f"{n}"))
            await hook("word")
        return done

    async def loop_changed(act: Act) -> list[str]:
        done = list[str]()
        for n in range(4):
            done.append(await act(f"new {n}" if patched("new names") else f"{n}"))
            await hook("word")
        return done

    first = Release(loop, ledger=ledger)
    async with home.holdfast(first.pack) as hf:
        run = (await hf.start(first.order())).run
        await until_recorded(run, "act#1")
    release = Release(loop_changed, ledger=ledger)
    async with home.holdfast(release.pack) as hf:
        run = await hf.get(run.id)
        fresh = (await hf.start(release.order(2))).run
        for n in range(4):
            for each in (run, fresh):
                await each.signal("word", n)
        assert await finished(run) == ["0", "1", "2", "3"]
        assert await finished(fresh) == [f"new%20{n}" for n in range(4)]


async def test_a_deleted_patch_may_stay_in_journals(home: Home) -> None:
    ledger = Ledger()
    release = Release(changed, ledger=ledger)
    async with home.holdfast(release.pack) as hf:
        run = (await hf.start(release.order())).run
        await until_recorded(run, "act#3")
    async with home.holdfast(Release(changed_without_care, ledger=ledger).pack) as hf:
        assert [each.divergence for each in await hf.replay_check()] == [""]
        run = await hf.get(run.id)
        await run.signal("word")
        assert await finished(run) == ["a", "check", "b", "c"]
    assert ledger.most() == 1


@pytest.mark.parametrize("back", [False, True], ids=["forwards", "back"])
async def test_a_change_without_care_is_found_before_it_does_harm_and_names_both_sides(home: Home, back: bool) -> None:
    ledger = Ledger()
    bodies = (changed_without_care, old) if back else (old, changed_without_care)

    async def twice(body: Body, act: Act) -> list[str]:
        await body(act)
        return await body(act)

    first = Release(lambda act: twice(bodies[0], act), ledger=ledger)
    async with home.holdfast(first.pack) as hf:
        run = (await hf.start(first.order())).run
        await run.signal("word")
        await until_recorded(run, "act#6" if back else "act#5")
        done = list(ledger.done)
    release = Release(lambda act: twice(bodies[1], act), ledger=ledger)
    async with home.holdfast(release.pack, worker=False) as hf:
        [replayed] = await hf.replay_check(release.order)
        assert (replayed.run_id, replayed.workflow) == (run.id, "shop.order")
        assert "check" in replayed.divergence
        assert "the journal has" in replayed.divergence
        assert "the code" in replayed.divergence
        assert "test_changing_code.py:" in replayed.divergence
    async with home.holdfast(release.pack) as hf:
        run = await hf.get(run.id)
        await run.signal("word")
        with pytest.raises(ReplayDiverged, match="check"):
            await finished(run)
        assert (await run.refresh()).status == "blocked"
        assert ledger.done == done  # nothing was done on the way there
    async with home.holdfast(first.pack) as hf:  # the code that fits is deployed again
        run = await (await hf.get(run.id)).retry()
        await run.signal("word")
        await finished(run)


async def test_code_that_ends_early_diverges(home: Home) -> None:
    ledger = Ledger()

    async def short(act: Act) -> list[str]:
        del act
        return []

    first = Release(old, ledger=ledger)
    async with home.holdfast(first.pack) as hf:
        run = (await hf.start(first.order())).run
        await until_recorded(run, "act#2")
    async with home.holdfast(Release(short, ledger=ledger).pack, worker=False) as hf:
        [replayed] = await hf.replay_check()
        assert "has already ended there" in replayed.divergence


async def test_a_replay_check_fits_every_way_in_which_a_run_can_end(home: Home) -> None:
    ledger = Ledger()
    pack = Pack("shop")
    kinds = ["completes", "fails", "waits", "sleeps", "cancelled", "undone", "continues", "resumed", "retried"]
    broken = [True]

    @pack.effect(retry=ONCE)
    async def put_back(name: str) -> None: ...

    @pack.effect(key="{name}", retry=ONCE, undo=put_back)
    async def take(name: str) -> str:
        return await ledger.act()

    @pack.effect(retry=ONCE)
    async def fragile() -> None:
        if broken[0]:
            raise OSError("broken")

    @pack.workflow(key="{kind}")
    async def order(kind: str, n: int = 0) -> None:
        await set_attributes(kind=kind)
        match kind:
            case "completes":
                await take(kind)
            case "fails":
                raise ValueError(kind)
            case "sleeps":
                await sleep("1h")
            case "undone":
                await take(kind)
                await hook("never")
            case "continues" if n < 2:
                await take(f"{kind}{n}")
                continue_as_new(order(kind, n + 1))
            case "retried":
                await fragile()
            case _:
                await hook("never")

    async with home.holdfast(pack) as hf:
        runs = {kind: (await hf.start(order(kind))).run for kind in kinds}
        await until_recorded(runs["undone"], "take#1")
        for kind in ("cancelled", "undone", "resumed"):
            await runs[kind].cancel()
        await runs["resumed"].resume()
        await eventually(lambda: _is(runs["retried"], "failed"))
        broken[0] = False
        await runs["retried"].retry()
        await eventually(lambda: _is(runs["retried"], "completed"))
        await eventually(lambda: _is(runs["completes"], "completed"))
        await eventually(lambda: _generation(runs["continues"], 2))
        live = await hf.replay_check(order)
        assert {each.run_id for each in live} == {runs[k].id for k in ("waits", "sleeps", "continues", "resumed")}
        every = await hf.replay_check(status=None)
        assert {each.run_id: each.divergence for each in every} == {run.id: "" for run in runs.values()}
        assert [each.run_id for each in await hf.replay_check(status="failed")] == [runs["fails"].id]
        assert len(await hf.replay_check(status=None, limit=3)) == 3
        assert lefts(await runs["undone"].receipt()) == {"undone": "undone"}
    assert ledger.most() == 1  # checking performs nothing


async def _is(run: Run[Any], status: str) -> bool:
    return (await run.refresh()).status == status


async def _generation(run: Run[Any], number: int) -> bool:
    return getattr((await run.journal())[0], "generation", 0) == number


async def test_a_replay_check_says_which_code_is_missing(home: Home) -> None:
    ledger = Ledger()
    release = Release(old, ledger=ledger)
    async with home.holdfast(release.pack) as hf:
        run = (await hf.start(release.order())).run
        await until_recorded(run, "act#2")
    async with home.holdfast(worker=False) as hf:
        [replayed] = await hf.replay_check()
        assert (replayed.run_id, "shop.order" in replayed.divergence) == (run.id, True)


async def test_a_run_keeps_the_version_under_which_it_was_admitted(home: Home) -> None:
    ledger = Ledger()

    async def asks(act: Act) -> list[str]:
        done = await act(f"before {current().version}")
        await hook("word")
        return [done, str(current().version)]

    first, second = (Release(asks, ledger=ledger, version=version) for version in ("1", "2"))
    async with home.holdfast(first.pack) as hf:
        run = (await hf.start(first.order())).run
        assert run.version == "1"
        await until_recorded(run, "act#1")
    async with home.holdfast(second.pack) as hf:
        before = await hf.get(run.id)
        after = (await hf.start(second.order(2))).run
        for each in (before, after):
            await each.signal("word")
        assert await finished(before) == ["before%201", "1"]
        assert await finished(after) == ["before%202", "2"]
        assert ((await before.refresh()).version, after.version) == ("1", "2")
        assert [each.version for each in await hf.workflows()] == ["2"]
        assert (await before.fork(at="act#1")).version == "1"  # its code is that of the run it came from
    unversioned = Release(asks, ledger=ledger)
    async with home.holdfast(unversioned.pack) as hf:
        assert (await hf.start(unversioned.order(3))).run.version is None


# -- default values


class Priced:
    """A release whose effects have a default; each call is in the ledger, with what it was called with."""

    def __init__(self, cents: int, calls: list[Any], *, more: bool = False, safety: Any = "keyed") -> None:
        self.fails = True
        self.pack = Pack("shop")

        @self.pack.effect(key="refund:{order}")
        async def refund(order: str, price: int) -> None:
            calls.append(("refund", price))

        async def pay(order: str, price: int, *more: str) -> None:
            calls.append((effect_key(), price, *more))
            if self.fails:
                raise RetryAfter(0.05)

        retry = Retry(attempts=50)
        if more:

            @self.pack.effect(key="charge:{order}", retry=retry, safety=safety, undo=refund)
            async def charge(order: str, price: int = cents, currency: str = "EUR") -> None:
                await pay(order, price, currency)
        else:

            @self.pack.effect(key="charge:{order}", retry=retry, safety=safety, undo=refund)
            async def charge(order: str, price: int = cents) -> None:
                await pay(order, price)

        @self.pack.workflow(key="checkout:{order}")
        async def checkout(order: str) -> str:
            await charge(order)
            await hook("word")
            return "paid"

        self.checkout = checkout


@pytest.mark.parametrize("safety", ["keyed", "once"])
async def test_a_default_that_changes_between_attempts_blocks_the_run(home: Home, safety: str) -> None:
    """One key, one input: the effect is not called with 200 where it has been called with 100."""
    calls: list[Any] = []
    old, new, back = (Priced(cents, calls, safety=safety) for cents in (100, 200, 100))
    async with home.holdfast(old.pack) as hf:
        run = (await hf.start(old.checkout("o-1"))).run
        await heard(hf).until(EffectWillRetry)
    async with home.holdfast(new.pack) as hf:
        blocked = await heard(hf).until(RunBlocked)
        assert blocked.code == "replay_diverged"
        assert "another default value of price" in blocked.message
    assert {call[1] for call in calls} == {100}
    back.fails = False
    async with home.holdfast(back.pack) as hf:  # the right code goes on
        again = await (await hf.get(run.id)).retry()
        await again.signal("word")
        assert await finished(again) == "paid"
    assert set(calls) == {("charge:o-1", 100)}


async def test_a_parameter_with_a_default_that_is_added_between_attempts_is_no_other_call(home: Home) -> None:
    calls: list[Any] = []
    old, new = Priced(100, calls), Priced(100, calls, more=True)
    new.fails = False
    async with home.holdfast(old.pack) as hf:
        run = (await hf.start(old.checkout("o-1"))).run
        await heard(hf).until(EffectWillRetry)
    async with home.holdfast(new.pack) as hf:
        await (await hf.get(run.id)).signal("word")
        assert await finished(await hf.get(run.id)) == "paid"
    assert calls[-1] == ("charge:o-1", 100, "EUR")


async def test_a_default_that_changes_after_the_effect_was_performed_changes_nothing(home: Home) -> None:
    calls: list[Any] = []
    old, new = Priced(100, calls), Priced(200, calls)
    old.fails = False
    async with home.holdfast(old.pack) as hf:
        run = (await hf.start(old.checkout("o-1"))).run
        await until_recorded(run, "charge#1")
    async with home.holdfast(new.pack) as hf:
        await (await hf.get(run.id)).signal("word")
        assert await finished(await hf.get(run.id)) == "paid"
    assert calls == [("charge:o-1", 100)]


@pytest.mark.parametrize(("cents", "undone"), [(100, True), (200, False)])
async def test_an_undo_is_not_called_with_another_default_than_the_effect(home: Home, cents: int, undone: bool) -> None:
    calls: list[Any] = []
    old, new = Priced(100, calls), Priced(cents, calls)
    old.fails = False
    async with home.holdfast(old.pack) as hf:
        run = (await hf.start(old.checkout("o-1"))).run
        await until_recorded(run, "charge#1")
    async with home.holdfast(new.pack) as hf:
        receipt = await (await hf.get(run.id)).cancel()
        [left] = receipt.effects
        assert (left.state, "default value of price" in left.problem) == (
            ("undone", False) if undone else ("performed", True)
        )
    assert calls[1:] == ([("refund", 100)] if undone else [])

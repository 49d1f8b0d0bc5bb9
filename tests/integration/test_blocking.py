"""The blocking client: the same verbs, through one portal."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from queue import Queue

import pytest
from msgspec import Struct

from holdfast import Holdfast, Pack, RunFailed, TimedOut, UnknownRun, UsageError, hook, mark, set_attributes
from holdfast.assembly import Options
from holdfast.blocking import Blocking, BlockingRun, SearchKeywords
from holdfast.client import Caller, Run
from holdfast.errors import InvalidConfig
from tests.integration.conftest import Home

pack = Pack("p")


class Total(Struct):
    cents: int


@pack.effect(key="take:{order}")
async def take(order: str) -> str:
    return order


@pack.workflow(key="work:{order}", markers=("begun",), outcomes=("resumable", "no_effects", "partial"))
async def work(order: str, fails: bool = False) -> Total:
    await set_attributes({"order": order})
    await mark("begun")
    await take(order)
    if fails:
        raise ValueError(order)
    return Total(len(order))


@pack.workflow(key="wait:{order}")
async def wait(order: str, by_token: bool = True) -> str:
    await take(order)
    return await hook("go", token=f"go:{order}" if by_token else None)


@pytest.fixture
def hf(home: Home) -> Iterator[Blocking]:
    with Blocking(lambda: home.holdfast(pack)) as hf:
        yield hf


def test_a_run_is_started_once_and_answers_with_its_type(hf: Blocking) -> None:
    started = hf.start(work("abc"))
    again = hf.start(work("abc"))
    assert (started.created, again.created) == (True, False)
    assert again.run.id == started.run.id
    assert started.run.result(timeout=30) == Total(3)
    run = started.run.refresh()
    assert (run.status, run.key, run.attributes) == ("completed", "work:abc", {"order": "abc"})
    assert [marker.name for marker in run.markers] == ["begun"]
    assert run == hf.get(run.id) == hf.find(work, "work:abc")
    assert run.input() == {"order": "abc", "fails": False}


def test_a_run_is_signalled_by_name_by_token_and_at_its_start(hf: Blocking) -> None:
    hf.start(wait("a")).run.signal("go", "by name", dedupe="1")
    hf.start(wait("b"))
    assert hf.find("wait", "wait:a").result(timeout=30) == "by name"
    hf.find("wait", "wait:b").result  # noqa: B018 - it is there, and not called
    for run in hf.runs("wait", key_prefix="wait:b"):
        list(_until(run, "performed"))
    assert hf.resume_hook("go:b", "by token").result(timeout=30) == "by token"
    assert hf.start(wait("c"), signal=("go", "at once")).run.result(timeout=30) == "at once"


def test_events_come_one_by_one_while_they_happen(hf: Blocking) -> None:
    run = hf.start(wait("a")).run
    seen = list(_until(run, "performed"))
    run.signal("go", "now")
    seen += [event.entry.what for event in run.events(after=len(seen) - 1)]
    assert (seen[0], seen[-2:]) == ("started", ["received", "completed"])
    assert seen == [entry.what for entry in run.journal()]


def _until(run: BlockingRun, what: str) -> Iterator[str]:
    events = run.events()
    for event in events:
        yield event.entry.what
        if event.entry.what == what:
            events.close()  # type: ignore[attr-defined]
            return


def test_a_failure_is_raised_with_its_cause_and_can_be_retried_and_forked(hf: Blocking) -> None:
    run = hf.start(work("abc", fails=True)).run
    with pytest.raises(RunFailed) as caught:
        run.result(timeout=30)
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(RunFailed):
        run.refresh().retry().result(timeout=30)
    fork = run.refresh().fork("take#1", key="other")
    assert (fork.key, fork.id == run.id) == ("other", False)
    assert "failed with ValueError" in str(hf.explain(run))


def test_a_cancelled_run_hands_its_receipt_over_and_is_replaced_by_a_successor(hf: Blocking) -> None:
    # Without a token: the successor would fail if its predecessor still had it.
    run = hf.start(wait("a", by_token=False)).run
    list(_until(run, "performed"))
    replaced = hf.start(wait("a", by_token=False), replace=run)
    assert replaced.created
    receipt = replaced.run.cancel("enough", deadline="10s")
    assert (receipt.run_id, receipt.reason) == (replaced.run.id, "enough")
    assert replaced.run.receipt() == receipt
    assert not replaced.run.refresh().release_key().holds_key


def test_runs_are_searched_and_paged(hf: Blocking) -> None:
    for order in "abc":
        hf.start(work(order)).run.result(timeout=30)
    assert [run.attributes["order"] for run in hf.runs(work, "completed", newest_first=False)] == ["a", "b", "c"]
    page = hf.runs(attributes={"order": "b"}).page(limit=1)
    assert [run.key for run in page.runs] == ["work:b"]
    assert [run.key for run in hf.runs("work", limit=2)] == ["work:c", "work:b"]


def test_what_there_is_can_be_looked_at(hf: Blocking) -> None:
    assert [each.name for each in hf.workflows()] == ["p.work", "p.wait"]
    assert [each.serves.workflows for each in hf.workers()] == [("p.work", "p.wait")]
    assert sum(hf.backlog().statuses.values()) == 0
    assert hf.start(hf.call("work", {"order": "abc"})).run.result(timeout=30) == Total(3)


def test_an_unknown_run_and_a_wait_that_is_over_are_the_same_errors(hf: Blocking) -> None:
    with pytest.raises(UnknownRun):
        hf.get("nobody")
    with pytest.raises(TimedOut):
        hf.start(wait("a")).run.result(timeout=0.05)


async def test_inside_an_event_loop_it_says_what_to_use_instead(home: Home) -> None:
    hf = Blocking(lambda: home.holdfast(pack))
    with pytest.raises(UsageError, match="async Holdfast"):
        hf.get("any")


def test_a_store_that_cannot_be_opened_is_reported_and_can_be_opened_later(tmp_path: Path) -> None:
    place = tmp_path / "not-yet"
    hf = Holdfast.blocking(f"sqlite:///{place}/home.db", packs=[pack])
    with pytest.raises(InvalidConfig):
        hf.get("any")
    place.mkdir()
    with pytest.raises(UnknownRun):
        hf.get("any")
    hf.close()
    hf.close()
    with pytest.raises(UnknownRun):
        hf.get("any")
    hf.close()


def test_whoever_waits_in_another_thread_hears_that_it_was_closed(home: Home) -> None:
    hf = Blocking(lambda: home.holdfast(pack))
    run = hf.start(wait("a")).run
    list(_until(run, "performed"))
    heard = Queue[str]()

    def wait_for_it() -> None:
        try:
            run.result()
        except CancelledError:
            heard.put("cancelled")

    threading.Thread(target=wait_for_it, daemon=True).start()
    while not _is_asked_for(hf, "result"):
        time.sleep(0.001)
    hf.close()
    assert heard.get(timeout=20) == "cancelled"


def _is_asked_for(hf: Blocking, verb: str) -> bool:
    """Whether somebody waits behind the portal for the answer to this verb."""
    assert hf._portal._loop is not None
    tasks = asyncio.all_tasks(hf._portal._loop)
    return any(verb in str(task.get_coro()) for task in tasks)


def test_what_belongs_to_a_portal_that_is_closed_says_so(home: Home) -> None:
    hf = Blocking(lambda: home.holdfast(pack))
    run = hf.start(wait("a")).run
    events = run.events()
    next(events)
    hf.close()
    with pytest.raises(UsageError, match="is closed, or was opened in another process") as caught:
        run.refresh()
    assert "hf.get(run.id)" in caught.value.hint
    with pytest.raises(UsageError, match="is closed"):
        next(events)


def test_each_option_of_the_async_verbs_is_there() -> None:
    def options(verb: object) -> set[str]:
        parameters = inspect.signature(verb).parameters.values()  # type: ignore[arg-type]
        public = [each for each in parameters if not each.name.startswith("_")]
        return {each.name for each in public if each.kind is inspect.Parameter.KEYWORD_ONLY}

    assert options(Caller.start) == options(Blocking.start)
    assert options(Caller.runs) == set(SearchKeywords.__annotations__)
    assert options(Holdfast.__init__) == set(Options.__annotations__) | {"worker"}


def test_each_verb_is_there() -> None:
    assert _verbs(Caller) - _verbs(Blocking) == {"namespace", "replay_check"}
    assert _verbs(Run) - _verbs(BlockingRun) == {"ask_cancel"}  # whoever blocks waits for the receipt


def _verbs(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


FORKED = """
    import os, signal, sys, threading
    from holdfast import Holdfast, Pack, UsageError, hook
    pack = Pack("p")

    @pack.workflow(key="w:{n}")
    async def work(n: int) -> int:
        return n

    @pack.workflow
    async def wait() -> None:
        await hook("never")

    hf = Holdfast.blocking(sys.argv[1], packs=[pack], worker=True)
    assert hf.start(work(1)).run.result(timeout=30) == 1
    waiting = hf.start(wait()).run
    events = waiting.events()
    next(events)
    if (child := os.fork()) == 0:
        signal.alarm(40)  # a child that hangs must not outlive the test
        for verb in (waiting.refresh, waiting.result, lambda: next(events)):
            try:
                verb()
            except UsageError as error:
                assert "opened in another process" in str(error), error
            else:
                os._exit(1)
        assert hf.start(work(2)).run.result(timeout=30) == 2
        assert not hf.start(work(1)).created
        hf.close()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert not hf.start(work(2)).created
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        waiting.result()
    except KeyboardInterrupt:
        print("interrupted", hf.get(waiting.id).status != "completed")
    hf.close()
"""


def test_a_forked_process_opens_its_own_and_an_interruption_leaves_it_usable(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(FORKED), f"sqlite:///{tmp_path}/home.db"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "interrupted True\n"), done.stderr

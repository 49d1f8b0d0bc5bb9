"""Short words for the contract tests: each does one thing through the Store port, and nothing else."""

from __future__ import annotations

from typing import Any

from holdfast.engine.values import digest_of
from holdfast.kernel import runs, starts
from holdfast.kernel.changes import (
    Answer,
    Beat,
    Blob,
    Change,
    Committed,
    Known,
    Refused,
    Run,
    Watcher,
)
from holdfast.kernel.journal import Entry
from holdfast.ports.store import Claim, History, Store
from tests.builders import a_failure, a_hand, a_value, wanted

WORKFLOW = "shop.checkout"
LARGE = b'"a large value"'
LARGE_DIGEST = digest_of(LARGE)
OTHER_LARGE = b'"another large value"'
A_BLOB = Blob(LARGE_DIGEST, LARGE)
ANOTHER_BLOB = Blob(digest_of(OTHER_LARGE), OTHER_LARGE)
A_BEAT = Beat("charge#1", b'{"done":7}')


async def offer(store: Store, change: Change) -> Answer:
    [answer] = await store.commit([change])
    return answer


async def committed(store: Store, change: Change) -> Run:
    """The run as it is after `change`, which must have been committed."""
    answer = await offer(store, change)
    assert isinstance(answer, Committed), answer
    assert answer.run is not None
    return answer.run


async def refused(store: Store, change: Change) -> Run | None:
    """The run that stands in the way of `change`, which must have been refused."""
    answer = await offer(store, change)
    assert isinstance(answer, Refused), answer
    return answer.current


def admission(store: Store, run_id: str = "run-1", *, owner: str | None = None, **fields: Any) -> Change:
    """The change that admits a run, handed to `owner` at once if there is one."""
    hand = None if owner is None else a_hand(owner)
    guard = fields.pop("guard", None)
    return starts.admission(wanted(run_id, **fields), now_ms=store.now_ms(), hand=hand, guard=guard)


async def admitted(store: Store, run_id: str = "run-1", *, owner: str | None = None, **fields: Any) -> Run:
    return await committed(store, admission(store, run_id, owner=owner, **fields))


async def held(store: Store, run_id: str = "run-1", *, owner: str = "w-1", **fields: Any) -> Run:
    """A run that `owner` holds."""
    return await admitted(store, run_id, owner=owner, **fields)


async def claim(
    store: Store,
    owner: str = "w-1",
    *,
    limit: int = 100,
    workflows: tuple[str, ...] = (WORKFLOW,),
    namespace: str = "default",
) -> list[Run]:
    return await store.claim(Claim(namespace, owner, f"nonce-of-{owner}", workflows, limit))


def progress(
    store: Store, run: Run, *entries: Entry, blobs: tuple[Blob, ...] = (), read: tuple[str, ...] = ()
) -> Change:
    return runs.decide(run, runs.Progressed(), recorded=runs.Recorded(entries, blobs, read), now_ms=store.now_ms())


def let_go(store: Store, run: Run, *, wake_ms: int | None = None, read: tuple[str, ...] = ()) -> Change:
    return runs.decide(run, runs.LetGo(wake_ms), recorded=runs.Recorded(read=read), now_ms=store.now_ms())


def completion(store: Store, run: Run, output: object = "done", *, recorded: runs.Recorded = runs.NOTHING) -> Change:
    return runs.decide(run, runs.Returned(a_value(output)), recorded=recorded, now_ms=store.now_ms())


def failure(store: Store, run: Run) -> Change:
    return runs.decide(run, runs.Raised(a_failure()), now_ms=store.now_ms())


def blockage(store: Store, run: Run) -> Change:
    return runs.decide(run, runs.Stuck("unknown_outcome", "nobody knows"), now_ms=store.now_ms())


def beat(run: Run, beat: Beat = A_BEAT, *, count: int = 1) -> Change:
    return Change(f"{run.id}/{run.epoch}.beat{count}", run.fence, beats=(beat,))


def watch(run_id: str, watcher: Watcher) -> Change:
    return Change(f"{watcher.run_id}/{watcher.step}", Known(run_id), watcher=watcher)


async def history(store: Store, run_id: str = "run-1") -> History:
    [found] = await store.histories([run_id])
    return found


async def everything(store: Store, *run_ids: str) -> list[tuple[History, bytes | None, bytes | None]]:
    """All that the port shows of these runs. Two of these are equal if nothing was written between them."""
    found = sorted(await store.histories(run_ids or ("run-1",)), key=lambda history: history.run.id)
    return [
        (
            history,
            await store.blob(history.run.id, A_BLOB.digest),
            await store.blob(history.run.id, ANOTHER_BLOB.digest),
        )
        for history in found
    ]

"""Short words for the contract tests: each does one thing through the Store port, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, cast

import apsw
import msgspec

from holdfast.engine.values import digest_of
from holdfast.kernel import attributes, hooks, searches, starts, transitions
from holdfast.kernel.changes import (
    Answer,
    Beat,
    Blob,
    Change,
    Committed,
    HookOpen,
    KeyHeldBy,
    Known,
    Refused,
    TokenFree,
)
from holdfast.kernel.documents import Document, Writing, next_version
from holdfast.kernel.journal import Continued, Entry
from holdfast.kernel.messages import Message, OutcomeMessage, SignalMessage, Watcher
from holdfast.kernel.runs import Run
from holdfast.kernel.searches import Search
from holdfast.ports.store import Claim, History, KnownHook, Store
from holdfast.stores.sqlite.files import Database
from tests.builders import DAY_MS, a_failure, a_hand, a_value, wanted

WORKFLOW = "shop.checkout"
LARGE = b'"a large value"'
LARGE_DIGEST = digest_of(LARGE)
OTHER_LARGE = b'"another large value"'
A_BLOB = Blob(LARGE_DIGEST, LARGE)
ANOTHER_BLOB = Blob(digest_of(OTHER_LARGE), OTHER_LARGE)
A_BEAT = Beat("charge#1", b'{"done":7}')
WATCHER = Watcher("parent", "child#1")
HOOK = "approval"


def database(path: Path) -> Database:
    """A connection of the test's own, beside those of the store."""
    return cast("Database", cast("object", apsw.Connection(str(path))))


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
    return (await store.claim(Claim(namespace, owner, f"nonce-of-{owner}", workflows, limit))).runs


def progress(
    store: Store, run: Run, *entries: Entry, blobs: tuple[Blob, ...] = (), read: tuple[str, ...] = ()
) -> Change:
    return transitions.decide(
        run, transitions.Progressed(), recorded=transitions.Recorded(entries, blobs, read), now_ms=store.now_ms()
    )


def let_go(
    store: Store, run: Run, *, wake_at_ms: int | None = None, waits: bytes = b"[]", read: tuple[str, ...] = ()
) -> Change:
    return transitions.decide(
        run, transitions.LetGo(wake_at_ms, waits), recorded=transitions.Recorded(read=read), now_ms=store.now_ms()
    )


def completion(
    store: Store, run: Run, output: object = "done", *, recorded: transitions.Recorded = transitions.NOTHING
) -> Change:
    return transitions.decide(run, transitions.RunReturned(a_value(output)), recorded=recorded, now_ms=store.now_ms())


def failure(store: Store, run: Run) -> Change:
    return transitions.decide(run, transitions.RunRaised(a_failure()), now_ms=store.now_ms())


def blockage(store: Store, run: Run) -> Change:
    return transitions.decide(run, transitions.Stuck("unknown_outcome", "nobody knows"), now_ms=store.now_ms())


def takeover(store: Store, holder: Run, run_id: str = "run-2", **fields: Any) -> Change:
    """The admission of a successor that takes the key over from `holder`, as long as that is as it was."""
    return admission(store, run_id, guard=KeyHeldBy(holder.id, holder.fence), **fields)


async def retry(store: Store, run: Run) -> Change:
    return transitions.retry(run, (await history(store, run.id)).journal, now_ms=store.now_ms())


async def stop(store: Store, run: Run, *, read: tuple[str, ...] = ()) -> Change:
    """The change by which another process ends a run."""
    journal = (await history(store, run.id)).journal
    return transitions.stop(
        run, journal, reason="", late=False, recorded=transitions.Recorded(read=read), now_ms=store.now_ms()
    )


def beat(run: Run, beat: Beat = A_BEAT, *, count: int = 1) -> Change:
    return Change(f"{run.id}/{run.epoch}.beat{count}", run.fence, beats=(beat,))


def watch(run_id: str, watcher: Watcher) -> Change:
    return Change(f"{watcher.run_id}/{watcher.step}", Known(run_id), watcher=watcher)


async def ended(store: Store, run_id: str = "run-1", **fields: Any) -> Run:
    """A run that has completed."""
    return await committed(store, completion(store, await held(store, run_id, **fields)))


def replaces_journal(
    store: Store, run: Run, input: object = "new", *, recorded: transitions.Recorded = transitions.NOTHING
) -> Change:
    """The run continues as new."""
    assert run.input is not None
    first = Continued(store.now_ms(), a_value(input), 1, run.input)
    return transitions.decide(run, transitions.ContinuedAsNew(first), recorded=recorded, now_ms=store.now_ms())


async def failed(store: Store, run_id: str = "run-1", **fields: Any) -> Run:
    return await committed(store, failure(store, await held(store, run_id, **fields)))


async def family(store: Store, **fields: Any) -> tuple[Run, Run]:
    """A parent, and `run-1`, its child; both are held."""
    return await held(store, "parent", key=None), await held(store, watcher=WATCHER, **fields)


async def told(store: Store) -> tuple[Run, Message]:
    """A parent that is held, and the message in its inbox: its child has ended."""
    parent, child = await family(store)
    await committed(store, completion(store, child))
    [message] = await unread(store, "parent")
    return parent, message


async def unread(store: Store, run_id: str = "run-1") -> tuple[Message, ...]:
    return (await history(store, run_id)).messages


async def outcomes(store: Store, run_id: str = "parent") -> list[OutcomeMessage]:
    """The unread messages, all of which say how some run ended."""
    messages = await unread(store, run_id)
    assert all(isinstance(message, OutcomeMessage) for message in messages), messages
    return [message for message in messages if isinstance(message, OutcomeMessage)]


async def history(store: Store, run_id: str = "run-1") -> History:
    [found] = await store.histories([run_id])
    return found


class Everything(NamedTuple):
    """All that the port shows of a run."""

    history: History
    blobs: tuple[bytes | None, ...]
    hook: HookOpen | None
    token: KnownHook | None
    found: list[str]  # by its attributes
    key: Run | None


async def everything(store: Store, *run_ids: str) -> list[Everything]:
    """All that the port shows of these runs. Two of these are equal if nothing was written between them."""
    found = sorted(await store.histories(run_ids or ("run-1",)), key=lambda history: history.run.id)
    return [await _everything(store, history) for history in found]


async def _everything(store: Store, history: History) -> Everything:
    run = history.run
    conditions = searches.conditions_of(attributes.decode(run.attributes))
    search = Search(namespace=run.namespace, limit=100, conditions=conditions)
    return Everything(
        history,
        (await store.blob(run.id, A_BLOB.digest), await store.blob(run.id, ANOTHER_BLOB.digest)),
        await store.hook(run.id, HOOK),
        await store.hook_of_token(run.namespace, token_of(run.id)),
        [found.id for found in await store.search(search)] if conditions else [],
        None if run.key is None else await store.run_of_key(run.namespace, run.workflow, run.key),
    )


def a_signal(number: object = 1, *, hook: str = HOOK) -> SignalMessage:
    """A payload for a hook; equal numbers make it the same signal."""
    return hooks.signal(hook, msgspec.json.encode(number), dedupe=f"{number}", nonce="")


async def signalled(store: Store, run_id: str = "run-1", number: object = 1, *, scope: str = "") -> Run:
    """The run that has received the signal; with a scope it was sent to the key."""
    return await committed(store, sending(run_id, number, scope=scope))


def sending(run_id: str = "run-1", number: object = 1, *, scope: str = "") -> Change:
    message = a_signal(number)
    return hooks.to_owner(run_id, message, scope=scope) if scope else hooks.to_run(run_id, message)


def token_of(run_id: str) -> str:
    return f"token-of-{run_id}"


def opening(run: Run, hook: HookOpen) -> Change:
    """The change that opens a hook with a token, if no other live run has that token."""
    assert hook.token is not None
    guard = TokenFree(run.fence, run.namespace, hook.token)
    return Change(f"{run.id}/{run.epoch}/open/{hook.name}/{hook.token}", guard, opens=(hook,))


async def rich(store: Store, run_id: str = "run-1", *, retention_ms: int = 30 * DAY_MS) -> Run:
    """A run that is held and has something in every table, and the message of a child in its inbox.

    Its watcher is the run `parent`, if there is one.
    """
    run = await held(
        store,
        run_id,
        key=run_id,
        watcher=Watcher("parent", f"{run_id}#1"),
        blobs=(A_BLOB,),
        retention_ms=retention_ms,
        attributes=attributes.encode({"customer": run_id, "total": 12}),
    )
    await offer(store, beat(run))
    await committed(store, opening(run, HookOpen(HOOK, token_of(run_id), b'{"type":"string"}')))
    await ended(store, f"{run_id}-child", key=None, watcher=Watcher(run_id, "child#1"), retention_ms=retention_ms)
    assert [message.id for message in await unread(store, run_id)] == [message_of_child(run_id)]
    return run


def message_of_child(run_id: str) -> str:
    return f"{run_id}-child/1/child#1"


def a_document(store: Store, id: str = "d-1", *, body: bytes = b"{}", **fields: Any) -> Document:
    """A document that is made now."""
    document = Document("default", "note", id, next_version(None, now_ms=store.now_ms()), body)
    return msgspec.structs.replace(document, **fields)


def successor(store: Store, document: Document, **fields: Any) -> Writing:
    """The wish to put another version in the place of `document`."""
    version = next_version(document.version, now_ms=store.now_ms())
    return Writing(msgspec.structs.replace(document, version=version, **fields), replaces=document.version)


async def writes(store: Store, *writings: Writing | Document) -> list[bool]:
    """Offer them in one call; a document alone is one that is made."""
    return await store.write([each if isinstance(each, Writing) else Writing(each) for each in writings])


async def stored(store: Store, id: str = "d-1", **fields: Any) -> Document:
    document = a_document(store, id, **fields)
    assert await writes(store, document) == [True]
    return document

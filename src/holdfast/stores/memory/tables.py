"""What the memory store keeps: dictionaries."""

from __future__ import annotations

from holdfast.kernel.audits import Audit
from holdfast.kernel.changes import HookOpen
from holdfast.kernel.documents import Document
from holdfast.kernel.fairness import FairLine
from holdfast.kernel.journal import Entry
from holdfast.kernel.lanes import Lane, Place
from holdfast.kernel.messages import Message, Watcher
from holdfast.kernel.outs import Out
from holdfast.kernel.rates import Micros
from holdfast.kernel.runs import Run
from holdfast.kernel.times import Instant
from holdfast.ports.store import Serves


class Tables:
    """All that is stored."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.waking: dict[str, None] = {}  # runs that may be claimed, now or later; in order, unlike a set
        self.unread: dict[str, None] = {}  # runs with messages
        self.keys: dict[tuple[str, str, str], str] = {}
        self.journals: dict[str, list[Entry]] = {}
        self.blobs: dict[str, dict[str, bytes]] = {}
        self.beats: dict[str, dict[str, bytes]] = {}
        self.inboxes: dict[str, dict[str, Message | None]] = {}  # None: it has been read
        self.scopes: dict[tuple[str, str], str] = {}  # (scope, message id) -> the run that received it
        self.watchers: dict[str, list[Watcher]] = {}
        self.hooks: dict[str, dict[tuple[str, str | None], HookOpen]] = {}  # by name and token
        self.tokens: dict[tuple[str, str], str] = {}  # (namespace, token) -> the run that opened it last
        self.leases: dict[str, Instant] = {}
        self.workers: dict[str, tuple[Instant, Serves]] = {}  # since when, and what they serve
        self.lanes: dict[tuple[str, str], Lane] = {}  # by namespace and name
        self.places: dict[tuple[str, str], dict[str, Place]] = {}  # of each lane, by run
        self.rates: dict[tuple[str, str], Micros] = {}  # by namespace and name: when the next would be due
        self.tags: dict[str, tuple[int, str]] = {}  # of runs that have not begun, with their shares
        self.reached: dict[FairLine, int] = {}  # the highest tag that was claimed
        self.next_tags: dict[tuple[FairLine, str], int] = {}  # of each share
        self.outs: dict[int, Out] = {}  # by their number
        self.audits: dict[int, Audit] = {}
        self.kept = 0  # how many of both there have been
        self.documents: dict[tuple[str, str, str], Document] = {}  # by namespace, kind and id

    def put(self, run: Run) -> Run:
        """Write a row, and keep the two indexes that are asked most."""
        self.runs[run.id] = run
        if run.wake_at_ms is None:
            self.waking.pop(run.id, None)
        else:
            self.waking[run.id] = None
        if run.unread:
            self.unread[run.id] = None
        else:
            self.unread.pop(run.id, None)
        return run

    def keep(self, outs: tuple[Out, ...], audits: tuple[Audit, ...]) -> None:
        """Keep what goes out with a change, and what was done by it."""
        for out in outs:
            self.kept += 1
            self.outs[self.kept] = out
        for audit in audits:
            self.kept += 1
            self.audits[self.kept] = audit

    def forget(self, run: Run) -> None:
        """Remove a run, with everything that belongs to it."""
        del self.runs[run.id]
        self.waking.pop(run.id, None)
        self.unread.pop(run.id, None)
        self.tags.pop(run.id, None)
        self.free_key(run)
        for hook in self.hooks.get(run.id, {}).values():
            self.free_token(run, hook.token)
        self.scopes = {scope: run_id for scope, run_id in self.scopes.items() if run_id != run.id}
        for table in (self.journals, self.blobs, self.beats, self.inboxes, self.watchers, self.hooks):
            table.pop(run.id, None)

    def free_key(self, run: Run) -> None:
        if run.key is not None and self.keys.get((run.namespace, run.workflow, run.key)) == run.id:
            del self.keys[run.namespace, run.workflow, run.key]

    def free_token(self, run: Run, token: str | None) -> None:
        if token is not None and self.tokens.get((run.namespace, token)) == run.id:
            del self.tokens[run.namespace, token]

"""What code this worker has, and what other live workers announce of theirs, see `kernel.handovers`."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from holdfast.engine.announcements import announced_by
from holdfast.engine.code.digests import digest_of_code
from holdfast.errors import TransientError
from holdfast.kernel import handovers
from holdfast.kernel.documents import Document
from holdfast.kernel.handovers import Code, Peer
from holdfast.pack import Workflow
from holdfast.ports.store import Store


def codes_of(workflows: Iterable[Workflow[..., Any]]) -> dict[str, Code]:
    """What is announced of these workflows."""
    return {
        each.name: Code(digest_of_code(each), each.version or "", pinned=each.versions == "pinned")
        for each in workflows
    }


class Codes:
    """Announces the code of this worker under the name of its lease, and reads what others have announced."""

    def __init__(
        self, store: Store, *, namespace: str, workflows: Iterable[Workflow[..., Any]], owner: Callable[[], str]
    ) -> None:
        self.here: Mapping[str, Code] = codes_of(workflows)
        self.versions = {name: code.version for name, code in self.here.items()}
        self._store = store
        self._namespace = namespace
        self._owner = owner
        self._last: Document | None = None

    async def announce(self, owner: str) -> None:
        """Before the lease of this name is opened. If the store is in trouble, it is made up for by `renew`."""
        self._last = None
        with contextlib.suppress(TransientError):
            await self._write(owner)

    async def renew(self) -> None:
        """Now and then, so that it does not expire while the lease lives."""
        if owner := self._owner():
            if self._last is None:  # perhaps it was stored, and the reply was lost
                self._last = await self._store.document(self._namespace, handovers.CODE, owner)
            await self._write(owner)

    async def _write(self, owner: str) -> None:
        last, self._last = self._last, None  # until it is known to be stored
        now_ms = self._store.now_ms()
        writing = handovers.announce(self._namespace, owner, self.here, last=last, now_ms=now_ms) if self.here else None
        if writing is None:
            self._last = last
            return
        [stored] = await self._store.write([writing])
        if stored:
            self._last = writing.document

    async def withdraw(self) -> None:
        """This worker leaves. Of one that is killed, the announcement goes with the lease, and expires later."""
        if self._last is not None:
            await self._store.write([handovers.withdraw(self._last, now_ms=self._store.now_ms())])

    async def peers(self, workflows: Collection[str]) -> dict[str, list[Peer]]:
        """The other live workers that serve each of these workflows."""
        members = [member for member in await self._store.members(self._namespace) if member.owner != self._owner()]
        announced = await announced_by(self._store, self._namespace, members)
        peers: dict[str, list[Peer]] = defaultdict(list)
        for member in members:
            room, codes = member.serves.concurrency - member.holds, announced.get(member.owner, {})
            for workflow in set(workflows).intersection(member.serves.workflows):
                peers[workflow].append(Peer(member.owner, codes.get(workflow, Code()), room))
        return peers

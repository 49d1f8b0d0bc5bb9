"""Which of the runs in memory have mail, and its delivery.

    source                        told by            looked at
    a commit of this process      note_commit        the runs that it names; one that was let go is to be claimed
    a notice of another process   note_notice        those of the runs that it names which are in memory
    a notice that names nothing   look_at_all        every run in memory
    a relay, trouble              look_at_all        every run in memory
    time                          the safety poll    every run in memory

A fresh run is adopted when the reply to its admission has come; until then others may send it something, and tell us of
it. Those are remembered, and looked at when it is adopted.

Between the look at a run's history and its adoption a message may come. The history does not have it, and the run is
not in memory yet to be told of it. So `adopting` marks that time, and all runs are looked at afterwards if anything
came meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager

from holdfast import events
from holdfast.engine.alarms import Alarm
from holdfast.engine.ports import Ports
from holdfast.engine.worker.held import HeldRuns
from holdfast.errors import TransientError


class Mail:
    """Fetches messages for the runs in memory when there may be some, all in one read."""

    def __init__(
        self, ports: Ports, held: HeldRuns, *, owner: Callable[[], str], on_claimable: Callable[[], None]
    ) -> None:
        self._store = ports.store
        self._clock = ports.clock
        self._emit = ports.emit
        self._pace = ports.pace
        self._held = held
        self._owner = owner
        self._on_claimable = on_claimable
        self._bell = Alarm()
        self._wanted: set[str] | None = set()  # whose mail the bell rings for; None: any of those in memory
        self._named: set[str] = set()  # runs in memory that got messages by a commit here, and have not seen them yet
        self._adopting = False
        self._missed = False  # whether something came while runs were being adopted
        self.reserved: Collection[str] = ()  # fresh runs that are about to be adopted, see `Claims.reserve`
        self._overtook: set[str] = set()  # those of them that got messages before they were adopted

    # -- what others tell it

    def note_commit(self, run_ids: Collection[str]) -> None:
        """These runs got messages by a commit of this process."""
        for run_id in run_ids:
            if self._held.holds(run_id):
                self._named.add(run_id)
                self._want(run_id)
            elif run_id in self.reserved:
                self._overtook.add(run_id)
            else:
                self._missed = self._adopting
                self._on_claimable()  # it was let go

    def note_notice(self, run_ids: Collection[str]) -> None:
        """These runs got messages by a commit of another process."""
        self._missed = self._adopting
        for run_id in self._held.among(run_ids):
            self._want(run_id)
        if self.reserved:
            self._overtook |= {run_id for run_id in run_ids if run_id in self.reserved}

    def look_at_all(self) -> None:
        """Any run in memory may have got messages."""
        self._missed = self._adopting
        self._overtook |= set(self.reserved)
        self._wanted = None
        self._bell.set()

    def note_fresh(self, run_id: str) -> None:
        """A fresh run is being adopted, or given back, with what its own admission has brought."""
        if run_id in self._overtook:
            self._overtook.discard(run_id)
            self._want(run_id)

    def _want(self, run_id: str) -> None:
        if self._wanted is not None:
            self._wanted.add(run_id)
        self._bell.set()

    @contextmanager
    def adopting(self) -> Generator[None]:
        """Histories are read in this block, perhaps by the claim itself, and their runs adopted."""
        self._adopting, self._missed = True, False
        try:
            yield
        finally:  # the store may be in trouble after the first runs of several were adopted
            self._adopting = False
            if self._missed:
                self.look_at_all()

    def forget(self, run_id: str) -> bool:
        """The run leaves the memory. True if a commit of this process has brought it messages that it has not seen."""
        has_unseen = run_id in self._named
        self._named.discard(run_id)
        return has_unseen

    # -- delivery

    async def deliver(self) -> None:
        """Hand messages to the runs in memory whenever there may be some, forever."""
        while True:
            if not await self._bell.wait(self._pace.mail_poll_seconds):
                self._wanted = None  # a notice may be lost
            self._bell.clear()
            wanted, self._wanted = self._wanted, set()
            if not self._held:
                continue
            try:
                await self._fetch(wanted)
            except TransientError as error:
                self._emit(events.StoreTroubled(str(error)))
                await self._clock.pause(self._pace.trouble_pause_seconds)
                self.look_at_all()

    async def _fetch(self, wanted: set[str] | None) -> None:
        # The store may show what a run has read since, if it was let go and taken up again meanwhile. What comes for a
        # run that was taken up after we asked, its own history has, or another ring will bring.
        last = self._held.adopted
        mail = await self._store.messages(self._owner(), wanted)
        if not mail:
            self._emit(events.AskedInVain("mail"))
        for run_id, messages in mail.items():
            self._named.discard(run_id)
            execution = self._held.execution_of(run_id)
            if execution is not None and execution.number <= last:
                for message in messages:
                    execution.arrive(message)

"""Watches the tasks of remote effects for this process. One look serves all who wait here.

    subscriptions   runs that have put a task up, and wait until it changes
    seekers         remote workers that wait for something to claim

Rules
- What this process writes, it tells its own subscriptions and seekers at once, without a read.
- What others write is looked up when the store says that another process has committed; and now and then besides, in
  case a notice was lost or a lease ran out. If no caller waits, nothing is looked up.
- Writes that are ready at the same time travel together. While some are being written, the next ones gather.
- A write is never left half known: a caller that is cancelled meanwhile learns that only when the store has replied.

Two parts resemble others and are kept apart from them; what could be shared is shorter than what would join it:
- Writing in batches, as in `engine/committer.py`. A committer has several batches under way, writes the changes of a
  batch one by one if one cannot be written, and calls back before its callers go on. Here none of that is wanted, and
  there it is not wanted that a caller waits out its cancellation.
- Looking when told and now and then, as in `engine/api/waiters.py`. A notice to waiters names runs, which are looked at
  alone, and however many of those come, all runs have their turn. Here each look is at everything.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from holdfast.engine.alarms import Alarm
from holdfast.engine.pace import Pace
from holdfast.errors import TransientError
from holdfast.events import Emit, StoreTroubled
from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.tasks import TaskPlace, kind_of, place_of
from holdfast.kernel.times import Millis
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store

BATCH_MAX = 100


Offer = tuple[Sequence[Writing], "asyncio.Future[list[bool]]"]


class TaskSubscription:
    """A caller that waits for one task to change."""

    def __init__(self, place: TaskPlace) -> None:
        self.place = place
        self.current: Document | None = None
        self._changed = asyncio.Event()

    def update(self, document: Document | None) -> None:
        """This is the task now, as far as is known. What is older than what was seen before does not count."""
        if document is not None and (self.current is None or document.version > self.current.version):
            self.current = document
            self._changed.set()

    async def changed(self, within_ms: Millis | None) -> None:
        """Returns when it has seen something since the last time, or when the time is over."""
        try:
            async with asyncio.timeout(None if within_ms is None else max(0, within_ms) / 1000):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()


class TaskSeeker:
    """A remote worker that waits for a task of certain effects."""

    def __init__(self, namespace: str, effects: Sequence[str]) -> None:
        self.namespace = namespace
        self.kinds = tuple(map(kind_of, effects))
        self.woken = asyncio.Event()

    def may_want(self, document: Document) -> bool:
        return not self.woken.is_set() and document.namespace == self.namespace and document.kind in self.kinds


class TaskWatch:
    """All tasks, for all who wait in this process."""

    def __init__(self, store: Store, *, clock: Clock, emit: Emit, pace: Pace) -> None:
        self._store = store
        self._clock = clock
        self._emit = emit
        self._pace = pace
        self._subscriptions: dict[TaskPlace, list[TaskSubscription]] = {}
        self._seekers: list[TaskSeeker] = []
        self._news = Alarm()
        self._waiting: list[Offer] = []
        self._writer: asyncio.Task[None] | None = None

    # -- reading and writing

    async def read(self, place: TaskPlace) -> Document | None:
        return await self._store.document(place.namespace, place.kind, place.id)

    async def write(self, writings: Sequence[Writing]) -> list[bool]:
        """Whether each is stored now. Those who wait for them are told."""
        if not writings:
            return []
        answer: asyncio.Future[list[bool]] = asyncio.get_running_loop().create_future()
        self._waiting.append((writings, answer))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write())
        cancelled: asyncio.CancelledError | None = None
        while not answer.done():
            try:
                await asyncio.wait([answer])
            except asyncio.CancelledError as error:
                cancelled = error
        answers = answer.result()
        if cancelled is not None:
            raise cancelled
        return answers

    async def _write(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
                await self._write_batch(batch)
        finally:
            self._writer = None
            for _, answer in self._waiting:  # the loop is being closed, and they will not be written
                answer.cancel()

    async def _write_batch(self, batch: list[Offer]) -> None:
        writings = [writing for offered, _ in batch for writing in offered]
        try:
            answers = iter(await self._store.write(writings))
        except BaseException as error:
            for _, answer in batch:
                answer.set_exception(error)
            if isinstance(error, Exception):
                return  # it belongs to those who wait
            raise
        for offered, answer in batch:
            answer.set_result([next(answers) for _ in offered])
            for writing, stored in zip(offered, answer.result(), strict=True):
                if stored:
                    self._posted(writing.document)

    def _posted(self, document: Document) -> None:
        for subscription in self._subscriptions.get(place_of(document), ()):
            subscription.update(document)
        if document.due_at_ms is not None and document.due_at_ms <= self._store.now_ms():
            self.wake_seeker(document)

    def wake_seeker(self, document: Document) -> None:
        seeker = next((each for each in self._seekers if each.may_want(document)), None)
        if seeker is not None:
            seeker.woken.set()

    # -- waiting

    @contextmanager
    def subscribe(self, place: TaskPlace) -> Generator[TaskSubscription]:
        """Be told when the task changes."""
        subscription = TaskSubscription(place)
        self._subscriptions.setdefault(place, []).append(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions[place].remove(subscription)
            if not self._subscriptions[place]:
                del self._subscriptions[place]

    @contextmanager
    def seek(self, namespace: str, effects: Sequence[str]) -> Generator[TaskSeeker]:
        """Be woken when there may be something to claim."""
        seeker = TaskSeeker(namespace, effects)
        self._seekers.append(seeker)
        try:
            yield seeker
        finally:
            self._seekers.remove(seeker)
            if seeker.woken.is_set():
                self._news.set()  # it leaves without having looked: let another one be woken

    # -- what other processes do

    def look(self) -> None:
        """Another process has committed something. One who begins to wait looks by itself."""
        if self._subscriptions or self._seekers:
            self._news.set()

    async def watch(self) -> None:
        """Look up what other processes have done, forever."""
        while True:
            await self._news.wait(self._pace.tasks_poll_seconds)
            self._news.clear()
            began_steady_ms = self._clock.steady_ms()
            try:
                await self._look_up()
            except TransientError as error:
                self._emit(StoreTroubled(str(error)))
                self._news.set()
                await self._clock.pause(self._pace.trouble_pause_seconds)
                continue
            rest = self._pace.rest_factor * (self._clock.steady_ms() - began_steady_ms) / 1000
            await self._clock.pause(min(rest, self._pace.tasks_poll_seconds))

    async def _look_up(self) -> None:
        places = list(self._subscriptions)
        for start in range(0, len(places), self._pace.look_up_max):
            asked = [
                (place.namespace, place.kind, place.id) for place in places[start : start + self._pace.look_up_max]
            ]
            for document in await self._store.named(asked):
                for subscription in self._subscriptions.get(place_of(document), ()):
                    subscription.update(document)
        idle: dict[str, list[TaskSeeker]] = defaultdict(list)
        for seeker in self._seekers:
            if not seeker.woken.is_set():
                idle[seeker.namespace].append(seeker)
        for namespace, seekers in idle.items():
            kinds = sorted({kind for seeker in seekers for kind in seeker.kinds})
            for document in await self._store.due(namespace, kinds, len(seekers)):
                self.wake_seeker(document)

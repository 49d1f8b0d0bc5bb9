"""The bus: hints between processes, and topics for durable work. The store stays the only record.

Hints (`Bus`)
- A hint is delivered at most once. Losing one costs latency and nothing else: a receiver of hints also polls.
- `broadcast` and `wake` may be called at any time. They never raise and never wait; what cannot be sent at once,
  while disconnected or with too much unsent already, is dropped and counted.
- No process receives its own hints: it knows what it has done itself.
- A bus that is down keeps no process from starting. It connects in the background, forever. `watch` tells when that
  has worked or a connection was lost. What was sent meanwhile is gone: look at everything when it is back.

Topics (`Topics`)
- A message is delivered at least once to each group. A group exists, for good, from its first `consume` on. Its
  members share what is published from then on, and what is still kept of the time before; with no group yet, that is
  everything. It is the handler that has to recognise a message that it has handled before, in the same commit as its
  work: an acknowledgement may be lost, and the bus recognises by id only what comes twice within a short time.
- A message is acknowledged after its handler has returned, never before, and never because of a shutdown. If the
  handler raises or its process dies, the message comes again, forever: `TopicMessage.count` says how often it has, and
  to set it aside is the handler's decision. The bus does not report what a handler raises: the handler does.
- `publish` returns when the message is kept. Otherwise it raises `BusUnavailable`, and the message may or may not have
  been kept: publish it again under the same id. A message is kept until every group has handled it. A topic that is
  full refuses, and drops nothing.

Names (subjects, groups, topics) are any text. No name reaches more than its equals, whatever characters it holds.
All calls are made in the event loop in which the bus was opened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import Struct

from holdfast.ports.store import Finding


class TopicMessage(Struct, frozen=True, gc=False):
    """A message as a handler gets it."""

    id: str
    body: bytes
    count: int  # how often it has been delivered to this group, this time included


Handle = Callable[[TopicMessage], Awaitable[None]]


class Consumption(Protocol):
    """One member of a group, at work."""

    async def stop(self, grace_s: float = 5.0) -> None:
        """Take no more messages, let handlers finish for that long, then cancel them. The rest goes to others."""
        ...


class Bus(Protocol):
    """Hints to other processes."""

    @property
    def connected(self) -> bool: ...

    @property
    def wakes_one(self) -> bool:
        """Whether `wake` reaches one member of a group; otherwise it reaches all."""
        ...

    @property
    def dropped(self) -> int:
        """How many hints were not sent, or arrived faster than they were taken, since the start."""
        ...

    async def open(self) -> None:
        """Begin to connect. Raises `InvalidConfig` for what can never work; a bus that is only down is no error."""
        ...

    async def close(self) -> None: ...

    def watch(self, on_state: Callable[[bool], None]) -> None:
        """Call back with True whenever a connection stands and everything is subscribed, with False when it is lost."""
        ...

    def broadcast(self, subject: str, body: bytes) -> None:
        """To all listeners of other processes."""
        ...

    def wake(self, group: str, body: bytes) -> None:
        """To one member of the group in another process, whichever."""
        ...

    def listen(self, subject: str, on_message: Callable[[bytes], None]) -> None: ...
    def join(self, group: str, on_wake: Callable[[bytes], None]) -> None: ...

    async def inspect(self) -> tuple[Finding, ...]:
        """Whether the bus is there and well kept, and what could be lost if it is not."""
        ...


class Topics(Protocol):
    """Durable work, shared by the members of groups."""

    async def publish(self, topic: str, body: bytes, *, id: str) -> None:
        """Keep a message for every group of the topic."""
        ...

    async def consume(self, topic: str, group: str, handle: Handle, *, in_flight: int = 16) -> Consumption:
        """Join a group, with up to `in_flight` messages in the handler at once. While the bus is down it waits."""
        ...

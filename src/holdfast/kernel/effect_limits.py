"""Limits at effects: how many calls may be under way at once, and how many may begin in a time, over all replicas.

A limit is one document. Slots are leased to replicas and not to calls: while a replica has slots, a call costs nothing.

    a replica            what it does with the document
    ───────────────────  ────────────────────────────────────────────────────────────────────────────────────────────
    has calls waiting    says how many slots it could use, and takes what is free, up to its fair share
    holds more than its  gives back what it does not use; the others as its calls end
    fair share
    is idle              gives all back
    is dead              nothing: the others take its slots when the lease of its worker has expired
    may not begin now    takes as much of the rate as waits: one portion at most, or a burst if that is more

Rules
- The slots of all live replicas together are never more than `width`.
- Shares are fair as far as replicas want more than there is: none has two more
  than another one that wants more.
  What cannot be divided goes to the replica that has waited longest, and so from one to the next.
- A replica keeps the slots of calls that are under way, whatever its share is.
- Slots belong to the lease of a worker. Its name is never used again, so an owner that is no member any more never
  comes back to its slots.
- The rate is spent as `kernel.rates` says, by the store's clock. Up to one portion more than the rate says may begin
  at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import UsageError
from holdfast.kernel.documents import Document, Writing, in_place_of
from holdfast.kernel.keys import checked
from holdfast.kernel.leases import instance_of
from holdfast.kernel.rates import Granted, Micros, Rate, spend
from holdfast.kernel.times import Instant, Millis
from holdfast.kernel.units import milliseconds

KIND: Final = "limit"
WIDTH_MAX: Final = 1_000_000
PORTION_MS: Final = Millis(100)
TURN_MS: Final = Millis(100)  # so long a replica keeps a slot that is another's turn, or each call would cost a write
IDLE_MS: Final = Millis(1_000)


class Limit(Struct, frozen=True, gc=False):
    """A limit for effects: `@pack.effect(limit=Limit("stripe", width=10, rate=Rate(90, per="1s")))`.

    At most `width` calls are under way at once, and they begin no more often than `rate` says, over all replicas.
    Effects may share one.
    """

    name: str
    width: int | None = None
    rate: Rate | None = None

    def __post_init__(self) -> None:
        checked(self.name, what="name of a limit")
        width, rate = self.width, self.rate
        if width is not None and (isinstance(width, bool) or not isinstance(width, int) or not 1 <= width <= WIDTH_MAX):
            raise UsageError(
                f"Limit(width={width!r}) is out of range", hint=f"Use a whole number of 1 to {WIDTH_MAX:,}."
            )
        if rate is not None and not isinstance(rate, Rate):
            raise UsageError(f"Limit(rate={rate!r}) is no rate", hint='Write rate=Rate(90, per="1s").')
        if rate is not None and (rate.by or rate.cost):
            raise UsageError(
                f"Limit({self.name!r}) counts every call alike", hint="Leave by= and cost= of its rate out."
            )
        if width is None and rate is None:
            raise UsageError(f"Limit({self.name!r}) limits nothing", hint="Give it a width, a rate, or both.")


class Share(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a replica has of the slots, how many it could use, and when it was its turn last."""

    slots: int = 0
    wants: int = 0
    turn: int = 0


class LimitSlots(Struct, frozen=True, gc=False, omit_defaults=True):
    """A limit, as its document has it: who has how many slots, and how far the rate is spent.

    `by` is who wrote it: two replicas that spend the same of the rate in one millisecond must not write the same bytes,
    or both would be told that theirs is stored.
    """

    width: int | None = None
    shares: dict[str, Share] = {}
    turns: int = 0
    due_at_us: Micros = Micros(0)
    by: str = ""

    @property
    def taken(self) -> int:
        """How many slots replicas have."""
        return sum(share.slots for share in self.shares.values())


class Wish(Struct, frozen=True, gc=False):
    """What a replica asks for: `wants` slots in all, of which `in_use` are under way, and `calls` of the rate."""

    owner: str
    wants: int = 0
    in_use: int = 0
    calls: int = 0


class Grant(Struct, frozen=True, gc=False):
    """What it gets: the document from now on, `calls` of the rate; if it got none of these, when it may ask again."""

    slots: LimitSlots
    calls: int = 0
    retry_ms: Millis = Millis(0)


NONE = LimitSlots()
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(LimitSlots).decode


def slots_in(document: Document | None) -> LimitSlots:
    """The limit that a document holds."""
    return NONE if document is None else _decode(document.body)


def writing(namespace: str, name: str, found: Document | None, slots: LimitSlots, *, now_ms: Instant) -> Writing:
    """What is written to keep it so."""
    return in_place_of(found, namespace, KIND, name, _encode(slots), now_ms=now_ms)


def decide(limit: Limit, slots: LimitSlots, wish: Wish, *, alive: Collection[str], now_ms: Instant) -> Grant:
    """What a replica gets. `alive` are the workers whose lease has not expired, as they were after `slots` was read."""
    after = slots if limit.width is None else _shared(limit.width, slots, wish, alive)
    if limit.rate is None or not wish.calls:
        return Grant(after)
    burst = max(limit.rate.burst or 1, portion_of(limit.rate))
    rate = Rate(limit.rate.count, limit.rate.per, burst)
    spent = spend(rate, slots.due_at_us, now_ms=now_ms, cost=0)
    calls = min(wish.calls, burst, max(1, spent.remaining))
    spent = spend(rate, slots.due_at_us, now_ms=now_ms, cost=calls)
    if isinstance(spent, Granted):
        return Grant(replace(after, due_at_us=spent.due_at_us, by=wish.owner), calls)
    return Grant(after, retry_ms=max(Millis(1), spent.retry_ms))


def portion_of(rate: Rate) -> int:
    """How many calls a replica takes of the rate at once."""
    return max(1, rate.count * PORTION_MS // max(1, milliseconds(rate.per)))


def fair_share(width: int, shares: Mapping[str, Share], owner: str) -> int:
    """How many slots the replica should have, if each has said what it wants."""
    left = width
    wanting: dict[str, int] = {each: share.wants for each, share in shares.items() if share.wants > 0}
    mine = wanting.get(owner, 0)
    while wanting and min(wanting.values()) * len(wanting) <= left:
        least = min(wanting.values())
        left -= least * len(wanting)
        if mine <= least:
            return shares[owner].wants if owner in wanting else 0
        wanting = {each: wants - least for each, wants in wanting.items() if wants > least}
        mine -= least
    if owner not in wanting:
        return 0
    each_gets, over = divmod(left, len(wanting))
    first = sorted(wanting, key=lambda each: (shares[each].turn, each))[:over]
    return shares[owner].wants - mine + each_gets + (owner in first)


def _shared(width: int, slots: LimitSlots, wish: Wish, alive: Collection[str]) -> LimitSlots:
    shares = {owner: share for owner, share in slots.shares.items() if owner in alive and owner != wish.owner}
    taken = sum(share.slots for share in shares.values())
    mine = slots.shares.get(wish.owner, Share())
    shares[wish.owner] = mine = replace(mine, wants=wish.wants)
    has = max(wish.in_use, min(fair_share(width, shares, wish.owner), width - taken))
    turns = slots.turns
    if has > mine.slots:
        turns += 1
        mine = replace(mine, turn=turns)
    shares[wish.owner] = replace(mine, slots=has)
    if not has and not wish.wants:
        del shares[wish.owner]
    return replace(slots, width=width, shares=shares, turns=turns)


# -- what is shown


class LimitShare(Struct, frozen=True, gc=False):
    """What one instance has of a limit: its slots, and how many it could use."""

    instance: str
    slots: int
    wants: int


class LimitStatus(Struct, frozen=True, gc=False):
    """How a limit stands: who has which of its slots. Without a `width` it is a rate alone."""

    name: str
    width: int | None
    shares: tuple[LimitShare, ...]

    @property
    def taken(self) -> int:
        """How many slots instances have."""
        return sum(share.slots for share in self.shares)


def status(name: str, slots: LimitSlots) -> LimitStatus:
    """The limit, as people see it."""
    shares = [LimitShare(instance_of(owner), each.slots, each.wants) for owner, each in slots.shares.items()]
    return LimitStatus(name, slots.width, tuple(sorted(shares, key=lambda share: share.instance)))

"""Searches: one index is walked in each shard, and what else is asked is compared with the rows that it leads to.

Rules
- The index is the one that holds the fewest candidates: counts cost a look each, however many there are.
- One in the order in which runs are listed is walked page by page, in all shards side by side, until enough are found.
  Members of a shard are taken only up to where every other shard has been read: so a page is the same whatever the
  shards, and a cursor is good on any of them.
- One in another order (a range, a prefix, an end) is read whole, and only if it is short.
- A page is no snapshot: rows are read after the index. A run that moves between the two is compared as it is then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from holdfast.kernel.runs import Run
from holdfast.kernel.searches import Condition, Search, matches
from holdfast.stores.redis import rows, scripts
from holdfast.stores.redis.rows import TOP, instant, safe, sortable
from holdfast.stores.redis.script_calls import Asks
from holdfast.stores.redis.shards import Shards

UNORDERED_MAX = 5_000
PAGE_MIN = 16
PAGE_MAX = 500


class Stretch(Struct, frozen=True, gc=False):
    """A stretch of the index. An ordered one ends in the places of its runs, in the order of lists."""

    low: bytes
    high: bytes
    ordered: bool


def place_of(member: str) -> tuple[str, str]:
    """When the run of this member was created, and its id."""
    _, created, run_id = member.rsplit("\0", 2)
    return created, run_id


class Searches:
    """How runs are found."""

    def __init__(self, asks: Asks, shards: Shards) -> None:
        self._asks = asks
        self._shards = shards

    async def search(self, search: Search) -> list[Run]:
        if search.statuses == frozenset() or search.limit < 1:
            return []
        choices = [list(choice) for choice in _choices(search)]
        counts = await self._counts(choices)
        short = [
            (count, number)
            for number, count in enumerate(counts)
            if choices[number][0].ordered or count <= UNORDERED_MAX
        ]
        _, best = min(short)
        stretches = choices[best]
        if not stretches[0].ordered:
            return await self._whole(search, stretches)
        return await self._walk(search, stretches)

    async def _counts(self, choices: list[list[Stretch]]) -> list[int]:
        counted = iter(await self._asks.count([(each.low, each.high) for choice in choices for each in choice]))
        return [sum(next(counted) for _ in choice) for choice in choices]

    async def _whole(self, search: Search, stretches: list[Stretch]) -> list[Run]:
        found: set[str] = set()
        bounds = [(each.low, each.high) for each in stretches]
        for reply in await self._asks.everywhere(scripts.RANGE, backwards=False, limit="-1", stretches=bounds):
            found |= {place_of(member)[1] for members in rows.items(reply) for member in rows.texts(members)}
        meant = [run for run in await self.rows(sorted(found)) if matches(search, run)]
        meant.sort(key=lambda run: (run.created_at_ms, run.id), reverse=search.newest_first)
        return meant[: search.limit]

    async def _walk(self, search: Search, stretches: list[Stretch]) -> list[Run]:
        backwards = search.newest_first
        shards = {shard: [_Walk(each) for each in stretches] for shard in self._shards.all}
        walks = [walk for walks in shards.values() for walk in walks]
        meant: list[Run] = []
        page = max(PAGE_MIN, min(PAGE_MAX, 2 * search.limit // max(1, len(walks))))
        while len(meant) < search.limit and any(not walk.is_over or walk.ahead for walk in walks):
            await self._feed(shards, page, backwards=backwards)
            found = await self.rows([run_id for _, run_id in _taken(walks, backwards=backwards)])
            meant += [run for run in found if matches(search, run)]
            page = min(PAGE_MAX, page * 2)
        return meant[: search.limit]

    async def _feed(self, shards: dict[int, list[_Walk]], page: int, *, backwards: bool) -> None:
        """Read on where nothing is left of what was read. Stretches of one shard are read at one instant."""
        hungry = {shard: [walk for walk in walks if walk.is_hungry] for shard, walks in shards.items()}
        hungry = {shard: walks for shard, walks in hungry.items() if walks}
        calls = [
            scripts.RANGE.call(
                self._shards.of_shard(shard),
                backwards=backwards,
                limit=str(page),
                stretches=[walk.bounds(backwards=backwards) for walk in walks],
            )
            for shard, walks in hungry.items()
        ]
        for walks, reply in zip(hungry.values(), await self._asks.ask(calls), strict=True):
            for walk, members in zip(walks, rows.items(reply), strict=True):
                walk.take(rows.texts(members), page, backwards=backwards)

    async def rows(self, run_ids: Sequence[str]) -> list[Run]:
        """Those that are there, in this order."""
        return [run for run in await self._asks.rows(run_ids) if run is not None]


class _Walk:
    """How far a stretch has been read in one shard, and what was read and not yet taken."""

    def __init__(self, stretch: Stretch) -> None:
        self.ahead: list[tuple[str, str]] = []
        self.is_over = False
        self._low, self._high = stretch.low, stretch.high

    @property
    def is_hungry(self) -> bool:
        return not self.is_over and not self.ahead

    def bounds(self, *, backwards: bool) -> tuple[bytes, bytes]:
        return (self._high, self._low) if backwards else (self._low, self._high)

    def take(self, members: list[str], page: int, *, backwards: bool) -> None:
        self.ahead = [place_of(member) for member in members]
        self.is_over = len(members) < page
        if members:
            beyond = b"(" + members[-1].encode()
            self._low, self._high = (self._low, beyond) if backwards else (beyond, self._high)


def _taken(walks: list[_Walk], *, backwards: bool) -> list[tuple[str, str]]:
    """What may be listed now: places behind which no shard can have anything that comes before them."""
    limits = [walk.ahead[-1] for walk in walks if not walk.is_over and walk.ahead]
    limit = (max(limits) if backwards else min(limits)) if limits else None
    taken: list[tuple[str, str]] = []
    for walk in walks:
        here = [place for place in walk.ahead if limit is None or (place >= limit if backwards else place <= limit)]
        walk.ahead = walk.ahead[len(here) :]
        taken += here
    return sorted(taken, reverse=backwards)


# -- which stretches lead to what is meant


def _choices(search: Search) -> Iterator[list[Stretch]]:
    namespace = safe(search.namespace)
    yield [_listed(f"c\0{namespace}\0", search)]
    if search.workflow is not None:
        yield [_listed(f"f\0{namespace}\0{safe(search.workflow)}\0", search)]
    if search.statuses is not None:
        yield [_listed(f"s\0{namespace}\0{status}\0", search) for status in sorted(search.statuses)]
    for condition in search.conditions:
        yield [_of_attribute(namespace, condition, search)]
    if search.key_prefix:
        prefix = f"k\0{namespace}\0{safe(search.key_prefix)}".encode()
        yield [Stretch(b"[" + prefix, b"(" + prefix + TOP, ordered=False)]
    if search.finished.is_set:
        prefix = f"e\0{namespace}\0"
        low, high = search.finished.since_ms, search.finished.until_ms
        yield [
            Stretch(
                f"[{prefix}{'' if low is None else instant(low)}".encode(),
                b"(" + prefix.encode() + (TOP if high is None else instant(high).encode()),
                ordered=False,
            )
        ]


def _listed(prefix: str, search: Search) -> Stretch:
    """The members that begin so, within the span of creation and behind the cursor."""
    since_ms, until_ms = search.created.since_ms, search.created.until_ms
    low = f"[{prefix}{'' if since_ms is None else instant(since_ms)}".encode()
    high = b"(" + prefix.encode() + (TOP if until_ms is None else instant(until_ms).encode())
    if search.after is not None:
        created_at_ms, run_id = search.after
        here = f"({prefix}{instant(created_at_ms)}\0{run_id}".encode()
        if search.newest_first:
            high = min(high, here, key=lambda bound: bound[1:])
        else:
            low = max(low, here, key=lambda bound: bound[1:])
    return Stretch(low, high, ordered=True)


def _of_attribute(namespace: str, condition: Condition, search: Search) -> Stretch:
    prefix = f"a\0{namespace}\0{condition.name}\0{condition.kind}\0"
    if condition.is_equality and condition.low is not None:
        return _listed(f"{prefix}{sortable(condition.low)}\0", search)
    # The bounds themselves are always in: neighbours may sort as the same float, and rows are compared anyway.
    low = f"[{prefix}{'' if condition.low is None else sortable(condition.low)}".encode()
    high = b"(" + prefix.encode() + (b"" if condition.high is None else sortable(condition.high).encode()) + TOP
    return Stretch(low, high, ordered=False)

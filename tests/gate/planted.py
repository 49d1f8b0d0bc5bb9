"""Bugs to plant in the replicas of the gate, each with the scenario that has to find it and the violation it is.

`docs/internals/gate.md` shows this table; a test holds the two together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from heapq import heappush
from typing import Any, NamedTuple

from msgspec.structs import replace

from holdfast.engine.api import apikeys
from holdfast.engine.code import machine, pending
from holdfast.engine.duties import leaders as engine_leaders, relay, rescuer
from holdfast.engine.runs import loaded_run
from holdfast.gateway import streams
from holdfast.kernel import hooks, leaders, transitions
from holdfast.kernel.changes import Change
from holdfast.kernel.journal import Performed
from holdfast.stores.redis import leases, outbox, rows, scripts, searches, store
from holdfast.stores.redis.net import confirmations
from holdfast.stores.redis.net.calls import LuaSource
from holdfast.stores.redis.outbox import Delivered

Plant = Callable[[], AbstractContextManager[None]]


class Planted(NamedTuple):
    """A bug. `kind` is the violation that belongs to it; `core` says whether `make test` plants it."""

    words: str
    scenario: str
    kind: str
    plant: Plant
    core: bool = False


def table() -> str:
    """All of them, as the page of the documentation shows them."""
    rows = [
        f"| {bug.words} | `{bug.scenario}` | `{bug.kind}` | {'yes' if bug.core else ''} |" for bug in PLANTED.values()
    ]
    return "\n".join(["| planted bug | scenario | found as | in `make test` |", "|---|---|---|---|", *rows])


# -- how bugs are planted


def lua(**changes: Sequence[tuple[str, str]]) -> Plant:
    """Scripts in which each of these texts stands for another one. They must be there: a script may have changed."""

    @contextmanager
    def planted() -> Generator[None]:
        with ExitStack() as stack:
            for name, texts in changes.items():
                script: LuaSource = getattr(scripts, name)
                source = script.source.decode()
                for old, new in texts:
                    assert old in source, f"{name} has no {old!r} any more: plant the bug in another way"
                    source = source.replace(old, new)
                stack.enter_context(_set(script, source=source.encode(), sha=LuaSource(source).sha))
            yield

    return planted


def code(owner: object, **changes: Any) -> Plant:
    """Attributes of a class or a module that are something else."""
    return lambda: _set(owner, **changes)


def all_of(*plants: Plant) -> Plant:
    @contextmanager
    def planted() -> Generator[None]:
        with ExitStack() as stack:
            for plant in plants:
                stack.enter_context(plant())
            yield

    return planted


@contextmanager
def _set(owner: object, **changes: Any) -> Generator[None]:
    before = {name: getattr(owner, name) for name in changes}
    for name, value in changes.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


# -- what is planted

PROGRESS_FENCE = [("epoch_now ~= epoch or nonce_now ~= nonce or length_now ~= position", "false")]
SETTLE_FENCE = [("row.e ~= epoch or row.n ~= nonce or row.l ~= position", "false")]
TWO_SECONDS_MS = 2_000


_recently = apikeys.ApiKeys._recently


async def _believe_for_days(self: apikeys.ApiKeys, id: str) -> Any:
    self._pace = replace(self._pace, api_key_ms=10**9)
    return await _recently(self, id)


async def _nothing(*_: object) -> Any:
    return None


async def _idle(_: object) -> float:
    return 1.0


async def _all_owners(self: leases.Leases, _: object = None) -> list[str]:
    parts = await self._asks.everywhere(scripts.FIRSTS, prefix=b"o\0")
    owners = {part for reply in parts for part in rows.texts(reply)}
    return await self.end(sorted(owners)) if owners else []


async def _unmarked(self: confirmations.Confirmations, node: Any, wanted: int, topology: object) -> int:
    connection = node.connection("waits") or await node.connect("waits")
    words = confirmations.packed(b"WAIT", wanted, self._pace.confirm_ms)
    [confirmed] = await connection.request(words, 1, 5.0)
    return confirmed


async def _received(*_: object) -> Delivered:
    return Delivered(received=True)


def _bid(duty: str, found: Any, holder: Any, *, now_ms: int, ttl_ms: int) -> Any:
    return leaders._writing(duty, found, holder, now_ms=now_ms, until_ms=now_ms + ttl_ms)


_take_due = pending.Pending.take_due
_replaying, _replayed = loaded_run.LoadedRun.replaying, loaded_run.replaying
_change = transitions._change
_cursor = streams._cursor
_default_key = machine.Machine._default_key
_signal = hooks.signal
_messages_of = rows.messages_of


def _due_at_once(self: loaded_run.LoadedRun) -> Iterator[None]:
    yield from _replaying(self)
    if self.run.epoch > 1:
        for step in self.machine.pending.timers:
            heappush(self.machine.pending._due, (0, 0, step))


def _forgetful(replayed: Any, run: Any, journal: Any) -> Iterator[None]:
    kept = [entry for entry in journal if not (isinstance(entry, Performed) and run.epoch > 1)]
    return _replayed(replayed, run, tuple(kept))


def _one_more(self: loaded_run.LoadedRun) -> Iterator[None]:
    yield from _replaying(self)
    for command in self.machine.open.values():
        command.failures += self.run.epoch > 1


def _shifted(by: int) -> Callable[[Any], int | None]:
    return lambda asked: None if (seen := _cursor(asked)) is None else max(0, seen + by)


def _nameless(before: Any, *rest: Any) -> Change:
    change = _change(before, *rest)
    change_id = change.id.replace(f".{before.nonce}.", ".")
    return replace(change, id=change_id, run=None if change.run is None else replace(change.run, change_id=change_id))


EARLY = [("math.max(server_now, client_now)", f"math.max(server_now, client_now) + {TWO_SECONDS_MS}")]
PLANTED = {
    "fence": Planted(
        "the fence is not checked at all",
        "zombies",
        "recorded_twice",
        lua(PROGRESS=PROGRESS_FENCE, SETTLE=SETTLE_FENCE),
        core=True,
    ),
    "fence-progress": Planted(
        "the fence is checked where a run ends, and not where it goes on",
        "zombies",
        "recorded_twice",
        lua(PROGRESS=PROGRESS_FENCE),
    ),
    "fence-end": Planted(
        "the fence is checked where a run goes on, and not where it ends",
        "zombies",
        "rewritten",
        lua(SETTLE=SETTLE_FENCE),
    ),
    "fence-nonce": Planted(
        "the fence is half checked: the epoch, and not the nonce; nor does a change name its holder",
        "amnesia",
        "wrong_result",
        all_of(
            lua(PROGRESS=[("nonce_now ~= nonce", "false")], SETTLE=[("row.n ~= nonce", "false")]),
            code(transitions, _change=_nameless),
        ),
    ),
    "leaders-bid": Planted(
        "two leaders: every process that bids for a duty takes it, though another process leads",
        "leaders",
        "two_leaders",
        code(leaders, bid=_bid),
    ),
    "leaders-always": Planted(
        "two leaders: every scheduler holds itself for the leader",
        "leaders",
        "two_leaders",
        code(engine_leaders.Leaders, leads=lambda *_: True),
        core=True,
    ),
    "leaders-version": Planted(
        "two leaders: a lease is renewed though another process has taken it since",
        "leaders",
        "two_leaders",
        lua(
            WRITE_DOCUMENT=[
                ("replaces ~= (lives and old_version or '')", "false"),
                ("stored and tonumber(version) <= tonumber(old_version)", "false"),
            ]
        ),
    ),
    "rescuer-live": Planted(
        "the rescuer frees the runs of live workers",
        "timers",
        "lease_taken",
        code(leases.Leases, end_fallen=_all_owners),
        core=True,
    ),
    "rescuer-idle": Planted(
        "the rescuer rescues nothing", "timers", "not_completed", code(rescuer.Rescuer, tick=_idle)
    ),
    "relay-idle": Planted(
        "the outbox is never relayed", "crossings", "not_completed", code(relay.Relay, tick=_idle), core=True
    ),
    "untold": Planted(
        "the end of a child is not told to its parent",
        "departures",
        "not_completed",
        lua(SETTLE=[("if ends and not was_over then", "if false then")]),
    ),
    "unread": Planted(
        "a run ends over an unread signal",
        "talks",
        "signal_lost",
        lua(SETTLE=[("(ends and unread > 0 and row.f == '')", "false")]),
        core=True,
    ),
    "dedupe": Planted(
        "the dedupe id of a signal does not count",
        "talks",
        "signal_twice",
        code(hooks, signal=lambda hook, payload, *, dedupe, **more: _signal(hook, payload, dedupe=None, **more)),
    ),
    "order": Planted(
        "unread signals are read in the wrong order",
        "talks",
        "signal_order",
        code(rows, messages_of=lambda flat: _messages_of(flat)[::-1]),
    ),
    "token": Planted(
        "a signal to a token is acknowledged as received, and no run has it",
        "talks",
        "signal_lost",
        code(outbox.Outbox, signal=_received),
    ),
    "attributes-old": Planted(
        "a run is found by attributes that it no longer has",
        "talks",
        "found_wrongly",
        all_of(
            lua(SETTLE=[("ipairs(row.ax ~= '' and cmsgpack.unpack(row.ax) or {})", "ipairs({})")]),
            code(searches, matches=lambda *_: True),
        ),
    ),
    "attributes-new": Planted(
        "a run is not found by the attributes that it has",
        "talks",
        "not_found",
        lua(SETTLE=[("ipairs(cmsgpack.unpack(attributes))", "ipairs({})")]),
    ),
    "timers-store": Planted(
        "delayed runs are handed out two seconds early",
        "timers",
        "timer_early",
        lua(READY=EARLY, TAKE=EARLY),
    ),
    "timers-engine": Planted(
        "timers elapse two seconds early",
        "timers",
        "timer_early",
        code(pending.Pending, take_due=lambda self, now_ms: _take_due(self, now_ms + TWO_SECONDS_MS)),
        core=True,
    ),
    "timers-takeover": Planted(
        "a timer that is pending is due at once when its run is taken over",
        "timers",
        "timer_early",
        code(loaded_run.LoadedRun, replaying=_due_at_once),
    ),
    "wait": Planted(
        "the confirmation of replicas (WAIT) is ignored",
        "confirmations",
        "unconfirmed",
        code(confirmations.Confirmations, confirm=_nothing),
        core=True,
    ),
    "wait-mark": Planted(
        "WAIT is sent without its mark",
        "confirmations",
        "unconfirmed",
        code(confirmations.Confirmations, _confirm_at=_unmarked),
    ),
    "events-skipped": Planted(
        "a stream of events that is continued skips one",
        "streams",
        "event_missed",
        code(streams, _cursor=_shifted(1)),
        core=True,
    ),
    "events-repeated": Planted(
        "a stream of events that is continued repeats one",
        "streams",
        "event_repeated",
        code(streams, _cursor=_shifted(-1)),
    ),
    "sigterm": Planted(
        "SIGTERM gives nothing back",
        "departures",
        "not_given_back",
        code(store.RedisStore, leave=_nothing),
        core=True,
    ),
    "revoked": Planted(
        "a gateway remembers forever what it knows of API keys",
        "revocations",
        "revoked_key",
        code(apikeys.ApiKeys, _recently=_believe_for_days, forget=lambda _: None),
        core=True,
    ),
    "key": Planted(
        "a key that is taken does not keep a second run out",
        "departures",
        "two_runs",
        lua(ADMIT=[("key ~= '' and redis.call('HGET', names, key)", "false")]),
    ),
    "unrecorded": Planted(
        "what a run has done is committed, and is not in its journal",
        "departures",
        "not_recorded",
        lua(PROGRESS=[("redis.call('RPUSH', journal, entries)", "")]),
    ),
    "effect-key": Planted(
        "another process gives an effect another key",
        "zombies",
        "another_key",
        code(machine.Machine, _default_key=lambda self, step: f"{_default_key(self, step)}/{os.getpid()}"),
    ),
    "attempt": Planted(
        "a takeover uses up an attempt",
        "timers",
        "attempt_used",
        code(loaded_run.LoadedRun, replaying=_one_more),
    ),
    "replay": Planted(
        "a run that is taken over performs again what is recorded",
        "timers",
        "called_after_record",
        code(loaded_run, replaying=_forgetful),
    ),
}

"""Flow rules: rates and lines live in the shard of their name, and a run asks there before it is admitted.

    before the admission    takes of its rate, once; gets the tag of its share
    with the admission      its row has the wake-up that the rate says; its tag is noted behind it, in the same shard
    after it                gives back what it has no use for, if no run of its was admitted

Rules
- A process that dies in between leaves a rate that is used a little less than it might be, or a tag that no run has.
- A run without a tag goes by its time, and one whose tag is left over from before is found not to be claimable, and
  taken out of its line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.kernel import fairness, throttles
from holdfast.kernel.changes import Change
from holdfast.kernel.fairness import FairTurn
from holdfast.kernel.runs import Run
from holdfast.kernel.times import Instant
from holdfast.stores.redis import rows, scripts
from holdfast.stores.redis.net.client import Reply, ScriptCall
from holdfast.stores.redis.script_calls import Asks
from holdfast.stores.redis.shards import Shards

RATE_KEPT_MS = 60_000  # beyond when it has come due
LINE_KEPT_MS = 24 * 3_600_000  # after the last start or claim


class InTurn(NamedTuple):
    """Runs that may be claimed, in the order in which they go, and how those of them stand that take turns."""

    waking: list[rows.Waking]
    turns: Mapping[str, rows.TaggedRun]


class RedisRules:
    """What is known of rates, and of runs that take turns."""

    def __init__(
        self, asks: Asks, shards: Shards, *, instant: Callable[[], bytes], now_ms: Callable[[], Instant]
    ) -> None:
        self._asks = asks
        self._shards = shards
        self._instant = instant
        self._now_ms = now_ms

    # -- admissions

    async def ask(self, changes: Sequence[Change]) -> dict[str, RuleReply]:
        """What the rules say about the runs of these changes."""
        throttled = [change for change in changes if change.takes is not None]
        late = await self._asks.ask(list(map(self._take_call, throttled)), writes=True) if throttled else []
        asked: dict[str, RuleReply] = {}
        for change, reply in zip(throttled, late, strict=True):
            assert change.run is not None
            goes_at_ms, is_repeated = rows.numbers(reply)
            run = throttles.late(change.run, Instant(goes_at_ms), now_ms=self._now_ms())
            asked[change.id] = RuleReply(run, has_taken=bool(is_repeated))
        fair = [change for change in changes if change.shares]
        calls = [self._stand_call(change, asked) for change in fair]
        for change, tag in zip(fair, await self._asks.ask(calls, writes=True) if calls else [], strict=True):
            assert isinstance(tag, int)
            before = asked.get(change.id, RuleReply(_run_of(change, asked)))
            asked[change.id] = before._replace(tag=tag)
        return asked

    def _take_call(self, change: Change) -> ScriptCall:
        assert change.run is not None
        assert change.takes is not None
        rate = change.takes.rate
        return scripts.TAKE_RATE.call(
            {"rate": self._shards.rule(b"rate", change.run.namespace, change.takes.name)},
            now=self._instant(),
            id=change.run.id,
            burst_us=rate.tolerance_us,
            cost_us=change.takes.cost * rate.interval_us,
            kept_ms=RATE_KEPT_MS,
        )

    def _stand_call(self, change: Change, asked: Mapping[str, RuleReply]) -> ScriptCall:
        run = _run_of(change, asked)
        has_begun = run.owner is not None
        keys = self._line(run)
        return scripts.STAND_IN_LINE.call(keys, share=_field(change), has_begun=has_begun, kept_ms=LINE_KEPT_MS)

    def _line(self, run: Run) -> dict[str, bytes]:
        return {"line": self._shards.rule(b"line", run.namespace, f"{run.priority}\0{run.workflow}")}

    def tag_calls(self, changes: Sequence[Change], asked: Mapping[str, RuleReply]) -> list[ScriptCall]:
        """What notes the tags of runs, right behind their admissions and in the same shards."""
        calls: list[ScriptCall] = []
        for change in changes:
            found = asked.get(change.id)
            if found is not None and found.tag is not None and found.run.wake_at_ms is not None:
                run_id = found.run.id
                keys = {"index": self._shards.index(self._shards.of_run(run_id))}
                keys["run"] = self._shards.part(b"run", run_id)
                calls.append(scripts.TAG.call(keys, member=rows.turn_member(found.run, found.tag), share=change.shares))
        return calls

    async def give_back(
        self, changes: Mapping[str, bool], asked: Mapping[str, RuleReply], *, of: Sequence[Change]
    ) -> None:
        """Give back what has no use: for changes that admitted no run by this offer. True: they had done so before."""
        calls: list[ScriptCall] = []
        for change in (change for change in of if change.id in changes):
            found = asked[change.id]
            was_admitted = changes[change.id]
            if change.takes is not None and not (was_admitted and found.has_taken):
                rate = {"rate": self._shards.rule(b"rate", found.run.namespace, change.takes.name)}
                cost_us = change.takes.cost * change.takes.rate.interval_us
                calls.append(scripts.GIVE_BACK_RATE.call(rate, id=found.run.id, cost_us=cost_us))
            if found.tag is not None:
                calls.append(scripts.LEAVE_LINE.call(self._line(found.run), share=_field(change), tag=found.tag))
        if calls:
            await self._asks.ask(calls, writes=True)

    # -- claims

    async def in_turn(self, replies: Sequence[Reply], limit: int) -> InTurn:
        """What the shards say is ready, in the order in which it goes."""
        members = [member for reply in replies for member in rows.texts(reply)]
        waking = sorted(rows.waking_of(each) for each in members if each[0] == "w")
        waking.sort(key=lambda each: each[1])
        turns = sorted(rows.turn_of(member) for member in members if member[0] == "t")
        if not turns:
            return InTurn([each for _, each in waking][:limit], {})
        by_line = {line: list(each) for line, each in groupby(sorted(turns, key=lambda t: t.line), lambda t: t.line)}
        known = {turn.run_id: turn for turn in turns}
        listed = [each for workflow, each in waking if (workflow, each.rank) in by_line and each.run_id not in known]
        tagged = await self._tagged([each.run_id for each in listed])
        going: dict[tuple[str, str], list[str]] = {}
        for line, in_line in by_line.items():
            ready = [each.run_id for workflow, each in waking if (workflow, each.rank) == line]
            count = sum(run_id in known or run_id in tagged for run_id in ready)
            first = [turn.run_id for turn in sorted(in_line)]
            # Those that are out of line by now, as another process has claimed them, keep their places.
            tags = [(run_id, 0 if run_id in known or run_id in tagged else None) for run_id in ready]
            going[line] = fairness.by_turn(tags, [*first, *(each for each in ready if each not in known)][:count])
        places = {line: iter(each) for line, each in going.items()}
        found = [
            replace(each, run_id=next(places[workflow, each.rank])) if (workflow, each.rank) in places else each
            for workflow, each in waking
        ]
        return InTurn(found[:limit], known)

    async def _tagged(self, run_ids: Sequence[str]) -> frozenset[str]:
        """Those of the runs that take turns."""
        calls = [scripts.FIELD.call({"hash": self._shards.part(b"run", run_id)}, field="tg") for run_id in run_ids]
        replies = await self._asks.ask(calls) if calls else []
        return frozenset(run_id for run_id, reply in zip(run_ids, replies, strict=True) if reply is not None)

    async def begin(self, claimed: Sequence[Run], offered: Sequence[str], turns: Mapping[str, rows.TaggedRun]) -> None:
        """Those that were offered are out of their lines, as far as they were claimed or cannot be."""
        calls: list[ScriptCall] = []
        for run_id in offered:
            if (turn := turns.get(run_id)) is not None:
                keys = {"index": self._shards.index(self._shards.of_run(run_id))}
                keys["run"] = self._shards.part(b"run", run_id)
                calls.append(scripts.UNTAG.call(keys, member=turn.member))
        calls += [
            scripts.REACH.call(self._line(run), tag=turns[run.id].tag, kept_ms=LINE_KEPT_MS)
            for run in claimed
            if run.id in turns
        ]
        if calls:
            await self._asks.ask(calls, writes=True)

    async def turn(self, run: Run) -> FairTurn | None:
        """Where the run stands in its line; None if it stands in none."""
        keys = {"hash": self._shards.part(b"run", run.id)}
        member, share = await self._asks.ask([scripts.FIELD.call(keys, field=name) for name in ("tg", "sh")])
        if member is None or share is None or run.wake_at_ms is None:
            return None
        low = f"[t{rows.wake_prefix(run)[1:]}".encode()
        [ahead] = await self._asks.count([(low, b"(" + rows.text(member).encode())])
        return FairTurn(rows.text(share), ahead)


class RuleReply(NamedTuple):
    """What the rules say about a run that is to be admitted: its row, and its tag if it takes turns."""

    run: Run
    tag: int | None = None
    has_taken: bool = False  # it had taken of its rate before


def _run_of(change: Change, asked: Mapping[str, RuleReply]) -> Run:
    assert change.run is not None
    return asked[change.id].run if change.id in asked else change.run


def _field(change: Change) -> str:
    """The field of a share in its line."""
    return f"s\0{change.shares}"

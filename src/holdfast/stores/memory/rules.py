"""The flow rules of the memory store: dictionaries, and what `throttles` and `fairness` say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.kernel import fairness, throttles
from holdfast.kernel.changes import Change
from holdfast.kernel.fairness import FairLine, FairTurn
from holdfast.kernel.rates import Micros, Taking
from holdfast.kernel.runs import Run
from holdfast.kernel.times import EPOCH, Instant
from holdfast.stores.memory.tables import Tables


class MemoryRules:
    """What is known of rates, and of runs that take turns."""

    def __init__(self, tables: Tables, now_ms: Callable[[], Instant]) -> None:
        self._tables = tables
        self._now_ms = now_ms

    def admit(self, change: Change, run: Run) -> Run:
        """The row of the run that is admitted now, as the rules have it."""
        if change.takes is not None:
            run = self._take(change.takes, run)
        if change.shares:
            self._stand_in_line(run, change.shares)
        return run

    def _take(self, taking: Taking, run: Run) -> Run:
        name = run.namespace, taking.name
        due_at_us = self._tables.rates.get(name, Micros(0))
        self._tables.rates[name], run = throttles.take(taking, run, due_at_us, now_ms=self._now_ms())
        return run

    def _stand_in_line(self, run: Run, share: str) -> None:
        line = line_of(run)
        reached, next_tag = self._tables.reached.get(line, 0), self._tables.next_tags.get((line, share), 0)
        tag, self._tables.next_tags[line, share] = fairness.enter(reached=reached, next_tag=next_tag)
        if run.owner is None:
            self._tables.tags[run.id] = tag, share
        else:
            self._tables.reached[line] = max(reached, tag)

    def in_turn(self, ready: Sequence[Run]) -> list[Run]:
        """Runs that may be claimed, in the order in which they go. They come in the order of their times."""
        lines: dict[FairLine, list[Run]] = {}
        for run in ready:
            lines.setdefault(line_of(run), []).append(run)
        going = {line: iter(self._in_line(runs)) for line, runs in lines.items()}
        return [self._tables.runs[next(going[line_of(run)])] for run in ready]

    def _in_line(self, ready: list[Run]) -> list[str]:
        with_tags = [run for run in ready if run.id in self._tables.tags]
        with_tags.sort(key=lambda run: (self._tables.tags[run.id][0], run.wake_at_ms, run.id))
        tags = [(run.id, self._tables.tags[run.id][0] if run.id in self._tables.tags else None) for run in ready]
        return fairness.by_turn(tags, [run.id for run in with_tags])

    def claim(self, run: Run) -> None:
        """The run begins: its line has arrived at its tag."""
        known = self._tables.tags.pop(run.id, None)
        if known is not None:
            line = line_of(run)
            self._tables.reached[line] = max(self._tables.reached.get(line, 0), known[0])

    def turn(self, run: Run) -> FairTurn | None:
        """Where the run stands in its line; None if it stands in none."""
        known = self._tables.tags.get(run.id)
        if known is None or run.wake_at_ms is None:
            return None
        tag, share = known
        waking = (self._tables.runs[run_id] for run_id in self._tables.waking)
        before = [
            each
            for each in waking
            if each.id in self._tables.tags
            and line_of(each) == line_of(run)
            and (each.wake_at_ms or EPOCH) <= self._now_ms()
            and (self._tables.tags[each.id][0], each.wake_at_ms or EPOCH) < (tag, run.wake_at_ms)
        ]
        return FairTurn(share, len(before))

    def forget(self) -> None:
        """Forget rates that have come due, and shares that stand where their line has arrived."""
        tables, now_us = self._tables, self._now_ms() * 1000
        for name in [name for name, due_at_us in tables.rates.items() if due_at_us <= now_us]:
            del tables.rates[name]
        standing = {line_of(tables.runs[run_id]) for run_id in tables.tags if run_id in tables.waking}
        for line, reached in list(tables.reached.items()):
            up_to = fairness.forgotten_up_to(reached, is_empty=line not in standing)
            for place, next_tag in list(tables.next_tags.items()):
                if place[0] == line and (up_to is None or next_tag <= up_to):
                    del tables.next_tags[place]
            if up_to is None:
                del tables.reached[line]


def line_of(run: Run) -> FairLine:
    return FairLine(run.namespace, run.workflow, run.priority)

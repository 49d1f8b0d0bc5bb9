"""The seeds of a campaign on one process or on several, until all are done or it is to stop.

Ctrl-C lets the batches that have begun come to their end, so that what they found is told. A second one ends all at
once.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from types import FrameType, TracebackType
from typing import Any, Self

from tests.simulation.campaigns import Tally, collecting_by_hand, run_seed, run_seeds

BATCH = 20
AHEAD = 2  # batches that each process has been given
LOOK_SECONDS = 0.5  # whether it is to stop


class StopOnInterrupt:
    """Notes a Ctrl-C within its block, instead of raising in the middle of a world."""

    def __init__(self) -> None:
        self.is_set = False
        self._former: Any = None

    def __enter__(self) -> Self:
        self._former = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._former)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.is_set = True
        signal.signal(signal.SIGINT, self._former)


def tallies(seeds: range, jobs: int, stop: StopOnInterrupt) -> Iterator[Tally]:
    """What came of the seeds, in parts; fewer of them if it is to stop."""
    yield from (_here(seeds, stop) if jobs == 1 else _spread(seeds, jobs, stop))


def _here(seeds: range, stop: StopOnInterrupt) -> Iterator[Tally]:
    with collecting_by_hand():
        for seed in seeds:
            if stop.is_set:
                return
            yield run_seed(seed)


def _spread(seeds: range, jobs: int, stop: StopOnInterrupt) -> Iterator[Tally]:
    batches = iter([seeds[at : at + BATCH] for at in range(0, len(seeds), BATCH)])
    under_way: set[Future[Tally]] = set()
    with ProcessPoolExecutor(jobs, initializer=_begin_process) as pool:
        while True:
            while not stop.is_set and len(under_way) < AHEAD * jobs and (batch := next(batches, None)) is not None:
                under_way.add(pool.submit(_batch, batch))
            if not under_way:
                return
            done, under_way = wait(under_way, LOOK_SECONDS, FIRST_COMPLETED)
            for part in done:
                yield part.result()


def _begin_process() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all of them


def _batch(seeds: range) -> Tally:
    with collecting_by_hand():
        return run_seeds(seeds)

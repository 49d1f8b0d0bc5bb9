"""Where the time of a load goes, by samples: shares only, since times are true of one machine.

`python -m bench.profile.samples W1 --size 5000 --out FILE` keeps them as JSON.

A timer interrupts the thread of the event loop every millisecond, between two of its instructions. What that thread has
used of a processor since the last time counts for the function that it is in; what other threads have used counts for
the store, whose thread is the one that works. So it does not matter how late a sample comes, and no thread has to be
stopped, or has to ask for the GIL, to be looked at. What the sampler takes itself counts for nothing.

What Python's collector takes is measured and not sampled: a sample could not tell it from the code it interrupts.
"""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import FrameType

import msgspec

from bench.profile.causes import ACCOUNT, ASYNCIO, COLLECTOR, STORE, UPKEEP, own_cause
from bench.profile.load import drive, wanted

INTERVAL_S = 0.001
# The time, the processor time of the process, and that of this thread, in nanoseconds.
Clocks = Callable[[], tuple[int, int, int]]


def _clocks() -> tuple[int, int, int]:
    return time.perf_counter_ns(), time.process_time_ns(), time.thread_time_ns()


class Times(msgspec.Struct):
    """Shares of the processor time by cause, and shares of the whole time by who was executing."""

    causes: dict[str, float]
    loop: float  # the thread of the event loop, alone or not
    writer: float  # the others, and not that one
    neither: float
    samples: int


class Sampler:
    """Samples between `begin` and `end`, which are called in the main thread, as is the event loop."""

    def __init__(self, clocks: Clocks = _clocks) -> None:
        self._clocks = clocks
        self.times: Times | None = None
        self._spent: Counter[str] = Counter()
        self._alone: Counter[str] = Counter()
        self._samples = 0
        self._main = threading.get_ident()
        self._collecting_since = 0
        self._collected: Counter[bool] = Counter()  # in the main thread, and in others

    def begin(self) -> None:
        gc.callbacks.append(self._on_collection)
        signal.signal(signal.SIGALRM, self._on_timer)
        signal.siginterrupt(signal.SIGALRM, False)  # calls that the timer interrupts go on by themselves
        self._go_on()

    def end(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._sample(None)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        gc.callbacks.remove(self._on_collection)
        accounted = {cause.name: self._spent[cause.name] for cause in ACCOUNT}
        whole = sum(self._alone.values())
        self.times = Times(
            {name: spent / sum(accounted.values()) for name, spent in accounted.items()},
            *(self._alone[who] / whole for who in ("loop", "writer", "neither")),
            self._samples,
        )

    def _on_timer(self, _number: int, frame: FrameType | None) -> None:
        self._samples += 1
        self._sample(frame)
        self._go_on()

    def _go_on(self) -> None:
        self._collected.clear()
        self._last = self._clocks()
        # Set each time: a timer that repeats would interrupt a sample that takes long, and so on without end.
        # It may come at once, so the rest is done before.
        signal.setitimer(signal.ITIMER_REAL, INTERVAL_S)

    def _sample(self, frame: FrameType | None) -> None:
        wall, process, loop = (now - before for now, before in zip(self._clocks(), self._last, strict=True))
        others = max(0, process - loop)
        collected, collected_by_others = min(self._collected[True], loop), min(self._collected[False], others)
        self._spent[cause_at(frame)] += loop - collected
        self._spent[STORE.name] += others - collected_by_others
        self._spent[COLLECTOR.name] += collected + collected_by_others
        idle = max(0, wall - loop)
        self._alone["loop"] += min(loop, wall)
        self._alone["writer"] += min(others, idle)
        self._alone["neither"] += max(0, idle - others)

    def _on_collection(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_since = time.thread_time_ns()
        elif self._collecting_since:
            took = time.thread_time_ns() - self._collecting_since
            self._collected[threading.get_ident() == self._main] += took


def cause_at(frame: FrameType | None) -> str:
    """The cause of the code in which this frame is. With no frame of ours, the event loop of the process is at work."""
    causes: list[str] = []
    while frame is not None:
        cause = own_cause(frame.f_code)
        if cause is not None:
            causes.append(cause.name)
        frame = frame.f_back
    if UPKEEP.name in causes:
        return UPKEEP.name
    return causes[0] if causes else ASYNCIO.name


def sample(contender: str, workload: str, size: int) -> Times:
    """Where the time of a load of this size goes, in this process."""
    sampler = Sampler()
    drive(contender, workload, size, begin=sampler.begin, end=sampler.end)
    assert sampler.times is not None
    return sampler.times


def main() -> None:
    told = wanted(__doc__)
    found = sample(told.contender, told.workload, told.size)
    if told.out is not None:
        told.out.write_bytes(msgspec.json.encode(found))


if __name__ == "__main__":
    main()

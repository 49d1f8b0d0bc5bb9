"""The machine's own clock, and chance from the operating system. The only module that reads either."""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

from holdfast.kernel.times import EPOCH, Instant, Steady


class SystemClock:
    """Wall clock and boot clock of this machine."""

    def wall_ms(self) -> Instant:
        return Instant(time.time_ns() // 1_000_000)

    def steady_ms(self) -> Steady:
        return time.clock_gettime_ns(_STEADY) / 1e6  # pyright: ignore[reportReturnType] - read often: no call for a name

    def boot_id(self) -> str:
        # Where the kernel does not name its start, the start itself does, to the minute: steps of the wall
        # clock then count as another boot, which only means that the store's clock is set again.
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except OSError:
            return f"started-{(self.wall_ms() - float(self.steady_ms())) // 60_000:.0f}"

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


# CLOCK_BOOTTIME goes on while the machine is suspended; not every system has it.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


_random = random.Random(os.urandom(32))
# A forked child must not draw what its parent draws.
os.register_at_fork(after_in_child=lambda: _random.seed(os.urandom(32)))


class SystemIds:
    """Ids that sort by time and nonces that no other process draws."""

    _last_ms = EPOCH
    _last_drawn = 0

    def run_id(self, now_ms: Instant) -> str:
        # Runs of one millisecond are listed in the order of their starts, too.
        above = self._last_drawn + 1 if now_ms == self._last_ms else _random.getrandbits(79)
        drawn = above + _random.getrandbits(40)
        self._last_ms, self._last_drawn = now_ms, drawn
        return (now_ms << 80 | drawn).to_bytes(16).hex()

    def nonce(self) -> str:
        return _random.getrandbits(128).to_bytes(16).hex()

    def chance(self) -> float:
        return _random.random()

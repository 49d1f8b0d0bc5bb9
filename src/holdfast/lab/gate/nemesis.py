"""The nemesis: does harm to processes, and writes down what it did before it does it."""

from __future__ import annotations

import asyncio
import signal

from holdfast.errors import TransientError
from holdfast.lab.gate.cluster import GateCluster
from holdfast.lab.gate.evidence import FaultKind, InjectedFault
from holdfast.ports.clock import Clock

STOP_SECONDS_MAX = 30.0
LOOK_SECONDS = 0.05


class Nemesis:
    """Kills, stops and restarts the members of a cluster."""

    def __init__(self, cluster: GateCluster, clock: Clock) -> None:
        self.faults: list[InjectedFault] = []
        self.scenario = ""
        self._cluster = cluster
        self._clock = clock

    async def kill(self, name: str) -> InjectedFault:
        """SIGKILL. It is gone when this returns."""
        fault = self._note("kill", name)
        await asyncio.to_thread(self._cluster.kill, name)
        return fault

    async def stop(self, name: str) -> InjectedFault:
        """SIGSTOP. It holds all that it holds, and does nothing."""
        fault = self._note("stop", name)
        await asyncio.to_thread(self._cluster.stop_signal, name)
        return fault

    async def resume(self, name: str, *, unaware: bool = False) -> InjectedFault:
        """SIGCONT. It goes on; `unaware`: as if it had looked at its lease just before it was stopped."""
        fault = self._note("continue", name)
        if unaware:
            await asyncio.to_thread(self._cluster.signal, name, signal.SIGUSR1)
        await asyncio.to_thread(self._cluster.cont, name)
        return fault

    async def kill_over_mail(self, name: str, seconds: float) -> bool:
        """Let it die over its next message to another shard. Whether it has died within the time."""
        before = self._fault("kill", name)
        await asyncio.to_thread(self._cluster.signal, name, signal.SIGUSR2)
        give_up_steady_ms = self._clock.steady_ms() + seconds * 1000
        while self._cluster.members[name].state != "dead":
            if self._clock.steady_ms() > give_up_steady_ms:
                return False
            await self._clock.pause(LOOK_SECONDS)
        self.faults.append(before)
        return True

    async def forget(self, name: str, since: int) -> InjectedFault:
        """A Redis server dies and loses what it wrote since then. It is back when this returns."""
        fault = self._note("forget", name)
        await asyncio.to_thread(self._cluster.forget, name, since)
        self._note("start", name)
        return fault

    async def terminate(self, name: str) -> InjectedFault:
        """SIGTERM. It is gone, in order, when this returns."""
        fault = self._note("terminate", name)
        await asyncio.to_thread(self._cluster.terminate, name)
        give_up_steady_ms = self._clock.steady_ms() + STOP_SECONDS_MAX * 1000
        while self._cluster.members[name].state != "dead":
            if self._clock.steady_ms() > give_up_steady_ms:
                raise TransientError(f"{name} was asked to end, and has not within {STOP_SECONDS_MAX:g} s")
            await self._clock.pause(LOOK_SECONDS)
        return fault

    async def start(self, name: str) -> None:
        """Start it again; it is ready when this returns."""
        await asyncio.to_thread(self._cluster.start, name)
        self._note("start", name)

    async def heal(self) -> None:
        """Let everything run again that does not, and wait until all of it is well."""
        for name, part in self._cluster.members.items():
            if part.state == "stopped":
                await self.resume(name)
            elif part.state == "dead":
                await self.start(name)
        await asyncio.to_thread(self._cluster.wait_until_healthy)

    def _note(self, deed: FaultKind, name: str) -> InjectedFault:
        fault = self._fault(deed, name)
        self.faults.append(fault)
        return fault

    def _fault(self, deed: FaultKind, name: str) -> InjectedFault:
        part = self._cluster.members[name]
        return InjectedFault(
            at_ms=self._clock.wall_ms(), deed=deed, part=name, role=part.role, pid=part.pid, scenario=self.scenario
        )

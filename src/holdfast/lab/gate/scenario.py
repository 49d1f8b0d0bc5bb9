"""The context: what every scenario is given, and how its evidence is gathered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Literal

from msgspec import Struct

from holdfast.adapters.machine import SystemIds
from holdfast.kernel.times import EPOCH, NO_TIME, Instant, Millis
from holdfast.lab.gate import ledger, reader
from holdfast.lab.gate.cluster import GateCluster
from holdfast.lab.gate.evidence import DutySeen, EffectCall, Evidence, Final, InjectedFault, Violation
from holdfast.lab.gate.histories import history_of
from holdfast.lab.gate.load import HOLD_MS, PATIENCE_MS, Load
from holdfast.lab.gate.nemesis import Nemesis
from holdfast.lab.gate.verdict import Checked, Proof, judge
from holdfast.ports.clock import Clock
from holdfast.testing.histories import files

LOOK_SECONDS = 0.05
Verdict = Literal["passed", "failed", "not proved"]


class GateOptions(Struct, frozen=True, kw_only=True):
    """How much is done. `lease_ms` is that of the replicas, `patience_ms` that of the clients."""

    runs: int = 400
    lease_ms: Millis = Millis(3_000)
    soak_ms: Millis = NO_TIME
    patience_ms: Millis = PATIENCE_MS


class Recovery(Struct, frozen=True, kw_only=True):
    """How long it took after a fault until a new run was done, and until all that had been under way was, too."""

    part: str
    role: str
    at_ms: Instant
    next_ms: Millis
    caught_up_ms: Millis


class Findings(Struct, frozen=True, kw_only=True):
    """What a scenario comes back with; `checked` has one for each load."""

    checked: tuple[Checked, ...] = ()
    violations: tuple[Violation, ...] = ()
    proofs: tuple[Proof, ...] = ()
    recoveries: tuple[Recovery, ...] = ()


class Progress(Struct, frozen=True, kw_only=True):
    """A word about what is going on. `verdict` is there when a scenario has ended."""

    scenario: str
    words: str
    done: int = 0
    verdict: Verdict | None = None


Tell = Callable[[Progress], None]


class ScenarioContext:
    """The cluster, the nemesis and the ledger, for one scenario after the other."""

    def __init__(
        self, cluster: GateCluster, *, ledger_file: Path, options: GateOptions, clock: Clock, tell: Tell
    ) -> None:
        self.cluster = cluster
        self.options = options
        self.clock = clock
        self.nemesis = Nemesis(cluster, clock)
        self._ledger = ledger.Reader(ledger_file)
        self._directory = ledger_file.parent
        self._tell = tell
        self._ids = SystemIds()
        self._began_at_ms = EPOCH
        self._load_name = ""

    def begin(self, scenario: str) -> None:
        """From now on everything belongs to this scenario."""
        self.nemesis.scenario = scenario
        self._began_at_ms = self.clock.wall_ms()

    def tell(self, words: str, done: int = 0) -> None:
        self._tell(Progress(scenario=self.nemesis.scenario, words=words, done=done))

    def load(self, name: str) -> Load:
        """Clients of all gateways, whose orders begin with this name; to be entered."""
        # A cluster may see a scenario more than once, and keys are remembered.
        self._load_name = f"{name}.{self._ids.nonce()[:6]}"
        patience_ms = self.options.patience_ms
        return Load(
            self._load_name,
            self.cluster.gateway_urls,
            self.clock,
            api_key=self.cluster.api_key,
            patience_ms=patience_ms,
        )

    def calls(self) -> list[EffectCall]:
        """What the ledger has so far."""
        return self._ledger.look()

    def under_way(self, name: str, hold_ms: Millis = HOLD_MS, steps: Collection[str] = ()) -> int:
        """How many effects of this part are at the ledger, and will be for a moment: it holds them for `hold_ms`.

        With `steps`, only those count.
        """
        pid = self.cluster.members[name].pid
        return sum(call.pid == pid and (not steps or call.step in steps) for call in self._held(hold_ms))

    def holding(self, step: str, hold_ms: Millis) -> int:
        """How many calls of a step are at the ledger, and will be for a moment."""
        return sum(call.step == step for call in self._held(hold_ms))

    def _held(self, hold_ms: Millis) -> Iterator[EffectCall]:
        """What the load of this scenario has at the ledger. There may be other work, left by an earlier one."""
        since_ms = self.clock.wall_ms() - hold_ms // 2
        recent = takewhile(lambda call: call.at_ms > since_ms, reversed(self.calls()))
        return (call for call in recent if call.order.startswith(self._load_name))

    async def checked(self, load: Load, *, before: tuple[Final, ...] = (), sights: Sequence[DutySeen] = ()) -> Checked:
        """What became of the orders of a load. `before` are those of its runs that must not change any more.

        What was seen of them is written as a history, beside the ledger.
        """
        evidence = await self._evidence(load, before, tuple(sights))
        await asyncio.to_thread(files.write, self._directory / f"history-{load.name}.jsonl", history_of(evidence))
        return await asyncio.to_thread(judge, evidence)

    async def _evidence(self, load: Load, before: tuple[Final, ...], sights: tuple[DutySeen, ...]) -> Evidence:
        found = await reader.finals(load)
        orders = frozenset((*load.orders, *(other.key for other in load.others)))
        return Evidence(
            lease_ms=self.options.lease_ms,
            orders=tuple(load.orders),
            others=tuple(load.others),
            accepted_starts=tuple(load.accepted_starts),
            failed=tuple(load.failed),
            calls=tuple(call for call in self.calls() if call.order in orders),
            finals=found,
            before=before,
            faults=self.faults,
            notices=reader.notices(self.cluster.members.values(), self._began_at_ms),
            sent=tuple(load.sent),
            heard=tuple(load.heard),
            searched=tuple(load.searched),
            key_uses=tuple(load.key_uses),
            sights=sights,
        )

    @property
    def faults(self) -> tuple[InjectedFault, ...]:
        """What has been done in this scenario."""
        return tuple(fault for fault in self.nemesis.faults if fault.at_ms >= self._began_at_ms)

    async def pause(self, seconds: float) -> None:
        await self.clock.pause(seconds)

    async def until(self, condition: Callable[[], bool], *, seconds: float) -> bool:
        """Whether the condition has come to hold in this time."""
        give_up_steady_ms = self.clock.steady_ms() + seconds * 1000
        while not condition():
            if self.clock.steady_ms() > give_up_steady_ms:
                return False
            await self.pause(LOOK_SECONDS)
        return True

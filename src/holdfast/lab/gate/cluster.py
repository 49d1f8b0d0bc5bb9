"""What the gate needs of the processes that it does harm to. A `LocalCluster` has it; a test may have less."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

REPLICAS = ("scheduler", "worker", "gateway")


class GateMember(Protocol):
    """One process under its name. Started again it has another pid."""

    @property
    def name(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def port(self) -> int: ...
    @property
    def state(self) -> str:
        """running, stopped or dead."""
        ...

    @property
    def log(self) -> Path: ...


class GateCluster(Protocol):
    """All processes of one installation on this machine. The verbs block; `start` until the part is ready."""

    @property
    def members(self) -> Mapping[str, GateMember]: ...
    @property
    def gateway_urls(self) -> tuple[str, ...]: ...
    @property
    def api_key(self) -> str | None:
        """What clients show at the gateways; None if these are open."""
        ...

    def kill(self, name: str) -> None: ...
    def stop_signal(self, name: str) -> None: ...
    def cont(self, name: str) -> None: ...
    def signal(self, name: str, number: int) -> None: ...
    def terminate(self, name: str) -> None: ...
    def start(self, name: str) -> None: ...
    def primary(self, slot: int = 0) -> str: ...
    def written(self, name: str) -> int:
        """How much a Redis server has written so far."""
        ...

    def forget(self, name: str, since: int) -> None:
        """A Redis server dies, and has lost what it wrote since then when it is back."""
        ...

    def followers(self) -> tuple[str, ...]:
        """The Redis servers that follow a primary now."""
        ...

    def further_gateways(self, count: int, environment: Mapping[str, str]) -> AbstractContextManager[tuple[str, ...]]:
        """The addresses of so many gateways more, with settings of their own. They are no members, and end with it."""
        ...

    def wait_until_healthy(self, seconds: float = 60.0) -> None: ...


def of_role(cluster: GateCluster, *roles: str) -> list[str]:
    """The names of the parts that have one of these roles, in turns: worker-1, gateway-1, worker-2, gateway-2."""
    found = {role: [name for name, member in cluster.members.items() if member.role == role] for role in roles}
    most = max((len(names) for names in found.values()), default=0)
    return [names[at] for at in range(most) for names in found.values() if at < len(names)]

"""Whether a Redis can keep the store's promises: what is looked at, and what each setting may lose.

Every server is looked at, replicas too: each of them may be the primary tomorrow. Looking changes nothing. Where the
server does not let us see its settings (many hosted ones do not), that is said, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from msgspec import Struct

from holdfast.ports.store import Finding
from holdfast.stores.redis.net.connections import LAG_SECONDS_MAX, Answer, fields, replicas_in, settings

VERSION_MIN = 7
GIB = 1024**3
USED_MUCH, USED_UP = 0.8, 0.95  # of the memory it may have
APART_MS_MAX = 500  # between two servers
WALL_APART_MS_MAX = 5_000
PRIMARIES_MIN = 3  # fewer cannot outvote one that is cut off
SLOTS = "16384"
WANTED = (
    b"appendfsync",
    b"no-appendfsync-on-rewrite",
    b"maxmemory-policy",
    b"min-replicas-to-write",
    b"cluster-node-timeout",
)
Fields = Mapping[str, str]


class InspectedServer(Struct, frozen=True):
    """What one server says: INFO, and its settings unless it hides them."""

    address: str
    info: Fields
    settings: Fields | None


class InspectedClient(Protocol):
    """What is needed of a client."""

    @property
    def replicas_needed(self) -> int | None: ...
    async def every_primary(self, *command: bytes) -> dict[str, Answer]: ...
    async def every_replica(self, *command: bytes) -> dict[str, Answer]: ...
    async def clocks_ms(self) -> dict[str, float]: ...


async def inspect(client: InspectedClient) -> tuple[Finding, ...]:
    """All that is known about the servers behind `client`."""
    primaries = await _servers(client.every_primary)
    replicas = await _servers(client.every_replica)
    everybody = primaries + replicas
    found = [
        *_of_each(everybody, lambda server: version(server.info)),
        *_of_each(everybody, lambda server: eviction(server.settings)),
        *_of_each(everybody, lambda server: append_only(server.info)),
        *_of_each(everybody, lambda server: sync(server.settings)),
        *_of_each(everybody, lambda server: sync_on_rewrite(server.settings)),
        *_of_each(everybody, lambda server: disk(server.info)),
        *_of_each(everybody, lambda server: memory(server.info)),
        *_of_each(primaries, lambda server: confirmations(client.replicas_needed, len(replicas_in(server.info)))),
        *_of_each(primaries, lambda server: cut_off(client.replicas_needed, server)),
        clocks(await client.clocks_ms()),
    ]
    if any(server.info.get("redis_mode") == "cluster" for server in primaries):
        told = await client.every_primary(b"CLUSTER", b"INFO")
        found += [cluster({address: fields(reply) for address, reply in told.items()})]
    return tuple(found)


async def _servers(ask: Callable[..., Awaitable[dict[str, Answer]]]) -> list[InspectedServer]:
    infos = await ask(b"INFO")
    hidden = await ask(b"CONFIG", b"GET", *WANTED)
    return [InspectedServer(address, fields(info), settings(hidden.get(address))) for address, info in infos.items()]


def _of_each(servers: list[InspectedServer], look: Callable[[InspectedServer], Finding]) -> list[Finding]:
    """One finding if all servers agree that nothing is wrong, otherwise one for each that is of another mind."""
    found = [(server, look(server)) for server in servers]
    wrong = [
        Finding(finding.level, finding.what, f"{server.address}: {finding.detail}", finding.hint)
        for server, finding in found
        if finding.level != "ok"
    ]
    return wrong or [finding for _, finding in found[:1]]


def version(info: Fields) -> Finding:
    name = info.get("redis_version", "unknown")
    product = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {name}"
    major = name.partition(".")[0]
    if major.isdigit() and int(major) >= VERSION_MIN:
        return Finding("ok", "version", product)
    return Finding("error", "version", f"{product} is too old", hint="Install Redis 7 or newer, or any Valkey.")


def eviction(known: Fields | None) -> Finding:
    policy = (known or {}).get("maxmemory-policy")
    if policy is None:
        return Finding(
            "warning",
            "eviction",
            "it does not show its settings; whether it drops data when memory is short is not known",
            hint="See to it that maxmemory-policy is noeviction.",
        )
    if policy == "noeviction":
        return Finding("ok", "eviction", "nothing is dropped when memory is short")
    return Finding(
        "error",
        "eviction",
        f"maxmemory-policy is {policy}: when memory is short, it drops runs without a word",
        hint="Set maxmemory-policy noeviction; use another server for caches.",
    )


def append_only(info: Fields) -> Finding:
    if info.get("aof_enabled") == "1":
        return Finding("ok", "append-only file", "every write goes to a file")
    return Finding(
        "error",
        "append-only file",
        "appendonly is no: a restart loses everything since the last snapshot, or all there is",
        hint="Set appendonly yes.",
    )


def sync(known: Fields | None) -> Finding:
    match (known or {}).get("appendfsync"):
        case "always":
            return Finding("ok", "sync", "a write is confirmed after its fsync")
        case "everysec":
            return Finding(
                "warning",
                "sync",
                "appendfsync is everysec: a loss of power may lose the last two seconds that were confirmed;"
                " a crash of the server alone loses nothing",
                hint="Set appendfsync always, if that is too much.",
            )
        case None:
            return Finding(
                "warning",
                "sync",
                "it does not show its settings; what a loss of power may lose is not known",
                hint="See to it that appendonly is yes and appendfsync is always.",
            )
        case other:
            return Finding(
                "error",
                "sync",
                f"appendfsync is {other}: a loss of power may lose half a minute that was confirmed",
                hint="Set appendfsync always.",
            )


def sync_on_rewrite(known: Fields | None) -> Finding:
    if (known or {}).get("no-appendfsync-on-rewrite") != "yes":
        return Finding("ok", "sync while rewriting", "as always")
    return Finding(
        "warning",
        "sync while rewriting",
        "no-appendfsync-on-rewrite is yes: a loss of power while the file is rewritten may lose all that was"
        " confirmed in the meantime",
        hint="Set no-appendfsync-on-rewrite no.",
    )


def disk(info: Fields) -> Finding:
    bad = [name for name in ("aof_last_write_status", "aof_last_bgrewrite_status") if info.get(name, "ok") != "ok"]
    if not bad:
        return Finding("ok", "disk", "the last writes to the disk went well")
    return Finding(
        "error",
        "disk",
        f"writing to its disk failed ({', '.join(bad)}): it refuses changes until that works again",
        hint="Look at its log and at the free space of its disk.",
    )


def memory(info: Fields) -> Finding:
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    room = limit or int(info.get("total_system_memory", 0))
    if not room:
        return Finding("ok", "memory", f"{used / GIB:.2f} GiB are used; how much there is, it does not say")
    detail = f"{used / GIB:.2f} of {room / GIB:.2f} GiB are used"
    if not limit:
        detail += " (maxmemory is not set: at the end the system kills it)"
    if used < USED_MUCH * room:
        return Finding("ok", "memory", detail)
    return Finding(
        "error" if used >= USED_UP * room else "warning",
        "memory",
        detail,
        hint="Give it more, or shorten the retention. When it is full, nothing is lost, but nothing goes on either.",
    )


def caution(needed: int | None) -> str:
    """What may be lost of what was confirmed, where replicas are promoted; nothing if nothing."""
    match needed:
        case None:
            return (
                "wait=auto: while no replica follows a primary, writes are confirmed that it alone has; if another node"
                " takes over then, they are lost, and what was done after them may be done a second time"
            )
        case 0:
            return (
                "wait=0: writes are confirmed before a replica has them; each failover may lose the last of them, and"
                " what was done after them may be done a second time"
            )
        case _:
            return ""


def confirmations(needed: int | None, replicas: int) -> Finding:
    """How many of a primary's replicas have a write when it is confirmed. `needed`: None for wait=auto."""
    what = "replicas"
    if needed is not None and needed > replicas:
        return Finding(
            "error",
            what,
            f"{replicas} follow, and {needed} must confirm a write: every one is reported as unknown, and work waits",
            hint="Start the replicas that are missing. With wait=auto in the URL work goes on without them, and what"
            " is confirmed then is lost with the primary.",
        )
    if not replicas:
        return Finding(
            "warning",
            what,
            "none follows: when the machine is gone, work stands still until it is back, and its disk is the only copy",
            hint="Add a replica, with Sentinel or Cluster to promote it.",
        )
    confirm = 1 if needed is None else needed
    if confirm < replicas:
        return Finding(
            "warning",
            what,
            f"{replicas} follow, and a write is confirmed when {confirm} of them has it: a failover to another one"
            " loses what that one lacks",
            hint=f"Write ?wait={replicas} in the URL.",
        )
    if needed is None:
        return Finding(
            "warning",
            what,
            "wait is auto: one follows, and has a write before it is confirmed; while it is away, writes are confirmed"
            " without it, and lost if it is promoted then",
            hint="Write ?wait=1 in the URL: then such writes are reported as unknown, and work waits.",
        )
    return Finding("ok", what, f"{replicas} follow, and all have a write before it is confirmed")


def cut_off(needed: int | None, server: InspectedServer) -> Finding:
    """What becomes of writes to a primary that the others have replaced."""
    what = "cut off"
    known = server.settings or {}
    if not replicas_in(server.info):
        return Finding("ok", what, "there is no replica that could replace a primary")
    if (needed or 0) > 0 or known.get("min-replicas-to-write", "0") != "0":
        return Finding("ok", what, "a primary without its replicas confirms nothing")
    if server.info.get("redis_mode") == "cluster":
        # No caller is told that a write is safe as long as the replica that does not confirm it seems to be there.
        timeout_ms = int(known.get("cluster-node-timeout", 0))
        if timeout_ms < LAG_SECONDS_MAX * 1000:
            return Finding("ok", what, "a primary that is cut off from the others stops by itself")
        return Finding(
            "warning",
            what,
            f"cluster-node-timeout is {timeout_ms} ms: a primary that is cut off takes writes for that long, and loses"
            " them when it is back",
            hint="Set cluster-node-timeout 5000, or write ?wait=1 in the URL.",
        )
    return Finding(
        "warning",
        what,
        "min-replicas-to-write is 0: a primary that is cut off goes on taking writes, and loses them when it is back",
        hint="Set min-replicas-to-write 1 and min-replicas-max-lag 5, or write ?wait=1 in the URL.",
    )


def clocks(ahead_ms: Mapping[str, float]) -> Finding:
    """`ahead_ms`: by how much the clock of each server is ahead of ours."""
    apart_ms = max(ahead_ms.values()) - min(ahead_ms.values())
    hint = "Let NTP or chrony set the clocks of all machines."
    if apart_ms > APART_MS_MAX:
        return Finding(
            "warning",
            "clocks",
            f"the servers' clocks are {apart_ms / 1000:.1f} s apart: a failover moves every timer by that much",
            hint=hint,
        )
    farthest_ms = max(ahead_ms.values(), key=abs)
    if abs(farthest_ms) > WALL_APART_MS_MAX:
        way = "ahead of" if farthest_ms > 0 else "behind"
        return Finding(
            "warning", "clocks", f"the servers' clocks are {abs(farthest_ms) / 1000:.1f} s {way} ours", hint=hint
        )
    return Finding("ok", "clocks", "they agree")


def cluster(told: Mapping[str, Fields]) -> Finding:
    """`told`: what each primary says about the cluster."""
    for address, info in told.items():
        state, slots = info.get("cluster_state", "unknown"), info.get("cluster_slots_ok", "0")
        if state != "ok" or slots != SLOTS:
            return Finding(
                "error",
                "cluster",
                f"{address} says that its state is {state}, with {slots} of {SLOTS} slots served:"
                " runs in the other ones stand still",
                hint="Look at `redis-cli --cluster check`, and start the nodes that are down.",
            )
    if len(told) < PRIMARIES_MIN:
        return Finding(
            "warning",
            "cluster",
            f"it has {len(told)} primaries: no majority is left to replace one that dies",
            hint="Use three or more.",
        )
    return Finding("ok", "cluster", f"{len(told)} primaries serve all slots")

"""What `holdfast doctor` says about NATS: what a client can see, what it cannot, and what could be lost.

Hints may be lost by nature, and cost time only. So the only losses are those of topics.
"""

from __future__ import annotations

from msgspec import Struct
from nats.aio.client import Client
from nats.errors import Error as NatsError, NoRespondersError

from holdfast.buses.nats import jetstream
from holdfast.buses.nats.addresses import NatsAddress
from holdfast.buses.nats.jetstream import JetStreamRefused
from holdfast.buses.nats.link import Link, known_servers
from holdfast.buses.nats.names import Names
from holdfast.ports.store import Finding

# Before it, JetStream could lose what it had acknowledged in ways that no setting prevents.
VERSION_MIN = (2, 12, 3)


class _Config(Struct, frozen=True):
    name: str
    num_replicas: int
    max_bytes: int


class _StreamState(Struct, frozen=True):
    bytes: int


class _Peer(Struct, frozen=True):
    name: str
    current: bool = False
    offline: bool = False


class _Cluster(Struct, frozen=True):
    replicas: list[_Peer] = []


class _Stream(Struct, frozen=True):
    """What JetStream tells about a stream, as far as it is looked at."""

    config: _Config
    state: _StreamState
    cluster: _Cluster = _Cluster()


async def inspect(link: Link, names: Names, address: NatsAddress) -> tuple[Finding, ...]:
    client = link.client
    if client is None:
        return (_out_of_reach(address, link.trouble),)
    findings = [_reached(client), _version(client), _servers(client)]
    try:
        streams = await _streams(client, names)
    except NoRespondersError:
        return (*findings, _no_jetstream("it is turned off"))
    except (NatsError, OSError, JetStreamRefused) as error:
        return (*findings, _no_jetstream(str(error)))
    findings += [_copies(stream, names) for stream in streams]
    findings += [_room(stream, names) for stream in streams]
    return (*findings, _sync_interval(streams))


async def _streams(client: Client, names: Names) -> list[_Stream]:
    streams = await jetstream.every(client, "STREAM.LIST", "streams", _Stream)
    return [stream for stream in streams if stream.config.name.startswith(names.streams)]


def _out_of_reach(address: NatsAddress, trouble: Exception | None) -> Finding:
    return Finding(
        "error",
        "NATS",
        f"{address!r} cannot be reached: {trouble or 'no answer'}. No run is lost; others hear of changes by polling, "
        "which is later, and nothing can be published to topics",
        hint="Start it, or correct the bus URL. Holdfast goes on trying.",
    )


def _reached(client: Client) -> Finding:
    uri = client.connected_url
    return Finding("ok", "NATS", f"connected to {uri.netloc if uri else 'a server'}")


def _version(client: Client) -> Finding:
    found = client.connected_server_version
    version = (found.major or 0, found.minor or 0, found.patch or 0)
    name = ".".join(map(str, version))
    if version >= VERSION_MIN:
        return Finding("ok", "NATS version", name)
    wanted = ".".join(map(str, VERSION_MIN))
    return Finding(
        "warning",
        "NATS version",
        f"{name} is older than {wanted}: a crash may lose messages of topics that were acknowledged",
        hint=f"Update the servers to {wanted} or newer, one after another.",
    )


def _servers(client: Client) -> Finding:
    count = known_servers(client)
    if count >= jetstream.REPLICAS:
        return Finding("ok", "NATS servers", f"a cluster of {count}")
    return Finding(
        "warning",
        "NATS servers",
        "one alone: while it is down, hints are lost and topics take nothing"
        if count == 1
        else f"a cluster of {count}: topics need three for their copies",
        hint="Run a cluster of three, on three machines, and name all of them in the bus URL.",
    )


def _no_jetstream(why: str) -> Finding:
    return Finding(
        "warning",
        "JetStream",
        f"does not answer: {why}. Hints work; topics cannot be used",
        hint="Turn it on (jetstream { store_dir: ... }); in a cluster, see that most of its nodes are up.",
    )


def _copies(stream: _Stream, names: Names) -> Finding:
    what = f"topic {_topic(stream, names)}"
    wanted = stream.config.num_replicas
    missing = [peer.name for peer in stream.cluster.replicas if peer.offline or not peer.current]
    if missing:
        return Finding(
            "warning",
            what,
            f"of its {wanted} copies, those on {', '.join(missing)} are behind or gone: "
            "losing one more node may stop the topic or lose what only it holds",
            hint="Bring the node back, or remove it from the cluster so that another one takes the copy.",
        )
    if wanted < jetstream.REPLICAS:
        return Finding(
            "warning",
            what,
            f"has {wanted} {'copy' if wanted == 1 else 'copies'}: if its disk is lost, so is all of it",
            hint=f"On a cluster: nats stream edit --replicas 3 {stream.config.name}",
        )
    return Finding("ok", what, f"{wanted} copies, all up to date")


def _room(stream: _Stream, names: Names) -> Finding:
    what = f"room of topic {_topic(stream, names)}"
    size, size_max = stream.state.bytes, stream.config.max_bytes
    if size_max > 0 and size > size_max / 2:
        return Finding(
            "warning",
            what,
            f"{size:,} of {size_max:,} bytes wait to be handled. When it is full it takes no more; it drops nothing",
            hint="See that every group has members at work. Remove one that is no longer used: nats consumer rm.",
        )
    return Finding("ok", what, f"{size:,} bytes wait to be handled")


def _sync_interval(streams: list[_Stream]) -> Finding:
    what = "JetStream sync_interval"
    if not streams:
        return Finding("ok", what, "there are no topics, so there is nothing that a power loss could take")
    return Finding(
        "warning",
        what,
        "a client cannot see this setting. By default JetStream writes to the disk every two minutes: a loss of power "
        "of all nodes, or of one that stands alone, takes what was acknowledged since, or a young topic as a whole",
        hint="Set jetstream { sync_interval: always } and look for sync_always: true at /jsz?config=true of the "
        "monitoring port.",
    )


def _topic(stream: _Stream, names: Names) -> str:
    return stream.config.name.removeprefix(names.streams)

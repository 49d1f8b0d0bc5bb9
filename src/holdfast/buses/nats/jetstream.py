"""What a topic and a group are to JetStream, and the few requests of its API that they need.

Choices that are not obvious
- A group starts with all that is kept, not with what is new. What "new" means is settled when the consumer's first
  leader begins to work. If a node stands still while a group is made, that is seconds after the group counts as
  there, and it misses all that is acknowledged meanwhile.
- A stream keeps messages by its limits, not by interest, and `trim` removes what every group says it has handled. By
  interest, a message that finds no group is acknowledged and gone.
- No limit on what is delivered and not yet acknowledged. Members ask for as much as they can handle; a limit would
  count messages that wait to be tried again, and with enough of those JetStream silently stops to deliver others.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from nats.aio.client import Client

T = TypeVar("T")

REPLICAS = 3
TOPIC_SIZE_MAX = 1024**3
SAME_ID_WINDOW_S = 120
# The errors that are told apart, by the numbers of the JetStream API.
NOT_CLUSTERED = 10074
STREAM_EXISTS_OTHERWISE = 10058
STREAM_UNKNOWN = 10059

DONE = b"+ACK"
BUSY = b"+WPI"
AGAIN = b"-NAK"

_SECOND = 1_000_000_000  # JetStream counts nanoseconds
_ANSWER_S = 3.0


class _Floor(Struct, frozen=True):
    stream_seq: int


class _Group(Struct, frozen=True):
    """What JetStream tells about a consumer, as far as it is looked at."""

    ack_floor: _Floor


class JetStreamRefused(Exception):
    """The server has replied with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("description", error)))
        self.number = int(error.get("err_code", 0))


async def ask(client: Client, what: str, body: object = None) -> dict[str, Any]:
    """Call the API. Raises `JetStreamRefused`, or what the library raises when no reply comes."""
    question = b"" if body is None else msgspec.json.encode(body)
    reply = await client.request(f"$JS.API.{what}", question, timeout=_ANSWER_S)
    return read(reply.data)


def read(data: bytes) -> dict[str, Any]:
    answer: dict[str, Any] = msgspec.json.decode(data)
    if "error" in answer:
        raise JetStreamRefused(answer["error"])
    return answer


async def every(client: Client, what: str, key: str, kind: type[T]) -> list[T]:
    """All of a list, which the server returns in portions. Raises `JetStreamRefused` if it cannot see all of it now."""
    found: list[T] = []
    while True:
        answer = await ask(client, what, {"offset": len(found)})
        portion = msgspec.convert(answer[key] or [], list[kind])
        found += portion
        if len(found) >= answer["total"]:
            return found
        if not portion or answer.get("missing"):
            raise JetStreamRefused({"description": f"only {len(found)} of {answer['total']} {key} answer"})


async def establish_stream(client: Client, stream: str, subject: str) -> None:
    """See to it that a topic's stream exists: three copies in a cluster, one on a server that stands alone.

    A cluster that has fewer than three nodes at hand refuses: a stream that began with one copy would keep one.
    """
    wanted = {
        "name": stream,
        "subjects": [subject],
        "retention": "limits",
        "storage": "file",
        "discard": "new",
        "max_bytes": TOPIC_SIZE_MAX,
        "duplicate_window": SAME_ID_WINDOW_S * _SECOND,
        "num_replicas": REPLICAS,
    }
    try:
        await ask(client, f"STREAM.CREATE.{stream}", wanted)
    except JetStreamRefused as refusal:
        if refusal.number == NOT_CLUSTERED:
            await ask(client, f"STREAM.CREATE.{stream}", {**wanted, "num_replicas": 1})
        elif refusal.number != STREAM_EXISTS_OTHERWISE:  # an operator has given it other limits
            raise


async def establish_group(client: Client, stream: str, group: str, *, ack_wait_s: float) -> None:
    """See to it that a group exists. Raises `JetStreamRefused` if there is no stream."""
    config = {
        "durable_name": group,
        "name": group,
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": round(ack_wait_s * _SECOND),
        "max_deliver": -1,
        "max_ack_pending": -1,
        "max_waiting": 4096,
    }
    await ask(client, f"CONSUMER.CREATE.{stream}.{group}", {"stream_name": stream, "config": config})


async def trim(client: Client, stream: str) -> None:
    """Remove what every group has handled, so that a topic is full only of what a group has yet to handle."""
    groups = await every(client, f"CONSUMER.LIST.{stream}", "consumers", _Group)
    handled = min((group.ack_floor.stream_seq for group in groups), default=0)
    if handled:
        await ask(client, f"STREAM.PURGE.{stream}", {"seq": handled + 1})


def pull_request(expires_s: float) -> bytes:
    return msgspec.json.encode({"batch": 1, "expires": round(expires_s * _SECOND)})


def again_after(delay_s: float) -> bytes:
    return AGAIN + b" " + msgspec.json.encode({"delay": round(delay_s * _SECOND)})

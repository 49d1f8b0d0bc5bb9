"""Rows to values and back, and the members of the index.

A row is a hash. What never changes about a run is packed into one field; what scripts look at has fields of its own:

    h  the rest                     s  status    e  epoch    n  nonce    o  owner    w  wake_at_ms   l  length
    u  unread    k  holds_key       b  started_at_ms    f  finished_at_ms    x  expires_at_ms    c  change_id
    out  err  a (attributes)  m (markers)  v (waits)  i (input)  z (messages so far)  ax (members for its attributes)
    sp wp at   what the members for its status and its wake-up begin with, and what members of a run end in
    kn  what its key is called among the names of the shard
    la as   its lane, and whether it has stepped aside; only runs with a lane have these

None is the empty string. A member of the index is text in parts, divided by zeros (`safe` keeps names free of them):

    c namespace · created · id                        f namespace · workflow · created · id
    s namespace · status · created · id               k namespace · key · created · id
    a namespace · name · kind · value · created · id  e namespace · finished · created · id
    t namespace · workflow · priority · tag · wake · id
    w namespace · workflow · priority · wake · id     o owner · id (held)      m owner · id (held, with mail)
    x expires · id                                    d q y: documents, see there
    j namespace · lane · id (should have a place)     g l b h: lanes, see `lua/lanes.lua`
    v kind · namespace · number: outs and audits
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import msgspec

from holdfast.kernel import attributes
from holdfast.kernel.journal import Entry, Value
from holdfast.kernel.messages import Message
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.times import Instant, Millis
from holdfast.ports.store import Member, Serves
from holdfast.stores.redis.net.client import Reply, Word

Fields = tuple[bytes, ...]
# The fields that a `Run` is made of, as scripts return them and `run_of` takes them.
ROW = ("h", "s", "e", "n", "o", "w", "l", "u", "k", "b", "f", "x", "out", "err", "c", "a", "m", "v", "i", "la", "as")
# The fields that change when a run is settled, and all that a new run has.
MOVED = ("s", "e", "n", "o", "w", "l", "b", "f", "x", "out", "err", "c", "v")
NEW = ("h", "sp", "wp", "kn", "at", "k", "u", "i", "a", "m", "ax", *MOVED)
TOP = b"\xff"  # sorts behind all text
_PRIORITY_TOP = 1 << 39  # so that ten digits hold it, and the highest comes first

encode_entries = msgspec.json.Encoder().encode
encode_message = msgspec.json.Encoder().encode
pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder(list[str]).decode
_decode_entries = msgspec.json.Decoder(list[Entry]).decode
_decode_message = msgspec.json.Decoder(Message).decode
_decode_value = msgspec.json.Decoder(Value).decode
_encode_value = msgspec.json.Encoder().encode
_Head = tuple[str, str, str, str | None, str, int, str, str, Millis, Instant, str]
_decode_head = msgspec.msgpack.Decoder(_Head).decode
_STATUSES = {status.encode(): status for status in Status}
_decode_serves = msgspec.msgpack.Decoder(Serves).decode


def text(reply: Reply) -> str:
    assert isinstance(reply, bytes), reply
    return reply.decode()


def items(reply: Reply) -> list[Reply]:
    assert isinstance(reply, list), reply
    return reply


def texts(reply: Reply) -> list[str]:
    return [text(each) for each in items(reply)]


def numbers(reply: Reply) -> list[int]:
    return [each for each in items(reply) if isinstance(each, int)]


def table(flat: Reply) -> dict[bytes, bytes]:
    """A hash, as Redis returns it."""
    values = cast("list[bytes]", items(flat))
    return dict(zip(values[::2], values[1::2], strict=True))


def number(value: int | None) -> Word:
    return b"" if value is None else value


# -- runs


def new_values(run: Run, members: Sequence[str]) -> tuple[Word, ...]:
    """The values of `NEW`: all fields of the row of a run that is admitted."""
    return (
        *(_head(run), _status_prefix(run.namespace), wake_prefix(run), key_name(run.namespace, run.workflow, run.key)),
        *(_place(run), b"1" if run.holds_key else b"0", b"0"),
        *(b"" if run.input is None else _encode_value(run.input), run.attributes, run.markers),
        *(pack(members) if members else b"", *moved_values(run, run.change_id)),
    )


def renewed_fields(run: Run) -> tuple[Word, ...]:
    """The fields that another input changes."""
    return (b"h", _head(run), b"n", run.nonce, b"c", run.change_id, b"a", run.attributes, *input_field(run))


def _head(run: Run) -> bytes:
    head: _Head = (
        run.id,
        run.namespace,
        run.workflow,
        run.key,
        run.queue,
        run.priority,
        run.digest,
        run.request_id,
        run.retention_ms,
        run.created_at_ms,
        run.version,
    )
    return pack(head)


def key_name(namespace: str, workflow: str, key: str | None) -> str:
    """What a key is called among the names of its shard; nothing if there is none."""
    return "" if key is None else f"k\0{safe(namespace)}\0{safe(workflow)}\0{safe(key)}"


def moved_values(run: Run, change_id: str) -> tuple[Word, ...]:
    """The values of `MOVED`: the fields that change when a run is settled."""
    return (
        *(run.status, run.epoch, run.nonce, run.owner or b"", number(run.wake_at_ms), run.length),
        *(number(run.started_at_ms), number(run.finished_at_ms), number(run.expires_at_ms)),
        *(run.output or b"", run.error or b"", change_id, run.waits or b""),
    )


def shown_fields(run: Run) -> Fields:
    return (b"a", run.attributes, b"m", run.markers)


def input_field(run: Run) -> Fields:
    return (b"i", b"" if run.input is None else _encode_value(run.input))


def run_of(row: Reply) -> Run | None:
    """The run of a row; None if there is none."""
    if not row:
        return None
    # fmt: off
    (head, status, epoch, nonce, owner, wake_at_ms, length, unread, holds_key, started_at_ms, finished_at_ms,
     expires_at_ms, output, error, change_id, attributes_, markers, waits, input_, lane,
     aside) = cast("list[bytes]", items(row))
    # fmt: on
    id_, namespace, workflow, key, queue, priority, digest, request_id, retention_ms, created_at_ms, version = (
        _decode_head(head)
    )
    return Run(
        id=id_,
        namespace=namespace,
        workflow=workflow,
        key=key,
        queue=queue,
        priority=priority,
        digest=digest,
        request_id=request_id,
        retention_ms=retention_ms,
        created_at_ms=created_at_ms,
        status=_STATUSES[status],
        epoch=int(epoch),
        nonce=nonce.decode(),
        owner=owner.decode() or None,
        wake_at_ms=_instant(wake_at_ms),
        length=int(length),
        unread=int(unread),
        holds_key=holds_key == b"1",
        started_at_ms=_instant(started_at_ms),
        finished_at_ms=_instant(finished_at_ms),
        expires_at_ms=_instant(expires_at_ms),
        output=output or None,
        error=error or None,
        change_id=change_id.decode(),
        version=version,
        attributes=attributes_,
        markers=markers,
        waits=waits or None,
        lane=lane.decode() if lane else "",
        aside=aside == b"1",
        input=_input_of(input_) if input_ else None,
    )


def _input_of(field: bytes) -> Value | None:
    """The input of a run, to be shown; None if it cannot be read. What is executed is that of the journal."""
    try:
        return _decode_value(field)
    except Exception:  # noqa: BLE001 - whatever is wrong with it, it must not hold up the claims of other runs
        return None


def _instant(field: bytes) -> Instant | None:
    return Instant(int(field)) if field else None


# -- members of the index


def under(prefix: bytes, *, up_to: bytes = TOP) -> tuple[bytes, bytes]:
    """The bounds of all members that begin so; `up_to` is where to stop in what follows."""
    return b"[" + prefix, b"(" + prefix + up_to


def safe(name: str) -> str:
    """`name` without zeros; distinct names stay distinct, and sort as before."""
    if "\0" not in name and "\1" not in name:
        return name
    return name.replace("\1", "\1\2").replace("\0", "\1\1")


def unsafe(name: str) -> str:
    """The name that `safe` was given."""
    return name if "\1" not in name else name.replace("\1\1", "\0").replace("\1\2", "\1")


def instant(at_ms: Instant) -> str:
    """An instant that sorts as text."""
    return f"{max(0, at_ms):012x}"


def _place(run: Run) -> str:
    return f"{instant(run.created_at_ms)}\0{run.id}"


def _status_prefix(namespace: str) -> str:
    return f"s\0{safe(namespace)}\0"


def wake_prefix(run: Run) -> str:
    return f"{workflow_wakes(run.namespace, run.workflow)}{rank(run.priority)}\0"


def workflow_wakes(namespace: str, workflow: str) -> str:
    return f"w\0{safe(namespace)}\0{safe(workflow)}\0"


class Waking(msgspec.Struct, frozen=True, gc=False, order=True):
    """A run that may be claimed, now or later, in the order in which runs are claimed."""

    rank: str  # of its priority: the lowest goes first
    wake_at_ms: Instant
    run_id: str


def waking_of(member: str) -> tuple[str, Waking]:
    """The workflow and the wake-up that a member tells."""
    _, _, workflow, rank, wake, run_id = member.split("\0")
    return unsafe(workflow), Waking(rank, Instant(int(wake, 16)), run_id)


class TaggedRun(msgspec.Struct, frozen=True, gc=False, order=True):
    """A run that takes turns and has not begun, in the order in which these go."""

    tag: int
    wake_at_ms: Instant
    run_id: str
    line: tuple[str, str]  # workflow and rank of the priority
    member: str


def turn_member(run: Run, tag: int) -> str:
    """The member of the index by which a run takes turns."""
    assert run.wake_at_ms is not None, run
    return f"t{wake_prefix(run)[1:]}{tag:012x}\0{instant(run.wake_at_ms)}\0{run.id}"


def turn_of(member: str) -> TaggedRun:
    _, _, workflow, rank, tag, wake, run_id = member.split("\0")
    return TaggedRun(int(tag, 16), Instant(int(wake, 16)), run_id, (unsafe(workflow), rank), member)


def woken_workflow(prefix: str) -> tuple[str, str]:
    """The namespace and the workflow of what has this prefix."""
    _, namespace, workflow, *_ = prefix.split("\0")
    return unsafe(namespace), unsafe(workflow)


def lasting_members(run: Run) -> list[str]:
    """Those that a run has as long as it is there."""
    place, namespace = _place(run), safe(run.namespace)
    members = [f"c\0{namespace}\0{place}", f"f\0{namespace}\0{safe(run.workflow)}\0{place}"]
    if run.key is not None:
        members.append(f"k\0{namespace}\0{safe(run.key)}\0{place}")
    if run.lane:
        members.append(in_lane(run))
    return members


def lane_name(namespace: str, lane: str) -> str:
    """What a lane is called in its shard."""
    return f"{safe(namespace)}\0{safe(lane)}"


def in_lane(run: Run) -> str:
    """The member of a run that should have a place in its lane."""
    return f"j\0{lane_name(run.namespace, run.lane)}\0{run.id}"


def rank(priority: int) -> str:
    """A priority as text: the highest sorts first."""
    return f"{_PRIORITY_TOP - priority:010x}"


def moving_members(run: Run) -> list[str]:
    """Those that change with it, as they are when it is admitted. Later scripts do it."""
    members = [f"{_status_prefix(run.namespace)}{run.status}\0{_place(run)}"]
    if run.wake_at_ms is not None:
        members.append(f"{wake_prefix(run)}{instant(run.wake_at_ms)}\0{run.id}")
    if run.owner is not None:
        members.append(f"o\0{run.owner}\0{run.id}")
    return members


def attribute_members(run: Run) -> list[str]:
    if not run.attributes:
        return []
    found = {name: attributes.indexed(value) for name, value in attributes.decode(run.attributes).items()}
    place, namespace = _place(run), safe(run.namespace)
    return [f"a\0{namespace}\0{name}\0{kind}\0{sortable(value)}\0{place}" for name, (kind, value) in found.items()]


def sortable(value: str | float) -> str:
    """A value as text that sorts like it. Numbers sort as floats: the caller compares again."""
    if isinstance(value, str):
        return value
    value = value or 0  # there is a negative zero, and it is no other number
    try:
        (bits,) = struct.unpack(">Q", struct.pack(">d", value))
    except OverflowError:  # whole numbers have 64 bits at most
        bits = 0
    flipped = bits ^ 0xFFFFFFFFFFFFFFFF if bits >> 63 else bits | 0x8000000000000000
    return f"{flipped:016x}"


# -- what belongs to a run


def journal_of(chunks: Reply) -> tuple[Entry, ...]:
    return tuple(entry for chunk in cast("list[bytes]", items(chunks)) for entry in _decode_entries(chunk))


def messages_of(flat: Reply) -> list[bytes]:
    """The bodies of unread messages, oldest first."""
    return [body[12:] for body in sorted(table(flat).values())]


def message_of(body: bytes) -> Message | None:
    """A message; None if it cannot be read, perhaps since a newer version wrote it. It must not hold up the others."""
    try:
        return _decode_message(body)
    except ValueError:  # msgspec's errors, and that of text which is no UTF-8
        return None


def decode_message(body: bytes) -> Message:
    return _decode_message(body)


def with_prefix(fields: Mapping[bytes, bytes], prefix: bytes) -> Iterable[tuple[str, bytes]]:
    return ((name[2:].decode(), value) for name, value in fields.items() if name[:2] == prefix)


# -- members, the ones that work


def encode_serves(serves: Serves) -> bytes:
    return pack(serves)


def member_of(owner: str, until_ms: Instant, told: bytes) -> Member:
    joined_at_ms, _, serves = told.partition(b"\0")
    return Member(owner, Instant(int(joined_at_ms)), until_ms, _decode_serves(serves), 0)

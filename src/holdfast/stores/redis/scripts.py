"""The scripts: each checks a guard and writes, or reads. What they decide is in `holdfast.kernel.changes`.

Here is what each of them takes and returns; `declarations` turns that into Lua and back, and the text is in `lua/`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.stores.redis.declarations import (
    Script,
    each,
    flag,
    hash_fields,
    instant,
    instant_when_asked,
    number,
    records,
)
from holdfast.stores.redis.net.client import Reply
from holdfast.stores.redis.rows import MOVED, NEW, ROW

# The keys of a shard and of a run, in the words of `shards`
_RUN: Final = ("run", "journal", "box", "mail", "aux", "blobs")
_WHOLE: Final = ("index", "names", "out", *_RUN)
_INBOX: Final = ("index", "names", "run", "box", "mail", "blobs")
_LANES: Final = ("index", "names", "out")
_LANE_LUA: Final = ("rows", "parked", "lanes")  # behind `hashes`, `clock` and `outbox`
_ENTERING: Final = ("lane", "home", "epoch", "width", "rank", "wake", "member", "name", "message")
_KEPT: Final = ("prefix", "body")  # outs and audits
_LEASES: Final = ("expiries", "members")
_FENCE: Final = ("epoch", "nonce")


class ChangeReply(NamedTuple):
    """What became of a change, in one form for all scripts that write one."""

    verdict: Reply
    """`ok`; `again`: it was written before; `received`: its message was; `held`: another run has the key; `refused`."""
    row: Reply = None  # as it is now, if that is not what the change says; of the holder, if that stands in the way
    holder: Reply = None  # the id of the run that has the key, or has received the message
    left: Reply = None  # messages for other shards: the id in the outbox, and the packed words
    told: Reply = None  # the ids of runs that got a message
    woken: Reply = None  # what the wake-ups of those begin with that may be claimed now


class PlaceReply(NamedTuple):
    """What has become of a place in a lane, and who may go by that."""

    verdict: Reply
    """`ok`; `busy` or `full`: there is no room."""
    left: Reply = None  # messages for other shards, as in `ChangeReply`
    told: Reply = None  # the ids of runs of this shard that may go
    woken: Reply = None  # what the wake-ups of those begin with
    first: Reply = None  # the run that stands in the way
    until_ms: Reply = None  # until when the place is reserved


class Reserved(NamedTuple):
    """Whether a signal is reserved at its token: `ok`; `received`, now or before; `refused`."""

    verdict: Reply
    receiver: Reply = None  # behind a zero, the reservation follows if it has not ended
    name: Reply = None  # under which the signal's id counts
    reservation: Reply = None


class Remembered(NamedTuple):
    """All that is needed to continue a run."""

    row: Reply
    journal: Reply
    mail: Reply
    aux: Reply


class Leased(NamedTuple):
    """All leases: of each live one the owner, its end and what it serves; of expired ones the owner."""

    live: Reply
    expired: Reply


# Changes
ADMIT = Script(
    "admit",
    uses=("hashes", "clock", "inbox", "received", "beside", "outbox", "kept", *_LANE_LUA),
    keys=("index", "names", "run", "journal"),
    # What most new runs do not have yet; the run that has the key, if it is to be taken from there
    further_keys=(("box", "mail", "aux", "blobs", "out"), ("holder_run", "holder_box", "holder_mail")),
    args=(
        instant_when_asked("now"),
        *("id", "key", "held_by", *_FENCE, "entries", hash_fields("fields", *NEW)),
        *(each("index_members"), each("large"), each("notes"), each("claims")),
        records("envelopes", "to", "id", "scope", "former", "body"),  # `to` is empty for the run itself
        records("enters", *_ENTERING, "parked_max", "if_free", "no_room", "until_ms"),
        each("take_turn"),  # what becomes of its row if it need not wait
        records("kept", *_KEPT),
    ),
    row=ROW,
    reply=ChangeReply,
)
HOLDER = Script("holder", uses=("beside",), keys=("names", "run"), args=("id", "key"), row=ROW, reply=ChangeReply)
PROGRESS = Script(
    "progress",
    uses=("hashes",),
    keys=("run", "journal"),
    further_keys=(("box", "mail", "blobs", "index"),),  # for messages and large values
    args=("id", *_FENCE, "position", "length", "change", "entries", each("read"), each("large")),
    row=ROW,
    reply=ChangeReply,
)
SETTLE = Script(
    "settle",
    uses=("hashes", "clock", "inbox", "outbox", "kept", *_LANE_LUA),
    keys=("index", "run", "journal", "aux", "out"),
    # For messages, large values and the key; the successor that takes over the key, if there is one
    further_keys=(
        ("box", "mail", "blobs", "names"),
        ("next_run", "next_journal", "next_box", "next_mail", "next_blobs"),
    ),
    args=(
        instant_when_asked("now"),
        *("id", *_FENCE, "position", "length", "change", "entries", "attributes", "successor"),
        *(flag("goes_on"), flag("ends"), flag("replaces_journal"), flag("loses_key")),
        *(hash_fields("moved", *MOVED), each("further"), each("read"), each("large")),
        *(each("beats"), each("opens"), each("closes")),
        # The successor, and the messages that it takes over unread or read
        *(each("next_fields"), each("next_entries"), each("next_members"), each("next_large")),
        *(records("moves", "id", "scope"), records("inherits", "id", "scope", "body")),
        # Lanes: what is left, what is entered; the same for the successor
        records("leaves", "lane", "home", "member", "message"),
        *(records("enters", *_ENTERING), each("take_turn"), records("next_enters", *_ENTERING), each("next_turn")),
        records("kept", *_KEPT),
    ),
    row=ROW,
    reply=ChangeReply,
)
SEND = Script(
    "send",
    uses=("hashes", "clock", "inbox", "received", "kept"),
    keys=_INBOX,
    args=(
        *(instant("now"), "id", flag("needs_key"), flag("loses_key"), each("large")),
        # `scope` and `former` count in this shard; `place` is where the id counts at all, which may be in another one
        records("envelopes", "id", "scope", "former", "place", "body"),
        records("kept", *_KEPT),
    ),
    row=ROW,
    reply=ChangeReply,
)
WATCH = Script(
    "watch",
    uses=("outbox",),
    keys=("out", "run", "aux"),
    args=("id", "watcher", "life"),  # life: the epoch of the watcher, or 0
    row=ROW,
    reply=ChangeReply,
)
BEAT = Script("beat", uses=("hashes",), keys=("run", "aux"), args=(*_FENCE, each("beats")), row=ROW, reply=ChangeReply)

# Tokens, which live in a shard of their own
CLAIM_TOKEN = Script("claim_token", keys=("names",), args=("token", "id", "taken_from", "held"))
FREE_TOKEN = Script("free_token", keys=("names",), args=("token", "id", "opening"))
OPEN_HOOK = Script("open_hook", uses=("hashes",), keys=("run", "aux"), args=(*_FENCE, "hook", "token", "opened"))
END_WISH = Script("end_wish", keys=("aux",), args=("wish", "hook", "opened"))
RESERVE = Script(
    "reserve",
    uses=("received",),
    keys=("names", "out"),
    args=("token", "id", "scope", "former", "message"),
    reply=Reserved,
)
END_RESERVATION = Script(
    "end_reservation", keys=("names", "out"), args=("scope", "id", "reservation", flag("received"))
)
FORGET_SCOPE = Script("forget_scope", keys=("names",), args=("scope", "id"))

# Lanes, which live in a shard of their own, too
RESERVE_PLACE = Script(
    "reserve_place",
    uses=("hashes", "clock", "outbox", *_LANE_LUA),
    keys=_LANES,
    args=(
        *(instant("now"), "id", "lane", "width", "rank", "wake", number("reserve_ms")),
        *("parked_max", flag("if_free")),
    ),
    reply=PlaceReply,
)
GIVE_BACK_PLACE = Script(
    "give_back_place",
    uses=("hashes", "clock", "outbox", *_LANE_LUA),
    keys=_LANES,
    args=(instant("now"), each("ids")),
)
ENTER_LANE = Script(
    "enter_lane",
    uses=("hashes", "clock", "outbox", *_LANE_LUA),
    keys=_LANES,
    args=(instant("now"), "id", "lane", "epoch", "width", "rank", "wake"),
    reply=PlaceReply,
)
LEAVE_LANE = Script(
    "leave_lane",
    uses=("hashes", "clock", "outbox", *_LANE_LUA),
    keys=_LANES,
    args=(instant("now"), "id", "lane", "epoch", flag("home")),
    reply=PlaceReply,
)
GO = Script(
    "go", uses=("hashes", "clock", "outbox", "rows", "parked"), keys=("index", "run"), args=("id", "epoch", "wake")
)
SET_LANE = Script(
    "set_lane",
    uses=("hashes", "clock", "outbox", "kept", *_LANE_LUA),
    keys=_LANES,
    # `before` is how it was set, as the caller has seen it
    args=(instant("now"), "lane", "before", "width", "paused", records("kept", *_KEPT)),
    reply=PlaceReply,
)
LANE_STATES = Script(
    "lane_states",
    uses=("hashes", "clock", "outbox", *_LANE_LUA),
    keys=_LANES,
    args=(instant("now"), "limit", each("wanted")),
)
STANDING = Script("standing", uses=("hashes", "clock", "outbox", *_LANE_LUA), keys=_LANES, args=(instant("now"), "id"))
PLACES = Script("places", keys=("names",), args=(each("ids"),))
FORGET_LANES = Script(
    "forget_lanes",
    uses=("hashes", "clock", "outbox", *_LANE_LUA),
    keys=_LANES,
    args=(instant("now"), number("idle_ms"), "limit"),
)
FORGET_PLACE = Script("forget_place", keys=("names",), args=("id",))

# Messages between shards
LEFT = Script("left", uses=("clock",), keys=("out",), args=(instant("now"), number("age_ms"), "after", "limit"))
DELIVERED = Script("delivered", keys=("out",), args=(each("ids"),))

# Claims and leases
READY = Script(
    "ready",
    uses=("clock",),
    keys=("index",),
    args=(instant("server_now"), number("client_now"), number("limit"), each("prefixes")),
)
WAKES = Script("wakes", keys=("index",), args=(each("prefixes"),))
TAKE = Script(
    "take",
    uses=("clock", "rows"),
    keys=("index", "run"),
    args=(instant("server_now"), number("client_now"), "id", "owner", "nonce"),
    row=ROW,
)
FREE = Script("free", uses=("clock", "rows"), keys=("index", "run"), args=(instant("now"), "id", "owner"))
JOIN = Script("join", uses=("clock",), keys=_LEASES, args=(instant("now"), "owner", number("ttl_ms"), "serves"))
RENEW = Script("renew", uses=("clock",), keys=("expiries",), args=(instant("now"), "owner", number("ttl_ms")))
LEASES = Script("leases", uses=("hashes", "clock"), keys=_LEASES, args=(instant("now"),), reply=Leased)
END_LEASES = Script(
    "end_leases",
    uses=("clock",),
    keys=_LEASES,
    args=(instant("now"), flag("only_expired"), number("expired_until_ms"), each("owners")),
)

# Reads
RUN = Script("run", keys=("run",), row=ROW)
HASH = Script("hash", keys=("hash",))
HISTORY = Script("history", keys=("run", "journal", "mail", "aux"), row=ROW, reply=Remembered)
MAIL = Script("mail", keys=("run", "mail"), args=("owner",))
FIELD = Script("field", keys=("hash",), args=("field",))
BLOB = Script("blob", keys=("run", "blobs"), args=("digest",))
RANGE = Script("range", keys=("index",), args=(flag("backwards"), "limit", records("stretches", "from", "to")))
COUNT = Script("count", keys=("index",), args=(records("stretches", "low", "high"),))
FIRSTS = Script("firsts", keys=("index",), args=("prefix",))

# Retention
FORGET = Script(
    "forget",
    uses=("hashes", "clock", "rows", "outbox"),
    keys=_WHOLE,
    args=(instant("now"), "id", "blobs_ms", each("lasting_members"), each("further")),
    reply=ChangeReply,
)

# Outs and audits
KEPT_PAGE = Script("kept_page", keys=("index", "names"), args=("prefix", "after", "limit"))
DROP_KEPT = Script("drop_kept", keys=("index", "names"), args=("prefix", each("places")))

# Documents
WRITE_DOCUMENT = Script(
    "write_document",
    uses=("clock",),
    keys=("index", "docs"),
    args=(instant("now"), "place", "replaces", "version", "expires", "document", each("document_members")),
)
DOCUMENTS = Script(
    "documents",
    uses=("clock",),
    keys=("index", "docs"),
    args=(instant("now"), number("limit"), "low", "high", number("width"), each("places")),
)
FORGET_DOCUMENT = Script("forget_document", uses=("clock",), keys=("index", "docs"), args=(instant("now"), "place"))

# Limits. The keys are those of the counts, as many as there are costs
SPEND = Script(
    "spend",
    uses=("clock",),
    keys=(),
    key_list="counts",
    args=(instant("now"), records("costs", "takes_us", "burst_us")),
)

SHARDS = Script("shards", keys=("layout",), args=("wanted",))

# Flow rules. A rate and a line have keys of their own, which are forgotten by themselves
TAKE_RATE = Script(
    "take_rate",
    uses=("clock",),
    keys=("rate",),
    args=(instant("now"), "id", number("burst_us"), number("cost_us"), number("kept_ms")),
)
GIVE_BACK_RATE = Script("give_back_rate", keys=("rate",), args=("id", number("cost_us")))
STAND_IN_LINE = Script("stand_in_line", keys=("line",), args=("share", flag("has_begun"), number("kept_ms")))
LEAVE_LINE = Script("leave_line", keys=("line",), args=("share", number("tag")))
REACH = Script("reach", keys=("line",), args=(number("tag"), number("kept_ms")))
TAG = Script("tag", keys=("index", "run"), args=("member", "share"))
UNTAG = Script("untag", keys=("index", "run"), args=("member",))
RENEW_INPUT = Script(
    "renew_input",
    uses=("hashes", "clock", "rows"),
    keys=("index", "names", "run", "journal", "blobs"),
    args=("id", *_FENCE, "change", "wake", "attributes", "entries", each("written"), each("large")),
    row=ROW,
    reply=ChangeReply,
)
GATHER = Script(
    "gather",
    uses=("hashes", "clock", "rows", "inbox", "received"),
    keys=_INBOX,
    args=(
        *(instant("now"), "id", number("size"), number("bytes_max")),
        *("item_id", "scope", "former_scope", "body"),
    ),
    row=ROW,
    reply=ChangeReply,
)

"""What may become of a request, by the one question that matters: whether it was executed.

    a reply                executed
    NotSent                not executed: it never left this process
    ServerError            the code says. Most refusals come before anything was done (below); a script that fails
                           half way has done its first half
    LostConnection         it is not known: the connection broke, or the answer did not come in time
    Unconfirmed            executed, by one node alone: a failover undoes it

What was certainly not executed is tried again for a while, and so is a lost read, which has changed nothing. Everything
else is told to the caller, never repeated.
The codes below are certain even when a script meets them: Redis checks each of them no later than at the first
write of a script, and none of them comes true while the script runs.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from holdfast.errors import InvalidConfig, StoreUnavailable
from holdfast.stores.redis.net.urls import ServerAddress


class NotSent(Exception):
    """There is no connection; nothing was sent."""


class ServerError(Exception):
    """A reply that is an error. It arrives as a value among the others."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.code = text.partition(" ")[0]


class LostConnection(NamedTuple):
    """The answer to a request will not come. It may have been executed."""

    address: ServerAddress
    why: str

    def error(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self.address}: {self.why}; what became of the request is not known",
            hint="It may or may not have been done. The same change may be offered again: it counts once.",
        )


class Unconfirmed(NamedTuple):
    """A primary has executed a request, and too few replicas have said that they have it, too."""

    address: ServerAddress
    why: str

    def error(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self.address}: {self.why}; it was done there, and is lost if another node takes over now",
            hint="The same change may be offered again: it counts once, and is confirmed when a replica has it."
            " Is the replica running and in step? `holdfast doctor` says how many follow; with wait=auto in the URL"
            " work goes on without one, and what is confirmed then is lost with the primary.",
        )


class Verdict(Enum):
    """What to do about an error reply."""

    MOVED = auto()  # another node has the slot, for good
    ASK = auto()  # another node has this key already, but not yet the slot
    UNKNOWN_SCRIPT = auto()  # send its source
    AGAIN = auto()  # not executed; it can be done soon, there or elsewhere
    TROUBLE = auto()  # not executed, and waiting does not help: people have to see to it
    FAILED = auto()  # the script itself


_VERDICTS = {
    "MOVED": Verdict.MOVED,
    "ASK": Verdict.ASK,
    "NOSCRIPT": Verdict.UNKNOWN_SCRIPT,
    "TRYAGAIN": Verdict.AGAIN,  # half of the keys have been moved to another node
    "LOADING": Verdict.AGAIN,
    "BUSY": Verdict.AGAIN,
    "NOREPLICAS": Verdict.AGAIN,
    "READONLY": Verdict.AGAIN,
    "CLUSTERDOWN": Verdict.AGAIN,
    "MASTERDOWN": Verdict.AGAIN,
    "OOM": Verdict.TROUBLE,
    "MISCONF": Verdict.TROUBLE,
    "NOAUTH": Verdict.TROUBLE,
    "NOPERM": Verdict.TROUBLE,
    "WRONGPASS": Verdict.TROUBLE,
}

_HINTS = {
    "OOM": "Give it more memory (maxmemory), or remove what else it holds; work goes on by itself then.",
    "MISCONF": "It cannot write to its disk: look at its log and at the free space; work goes on by itself then.",
    "NOAUTH": "It wants a password: write redis://:password@host:port.",
    "NOPERM": "Its ACL forbids this to our user: `ACL SETUSER` with the commands, ~{hf:* (keys) and &hf:* (channels).",
    "WRONGPASS": "Correct the user and the password in the URL.",
    "LOADING": "It reads its data from disk after a start; that may take minutes.",
    "BUSY": "It is busy with a script of another client. `redis-cli SCRIPT KILL` ends one that has written nothing.",
    "NOREPLICAS": "Fewer replicas are connected than min-replicas-to-write asks for.",
    "READONLY": "It is a replica, and no primary was found in the meantime. Is a failover under way?",
    "CLUSTERDOWN": "Some slots have no primary: look at `redis-cli cluster info` and at the nodes that are down.",
    "MASTERDOWN": "It is a replica that has lost its primary. Is a failover under way?",
    "TRYAGAIN": "A slot is being moved between nodes, and that takes long: look for an interrupted `reshard`.",
}


def verdict(error: ServerError) -> Verdict:
    return _VERDICTS.get(error.code, Verdict.FAILED)


def trouble(address: ServerAddress, error: ServerError) -> StoreUnavailable:
    """A refusal, in our words."""
    return StoreUnavailable(f"{address} refuses: {error.text}", hint=_hint(error))


class Unwelcome(Exception):
    """A server does not let us in. Nothing was sent but the greeting."""

    def __init__(self, address: ServerAddress, error: ServerError) -> None:
        super().__init__(error.text)
        self.address = address
        self.error = error

    def at_first(self) -> InvalidConfig:
        """The first greeting was refused: the URL is wrong."""
        return InvalidConfig(f"{self.address} refuses us: {self.error.text}", hint=_hint(self.error))

    def later(self) -> StoreUnavailable:
        """A greeting like those before was refused: the server has been changed, and may be changed again."""
        return trouble(self.address, self.error)


def _hint(error: ServerError) -> str:
    if error.text.startswith("ERR AUTH"):
        return "It knows no password. Take it out of the URL, or set `requirepass` there."
    if "DB index" in error.text:
        return "It has fewer databases: use another number behind the slash, or none."
    return _HINTS.get(error.code, "")

"""Shards: slices of the store inside which one commit is atomic. Where everything lives, and what its keys are called.

Rules
- A run lives in the shard that its id ends in. One with a key is given the shard of its key, so that the key, its
  holder and the run that wants it next are together. One without a key is given the shard of its lane, if it has one.
  The lane of a debounced key is in the shard of that key.
  A token, a lane and a document have the shard of their own name.
- All keys of a shard begin with the same hash tag: one slot, hence one node. Names of people come behind it, so that no
  brace in them can choose another slot.
- The number of shards is fixed when the store is made: it is part of every run id.

    shard    index   every index there is: a set in lexicographic order, members as in `rows`
             names   what has one holder: keys and tokens; lanes and the places in them; the ids of messages that count
                     beyond their run; outs and audits
             docs    documents
             out     messages that other shards have not got yet
             rate:*  how much is taken of a rate              line:*  runs that take turns
    run      run     the row         journal   what it has done       box    the ids of all messages it has received
             mail    unread ones     aux       watchers, hooks, beats  blobs  large values
    limit    limit   one count of a limit: not durable, and expired by Redis itself
    meta     shards  their number    until     leases by expiry       members   what each owner serves
"""

from __future__ import annotations

from collections.abc import Mapping
from zlib import crc32

from holdfast.kernel import debounces, ids

Keys = Mapping[str, bytes]  # by the names that scripts give them


class Shards:
    """The places of a store of this name."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self.count = count
        self.all = range(count)
        self._tags = [f"{{hf:{name}:{shard}}}".encode() for shard in self.all]
        self._of_shard = [
            {"index": tag + b"index", "names": tag + b"names", "docs": tag + b"docs", "out": tag + b"out"}
            for tag in self._tags
        ]
        meta = f"{{hf:{name}:meta}}".encode()
        self.layout: Keys = {"layout": meta + b"shards"}
        self.leases: Keys = {"expiries": meta + b"until", "members": meta + b"members"}

    # -- which shard

    def id_for(self, run_id: str, *, namespace: str, workflow: str, key: str | None, lane: str = "") -> str:
        if key is not None:
            shard = self.of_key(namespace, workflow, key)
        else:
            shard = self.of_lane(namespace, lane) if lane else self._hashed("run", run_id)
        return f"{run_id}{ids.SHARD}{shard:02x}"

    def of_run(self, run_id: str) -> int:
        """The shard that the id ends in. What has no such end is no run's id; any shard will say so."""
        _, separator, shard = run_id.rpartition(ids.SHARD)
        try:
            return int(shard, 16) % self.count if separator else 0
        except ValueError:
            return 0

    def of_key(self, namespace: str, workflow: str, key: str) -> int:
        return self._hashed("key", namespace, workflow, key)

    def of_token(self, namespace: str, token: str) -> int:
        return self._hashed("token", namespace, token)

    def of_lane(self, namespace: str, lane: str) -> int:
        key = debounces.key_of_lane(lane)
        return self._hashed("lane", namespace, lane) if key is None else self.of_key(namespace, *key)

    def of_rule(self, namespace: str, name: str) -> int:
        return self._hashed("rule", namespace, name)

    def of_document(self, namespace: str, kind: str, id: str) -> int:
        return self._hashed("document", namespace, kind, id)

    def _hashed(self, *name: str) -> int:
        return crc32("\0".join(name).encode()) % self.count

    # -- keys

    def count_key(self, namespace: str, place: str) -> bytes:
        """Where a count of a limit is kept. All of a namespace are in one shard."""
        return self._tags[self._hashed("limits", namespace)] + f"limit:{namespace}\0{place}".encode()

    def rule(self, kind: bytes, namespace: str, name: str) -> bytes:
        """The key of a rate, or of a line in which runs take turns."""
        tag = self._tags[self.of_rule(namespace, name)]
        return tag + kind + b":" + f"{len(namespace)}:{namespace}:{name}".encode()

    def of_shard(self, shard: int) -> Keys:
        """The keys of a shard."""
        return self._of_shard[shard]

    def index(self, shard: int) -> bytes:
        return self._of_shard[shard]["index"]

    def names(self, shard: int) -> bytes:
        return self._of_shard[shard]["names"]

    def out(self, shard: int) -> bytes:
        return self._of_shard[shard]["out"]

    def part(self, part: bytes, run_id: str) -> bytes:
        """The key of a part of a run."""
        return self._tags[self.of_run(run_id)] + part + b":" + run_id.encode()

    def core(self, run_id: str) -> dict[str, bytes]:
        """The keys that a run needs which has got no messages, and has no large values."""
        shard = self.of_run(run_id)
        tag, name, of_shard = self._tags[shard], b":" + run_id.encode(), self._of_shard[shard]
        return {
            "index": of_shard["index"],
            "names": of_shard["names"],
            "out": of_shard["out"],
            "run": tag + b"run" + name,
            "journal": tag + b"journal" + name,
            "aux": tag + b"aux" + name,
        }

    def whole(self, run_id: str) -> dict[str, bytes]:
        """The keys of the run and of its shard."""
        shard = self.of_run(run_id)
        tag, name = self._tags[shard], b":" + run_id.encode()
        return {
            **self._of_shard[shard],
            "run": tag + b"run" + name,
            "journal": tag + b"journal" + name,
            "box": tag + b"box" + name,
            "mail": tag + b"mail" + name,
            "aux": tag + b"aux" + name,
            "blobs": tag + b"blobs" + name,
        }

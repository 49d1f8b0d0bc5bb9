"""Makes the file that W7 searches: very many runs, as the store writes them, and none of the work.

`python -m bench.archive --runs 1000000 --directory DIR` says how many it has written, a line for each batch.

Every run is admitted and ended by the kernel's own decisions, through the store's own commit, some thousands to a
transaction. The indexes are laid aside meanwhile and made again at the end, which gives the same indexes sooner. The
runs were created one a second, the last of them just now.
"""

import argparse
import asyncio
import json
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw

from bench.contenders.holdfast_pack import path
from bench.shapes import attributes_of, key_of, status_of
from holdfast.adapters.machine import SystemClock
from holdfast.engine.values import digest_of, kept
from holdfast.kernel import attributes, starts, transitions
from holdfast.kernel.changes import Change
from holdfast.kernel.journal import Failure, Value
from holdfast.kernel.starts import Hand, Wanted
from holdfast.stores.sqlite.store import SqliteStore

BATCH = 5_000
APART_MS = 1_000
TOOK_MS = 500
RETENTION_MS = 10 * 365 * 86_400_000
HAND = Hand("archive", "archive")
INDEXES = "select name, sql from sqlite_master where type = 'index' and sql is not null"


async def build(file: Path, count: int) -> None:
    """Write the file, and say how far it has come."""
    store = SqliteStore(file, clock=SystemClock())
    await store.open()
    try:
        with closing(apsw.Connection(str(file))) as db:
            indexes = list(db.execute(INDEXES))
            for name, _ in indexes:
                db.execute(f"drop index {name}")
            first_ms = store.now_ms() - count * APART_MS
            for begin in range(0, count, BATCH):
                numbers = range(begin, min(begin + BATCH, count))
                await store.commit([change for i in numbers for change in life(i, count, first_ms + i * APART_MS)])
                print(f"{numbers.stop:,} runs of {count:,}", flush=True)
            for name, sql in indexes:
                print(f"index {name}", flush=True)
                db.execute(sql)
    finally:
        await store.close()


def life(number: int, count: int, now_ms: int) -> Iterator[Change]:
    """A run is admitted, and comes to what its number says."""
    data = json.dumps({"order": f"a-{number}"}).encode()
    value, _ = kept(data)
    run_id = f"{now_ms:012x}{random.getrandbits(80):020x}"  # as the engine forms them
    wanted = Wanted(
        run_id=run_id,
        namespace="default",
        workflow="bench.archived",
        key=key_of(number),
        queue="default",
        priority=0,
        delay_ms=0,
        retention_ms=RETENTION_MS,
        digest=digest_of(data),
        request_id=run_id,
        input=value,
        attributes=attributes.encode(attributes_of(number, count)),
    )
    admitted = starts.admission(wanted, now_ms=now_ms, hand=HAND)
    assert admitted.run is not None
    yield admitted
    yield transitions.decide(admitted.run, _event(status_of(number), value), now_ms=now_ms + TOOK_MS)


def _event(status: str, value: Value) -> transitions.Event:
    match status:
        case "failed":
            return transitions.RunRaised(Failure("ValueError", "it did not work"))
        case "cancelled":
            return transitions.CancelledItself()
        case "waiting":
            return transitions.LetGo(None)
        case _:
            return transitions.RunReturned(value)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--directory", type=Path, required=True)
    asked = parser.parse_args()
    asyncio.run(build(path(asked.directory), asked.runs))

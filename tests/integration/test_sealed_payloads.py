"""`Holdfast(seal=...)`: payloads are closed at rest, and all else goes on as before."""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Mapping, Sequence
from hashlib import blake2b, shake_256
from typing import Any, get_args

import apsw
import msgspec
import pytest
from msgspec.structs import fields

from holdfast import Holdfast, InputMismatch, Pack, Permanent, Run, RunFailed, continue_as_new, hook
from holdfast.assembly import Sealed
from holdfast.engine.values import INLINE_MAX
from holdfast.errors import SealedPayload, StoreUnavailable
from holdfast.events import RunBlocked, RunEnded, RunLetGo
from holdfast.journal import Performed, Received
from holdfast.kernel.changes import Answer, Change
from holdfast.kernel.journal import Entry, Value
from holdfast.ports.store import Store
from holdfast.stores.sealed import VALUE_FIELDS
from tests.integration.conftest import PATIENCE_SECONDS, Home, SqliteHome, eventually, heard

CANARY = "canary-4711"
LARGE = INLINE_MAX + 1000


class Keys:
    """A seal of the standard library: it hides and authenticates, and is good for tests only."""

    def __init__(self, *key_ids: str, seals: bool = True) -> None:
        self.key_ids = key_ids
        self.seals = seals

    def seal(self, data: bytes) -> Sealed | None:
        if not self.seals:
            return None
        key_id, nonce = self.key_ids[-1], os.urandom(12)
        hidden = _masked(key_id, nonce, data)
        return Sealed(key_id, nonce + _tag(key_id, nonce + hidden) + hidden)

    def open(self, sealed: Sealed) -> bytes:
        key_id, nonce, tag, hidden = sealed.key_id, sealed.data[:12], sealed.data[12:28], sealed.data[28:]
        if key_id not in self.key_ids:
            raise LookupError(f"no key {key_id}")
        if not hmac.compare_digest(tag, _tag(key_id, nonce + hidden)):
            raise ValueError("it was changed")
        return _masked(key_id, nonce, hidden)


def _masked(key_id: str, nonce: bytes, data: bytes) -> bytes:
    mask = shake_256(key_id.encode() + nonce).digest(len(data))
    return (int.from_bytes(data, "big") ^ int.from_bytes(mask, "big")).to_bytes(len(data), "big")


def _tag(key_id: str, data: bytes) -> bytes:
    return blake2b(data, key=key_id.encode(), digest_size=16).digest()


class Clinic:
    """Values that nobody else may read, on all the ways that they take."""

    def __init__(self) -> None:
        self.pack = Pack("clinic")
        self.performed: list[str] = []
        self.broken = False
        self.gate = asyncio.Event()
        self.gate.set()

        @self.pack.effect
        async def look_up(sample: str) -> str:
            await self.gate.wait()
            self.performed.append(sample)
            return f"{sample}:{CANARY}"

        @self.pack.effect
        async def fragile() -> None:
            if self.broken:
                raise Permanent("broken")

        @self.pack.workflow(key="report:{patient}", record_inputs=True)
        async def report(patient: int, sample: str) -> str:
            finding = await look_up(sample)
            signed = await hook("signed", type=str)
            await fragile()
            return f"{finding}/{signed}"

        @self.pack.workflow
        async def parent(sample: str, size: int) -> int:
            return len(await child(sample, size))

        @self.pack.workflow
        async def child(sample: str, size: int) -> str:
            return await look_up(sample) + CANARY * (size // len(CANARY))

        @self.pack.workflow
        async def rounds(left: int, sample: str) -> str:
            if left:
                await look_up(sample)
                continue_as_new(rounds(left - 1, sample))
            return sample

        @self.pack.workflow(key="case:{patient}")
        async def case(patient: int, first: str) -> str:
            words = await hook("words", type=str)
            return first + words

        @self.pack.workflow
        async def two_words() -> list[str]:
            words = hook("words", type=str)
            return [await words, await words]

        self.report, self.parent, self.rounds, self.case, self.two_words = report, parent, rounds, case, two_words

    async def reported(self, hf: Holdfast, patient: int = 1) -> Run[Any]:
        run, _ = await hf.start(self.report(patient, CANARY))
        await run.signal("signed", f"signed:{CANARY}")
        return run


@pytest.fixture
def clinic() -> Clinic:
    return Clinic()


def stored(home: SqliteHome) -> bytes:
    """All that is in the file and beside it."""
    return b"".join(file.read_bytes() for file in home.path.parent.glob(f"{home.path.name}*") if file.is_file())


WHOLE = f"{CANARY}:{CANARY}/signed:{CANARY}"


@pytest.mark.parametrize("seal", [None, Keys("k1")], ids=["open", "sealed"])
async def test_the_stored_bytes_have_no_payload(sqlite_home: SqliteHome, clinic: Clinic, seal: Keys | None) -> None:
    async with sqlite_home.holdfast(clinic.pack, seal=seal) as hf:
        run = await clinic.reported(hf)
        assert await run.result() == WHOLE
        large, _ = await hf.start(clinic.parent(CANARY, LARGE))
        assert await large.result() > LARGE
        assert (CANARY.encode() in stored(sqlite_home)) is (seal is None)


async def test_no_change_carries_a_payload_to_any_store(home: Home, clinic: Clinic) -> None:
    offered: list[bytes] = []

    def through(store: Store) -> Store:
        commit = store.commit

        async def noted(changes: Sequence[Change]) -> list[Answer]:
            # Blobs and rows have bytes, which JSON would show as base64.
            offered.extend(repr(change).encode() for change in changes)
            for change in (*changes, *(change.then for change in changes if change.then is not None)):
                offered.append(msgspec.json.encode((change.entries, change.envelopes)))
                offered.extend(blob.data for blob in change.blobs)
            return await commit(changes)

        vars(store)["commit"] = noted
        return store

    # A signal that the owner of the key does not take begins a successor, in the change that ends the owner.
    async with home.holdfast(clinic.pack, seal=Keys("k1"), worker=False) as hf:
        for dedupe in ("first", "second"):
            await hf.start(clinic.case(1, CANARY), signal=("words", CANARY, dedupe))
    async with home.holdfast(clinic.pack, seal=Keys("k1"), through=through) as hf:
        assert await (await clinic.reported(hf)).result(timeout=PATIENCE_SECONDS) == WHOLE
        large, _ = await hf.start(clinic.parent(CANARY, LARGE))
        assert await large.result(timeout=PATIENCE_SECONDS) > LARGE
        await heard(hf).until(RunEnded, workflow="clinic.case", count=2)
    assert b"k1" in b"".join(offered)
    assert CANARY.encode() not in b"".join(offered)


async def test_what_lies_in_an_inbox_is_sealed(sqlite_home: SqliteHome, clinic: Clinic) -> None:
    async with sqlite_home.holdfast(clinic.pack, worker=False, seal=Keys("k1")) as hf:
        run = await clinic.reported(hf)
        assert CANARY.encode() not in stored(sqlite_home)
    async with sqlite_home.holdfast(clinic.pack, seal=Keys("k1")) as hf:
        assert await (await hf.get(run.id)).result() == WHOLE


async def test_all_is_read_as_before_in_another_process(home: Home, clinic: Clinic) -> None:
    async with home.holdfast(clinic.pack, seal=Keys("k1")) as hf:
        run = await clinic.reported(hf)
        await run.result()
    async with home.holdfast(clinic.pack, seal=Keys("k1"), worker=False) as hf:
        again = await hf.get(run.id)
        assert await again.result() == WHOLE
        assert await again.input() == {"patient": 1, "sample": CANARY}
        journal = await again.journal()
        assert [repr(entry.value) for entry in journal if isinstance(entry, Received)] == [f'<"signed:{CANARY}">']
        [recorded] = [e.input for e in journal if isinstance(e, Performed) and e.intent.name == "clinic.look_up"]
        assert recorded is not None
        assert CANARY in repr(recorded)


async def test_the_same_input_joins_and_another_one_is_refused(home: Home, clinic: Clinic) -> None:
    async with home.holdfast(clinic.pack, seal=Keys("k1")) as hf:
        run = await clinic.reported(hf)
    async with home.holdfast(clinic.pack, seal=Keys("k1", "k2")) as hf:
        same, created = await hf.start(clinic.report(1, CANARY))
        assert (same.id, created) == (run.id, False)
        with pytest.raises(InputMismatch):
            await hf.start(clinic.report(1, "another"))


async def test_a_run_goes_on_after_a_restart_and_performs_nothing_again(home: Home, clinic: Clinic) -> None:
    async with home.holdfast(clinic.pack, seal=Keys("k1")) as hf:
        run, _ = await hf.start(clinic.report(1, CANARY))
        await eventually(lambda: clinic.performed == [CANARY])
    async with home.holdfast(clinic.pack, seal=Keys("k1", "k2")) as hf:
        run = await hf.get(run.id)
        await run.signal("signed", f"signed:{CANARY}")
        assert await run.result(timeout=PATIENCE_SECONDS) == WHOLE
    assert clinic.performed == [CANARY]


@pytest.mark.parametrize("size", [0, LARGE])
async def test_children_and_large_values(home: Home, clinic: Clinic, size: int) -> None:
    async with home.holdfast(clinic.pack, seal=Keys("k1")) as hf:
        run, _ = await hf.start(clinic.parent(CANARY + "x" * size, size))
        assert await run.result(timeout=PATIENCE_SECONDS) >= size
        fork = await run.fork(at="child#1")
        assert await fork.result(timeout=PATIENCE_SECONDS) == await run.result()


@pytest.mark.parametrize("size", [0, LARGE])
async def test_a_run_that_continues_as_new(home: Home, clinic: Clinic, size: int) -> None:
    async with home.holdfast(clinic.pack, seal=Keys("k1")) as hf:
        run, _ = await hf.start(clinic.rounds(2, "x" * size))
        assert len(await run.result(timeout=PATIENCE_SECONDS)) == size
        assert (await run.refresh()).status == "completed"


async def test_a_failed_run_is_retried_and_its_journal_replays(home: Home, clinic: Clinic) -> None:
    clinic.broken = True
    async with home.holdfast(clinic.pack, seal=Keys("k1")) as hf:
        run = await clinic.reported(hf)
        with pytest.raises(RunFailed):
            await run.result(timeout=PATIENCE_SECONDS)
        clinic.broken = False
        await run.retry()
        assert await run.result(timeout=PATIENCE_SECONDS) == WHOLE
        assert [each.divergence for each in await hf.replay_check(status=None)] == [""]
    assert clinic.performed == [CANARY]
    # Without the seal the check says why it can say nothing.
    async with home.holdfast(clinic.pack, worker=False) as hf:
        [told] = await hf.replay_check(status=None)
        assert "sealed under key 'k1'" in told.divergence


async def test_a_key_is_rotated(sqlite_home: SqliteHome, clinic: Clinic) -> None:
    async with sqlite_home.holdfast(clinic.pack, seal=Keys("k1")) as hf:
        await (await clinic.reported(hf, 1)).result()
    async with sqlite_home.holdfast(clinic.pack, seal=Keys("k1", "k2")) as hf:
        assert await (await clinic.reported(hf, 2)).result() == WHOLE
        assert await (await hf.find(clinic.report, "report:1")).result() == WHOLE
    async with sqlite_home.holdfast(clinic.pack, seal=Keys("k2")) as hf:
        assert await (await hf.find(clinic.report, "report:2")).result() == WHOLE
        with pytest.raises(SealedPayload, match=r"under key 'k1'.*LookupError: no key k1"):
            await (await hf.find(clinic.report, "report:1")).result()


async def test_what_was_stored_before_there_was_a_seal_stays_readable(home: Home, clinic: Clinic) -> None:
    async with home.holdfast(clinic.pack) as hf:
        run, _ = await hf.start(clinic.report(1, CANARY))
        await eventually(lambda: clinic.performed == [CANARY])
    async with home.holdfast(clinic.pack, seal=Keys("k1")) as hf:
        run = await hf.get(run.id)
        assert await run.input() == {"patient": 1, "sample": CANARY}
        await run.signal("signed", f"signed:{CANARY}")
        assert await run.result(timeout=PATIENCE_SECONDS) == WHOLE


async def test_a_seal_that_only_opens_stores_as_it_is(home: Home, clinic: Clinic) -> None:
    async with home.holdfast(clinic.pack, seal=Keys("k1")) as hf:
        await (await clinic.reported(hf, 1)).result()
    async with home.holdfast(clinic.pack, seal=Keys("k1", seals=False)) as hf:
        assert await (await hf.find(clinic.report, "report:1")).result() == WHOLE
        await (await clinic.reported(hf, 2)).result()
    async with home.holdfast(clinic.pack) as hf:
        assert await (await hf.find(clinic.report, "report:2")).result() == WHOLE


# -- without the key


async def test_a_process_without_the_seal_shows_which_key_is_needed(home: Home, clinic: Clinic) -> None:
    async with home.holdfast(clinic.pack, seal=Keys("k1")) as hf:
        run = await clinic.reported(hf)
        await run.result()
    async with home.holdfast(clinic.pack, worker=False) as hf:
        again = await hf.get(run.id)
        assert again.status == "completed"
        assert [repr(entry.value) for entry in await again.journal() if isinstance(entry, Received)] == [
            "<sealed under key k1>"
        ]
        assert [each.id async for each in hf.runs(clinic.report)] == [run.id]
        for read in (again.result, again.input):
            with pytest.raises(SealedPayload, match="under key 'k1'"):
                await read()


@pytest.mark.parametrize("seal", [None, Keys("k2")], ids=["no seal", "another key"])
@pytest.mark.parametrize("size", [0, LARGE])
async def test_a_worker_without_the_key_blocks_the_run_and_one_with_it_goes_on(
    home: Home, clinic: Clinic, seal: Keys | None, size: int
) -> None:
    async with home.holdfast(clinic.pack, seal=Keys("k1"), worker=False) as hf:
        run, _ = await hf.start(clinic.rounds(1, "x" * size))
    async with home.holdfast(clinic.pack, seal=seal) as hf:
        blocked = await heard(hf).until(RunBlocked)
        assert (blocked.code, "key 'k1'" in blocked.message) == ("sealed_payload", True)
        with pytest.raises(SealedPayload, match="key 'k1'"):
            await (await hf.get(run.id)).result(timeout=PATIENCE_SECONDS)
        assert clinic.performed == []
    async with home.holdfast(clinic.pack, seal=Keys("k1")) as hf:
        run = await hf.get(run.id)
        await run.retry()
        assert len(await run.result(timeout=PATIENCE_SECONDS)) == size


async def test_a_sealed_signal_to_a_worker_without_the_key_blocks_the_run_and_is_not_lost(
    home: Home, clinic: Clinic
) -> None:
    async with home.holdfast(clinic.pack) as hf, home.holdfast(worker=False, seal=Keys("k1")) as sender:
        run, _ = await hf.start(clinic.report(1, CANARY))
        await eventually(lambda: clinic.performed == [CANARY])
        await (await sender.get(run.id)).signal("signed", f"signed:{CANARY}")
        assert (await heard(hf).until(RunBlocked)).code == "sealed_payload"
    async with home.holdfast(clinic.pack, seal=Keys("k1")) as hf:
        run = await hf.get(run.id)
        await run.retry()
        assert await run.result(timeout=PATIENCE_SECONDS) == WHOLE
    assert clinic.performed == [CANARY]


async def test_a_worker_without_the_key_does_not_hand_the_code_a_sealed_signal(home: Home, clinic: Clinic) -> None:
    async with home.holdfast(clinic.pack) as hf:
        run, _ = await hf.start(clinic.two_words())
    async with home.holdfast(clinic.pack, seal=Keys("k1")) as hf:
        await (await hf.get(run.id)).signal("words", CANARY)
        await heard(hf).until(RunLetGo, run_id=run.id)
    async with home.holdfast(clinic.pack) as hf:
        await (await hf.get(run.id)).signal("words", "open")
        assert (await heard(hf).until(RunBlocked)).code == "sealed_payload"
    async with home.holdfast(clinic.pack, seal=Keys("k1")) as hf:
        run = await hf.get(run.id)
        await run.retry()
        assert await run.result(timeout=PATIENCE_SECONDS) == [CANARY, "open"]


async def test_a_run_with_a_sealed_signal_is_cancelled_without_the_key(home: Home, clinic: Clinic) -> None:
    async with home.holdfast(clinic.pack, seal=Keys("k1"), worker=False) as hf:
        run = await clinic.reported(hf)
    async with home.holdfast(worker=False) as hf:
        await (await hf.get(run.id)).cancel()
    async with home.holdfast(clinic.pack, seal=Keys("k1"), worker=False) as hf:
        journal = await (await hf.get(run.id)).journal()
        assert [CANARY in repr(entry.value) for entry in journal if isinstance(entry, Received)] == [True]


async def test_bytes_that_were_changed_are_refused_with_the_key(sqlite_home: SqliteHome, clinic: Clinic) -> None:
    async with sqlite_home.holdfast(clinic.pack, seal=Keys("k1"), worker=False) as hf:
        run, _ = await hf.start(clinic.report(1, CANARY))
    db = apsw.Connection(str(sqlite_home.path))
    [(entries,)] = db.execute("SELECT entries FROM journal").fetchall()
    assert isinstance(entries, bytes | str)
    [first] = msgspec.json.decode(entries)
    text = first["input"]["json"]
    first["input"]["json"] = text[:40] + ("A" if text[40] != "A" else "B") + text[41:]
    db.execute("UPDATE journal SET entries = ?", (msgspec.json.encode([first]),))
    db.close()
    async with sqlite_home.holdfast(clinic.pack, seal=Keys("k1")) as hf:
        assert (await heard(hf).until(RunBlocked)).code == "sealed_payload"
        with pytest.raises(SealedPayload, match=r"key 'k1'.*ValueError: it was changed"):
            await (await hf.get(run.id)).input()
    assert clinic.performed == []


async def test_a_fork_moves_what_it_cannot_open(home: Home, clinic: Clinic) -> None:
    async with home.holdfast(clinic.pack, seal=Keys("k1")) as hf:
        run, _ = await hf.start(clinic.parent("x" * LARGE, 0))
        await run.result(timeout=PATIENCE_SECONDS)
    async with home.holdfast(clinic.pack, worker=False) as hf:
        fork = await (await hf.get(run.id)).fork(at="child#1")
    async with home.holdfast(clinic.pack, seal=Keys("k1")) as hf:
        assert await (await hf.get(fork.id)).result(timeout=PATIENCE_SECONDS) > LARGE


# -- seals that do not work


class Broken(Keys):
    """A seal that cannot seal, or that names its key badly."""

    def __init__(self, key_id: str | None) -> None:
        super().__init__()
        self.key_id = key_id

    def seal(self, data: bytes) -> Sealed | None:
        if self.key_id is None:
            raise OSError("the vault is closed")
        return Sealed(self.key_id, data)


@pytest.mark.parametrize("key_id", [None, "", "two words", "x" * 65, "ключ", "a\nb"])
async def test_what_cannot_be_sealed_is_not_stored(sqlite_home: SqliteHome, clinic: Clinic, key_id: str | None) -> None:
    async with sqlite_home.holdfast(clinic.pack, worker=False, seal=Broken(key_id)) as hf:
        with pytest.raises(StoreUnavailable, match=r"the vault is closed|named its key"):
            await hf.start(clinic.report(1, CANARY))
    assert CANARY.encode() not in stored(sqlite_home)


def test_every_value_of_every_entry_is_sealed() -> None:
    """A new kind of entry must not carry a value past the seal."""

    def holds_a_value(kind: Any) -> bool:
        return kind is Value or any(map(holds_a_value, get_args(kind)))

    kinds: Mapping[str, type[Any]] = {kind.__name__: kind for kind in get_args(Entry)}
    found = {field.name for kind in kinds.values() for field in fields(kind) if holds_a_value(field.type)}
    assert found == VALUE_FIELDS

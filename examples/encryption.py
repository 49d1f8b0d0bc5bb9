"""Encryption at rest: payloads are sealed with AES-GCM before they are stored, and keys are rotated.

    pip install cryptography
    python -m examples.encryption

What to look at
- `Keyring` is a seal: `Holdfast(seal=...)` calls it for every payload. It has one key that seals, and any number of
  keys that still open what they have sealed.
- A new key is handed out first, and seals later: a process that has not got it yet would be stopped by what it sealed.
- The id of the key is stored beside the payload, in plain sight, so that a process that lacks it can say so.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdfast import Holdfast, Pack, hook
from holdfast.assembly import Sealed

NONCE_BYTES = 12
clinic = Pack("clinic")


class Keyring:
    """AES-GCM under keys with ids. `current` names the one that seals; without it, payloads are only opened."""

    def __init__(self, keys: Mapping[str, bytes], *, current: str | None) -> None:
        if current is not None and current not in keys:
            raise ValueError(f"the keyring has no key {current!r} to seal with")
        self._ciphers = {key_id: AESGCM(key) for key_id, key in keys.items()}
        self._current = current

    def seal(self, data: bytes) -> Sealed | None:
        if self._current is None:
            return None
        nonce = os.urandom(NONCE_BYTES)  # at random: one key is good for some four billion payloads
        # The id is authenticated, too: what names another key than the one it was sealed with does not open.
        return Sealed(self._current, nonce + self._ciphers[self._current].encrypt(nonce, data, self._current.encode()))

    def open(self, sealed: Sealed) -> bytes:
        cipher = self._ciphers.get(sealed.key_id)
        if cipher is None:
            raise LookupError(f"the keyring has no key {sealed.key_id!r}")
        nonce, data = sealed.data[:NONCE_BYTES], sealed.data[NONCE_BYTES:]
        return cipher.decrypt(nonce, data, sealed.key_id.encode())


@clinic.effect(key="finding:{patient}")
async def look_up(patient: str, sample: str) -> str:
    return f"{sample} of {patient}: negative"


@clinic.workflow(key="report:{patient}")
async def report(patient: str, sample: str) -> str:
    finding = await look_up(patient, sample)
    doctor = await hook("signed", type=str)
    return f"{finding}, signed by {doctor}"


async def story() -> None:
    old, new = AESGCM.generate_key(256), AESGCM.generate_key(256)  # yours come from a vault, once, at the start
    with TemporaryDirectory() as directory:
        file = Path(directory) / "clinic.db"
        url = f"sqlite:///{file}"

        async with Holdfast(url, packs=[clinic], seal=Keyring({"2026-01": old}, current="2026-01")) as hf:
            run, _ = await hf.start(report("p-17", "throat swab"))
            await run.signal("signed", "Dr Ada Okafor")
            said = await run.result()
        print(said)
        print("the file knows the patient's sample:", b"throat swab" in stored(file))

        # Rotation: the new key seals, the old one opens what it has sealed.
        both = Keyring({"2026-01": old, "2026-07": new}, current="2026-07")
        async with Holdfast(url, packs=[clinic], seal=both) as hf:
            again, created = await hf.start(report("p-17", "throat swab"))
            print("the same report:", not created, await again.result() == said)

        # A process without the seal sees that there is a run, and no more.
        async with Holdfast(url, worker=False) as hf:
            for entry in await (await hf.get(run.id)).journal():
                print(entry.what, getattr(entry, "value", ""))


def stored(file: Path) -> bytes:
    """All bytes that the store has written."""
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return file.read_bytes()


if __name__ == "__main__":
    asyncio.run(story())

"""Reads what there is when everything is quiet: runs with their journals, and what the replicas have logged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, cast

import msgspec

from holdfast.client import Run
from holdfast.gate.evidence import Final, Notice, Said
from holdfast.gate.load import Load
from holdfast.gate.sites import Part
from holdfast.gateway_client import Client

AT_ONCE = 16
PHRASES: dict[str, Said] = {"runs rescued": "rescued", "run overtaken": "overtaken", "lease lost": "lease lost"}


async def finals(load: Load) -> tuple[Final, ...]:
    """All runs of a load, as they are now that nothing moves."""
    room = asyncio.Semaphore(AT_ONCE)

    async def listed(client: Client) -> list[Run[Any]]:
        return [run async for run in client.runs(key_prefix=f"{load.name}-")]

    async def final(run: Run[Any]) -> Final | None:
        async def read(_: Client) -> Final:
            result = (await run.result_json()).decode() if run.status == "completed" else ""
            return Final(run.id, run.workflow, run.key or "", run.status, await run.journal(), result)

        async with room:
            return await load.ask("read", read, about=run.id)

    runs = await load.ask("list", listed, about=load.name) or []
    read = await asyncio.gather(*map(final, runs))
    return tuple(sorted((each for each in read if each is not None), key=lambda each: each.key))


def notices(parts: Iterable[Part], since_ms: int) -> tuple[Notice, ...]:
    """What the replicas have said since then about runs that changed hands."""
    return tuple(notice for part in parts for notice in _said(part) if notice.at_ms >= since_ms)


def _said(part: Part) -> Iterator[Notice]:
    for line in part.log.read_bytes().splitlines() if part.log.exists() else ():
        if not line.startswith(b"{") or not any(phrase.encode() in line for phrase in PHRASES):
            continue
        try:
            fields = cast("dict[str, Any]", msgspec.json.decode(line))
        except msgspec.MsgspecError:  # its writer was killed in the middle of it
            continue
        said = PHRASES.get(fields.get("event", ""))
        if said is not None:
            at_ms = int(datetime.fromisoformat(fields["time"]).timestamp() * 1000)
            runs = tuple(fields.get("run_ids") or filter(None, [fields.get("run_id")]))
            yield Notice(at_ms, said, pid_of(fields.get("instance", "")), runs)


def pid_of(instance: str) -> int:
    """The process that an instance id names: `<host>-<pid>-<nonce>`. Zero if it names none."""
    words = instance.rsplit("-", 2)
    return int(words[1]) if len(words) == 3 and words[1].isdigit() else 0

"""Reads what there is when everything is quiet: runs with their journals, and what the replicas have logged."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, cast
from urllib.request import Request, urlopen

import msgspec

from holdfast.client import Run
from holdfast.gateway_client import Client
from holdfast.kernel.times import Instant
from holdfast.lab.cluster.ports import HOST
from holdfast.lab.gate.cluster import GateMember
from holdfast.lab.gate.evidence import STALE, TAKEN_BACK, DutySeen, Final, LogNotice, Said
from holdfast.lab.gate.load import Load

AT_ONCE = 16
METRICS_SECONDS = 2.0
LEADS = re.compile(r'holdfast_leads\{.*\bduty="(\w+)".*\}')
ELECTIONS = re.compile(r'holdfast_elections_total\{.*\bduty="(\w+)".*\}')
PHRASES: dict[str, Said] = {
    "runs rescued": "rescued",
    "run overtaken": "overtaken",
    "lease lost": "lease lost",
    STALE: "stale",
    TAKEN_BACK: "taken back",
    "duty taken up": "elected",
    "duty lost": "deposed",
}


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


def sights(member: GateMember, api_key: str | None, at_ms: Instant) -> list[DutySeen]:
    """What a scheduler says at this moment about the duties that it leads; nothing if it does not answer."""
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    asked = Request(f"http://{HOST}:{member.port}/metrics", headers=headers)
    try:
        with urlopen(asked, timeout=METRICS_SECONDS) as answer:  # noqa: S310
            lines = answer.read().decode().splitlines()
    except OSError:
        return []
    leads: dict[str, bool] = {}
    elections: dict[str, int] = defaultdict(int)
    for line in lines:
        name, _, value = line.rpartition(" ")
        if (led := LEADS.fullmatch(name)) is not None:
            leads[led[1]] = float(value) > 0
        elif (elected := ELECTIONS.fullmatch(name)) is not None:
            elections[elected[1]] += int(float(value))
    return [DutySeen(at_ms, member.pid, duty, is_led, elections[duty]) for duty, is_led in leads.items()]


def notices(members: Iterable[GateMember], since_ms: Instant) -> tuple[LogNotice, ...]:
    """What the replicas have said since then about runs that changed hands."""
    return tuple(notice for member in members for notice in _said(member) if notice.at_ms >= since_ms)


def _said(member: GateMember) -> Iterator[LogNotice]:
    for line in member.log.read_bytes().splitlines() if member.log.exists() else ():
        if not line.startswith(b"{") or not any(phrase.encode() in line for phrase in PHRASES):
            continue
        try:
            fields = cast("dict[str, Any]", msgspec.json.decode(line))
        except msgspec.MsgspecError:  # its writer was killed in the middle of it
            continue
        said = PHRASES.get(fields.get("event", ""))
        if said is not None:
            at_ms = Instant(int(datetime.fromisoformat(fields["time"]).timestamp() * 1000))
            runs = tuple(fields.get("run_ids") or filter(None, [fields.get("run_id")]))
            yield LogNotice(
                at_ms,
                said,
                pid_of(fields.get("instance", "")),
                runs,
                age_ms=fields.get("age_ms", 0),
                duty=fields.get("duty", ""),
                term=fields.get("term", 0),
            )


def pid_of(instance: str) -> int:
    """The process that an instance id names: `<host>-<pid>-<nonce>`. Zero if it names none."""
    words = instance.rsplit("-", 2)
    return int(words[1]) if len(words) == 3 and words[1].isdigit() else 0

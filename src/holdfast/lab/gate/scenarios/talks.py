"""Talks: runs that are sent more than they will read, by run, token and key, while workers stand still and die.

Every sender numbers its words and sends each at two gateways, under one dedupe id, until it is told that the run has
ended. What was accepted must be in the journal of a run that had the key: once, in the order in which it was sent, and
though the run may have been about to end. In the end all runs are searched for by how far they have come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.errors import NotAllowedNow, UnknownHook
from holdfast.gateway_client import Client
from holdfast.kernel.times import Millis
from holdfast.lab.gate import reader
from holdfast.lab.gate.cluster import of_role
from holdfast.lab.gate.evidence import OtherOrder, Searched, SentWord
from holdfast.lab.gate.load import Load
from holdfast.lab.gate.pack import CHAT_STEPS, KNOCK, STAGE, STAGES, WORD, chat
from holdfast.lab.gate.scenario import Findings, ScenarioContext
from holdfast.lab.gate.verdict import Proof

CHATS = 6
SENDERS = 3
WORDS, KNOCKS = 12, 5
SENT_MAX = 100  # by one sender: it is refused long before
BY_KEY = 2  # chats whose senders know nothing but the key
BY_KEY_WORDS = 4  # that one run of such a key takes
BY_KEY_SENT = 8  # by each of its senders: all of them together are enough for a whole number of runs
PAUSE_SECONDS = 0.02
assert SENDERS * BY_KEY_SENT % BY_KEY_WORDS == 0
BEGUN_SECONDS = 10.0
WRITTEN_SECONDS = 1.0
MORE_ROUNDS_MAX = 4

Send = Callable[[Client, str, str], Awaitable[object]]


async def talks(context: ScenarioContext) -> Findings:
    async with context.load("talks") as load:
        async with asyncio.TaskGroup() as group:
            for _ in range(CHATS):
                group.create_task(_chat(context, load))
            for _ in range(BY_KEY):
                group.create_task(_chat_by_key(load))
            is_met = await _hold_up(context)
            victim = of_role(context.cluster, "worker")[0]
            context.tell(f"SIGKILL {victim}")
            await context.nemesis.kill(victim)
        await context.nemesis.heal()
        for _ in range(MORE_ROUNDS_MAX):  # whether a signal meets the end of a run is not in our hands
            if not is_met and not load.failed:
                is_met = await _once_more(context, load)
        await _search(load)
        checked = await context.checked(load)
    proofs = (
        Proof("signals accepted", len(load.sent), CHATS * (WORDS + KNOCKS)),
        Proof("ends taken back over a signal", checked.counts.taken_back),
        Proof("searches", len(load.searched), len(STAGES)),
    )
    return Findings(checked=(checked,), proofs=proofs)


async def _once_more(context: ScenarioContext, load: Load) -> bool:
    async with asyncio.TaskGroup() as group:
        for _ in range(CHATS):
            group.create_task(_chat(context, load))
        return await _hold_up(context)


async def _hold_up(context: ScenarioContext) -> bool:
    """Let signals pile up while a run is about to end: nothing is read for a moment, too short for a lease to end.

    Whether an end was taken back by that.
    """
    workers, hold_ms = of_role(context.cluster, "worker"), _hold_ms(context)
    await context.until(lambda: context.holding(CHAT_STEPS[0], hold_ms) > 0, seconds=BEGUN_SECONDS)
    context.tell(f"SIGSTOP {' and '.join(workers)}, for a moment")
    for name in workers:
        await context.nemesis.stop(name)
    await context.pause(hold_ms / 1000)
    since_ms = min([(await context.nemesis.resume(name)).at_ms for name in workers])

    def is_taken_back() -> bool:
        return any(each.said == "taken back" for each in reader.notices(context.cluster.members.values(), since_ms))

    # A process that is killed before does not get to its end.
    return await context.until(is_taken_back, seconds=WRITTEN_SECONDS)


def _hold_ms(context: ScenarioContext) -> Millis:
    """How long the last effect of a chat takes."""
    return context.options.lease_ms // 3


async def _chat(context: ScenarioContext, load: Load) -> None:
    """A run that ends when it has read enough, and senders that go on until they are refused."""
    number, order = load.numbered()
    load.others.append(OtherOrder(workflow=chat.name, key=order))
    run_id = await load.start(order, chat(order, WORDS, KNOCKS, _hold_ms(context)), request=order, gateway=number)
    if run_id is None:
        return
    ended = asyncio.Event()

    async def to_run(client: Client, word: str, dedupe: str) -> None:
        await (await client.get(run_id)).signal(WORD, word, dedupe=dedupe)

    async def to_token(client: Client, word: str, dedupe: str) -> None:
        while True:
            try:
                await client.resume_hook(order, word, dedupe=dedupe)
            except UnknownHook:  # the run has not opened it yet, or has ended
                if ended.is_set():
                    raise
                await context.pause(PAUSE_SECONDS)
            else:
                return

    async with asyncio.TaskGroup() as senders:
        for nth in range(SENDERS):
            senders.create_task(_send_all(load, (order, WORD), f"{order}/w{nth}", to_run))
        senders.create_task(_send_all(load, (order, KNOCK), f"{order}/k", to_token))
        load.done += await load.result(order, run_id, number)
        ended.set()


async def _send_all(load: Load, at: tuple[str, str], sender: str, send: Send, most: int = SENT_MAX) -> None:
    """One word after the other, each twice, until it is refused. `at` is the order, and its hook."""
    order, hook = at
    for number in range(1, most + 1):
        word = f"{sender}/{number}"

        async def once(client: Client, word: str = word) -> bool:
            try:
                await send(client, word, word)
            except (NotAllowedNow, UnknownHook):
                return False
            return True

        asked_at_ms = load.now_ms()
        twice = await asyncio.gather(*(load.ask("signal", once, about=order, first=number + nth) for nth in range(2)))
        if not any(twice) or load.failed:
            return
        load.sent.append(
            SentWord(
                order=order,
                hook=hook,
                word=word,
                sender=sender,
                number=number,
                asked_at_ms=asked_at_ms,
                at_ms=load.now_ms(),
            )
        )


async def _chat_by_key(load: Load) -> None:
    """Signal-or-start: the holder of the key gets the word, or a new run begins with it."""
    _, order = load.numbered()
    load.others.append(OtherOrder(workflow=chat.name, key=order, again=True))
    call = chat(order, BY_KEY_WORDS)

    async def to_key(client: Client, word: str, dedupe: str) -> None:
        await client.start(call, signal=(WORD, word, dedupe))

    senders = (_send_all(load, (order, WORD), f"{order}/s{nth}", to_key, BY_KEY_SENT) for nth in range(SENDERS))
    await asyncio.gather(*senders)
    last = await load.ask("find", lambda client: client.find(chat, order), about=order)
    if last is not None:
        load.done += await load.result(order, last.id, 0)


async def _search(load: Load) -> None:
    """Find all chats by their stage: they are closed, and say so by their marker, too."""

    async def all_ids(client: Client) -> list[str]:
        return [run.id async for run in client.runs(chat, key_prefix=f"{load.name}-")]

    wanted = tuple(await load.ask("list", all_ids, about=load.name) or ())
    for stage in STAGES:

        async def found_ids(client: Client, stage: str = stage) -> list[str]:
            found = client.runs(attributes={"talk": load.name, STAGE: stage})
            return [run.id async for run in found if stage != STAGES[-1] or run.markers[-1].name == stage]

        found = tuple(await load.ask("search", found_ids, about=stage) or ())
        load.searched.append(Searched(f"chats that are {stage}", wanted if stage == STAGES[-1] else (), found))

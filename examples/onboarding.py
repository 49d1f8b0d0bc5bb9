"""Onboarding a user over days: sleeps, reminders that race with a child's result, children side by side.

    python -m examples.onboarding

What to look at
- `spawn` starts the wait for the e-mail as a run of its own; its parent races that run's result against the next
  reminder with plain `asyncio.wait(..., return_when=FIRST_COMPLETED)`. The winner is recorded, so it is the same on
  every replay.
- `sleep` may last for days. The run then holds no thread, no slot and no memory; the process may be restarted.
- `await workspace(user)` performs a workflow as a child: one run, admitted once per key, whose result is awaited.

A day is an argument here, so that the story is over in a second.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory

from holdfast import Holdfast, Pack, effect_key, now, sleep, spawn

people = Pack("people")
DAY = 86_400.0


@dataclass
class World:
    """Stands for the mail provider, the user and the database: what really happened, by key."""

    mails: dict[str, str] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)
    looks: Counter[str] = field(default_factory=Counter)
    heeds: int | None = 2  # the reminder that makes the user confirm; None: no reminder does


world = World()


@dataclass
class Outcome:
    status: str
    reminders: int
    accounts: list[str] = field(default_factory=list)


@people.effect(key="mail:{user}:{subject}")
async def mail(user: str, subject: str) -> None:
    world.mails.setdefault(effect_key(), f"{subject} → {user}")


@people.effect(safety="natural")
async def has_confirmed(user: str) -> bool:
    world.looks[user] += 1
    return f"reminder {world.heeds} → {user}" in world.mails.values()


@people.effect(key="create:{kind}:{user}")
async def create(kind: str, user: str) -> str:
    world.created.append(effect_key())
    return f"{kind} of {user}"


@people.workflow(key="confirmation:{user}")
async def confirmation(user: str, day: float, days: int) -> bool:
    """Look every quarter of a day whether the user has confirmed; give up after so many days."""
    until = now().timestamp() + days * day
    while now().timestamp() < until:
        if await has_confirmed(user):
            return True
        await sleep(day / 4)
    return False


@people.workflow(key="workspace:{user}")
async def workspace(user: str) -> str:
    return await create("workspace", user)


@people.workflow(key="trial:{user}")
async def trial(user: str, day: float) -> str:
    started = await create("trial", user)
    await sleep(day)
    await mail(user, "how do you like it?")
    return started


@people.workflow(key="onboarding:{user}", retention="90d")
async def onboarding(user: str, day: float = DAY) -> Outcome:
    await mail(user, "welcome")
    child = await spawn(confirmation(user, day, days=5))
    confirmed = asyncio.create_task(child.result())
    reminders = 0
    while not confirmed.done():
        pause = asyncio.create_task(sleep(day))
        await asyncio.wait({confirmed, pause}, return_when=asyncio.FIRST_COMPLETED)
        if confirmed.done():
            pause.cancel()
        else:
            reminders += 1
            await mail(user, f"reminder {reminders}")
    if not confirmed.result():
        return Outcome("given up", reminders)
    accounts = await asyncio.gather(workspace(user), trial(user, day))
    return Outcome("welcomed", reminders, list(accounts))


async def story(url: str, *, day: float) -> Outcome:
    async with Holdfast(url, packs=[people]) as hf:
        run, _ = await hf.start(onboarding("ada", day))
        outcome = await run.result(timeout="1m")
        print(
            f"{outcome.status} after {outcome.reminders} reminder(s), with {', '.join(outcome.accounts) or 'nothing'}"
        )
        print(f"mails: {', '.join(world.mails.values())}")
        child = await hf.find(confirmation, "confirmation:ada")
        print(f"the child {child.key} is {child.status}; it looked {world.looks['ada']} times")
        return outcome


def main() -> None:
    with TemporaryDirectory() as directory:
        asyncio.run(story(f"sqlite:///{directory}/people.db", day=0.2))


if __name__ == "__main__":
    main()

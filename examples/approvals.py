"""Expenses that wait for a person: a typed hook, attributes to find what is open, and a cancellation with a receipt.

    python -m examples.approvals

What to look at
- `hook("decision", type=Decision)` waits for days without a thread, a slot or memory. A decision that does not fit its
  type is refused at the sender; one that is sent twice with the same dedupe id is read once.
- `set_attributes` and `hf.runs(attributes=...)`: the manager's list of what is open is a search, not a table of ours.
- `undo=free`: withdrawing an expense gives the budget back, and the receipt says so.
- `shield`: once the bank is being told, a withdrawal comes too late, and the receipt says that as well.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory

from holdfast import Holdfast, Pack, Range, Receipt, Run, effect_key, hook, mark, set_attributes, shield, timeout
from holdfast.errors import PayloadRefused

expenses = Pack("expenses")


@dataclass
class Books:
    """Stands for the accounting system and the bank. What is in it is what really happened."""

    budget: int = 10_000
    reserved: dict[str, int] = field(default_factory=dict)
    paid: dict[str, int] = field(default_factory=dict)
    reminders: list[str] = field(default_factory=list)

    async def transfer(self, key: str, cents: int) -> None:
        self.paid.setdefault(key, cents)


books = Books()


@dataclass
class Decision:
    by: str
    approved: bool
    note: str = ""


@expenses.effect(key="free:{number}")
async def free(number: str) -> None:
    books.reserved.pop(number, None)


@expenses.effect(key="reserve:{number}", undo=free)
async def reserve(number: str, cents: int) -> None:
    if cents > books.budget - sum(books.reserved.values()):
        raise ValueError(f"{cents} is more than what is left of the budget")
    books.reserved[number] = cents


@expenses.effect(key="pay:{number}")
async def pay(number: str, cents: int) -> str:
    await books.transfer(effect_key(), cents)
    return f"transfer {number}"


@expenses.effect(key="remind:{number}:{times}")
async def remind(number: str, times: int) -> None:
    books.reminders.append(f"{number}, reminder {times}")


@expenses.workflow(
    key="expense:{number}",
    markers={"submitted": ("approved", "rejected"), "approved": ("paid",)},
    outcomes=("no_effects", "compensated", "completed_first"),
)
async def expense(number: str, employee: str, cents: int, patience: float = 3 * 86_400) -> str:
    await reserve(number, cents)
    await set_attributes(employee=employee, cents=cents, stage="open")
    decision = await decided(number, patience)
    await set_attributes(stage="decided", by=decision.by)
    if not decision.approved:
        await mark("rejected")
        await free(number)
        return f"rejected by {decision.by}: {decision.note}"
    await mark("approved")
    async with shield("1m"):  # from here on it cannot be withdrawn
        transfer = await pay(number, cents)
        await mark("paid")
        return transfer


async def decided(number: str, patience: float) -> Decision:
    """The decision; until it comes, a reminder from time to time."""
    decisions = hook("decision", type=Decision)
    reminders = 0
    while True:
        try:
            async with timeout(patience):
                return await decisions
        except TimeoutError:
            reminders += 1
            await remind(number, reminders)


async def open_expenses(hf: Holdfast, *, at_least: int = 0) -> list[Run[str]]:
    """The manager's list, the oldest first."""
    wanted = {"stage": "open", "cents": Range(ge=at_least)}
    return [run async for run in hf.runs(expense, attributes=wanted, newest_first=False)]


def in_words(receipt: Receipt) -> str:
    listed = ", ".join(f"{effect} {effect.state}" for effect in receipt.effects)
    return f"{receipt.outcome} ({listed or 'nothing was done'})"


async def story(url: str) -> None:
    async with Holdfast(url, packs=[expenses]) as hf:
        for number, employee, cents in (("e-1", "ada", 4_200), ("e-2", "bob", 90), ("e-3", "ada", 800)):
            await hf.start(expense(number, employee, cents), attributes={"employee": employee})
        while len(await open_expenses(hf)) < 3:
            await asyncio.sleep(0.01)
        print(f"open, from 500 on: {[run.key for run in await open_expenses(hf, at_least=500)]}")

        big = await hf.find(expense, "expense:e-1")
        try:
            await big.signal("decision", {"by": "eve", "approved": "perhaps"})
        except PayloadRefused as refused:
            print(f"refused: {refused}")
        for _ in range(2):  # the button was pressed twice
            await big.signal("decision", Decision("eve", approved=True), dedupe="form-7")
        print(f"e-1: {await big.result()}")

        small = await hf.find(expense, "expense:e-2")
        await small.signal("decision", Decision("eve", approved=False, note="no receipt"))
        print(f"e-2: {await small.result()}")

        withdrawn = await hf.find(expense, "expense:e-3")
        print(f"e-3: {in_words(await withdrawn.cancel('withdrawn by ada'))}")
        print(f"e-1, withdrawn too late: {in_words(await big.cancel())}")
        print(f"reserved: {books.reserved}, paid: {books.paid}")


def main() -> None:
    with TemporaryDirectory() as directory:
        asyncio.run(story(f"sqlite:///{directory}/expenses.db"))


if __name__ == "__main__":
    main()

"""Transfers of one account, one after the other: a lane, in which each waits for its turn.

    python -m examples.transfers

What to look at
- `lane="account:{account}"` makes each account a lane. Transfers of one account go in the order of their starts, so
  that each reads the balance that the one before has left. Transfers of another account do not wait for them.
- The two effects of a transfer, `balance_of` and `book`, are not one step of the bank. Without the lane two transfers
  could both read the balance before one of them books, and both would be paid.
- The accounts are paused while the ledger is closed for the day, and go on in the same order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from tempfile import TemporaryDirectory

from holdfast import Holdfast, Pack

bank = Pack("bank")


class World:
    """Stands for the bank: what is on each account, and which transfers it has booked, by key."""

    def __init__(self) -> None:
        self.cents = Counter({"ada": 100, "bob": 30})
        self.booked: dict[str, int] = {}


world = World()


@bank.effect
async def balance_of(account: str) -> int:
    return world.cents[account]


@bank.effect(key="book:{transfer}")
async def book(transfer: str, account: str, cents: int) -> None:
    if transfer not in world.booked:  # a bank that honours keys books once
        world.booked[transfer] = cents
        world.cents[account] -= cents


@bank.workflow(key="transfer:{transfer}", lane="account:{account}")
async def send(transfer: str, account: str, cents: int) -> str:
    """Pay, if the account has enough."""
    if await balance_of(account) < cents:
        return "refused"
    await asyncio.sleep(0.01)  # the bank takes its time, and another transfer would come in between
    await book(transfer, account, cents)
    return "paid"


async def main() -> None:
    with TemporaryDirectory() as directory:
        async with Holdfast(f"sqlite:///{directory}/bank.db", packs=[bank]) as hf:
            await hf.set_lane("account:ada", paused=True)  # the ledger is closed
            runs = {
                transfer: (await hf.start(send(transfer, account, cents))).run
                for transfer, account, cents in (("t-1", "ada", 80), ("t-2", "ada", 50), ("t-3", "bob", 30))
            }
            print("t-3:", await runs["t-3"].result())
            [wait, *_] = runs["t-2"].waiting_on
            print(f"t-2 waits for {str(wait).partition(' (')[0]}")
            await hf.set_lane("account:ada", paused=False)
            for transfer in ("t-1", "t-2"):
                print(f"{transfer}:", await runs[transfer].result())
            print("left:", dict(world.cents))


if __name__ == "__main__":
    asyncio.run(main())

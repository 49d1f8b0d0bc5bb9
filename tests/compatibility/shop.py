"""Workflows whose runs are stored in the fixtures. The commit that wrote them and the present code run the same ones.

Names, keys, steps and inputs are part of what is stored: change nothing here, add at the end.
"""

from __future__ import annotations

import asyncio

from holdfast import (
    Pack,
    Retry,
    RetryAfter,
    continue_as_new,
    hook,
    mark,
    patched,
    set_attributes,
    sleep,
    spawn,
)

FAR = "30d"
FAR_SECONDS = 30 * 86_400
KEPT = "36500d"  # the fixtures must not expire
LARGE = "x" * 300_000  # more than is kept inline


class Shop:
    """`done` lists every execution of an effect. A transfer sets `at_work`, and goes on when it is told to."""

    def __init__(self, *, drifted: bool = False, in_trouble: bool = False) -> None:
        self.pack = Pack("shop")
        self.done: list[str] = []
        self.at_work, self.go_on = asyncio.Event(), asyncio.Event()
        self.in_trouble = in_trouble
        pack = self.pack

        @pack.effect
        async def note(word: str) -> str:
            self.done.append(f"note {word}")
            return word

        @pack.effect
        async def enlarge(order: str) -> str:
            self.done.append(f"enlarge {order}")
            return LARGE

        @pack.effect
        async def refund(order: str, result: str) -> None:
            self.done.append(f"refund {order} {result}")

        @pack.effect(key="charge:{order}", undo=refund)
        async def charge(order: str) -> str:
            self.done.append(f"charge {order}")
            return f"receipt of {order}"

        @pack.effect(retry=Retry(attempts=2, base=0))
        async def deliver(order: str) -> str:
            self.done.append(f"deliver {order}")
            if self.in_trouble:
                raise OSError("no road")
            return "delivered"

        @pack.effect
        async def print_label(order: str) -> str:
            self.done.append(f"print {order}")
            if self.in_trouble:
                raise RetryAfter(FAR_SECONDS, "no paper")
            return "printed"

        async def ask_the_bank(key: str) -> str:
            self.done.append(f"asked about {key}")
            return "sent, says the bank"

        @pack.effect(key="transfer:{order}", safety="once", reconcile=ask_the_bank)
        async def transfer(order: str) -> str:
            self.done.append(f"transfer {order}")
            self.at_work.set()
            await self.go_on.wait()
            return "sent"

        @pack.effect(key="resize:{image}", remote=True)
        async def resize(image: str, width: int = 100) -> str:
            raise AssertionError("a remote effect is never called here")

        @pack.workflow(key="{order}", retention=KEPT)
        async def timer(order: str) -> str:
            await note("before")
            await sleep(FAR)
            return await note("after")

        @pack.workflow(key="{order}", retention=KEPT)
        async def approval(order: str) -> str:
            approved = await hook("approve", token=f"token of {order}", type=bool)
            return await note("approved" if approved else "refused")

        @pack.workflow(key="{order}", retention=KEPT)
        async def drifting(order: str) -> list[str]:
            first = await note("one") if not drifted else await note("another one")
            return [first, await hook("go"), await hook("extra"), await note("two")]

        @pack.workflow(key="{order}", retention=KEPT)
        async def buying(order: str) -> str:
            await charge(order)
            return await hook("arrived")

        @pack.workflow(key="{order}", retention=KEPT, outcomes=("resumable", "no_effects", "completed_first"))
        async def pausing(order: str) -> list[str]:
            return [await note("paid"), await hook("word"), await note("packed")]

        @pack.workflow(key="{order}", retention=KEPT)
        async def shipping(order: str) -> str:
            await note("packed")
            return await deliver(order)

        @pack.workflow(key="{order}", retention=KEPT)
        async def labelling(order: str) -> str:
            return await print_label(order)

        @pack.workflow(key="{order}", retention=KEPT)
        async def choosing(order: str) -> list[str]:
            return [await note("a"), await note("b"), await hook("c")]

        @pack.workflow(key="{order}", retention=KEPT)
        async def finished(order: str) -> str:
            return await note("finished")

        @pack.workflow(key="{order}", retention=KEPT)
        async def large(order: str) -> str:
            return await enlarge(order)

        @pack.workflow(key="{order}", retention=KEPT)
        async def child(order: str) -> str:
            return await note(await hook("word"))

        @pack.workflow(key="{order}", retention=KEPT)
        async def parent(order: str) -> list[str]:
            spawned = await spawn(child(f"spawned by {order}"))
            words = await asyncio.gather(child(f"child of {order}"), spawned.result())
            return [*words, await note("all of them")]

        @pack.workflow(key="{order}", retention=KEPT, markers=("packed", "sent"), version="7")
        async def tracked(order: str) -> str:
            await set_attributes(colour="red", weight=3, fragile=True)
            await mark("packed")
            way = "new" if patched("new way") else "old"
            word = await hook("go")
            await mark("sent")
            return f"{way} {word}"

        @pack.workflow(key="{order}", retention=KEPT)
        async def paying(order: str) -> str:
            return await transfer(order)

        @pack.workflow(key="{order}", retention=KEPT)
        async def thumbnail(order: str) -> str:
            return await resize(f"{order}.png")

        @pack.workflow(key="{order}", retention=KEPT)
        async def counting(order: str, total: int = 0) -> int:
            async for number in hook("numbers", type=int):
                if number == 0:
                    return total
                continue_as_new(counting(order, total + number))
            return total

        self.timer, self.approval, self.drifting, self.buying, self.pausing = timer, approval, drifting, buying, pausing
        self.shipping, self.labelling, self.choosing, self.finished = shipping, labelling, choosing, finished
        self.large, self.child, self.parent, self.tracked = large, child, parent, tracked
        self.paying, self.thumbnail, self.counting = paying, thumbnail, counting

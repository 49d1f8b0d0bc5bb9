"""What is served to schemathesis: runs that live long enough to be met, and not so long that a stream holds it up."""

from __future__ import annotations

from typing import Any

import holdfast
from holdfast import Pack, hook

pack = Pack("p")


@pack.workflow
async def adds(a: int = 1, b: int = 2) -> int:
    return a + b


@pack.workflow
async def fails(why: str = "because") -> None:
    raise ValueError(why)


@pack.workflow(key="ask:{name}")
async def asks(name: str) -> Any:
    try:
        async with holdfast.timeout("500ms"):
            return await hook("answer", f"ask/{name}")
    except TimeoutError:
        return "nobody answers"


PACKS = [pack]

"""What gateways that run as processes serve."""

from __future__ import annotations

from typing import Any

from holdfast import Pack, hook

pack = Pack("p")


@pack.workflow
async def waits() -> Any:
    return await hook("go")


PACKS = [pack]

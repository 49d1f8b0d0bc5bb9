r"""Thumbnails: the workflow is Python, the effect is served in JavaScript.

    holdfast dev examples.thumbnails        # the gateway, the worker that executes workflows, and the dashboard
    node examples/remote_worker.js          # in another terminal: performs the effect; start as many as you like

    curl -s http://127.0.0.1:8787/v1/workflows/thumbnails.album/runs?wait=30s \
         -H "Content-Type: application/json" -d '{"input": {"image": "cat.png", "widths": [64, 128]}}'

What to look at
- `remote=True`: the function says what goes in and what comes out. It is never called here.
- Key, retries and timeout are declared here, and hold for every worker in every language.
- `asyncio.gather` of remote effects: all sizes are made at the same time, by the workers that are free.
"""

from __future__ import annotations

import asyncio

from holdfast import Pack, Retry

thumbnails = Pack("thumbnails")


@thumbnails.effect(key="resize:{image}:{width}", retry=Retry(attempts=5), timeout="2m", remote=True)
async def resize(image: str, width: int) -> str: ...


@thumbnails.workflow(key="album:{image}")
async def album(image: str, widths: list[int]) -> list[str]:
    return list(await asyncio.gather(*(resize(image, width) for width in widths)))


PACKS = [thumbnails]

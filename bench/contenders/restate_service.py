"""The workflows of the Restate contender, served by granian as the ASGI application `app`.

A plain service whose callers send an `Idempotency-Key` is Restate's lightest keyed start. Waiting for a signal is
what its workflows have durable promises for.
"""

import time
from datetime import timedelta

import restate

bench = restate.Service("bench")
listener = restate.Workflow("listener")
SIGNAL = "go"


async def touch(order: str) -> str:
    return order


@bench.handler()
async def one(ctx: restate.Context, order: str) -> str:
    return await ctx.run_typed("touch", touch, order=order)


@bench.handler()
async def many(ctx: restate.Context, wanted: dict[str, str | int]) -> str:
    order = str(wanted["order"])
    for _ in range(int(wanted["effects"])):
        await ctx.run_typed("touch", touch, order=order)
    return order


@bench.handler()
async def timer(ctx: restate.Context, due: float) -> str:
    # Not deterministic, and harmless here, where nothing is ever replayed: Restate sleeps for durations only.
    await ctx.sleep(timedelta(seconds=due - time.time()))
    return "due"


@listener.main()
async def run(ctx: restate.WorkflowContext, order: str) -> str:
    await ctx.promise(SIGNAL, type_hint=str).value()
    return order


@listener.handler()
async def signal(ctx: restate.WorkflowSharedContext, payload: str) -> None:
    await ctx.promise(SIGNAL, type_hint=str).resolve(payload)


app = restate.app([bench, listener])

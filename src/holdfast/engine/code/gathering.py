"""The code of a batch, around that of its author: it has the items that have come, and returns a result for each."""

from __future__ import annotations

from typing import Any

from holdfast.engine.code.inbox import Inbox
from holdfast.errors import UsageError
from holdfast.kernel import batches
from holdfast.pack import Workflow
from holdfast.workflow import scope, sleep


async def gather(workflow: Workflow[..., Any], inbox: Inbox) -> Any:
    """Call the workflow with all the items of this batch.

    No item comes in when the run has begun, so all are among what it was loaded with. They are recorded before the
    first timer elapses, on each replay alike.
    """
    await sleep("1ms")  # the shortest timer: what has arrived is delivered before it
    run, count = scope("a batch"), inbox.count(batches.ITEM)
    items = [await run.receive(batches.ITEM, workflow.item_type) for _ in range(count)]
    results = await workflow.fn(items)
    if wrong := batches.misfit(results, len(items)):
        raise UsageError(
            f"workflow {workflow.name!r} is a batch, and {wrong}",
            hint="Return a list with the result of each item, in the order of the items.",
        )
    return results

"""Replays the journals of clean runs in processes in which sets of strings have another order.

In one process a set is walked alike every time, so no fault shows a workflow that relies on its order. Another process
does: Python draws the order of strings when it starts. Run as a module it is that process:

    python -m holdfast.prove.hash_seeds DIRECTORY MODULE...
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from holdfast.errors import HoldfastError
from holdfast.kernel import exports
from holdfast.kernel.exports import ExportedJournal
from holdfast.pack import Pack
from holdfast.prove.child_processes import reply_descriptor, run_module
from holdfast.testing.journals import replay_exported

SEEDS = (1, 2, 3)  # three elements have the same order in all four processes with a chance of 1 in 216


async def divergences(journals: Iterable[ExportedJournal], packs: Iterable[Pack]) -> dict[str, str]:
    """By run, where its code does something else in another process; only those that do.

    The journals are those of one case: runs of two cases have equal ids, as their worlds have one seed.
    """
    modules = sorted({workflow.fn.__module__ for pack in packs for workflow in pack.workflows.values()})
    with TemporaryDirectory(prefix="holdfast-prove-") as directory:
        for exported in journals:
            (Path(directory) / exports.name_of(exported.run.id)).write_bytes(exports.encode(exported))
        found = await asyncio.gather(*(_elsewhere(directory, modules, seed) for seed in SEEDS))
    return {run_id: told for each in found for run_id, told in each.items()}


async def _elsewhere(directory: str, modules: Sequence[str], seed: int) -> dict[str, str]:
    ended = await run_module(
        "holdfast.prove.hash_seeds", directory, *modules, environment={"PYTHONHASHSEED": str(seed)}
    )
    if ended.code:
        raise HoldfastError(
            f"the journals could not be replayed in another process: {ended.last_words}",
            hint=f"Try it: python -c 'import {modules[0]}'.",
        )
    return msgspec.json.decode(ended.output, type=dict[str, str])


def main() -> None:
    directory, *modules = sys.argv[1:]
    reply = reply_descriptor()
    packs: list[Pack] = []
    for name in modules:
        found = (value for value in vars(importlib.import_module(name)).values() if isinstance(value, Pack))
        packs += [pack for pack in found if pack not in packs]
    replayed = replay_exported(directory, packs=packs)
    os.write(reply, msgspec.json.encode({each.run_id: each.divergence for each in replayed if each.divergence}))


if __name__ == "__main__":
    main()

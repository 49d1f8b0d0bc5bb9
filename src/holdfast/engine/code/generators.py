"""Async generators of workflows: each belongs to the loop of the run in which it began.

Python calls hooks of its thread when an async generator begins, and when one is freed that has not ended. Hooks that
were set for each activation would cost as much as the activation of a small run, because setting them is announced to
every audit hook of the process. So they are set once for each loop in which runs are executed. They tell the generators
of runs from all others, and leave those to the hooks that they have found.

Rules
- A generator is known by its address: when its hook is called, there are no weak references to it any more.
- An address may come again. Whatever begins there passes the hook, and belongs to its own loop from then on.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from collections.abc import AsyncGenerator
from typing import Any


class GeneratorOwner:
    """An event loop whose async generators are its own."""

    generators: dict[int, weakref.ref[AsyncGenerator[Any, Any]]] | None = None  # those that have begun, by address

    def finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        """A generator of this loop is about to be freed, and has not ended."""

    def leave_generators(self) -> None:
        """The loop ends. Generators that it leaves behind are closed by no loop: Python frees them as they are."""
        for address, reference in (self.generators or {}).items():
            generator = reference()
            if _owners.get(address) is not self:
                continue
            if generator is None or getattr(generator, "ag_frame", None) is None:
                del _owners[address]  # it has ended
            else:
                _owners[address] = _NO_LOOP
        self.generators = None


_NO_LOOP = GeneratorOwner()


class _Found(threading.local):
    """The hooks that were found in this thread, and the loop to which they belong."""

    loop: asyncio.AbstractEventLoop | None = None
    hooks: Any = (None, None)


_found = _Found()
_owners: dict[int, GeneratorOwner] = {}


def tell_apart() -> None:
    """From now on, the generators of runs are told from those of the loop that is running.

    To be called where the hook for those that begin is not `on_begun`.
    """
    _found.loop, _found.hooks = asyncio._get_running_loop(), sys.get_asyncgen_hooks()  # noqa: SLF001 - documented for loop authors
    sys.set_asyncgen_hooks(firstiter=on_begun, finalizer=_on_freed)


def on_begun(generator: AsyncGenerator[Any, Any]) -> None:
    """A generator begins: it belongs to the loop that is running."""
    loop, address = asyncio._get_running_loop(), id(generator)  # noqa: SLF001
    if isinstance(loop, GeneratorOwner):
        _owners[address] = loop
        if loop.generators is None:
            loop.generators = {}
        loop.generators[address] = weakref.ref(generator)
        return
    _owners.pop(address, None)
    firstiter, _ = _found.hooks
    if firstiter is not None and loop is _found.loop:
        firstiter(generator)


def _on_freed(generator: AsyncGenerator[Any, Any]) -> None:
    owner = _owners.pop(id(generator), None)
    if owner is not None:
        owner.finalize(generator)
        return
    _, finalizer = _found.hooks
    if finalizer is not None:
        finalizer(generator)

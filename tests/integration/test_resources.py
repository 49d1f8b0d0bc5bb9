"""Resources: what effects share is opened once in each process, handed in by name, and closed when the worker stops."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from holdfast import Pack, Retry, RunFailed, TimedOut, UsageError
from holdfast.events import EffectGaveUp, ResourceNotClosed, ResourceOpened
from holdfast.kernel.journal import Performed, Started
from holdfast.resources import Resource
from tests.integration.conftest import Home, heard


class Provider:
    """A client of the outside world; it tells what became of it."""

    def __init__(self, ledger: list[str], name: str = "provider") -> None:
        self.ledger = ledger
        self.name = name
        self.task = asyncio.current_task() if threading.current_thread() is threading.main_thread() else None
        ledger.append(f"{name} opened")

    def charge(self, order: str) -> str:
        self.ledger.append(f"{order} charged")
        return f"{order} by {self.name}"


async def test_a_resource_is_opened_once_for_all_effects_and_closed_at_the_end(home: Home) -> None:
    pack, ledger = Pack("shop"), list[str]()

    @pack.resource
    async def payments() -> AsyncIterator[Provider]:
        provider = Provider(ledger)
        await asyncio.sleep(0)
        yield provider
        # Some resources may not be left in another task than they were entered in.
        assert asyncio.current_task() is provider.task
        ledger.append("provider closed")

    @pack.effect(key="charge:{order}")
    async def charge(order: str, cents: int, provider: Provider = payments.shared) -> str:
        return provider.charge(f"{order}/{cents}")

    @pack.effect
    def refund(order: str, provider: Provider = payments.shared, *, reason: str = "none") -> str:
        return provider.charge(f"{order}/{reason}")

    @pack.workflow
    async def checkout(order: str) -> list[str]:
        both = await asyncio.gather(charge(order, 1), charge(f"{order}b", cents=2))
        return [*both, await refund(order, reason="late")]

    async with home.holdfast(pack) as hf:
        run = (await hf.start(checkout("o-1"))).run
        assert await run.result(timeout=30) == ["o-1/1 by provider", "o-1b/2 by provider", "o-1/late by provider"]
        journal = await run.journal()
        assert [event.resource for event in heard(hf).all(ResourceOpened)] == ["shop.payments"]
        assert ledger[0] == "provider opened"
        assert ledger.count("provider opened") == 1
        assert "provider closed" not in ledger
    assert ledger[-1] == "provider closed"
    # What is recorded knows nothing of the resource: a call is its arguments.
    started, first, *_ = journal
    assert isinstance(started, Started)
    assert isinstance(first, Performed)
    assert first.intent.key.startswith("charge:o-1")
    assert not any("provider" in repr(entry).replace("by provider", "") for entry in journal)


async def test_a_function_that_is_not_async_opens_and_closes_in_a_thread(home: Home) -> None:
    pack, threads = Pack("shop"), list[str]()

    @pack.resource
    def pool() -> Iterator[str]:
        threads.append(threading.current_thread().name)
        yield "pool"
        threads.append(threading.current_thread().name)

    @pack.resource
    def settings() -> dict[str, int]:
        threads.append(threading.current_thread().name)
        return {"limit": 3}

    @pack.resource
    async def token() -> str:
        return "secret"

    @pack.effect
    def ask(pool: str = pool.shared, settings: dict[str, int] = settings.shared, token: str = token.shared) -> str:
        return f"{pool} {settings['limit']} {token}"

    @pack.workflow
    async def work() -> str:
        return await ask()

    async with home.holdfast(pack) as hf:
        assert await (await hf.start(work())).run.result(timeout=30) == "pool 3 secret"
    assert len(threads) == 3
    assert all(name.startswith("holdfast-effect") for name in threads)


async def test_a_resource_that_cannot_be_opened_fails_the_attempt_and_is_opened_again(home: Home) -> None:
    pack, asked = Pack("shop"), list[int]()

    @pack.resource
    async def flaky() -> AsyncIterator[str]:
        asked.append(1)
        if len(asked) < 3:
            raise ConnectionError("no answer")
        yield "open"

    @pack.effect(retry=Retry(attempts=3, base=0))
    async def charge(order: str, line: str = flaky.shared) -> str:
        asked.append(100)
        return f"{order} {line}"

    @pack.workflow
    async def checkout(order: str) -> str:
        return await charge(order)

    async with home.holdfast(pack) as hf:
        assert await (await hf.start(checkout("o-1"))).run.result(timeout=30) == "o-1 open"
    assert asked == [1, 1, 1, 100]


async def test_an_effect_does_not_wait_longer_for_a_resource_than_it_may_take_itself(home: Home) -> None:
    pack, opened = Pack("shop"), asyncio.Event()

    @pack.resource
    async def slow() -> str:
        await opened.wait()
        return "open"

    @pack.effect(timeout="50ms", retry=Retry(attempts=1))
    async def hasty(line: str = slow.shared) -> str:
        raise AssertionError(line)

    @pack.effect
    async def patient(line: str = slow.shared) -> str:
        return line

    @pack.workflow
    async def work() -> str:
        with contextlib.suppress(TimedOut):
            return await hasty()
        return await patient()

    async with home.holdfast(pack) as hf:
        run = (await hf.start(work())).run
        assert "opening the resources of effect shop.hasty" in (await heard(hf).until(EffectGaveUp)).error
        opened.set()
        assert await run.result(timeout=30) == "open"


async def test_what_closing_raises_is_told_and_keeps_the_process_from_nothing(home: Home) -> None:
    pack = Pack("shop")

    @pack.resource
    async def stubborn() -> AsyncIterator[str]:
        yield "open"
        raise OSError("still busy")

    @pack.resource
    async def empty() -> AsyncIterator[str]:
        return
        yield "never"

    @pack.effect
    async def first(line: str = stubborn.shared) -> str:
        return line

    @pack.effect(retry=Retry(attempts=1))
    async def second(line: str = empty.shared) -> str:
        return line

    @pack.workflow
    async def work() -> str:
        await first()
        return await second()

    async with home.holdfast(pack) as hf:
        with pytest.raises(RunFailed, match="didn't yield"):
            await (await hf.start(work())).run.result(timeout=30)
        events = heard(hf)
    (told,) = events.all(ResourceNotClosed)
    assert (told.resource, told.error) == ("shop.stubborn", "OSError: still busy")


def test_mistakes_are_told_at_import() -> None:
    pack = Pack("shop")

    @pack.resource
    async def payments() -> str:
        return "open"

    assert isinstance(payments, Resource)
    assert repr(payments) == "<resource 'shop.payments'>"
    with pytest.raises(UsageError, match="resource 'one' takes url"):

        @pack.resource  # pyright: ignore[reportCallIssue, reportArgumentType]
        def one(url: str) -> str:
            return url

    with pytest.raises(UsageError, match=r"workflow 'shop\.two' uses line"):

        @pack.workflow
        async def two(line: str = payments.shared) -> str:
            return line

    with pytest.raises(UsageError, match=r"effect 'shop\.three' is remote and uses line"):

        @pack.effect(remote=True)
        async def three(line: str = payments.shared) -> str: ...

    with pytest.raises(UsageError, match="defines 'payments' twice"):
        pack.effect(payments.fn)
    with pytest.raises(UsageError, match="takes 'self', as a method does"):

        @pack.effect
        async def charge(self: object, order: str) -> str:
            return f"{self}{order}"

    with pytest.raises(UsageError, match="line"):

        @pack.effect(key="four:{line}")
        async def four(line: str = payments.shared) -> str:
            return line

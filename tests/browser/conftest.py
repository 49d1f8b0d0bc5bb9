"""A real server with the demo shop on a free port, and a real Chromium that looks at it.

async def test_x(site, visit):
    page = await visit("/runs")              # a page of a new visitor; at the end nothing may have gone wrong in it
    site.hf, site.url, site.runs["waiting"]  # what is behind it

Server, browser and tests share one event loop per module, so that a test may reach behind the pages.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, async_playwright, expect

from holdfast import Holdfast, Run, server
from holdfast.gateway.endpoints import GatewaySettings
from holdfast.gateway.server import HttpServer
from holdfast.gateway.wait_limit import WaitLimit
from tests.browser.demo import Item, catalogue, checkout, payout, refund, shop, slow, stock, survey, world

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
PATIENCE_SECONDS = 30.0
expect.set_options(timeout=PATIENCE_SECONDS * 1_000)
ITEMS = [Item("kelp", 1_250, 2), Item("rope", 4_200)]


@dataclass
class Site:
    """A server with a dashboard, and what is behind it."""

    hf: Holdfast
    url: str
    wait_limit: WaitLimit
    runs: dict[str, Run[Any]] = field(default_factory=dict)

    async def reached(self, run: Run[Any], *statuses: str) -> Run[Any]:
        """The run as soon as it has one of these statuses."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (run := await run.refresh()).status not in statuses:
                await asyncio.sleep(0.01)
        return run

    async def approvable(self, order: str) -> Run[Any]:
        """An order that waits for a person."""
        run, _ = await self.hf.start(checkout(order, "ada", ITEMS, approval=True))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "hook" not in [wait.kind for wait in run.waiting_on]:
                await asyncio.sleep(0.01)
                run = await run.refresh()
        return run

    async def blocked(self, order: str) -> Run[Any]:
        """A refund that waits for what nobody can deliver; retried, it gets through."""
        world.bank_is_down = True
        run, _ = await self.hf.start(refund(order))
        run = await self.reached(run, "blocked")
        world.bank_is_down = False
        return run

    async def in_doubt(self, order: str) -> Run[Any]:
        """A payout of which nobody knows whether it happened."""
        world.bank_is_down = True
        run, _ = await self.hf.start(payout(order))
        run = await self.reached(run, "blocked")
        world.bank_is_down = False
        return run

    async def counted(self, shelf: str, items: int) -> Run[Any]:
        """A run of very many steps that has failed at one of the last."""
        run, _ = await self.hf.start(stock(shelf, items, damaged=items - 50))
        return await self.reached(run, "failed")

    async def failed(self, order: str) -> Run[Any]:
        """An order that the bank refused; retried, it gets through."""
        world.bank_is_down = True
        run, _ = await self.hf.start(checkout(order, "bob", ITEMS))
        run = await self.reached(run, "failed")
        world.bank_is_down = False
        return run


OPENED: dict[str, list[BrowserContext]] = {}  # by the address of the site that was visited


@asynccontextmanager
async def served(**settings: Any) -> AsyncGenerator[Site]:
    """A site with nothing in it."""
    former, gate = world.gate, asyncio.Event()
    world.gate = gate
    async with Holdfast("memory://", packs=[shop]) as hf:
        context = server.context(hf, settings=GatewaySettings(**{"require_keys": False, **settings}))
        listening = HttpServer(context.wait_limit)
        url = await listening.start(server.application(context), "127.0.0.1", 0)
        try:
            yield Site(hf, url, context.wait_limit)
        finally:
            gate.set()  # nobody is left waiting at it
            world.gate = former
            for visitor in OPENED.pop(url, []):  # a page that is still there would complain that its site is gone
                await _closed(visitor.close)
            await listening.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site() -> AsyncGenerator[Site]:
    """A site that has a run in every state."""
    async with served() as site:
        hf = site.hf
        done, _ = await hf.start(checkout("o-1-flaky", "grace", ITEMS))
        gated, _ = await hf.start(slow("<script>alert(1)</script>"), attributes={"note": '"><b>bold</b>'})
        resting, _ = await hf.start(survey("o-6"))
        large, _ = await hf.start(catalogue(2, words=2_000))
        long, _ = await hf.start(stock("a-1", 301))
        found = await asyncio.gather(
            site.reached(done, "completed"),
            site.approvable("o-2-flaky"),
            site.approvable("o-3"),
            site.reached(gated, "running"),
            site.reached(resting, "waiting"),
            site.reached(large, "completed"),
            site.reached(long, "completed"),
        )
        names = ("completed", "waiting", "cancelled", "running", "sleeping", "large", "long")
        site.runs = dict(zip(names, found, strict=True))
        await site.runs["cancelled"].cancel("no longer wanted")
        site.runs["cancelled"] = await site.runs["cancelled"].refresh()
        site.runs["blocked"] = await site.blocked("o-4")
        site.runs["doubtful"] = await site.in_doubt("o-7")
        site.runs["failed"] = await site.failed("o-5")
        for name in ("moored", "parked"):
            site.runs[name], _ = await hf.start(slow(f"ship-{name}"), lane="berth <1>")
        yield site


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncGenerator[Browser]:
    if not Path(CHROMIUM).exists():
        pytest.fail(f"the browser tests need Chromium, and {CHROMIUM} does not exist: install it, or set CHROMIUM")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        await _closed(browser.close)


async def _closed(close: Callable[[], Awaitable[None]]) -> None:
    """Chromium may not come to the end of closing a page that is about to show another: its driver ends it then."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await close()


Visiting = Callable[..., Awaitable[Page]]


@pytest_asyncio.fixture(loop_scope="module")
async def visit(site: Site, browser: Browser) -> AsyncGenerator[Visiting]:
    """Opens pages of the site, each for a new visitor. Whatever a page complains about fails the test."""
    complaints: list[str] = []
    async with AsyncExitStack() as stack:

        async def visit(path: str, *, at: str = "", width: int = 1280, **options: Any) -> Page:
            context = await browser.new_context(
                viewport={"width": width, "height": 800}, base_url=at or site.url, **options
            )
            stack.push_async_callback(_closed, context.close)
            context.set_default_timeout(PATIENCE_SECONDS * 1_000)
            page = await context.new_page()
            page.on("pageerror", lambda error: complaints.append(f"{path}: {error}"))
            page.on("console", lambda message: _hear(message, path, complaints))
            await page.goto(path)
            return page

        yield visit
    assert not complaints


def _hear(message: ConsoleMessage, path: str, complaints: list[str]) -> None:
    # That an answer was a refusal is what a test may have wanted; a blocked script or style never is.
    if message.type in {"error", "warning"} and "responded with a status of 4" not in message.text:
        complaints.append(f"{path}: {message.text}")

"""A page that changes while one looks at it: by itself, and without getting in the way."""

from __future__ import annotations

import asyncio

import httpx2
import pytest
from playwright.async_api import Page, expect

from holdfast.warnings import HookNotOpen
from tests.browser.conftest import ITEMS, PATIENCE_SECONDS, Site, Visiting, served
from tests.browser.demo import checkout, slow, world

pytestmark = pytest.mark.asyncio(loop_scope="module")

APPROVED = {"by": "eve", "approved": True}


async def remember(page: Page) -> None:
    """So that a reload would show."""
    await page.evaluate("window.neverReloaded = true")


async def was_reloaded(page: Page) -> bool:
    return not await page.evaluate("window.neverReloaded === true")


def live(page: Page) -> object:
    return expect(page.get_by_role("button", name="Live")).to_be_visible()


async def test_a_run_goes_on_while_one_looks_at_it(site: Site, visit: Visiting):
    run = await site.approvable("watched")
    page = await visit(f"/runs/{run.id}")
    await live(page)
    await remember(page)
    await expect(page.locator("main .head").get_by_role("status")).to_have_text("waiting")
    await run.signal("approval", APPROVED)
    await expect(page.locator("main .head").get_by_role("status")).to_have_text("completed")
    await expect(page.get_by_role("region", name="Output")).to_contain_text("watched is on its way")
    await expect(page.locator(".stepper .last")).to_have_text("shipped")
    await expect(page.get_by_role("button", name="Send the signal")).to_have_count(0)
    assert not await was_reloaded(page)


async def test_a_half_filled_form_survives_what_happens_around_it(site: Site, visit: Visiting):
    run = await site.approvable("typing")
    page = await visit(f"/runs/{run.id}")
    await live(page)
    await page.locator("summary", has_text="Cancel").click()
    reason = page.get_by_label("Reason").first
    await reason.fill("because")
    await page.locator("summary", has_text="value").first.click()
    await page.locator("summary", has_text="Signal").click()  # one form is open at a time
    await page.get_by_label("Payload, as JSON").fill("")
    await page.get_by_label("Payload, as JSON").press_sequentially('{"by": ')
    with pytest.warns(HookNotOpen):
        await run.signal("noise", 1)  # nobody waits for it, but the journal or the page may change
    await run.release_key("a test")
    await expect(page.locator(".journal")).to_contain_text("lost its key")  # the page is fresh
    await expect(page.get_by_label("Payload, as JSON")).to_have_value('{"by": ')
    await expect(page.get_by_label("Payload, as JSON")).to_be_focused()
    await expect(page.get_by_label("Payload, as JSON")).to_be_visible()  # what was opened stays open
    await expect(reason).to_have_value("because")
    await expect(page.locator(".journal details").first).to_have_attribute("open", "")
    await page.keyboard.type('"eve", "approved": true}')
    await page.get_by_role("button", name="Send the signal").click()
    await site.reached(run, "completed")


async def test_the_form_for_a_signal_opens_when_the_run_begins_to_wait_for_one(site: Site, visit: Visiting):
    world.bank_is_down = True
    run, _ = await site.hf.start(checkout("soon", "ada", ITEMS, approval=True))
    await site.reached(run, "failed")
    page = await visit(f"/runs/{run.id}")
    await live(page)
    world.bank_is_down = False
    await run.retry()
    await page.get_by_label("Payload, as JSON").fill('{"by": "eve", "approved": true}')
    await expect(page.get_by_role("combobox", name="Hook")).to_have_value("approval")
    await page.get_by_role("button", name="Send the signal").click()
    await site.reached(run, "completed")


async def test_new_runs_appear_in_the_list(site: Site, visit: Visiting):
    page = await visit("/runs?key=appears:")
    await live(page)
    await remember(page)
    await expect(page.get_by_text("No run fits these filters.")).to_be_visible()
    await page.get_by_role("searchbox").fill("half-typed")
    await site.hf.start(slow("first"), key="appears:1", delay="1h")
    await expect(page.get_by_role("link", name="appears:1")).to_be_visible()
    await site.hf.start(slow("second"), key="appears:2", delay="1h")
    await expect(page.locator("td.grow")).to_have_text(["appears:2", "appears:1"])
    await expect(page.get_by_role("searchbox")).to_have_value("half-typed")
    assert not await was_reloaded(page)


async def test_the_overview_moves(site: Site, visit: Visiting):
    run, _ = await site.hf.start(slow("gate"))
    await site.reached(run, "running")
    page = await visit("/")
    await live(page)
    await remember(page)
    before = (await site.hf.backlog()).statuses
    completed = next(count for status, count in before.items() if status == "completed")
    world.gate.set()
    await site.reached(run, "completed")
    await expect(page.locator(".tile.s-completed b")).not_to_have_text(f"{completed:,}")
    assert not await was_reloaded(page)


async def test_a_page_that_is_paused_stays_as_it_is_until_it_goes_on(site: Site, visit: Visiting):
    page = await visit("/runs?key=paused:")
    await page.get_by_role("button", name="Live").click()
    await expect(page.get_by_role("button", name="Paused")).to_be_visible()
    await site.hf.start(slow("x"), key="paused:1", delay="1h")
    other = await visit("/runs?key=paused:")
    await expect(other.get_by_role("link", name="paused:1")).to_be_visible()
    await expect(page.get_by_text("No run fits these filters.")).to_be_visible()
    await page.get_by_role("button", name="Paused").click()
    await expect(page.get_by_role("link", name="paused:1")).to_be_visible()


async def test_a_stream_begins_with_a_tick_and_ends_when_the_server_closes():
    async with served() as fresh, httpx2.AsyncClient(base_url=fresh.url, trust_env=False, timeout=30) as http:
        async with http.stream("GET", "/live") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = stream.aiter_lines()
            while await anext(lines) != "event: tick":
                pass
            assert fresh.wait_limit.taken == 1
            fresh.wait_limit.close()
            assert not [line async for line in lines if line.startswith("id:")]  # it comes to an end
        async with asyncio.timeout(PATIENCE_SECONDS):
            while fresh.wait_limit.taken:
                await asyncio.sleep(0.01)


async def test_one_tick_stands_for_all_that_happened_at_once():
    async with (
        served() as fresh,
        httpx2.AsyncClient(base_url=fresh.url, trust_env=False, timeout=30) as http,
        http.stream("GET", "/live") as stream,
    ):
        lines = stream.aiter_lines()
        while await anext(lines) != "event: tick":
            pass
        for number in range(50):
            await fresh.hf.start(slow(f"burst-{number}"), delay="1h")
        while await anext(lines) != "event: tick":
            pass
        fresh.wait_limit.close()
        assert len([line async for line in lines if line == "event: tick"]) < 5

"""The page of a run says which effect runs, since when and where; and what each effect was given, where recorded."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Site, Visiting, served
from tests.browser.demo import audit, ship

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_run_shows_the_effect_that_runs_and_its_instance(site: Site, visit: Visiting):
    page = await visit(f"/runs/{site.runs['running'].id}")
    now = page.get_by_role("region", name="Now", exact=True)
    await expect(now).to_contain_text("it waits for effect at_the_gate#1 (times out in ")
    facts = {
        name: now.locator("div", has=page.locator("dt", has_text=name)).last
        for name in ("attempt", "on instance", "began")
    }
    await expect(facts["attempt"]).to_contain_text("1")
    await expect(facts["on instance"]).to_contain_text(site.hf.runtime.instance)
    await expect(facts["began"].locator("time")).to_be_visible()
    await page.goto("/workers")
    await expect(page.get_by_role("cell", name=site.hf.runtime.instance)).to_be_visible()


async def test_a_run_that_waits_for_a_child_leads_to_it(visit: Visiting):
    async with served() as fresh:
        parent = await fresh.reached((await fresh.hf.start(audit("o-9"))).run, "waiting")
        page = await visit(f"/runs/{parent.id}", at=fresh.url)
        waits = page.get_by_role("region", name="Why it waits")
        await expect(waits).to_contain_text("it waits for child run survey:o-9 (survey#1)")
        await waits.get_by_role("link", name="survey:o-9").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("survey:o-9")


async def test_what_an_effect_was_given_is_in_the_journal_where_it_is_recorded(site: Site, visit: Visiting):
    shipped = await site.hf.find(ship, "ship:o-1-flaky")
    page = await visit(f"/runs/{shipped.id}")
    given = page.locator("details", has=page.locator("summary", has_text="input")).first
    await given.locator("summary").click()
    await expect(given.locator("pre")).to_contain_text('"order": "o-1-flaky"')

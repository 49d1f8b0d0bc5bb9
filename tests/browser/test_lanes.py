"""The pages of lanes: who is ahead, and what a person may set."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Site, Visiting, served
from tests.browser.demo import slow

pytestmark = pytest.mark.asyncio(loop_scope="module")
LANE = "berth <1>"
PAGE = "/lanes/one?name=berth%20%3C1%3E"


async def test_a_run_says_in_which_lane_it_waits_and_behind_whom(site: Site, visit: Visiting):
    page = await visit(f"/runs/{site.runs['parked'].id}")
    told = f"lane 'berth <1>': 1 ahead of it, the first (run {site.runs['moored'].id})"
    await expect(page.locator("#waits + ul")).to_contain_text(told)
    await page.get_by_role("link", name=LANE).click()
    await expect(page.locator("h1")).to_have_text(LANE)
    rows = page.get_by_role("region", name="Runs in the order in which they go").get_by_role("row")
    await expect(rows).to_have_count(3)
    for number, name in ((1, "moored"), (2, "parked")):
        await expect(rows.nth(number)).to_contain_text(site.runs[name].id)


async def test_the_lanes_are_listed_with_the_first_run_of_each(site: Site, visit: Visiting):
    page = await visit("/")
    await page.get_by_role("navigation", name="Pages").get_by_role("link", name="Lanes").click()
    row = page.get_by_role("row", name=LANE)
    await expect(row.get_by_role("cell")).to_have_count(5)
    await expect(row).to_contain_text(site.runs["moored"].id)
    await row.get_by_role("link", name=LANE).click()
    await expect(page.locator("h1")).to_have_text(LANE)


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
async def test_a_lane_is_paused_made_wider_and_goes_on(scripts: bool, visit: Visiting):
    async with served() as site:
        for name in ("one", "two"):
            await site.hf.start(slow(name), lane="x")
        page = await visit("/lanes/one?name=x", at=site.url, java_script_enabled=scripts)
        await page.locator("summary", has_text="Pause").click()
        await page.get_by_role("button", name="Pause the lane").click()
        await expect(page.locator(".head").get_by_role("status")).to_have_text("paused")
        assert (await site.hf.lane("x")).paused
        await page.locator("summary", has_text="Width").click()
        await page.get_by_label("Width").fill("2")
        await page.get_by_role("button", name="Set the width").click()
        await expect(page.locator("dl.facts")).to_contain_text("2")
        await page.locator("summary", has_text="Resume").click()
        await page.get_by_role("button", name="Resume the lane").click()
        await expect(page.locator(".head").get_by_role("status")).to_have_count(0)
        lane = await site.hf.lane("x")
        assert (lane.width, lane.active, lane.paused) == (2, 2, False)


@pytest.mark.parametrize(("width", "why"), [("0", "the width of a lane cannot be 0"), ("wide", "not a whole number")])
async def test_a_width_that_is_refused_says_why(width: str, why: str, visit: Visiting):
    async with served() as site:
        await site.hf.start(slow("one"), lane="x")
        page = await visit("/lanes/one?name=x", at=site.url)
        await page.locator("summary", has_text="Width").click()
        await page.get_by_label("Width").fill(width)
        await page.get_by_role("button", name="Set the width").click()
        await expect(page.get_by_role("alert")).to_contain_text(why)
        assert (await site.hf.lane("x")).width == 1


async def test_a_key_that_may_only_look_sees_no_form(visit: Visiting):
    async with served(require_keys=True) as site:
        await site.hf.start(slow("one"), lane="x")
        token, _ = await site.hf.api_keys.create("reader", namespace=site.hf.namespace, scope="read")
        page = await visit("/login", at=site.url)
        await page.get_by_label("API key").fill(token)
        await page.get_by_role("button", name="Log in").click()
        await page.goto("/lanes/one?name=x")
        await expect(page.get_by_text("Your key may look, but not act.")).to_be_visible()
        await expect(page.locator("main form")).to_have_count(0)

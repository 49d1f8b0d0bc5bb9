"""A person lets the next attempt of an effect begin on the page of its run."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from holdfast.kernel.journal import Attempted, ByHand
from tests.browser.conftest import ITEMS, Site, Visiting
from tests.browser.demo import checkout

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
async def test_the_next_attempt_begins(scripts: bool, site: Site, visit: Visiting):
    run, _ = await site.hf.start(checkout(f"{scripts}-later", "ada", ITEMS))
    run = await site.reached(run, "waiting")
    page = await visit(f"/runs/{run.id}", java_script_enabled=scripts)
    await page.locator("#act-retry_now summary").click()
    await expect(page.get_by_text("instead of at the end of its pause")).to_be_visible()  # what will happen
    await page.locator("#form-retry_now").get_by_label("Step").select_option("charge#1")
    await page.get_by_label("Who asks for it").fill("eve")
    await page.get_by_label("Why", exact=True).fill("the bank is back")
    await page.locator("#form-retry_now").get_by_role("button", name="Retry now").click()
    await expect(page.get_by_text("The next attempt begins.")).to_be_visible()
    await run.result(30)
    entries = [each for each in await run.journal() if isinstance(each, Attempted)]
    assert [each.by_hand for each in entries] == [None, ByHand("eve", "the bank is back", retry_now=True)]

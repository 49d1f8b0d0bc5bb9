"""A person decides on the page of a run what came of a step whose outcome is not known."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from holdfast.kernel.journal import Attempted, ByHand, GaveUp, Performed
from tests.browser.conftest import Site, Visiting
from tests.browser.demo import Payment

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def said(page: Page, by: str = "eve", reason: str = "statement 7") -> None:
    await page.get_by_label("Who decides").fill(by)
    await page.get_by_label("How do you know?").fill(reason)
    await page.get_by_role("button", name="Decide").click()


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
async def test_what_happened_is_decided_and_the_run_goes_on(scripts: bool, site: Site, visit: Visiting):
    run = await site.in_doubt(f"happened-{scripts}")
    page = await visit(f"/runs/{run.id}", java_script_enabled=scripts)
    await expect(page.get_by_text("It cannot be taken back")).to_be_visible()  # what will happen is said before
    await expect(page.get_by_label("Step")).to_have_value("wire#1")
    await expect(page.locator(".doubts")).to_contain_text(f"wire:happened-{scripts}")
    await page.get_by_label("Returned, as JSON").fill('{"id": "w-7", "cents": 500}')
    await said(page)
    await expect(page.get_by_text("Your decision is recorded")).to_be_visible()
    assert await run.result(30) == Payment("w-7", 500)
    [entry] = [each for each in await run.journal() if isinstance(each, Performed)]
    assert entry.by_hand == ByHand("eve", "statement 7")


async def test_a_failure_is_decided(site: Site, visit: Visiting):
    run = await site.in_doubt("failed")
    page = await visit(f"/runs/{run.id}")
    await page.get_by_label("It failed for good").check()
    await expect(page.get_by_label("Returned, as JSON")).to_be_hidden()
    await page.get_by_label("Why it failed").fill("the bank sent it back")
    await said(page)
    await site.reached(run, "failed")
    await expect(page.get_by_role("region", name="Why it failed")).to_contain_text("the bank sent it back")
    [entry] = [each for each in await run.journal() if isinstance(each, GaveUp)]
    assert entry.by_hand is not None


async def test_what_never_happened_is_called(site: Site, visit: Visiting):
    run = await site.in_doubt("never")
    page = await visit(f"/runs/{run.id}")
    await page.get_by_label("It never happened").check()
    await said(page)
    assert await run.result(30) == Payment("wire of never", 500)
    assert any(isinstance(each, Attempted) and each.by_hand is not None for each in await run.journal())


@pytest.mark.parametrize(
    ("typed", "why"),
    [('{"id": 7, "cents": 500}', "does not fit the result of effect shop.wire"), ("sent", "the returned is not JSON")],
)
async def test_a_value_that_the_effect_cannot_return_is_refused(typed: str, why: str, site: Site, visit: Visiting):
    run = await site.in_doubt(f"refused-{len(typed)}")
    page = await visit(f"/runs/{run.id}")
    await page.get_by_label("Returned, as JSON").fill(typed)
    await said(page)
    await expect(page.get_by_role("alert")).to_contain_text(why)
    await expect(page.get_by_label("Returned, as JSON")).to_have_value(typed)  # and what was typed is still there
    await expect(page.get_by_label("Who decides")).to_have_value("eve")
    assert (await run.refresh()).status == "blocked"


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({"outcome": "failed", "by": "eve"}, "does not say why it failed"),
        ({"outcome": "returned", "returned": "{}"}, "does not say who decides"),
        ({"by": "eve"}, "says nothing"),
        ({"outcome": "not_performed", "by": "eve", "step": "other#1"}, "is not in doubt"),
    ],
)
async def test_a_decision_that_is_not_complete_is_refused(form: dict[str, str], why: str, site: Site, visit: Visiting):
    run = await site.in_doubt(f"incomplete-{len(why)}")
    page = await visit(f"/runs/{run.id}")
    token = await page.locator("#form-decide input[name=token]").get_attribute("value") or ""
    answer = await page.request.post(f"/runs/{run.id}/decide", form={"token": token, "step": "wire#1"} | form)
    assert why in await answer.text()
    assert (await run.refresh()).status == "blocked"


async def test_the_primary_action_fits_the_state(site: Site, visit: Visiting):
    page = await visit(f"/runs/{(await site.in_doubt('primary')).id}")
    await expect(page.locator("summary.primary")).to_have_text("Decide")
    await expect(page.locator("#act-retry .will")).to_contain_text("it blocks again")
    for name, label in (("failed", "Retry"), ("blocked", "Retry"), ("waiting", "Signal")):
        await page.goto(f"/runs/{site.runs[name].id}")
        await expect(page.locator("summary.primary")).to_have_text(label)
    await page.goto(f"/runs/{site.runs['completed'].id}")
    await expect(page.locator("summary.primary")).to_have_count(0)

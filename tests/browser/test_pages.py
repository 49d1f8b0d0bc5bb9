"""Every page: that it shows what is there, to everybody, in both themes, on any screen."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, expect

from holdfast.wire.times import exact
from tests.browser.conftest import SCREENSHOTS, Site, Visiting
from tests.browser.demo import slow

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGES = {
    "overview": "/",
    "runs": "/runs?workflow=shop.checkout&status=completed&status=failed",
    "bulk": "/bulk?verb=cancel&workflow=shop.checkout",
    "workflows": "/workflows",
    "workflow": "/workflows/shop.checkout",
    "lanes": "/lanes",
    "lane": "/lanes/one?name=berth%20%3C1%3E",
    "workers": "/workers",
    "limits": "/limits",
}
RUNS = ("completed", "waiting", "cancelled", "blocked", "doubtful", "failed", "large", "long", "running")


def path_of(name: str, site: Site) -> str:
    return PAGES.get(name) or f"/runs/{site.runs[name].id}"


@pytest.mark.parametrize("name", [*PAGES, *RUNS])
async def test_a_page_is_accessible_in_both_themes(name: str, site: Site, visit: Visiting):
    # Without motion, since a colour that fades has no contrast to be measured.
    page = await visit(path_of(name, site), color_scheme="light", reduced_motion="reduce")
    await expect(page.locator("h1")).to_be_visible()
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=SCREENSHOTS / f"{name}-light.png", full_page=True)
    assert not await grave_findings(page)
    await page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    await page.screenshot(path=SCREENSHOTS / f"{name}-dark.png", full_page=True)
    assert not await grave_findings(page, runOnly=["color-contrast"])  # nothing else depends on the theme


async def grave_findings(page: Page, **options: object) -> list[tuple[str, list[str]]]:
    """What axe calls serious or critical, and where."""
    found = await Axe().run(page, options={"resultTypes": ["violations"], **options})
    grave = [each for each in found.response["violations"] if each["impact"] in {"serious", "critical"}]
    return [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in grave]


async def test_nothing_is_wider_than_a_phone(site: Site, visit: Visiting):
    page = await visit("/", width=360)
    for name in (*PAGES, *RUNS):
        await page.goto(path_of(name, site))
        over = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over <= 0, name
        if name in {"overview", "waiting"}:
            await page.screenshot(path=SCREENSHOTS / f"{name}-phone.png", full_page=True)


async def test_the_overview_counts_what_there_is(site: Site, visit: Visiting):
    page = await visit("/")
    backlog = await site.hf.backlog()
    for status, count in backlog.statuses.items():
        await expect(page.locator(f".tile.s-{status} b")).to_have_text(f"{count:,}")
    await expect(page.get_by_role("region", name="Blocked runs").get_by_role("link", name="refund:o-4")).to_be_visible()
    await expect(
        page.get_by_role("region", name="Runs that failed").get_by_role("link", name="order:o-5")
    ).to_be_visible()
    failed = site.runs["failed"]
    assert failed.finished_at is not None
    ended = page.locator(f"#l-{failed.id} time")
    await expect(ended).to_have_attribute("title", exact(failed.finished_at))
    await expect(page.get_by_role("link", name="Reference of the HTTP API")).to_have_attribute("href", "/docs")
    await expect(page.get_by_text("1 of them failed")).to_be_visible()
    await expect(page.locator(".spark path").first).to_have_attribute("d", re.compile("^M"))


async def test_filters_live_in_the_address(visit: Visiting):
    page = await visit("/runs")
    line = "workflow:shop.checkout key:order:o- customer=grace cents>=6000 completed"
    await page.get_by_role("searchbox").fill(line)
    await page.get_by_role("button", name="Search").click()
    await expect(page.get_by_role("link", name="order:o-1-flaky")).to_be_visible()
    assert await page.locator("table.found tbody tr").count() == 1
    await page.goto(page.url)  # the address alone says it all
    await expect(page.get_by_role("searchbox")).to_have_value(line)
    assert await page.locator("table.found tbody tr").count() == 1
    await page.get_by_role("link", name="Clear").click()
    await expect(page.get_by_role("searchbox")).to_have_value("")


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
async def test_a_search_is_refined_by_clicks(scripts: bool, visit: Visiting):
    page = await visit("/runs?q=order:o-", java_script_enabled=scripts)
    failed = page.get_by_role("group", name="Status").get_by_role("link", name="failed")
    await expect(failed).to_contain_text("1")
    await failed.click()
    await expect(page.get_by_role("searchbox")).to_have_value("order:o- status:failed")
    await expect(page.locator("td.grow a")).to_have_text(["order:o-5"])
    await page.get_by_role("link", name="24 h").click()
    await expect(page.get_by_role("searchbox")).to_have_value("order:o- status:failed created_after:24h")
    await page.locator("#by-workflow summary").click()
    await page.get_by_role("link", name="shop.refund").click()
    await expect(page.get_by_role("searchbox")).to_have_value(
        "order:o- status:failed created_after:24h workflow:shop.refund"
    )
    await expect(page.get_by_text("No run fits these filters.")).to_be_visible()


async def test_a_run_is_found_by_its_id_or_a_part_of_it(site: Site, visit: Visiting):
    run = site.runs["sleeping"]
    page = await visit("/runs")
    for wanted in (run.id, run.id[-9:], f"id:{run.id[-9:]}"):
        await page.goto("/runs")
        await page.get_by_role("searchbox").fill(wanted)
        await page.get_by_role("button", name="Search").click()
        await expect(page).to_have_url(re.compile(f"/runs/{run.id}$"))
    await page.goto(f"/runs?q=id:{run.id[-9:]}+failed")  # it is another status that it has
    await expect(page.get_by_text("No run fits these filters.")).to_be_visible()


async def test_children_are_shown_when_they_are_asked_for(site: Site, visit: Visiting):
    page = await visit("/runs?q=ship:page-")
    await expect(page.get_by_text("No run fits these filters.")).to_be_visible()
    await page.get_by_role("link", name="Look among children, too").click()
    await expect(page.get_by_role("link", name="ship:page-0")).to_be_visible()
    await page.get_by_role("link", name="Children shown").click()
    await expect(page.get_by_text("No run fits these filters.")).to_be_visible()


async def test_the_list_says_why_runs_failed_or_are_blocked(visit: Visiting):
    page = await visit("/runs?q=status:failed,blocked")
    await expect(page.get_by_role("row", name="order:o-5")).to_contain_text("Permanent the bank does not answer")
    await expect(page.get_by_role("row", name="refund:o-4")).to_contain_text("waits for nothing")
    await page.goto("/")
    await expect(page.get_by_role("region", name="Runs that failed")).to_contain_text("the bank does not answer")


async def test_runs_can_be_found_by_when_they_were_created(visit: Visiting):
    page = await visit("/runs?created_before=2020-01-01T00:00")
    await expect(page.get_by_text("No run fits these filters.")).to_be_visible()
    await page.goto("/runs?created_after=2020-01-01T00:00&status=blocked")
    await expect(page.get_by_role("link", name="refund:o-4")).to_be_visible()


async def test_a_filter_that_makes_no_sense_says_so_and_stays_in_the_form(visit: Visiting):
    page = await visit("/runs?attributes=customer")
    await expect(page.get_by_role("alert")).to_contain_text("'customer' is not a condition on an attribute")
    await expect(page.get_by_role("searchbox")).to_have_value("customer")
    for query in ("status=odd", "after=odd", "created_after=odd", "workflow=odd", "attributes=a>b", "q=a+b", 'q="'):
        answer = await page.request.get(f"/runs?{query}")
        assert (answer.status, 'role="alert"' in await answer.text()) == (422, True), query


async def test_a_parameter_that_a_page_does_not_know_is_told(site: Site, visit: Visiting):
    page = await visit("/runs?key=order:")
    for address, known in (("/runs?key_prefix=order:", "key"), ("/workers?x=1", "takes no parameters"), ("/?x=1", "")):
        answer = await page.request.get(address)
        assert (answer.status, known in await answer.text()) == (400, True), address


async def test_a_long_list_has_pages(site: Site, visit: Visiting):
    for number in range(60):
        await site.hf.start(slow(f"many-{number}"), key=f"many:{number:02}", delay="1h")
    page = await visit("/runs?key=many:")
    keys = await page.locator("td.grow a").all_inner_texts()
    await page.get_by_role("link", name="Older").click()
    await expect(page.get_by_role("link", name="Newest")).to_be_visible()
    keys += await page.locator("td.grow a").all_inner_texts()
    assert sorted(keys) == [f"many:{number:02}" for number in range(60)]


async def test_a_run_tells_its_whole_story(site: Site, visit: Visiting):
    page = await visit(f"/runs/{site.runs['completed'].id}")
    await expect(page.get_by_role("heading", level=1)).to_have_text("order:o-1-flaky")
    charge = page.get_by_role("img", name="charge#1:")
    await expect(charge).to_have_accessible_name(
        re.compile("attempt 1 failed with ConnectionError.*attempt 2 failed.*returned in attempt 3")
    )
    assert await charge.locator("rect.failed").count() == 2
    titles = await charge.locator(
        "rect title"
    ).count()  # each bar says what it is; a wait before an attempt is one, too
    assert titles == await charge.locator("rect").count() >= 5
    await expect(page.locator(".timeline").get_by_role("link", name="ship#1")).to_have_attribute(
        "href", re.compile("^/runs/")
    )
    await expect(page.locator(".stepper .reached")).to_have_text(["placed", "charged", "approved", "shipped"])
    await expect(page.get_by_role("region", name="Output")).to_contain_text("o-1-flaky is on its way")
    await expect(page.get_by_role("region", name="Entries").locator("tbody tr")).to_have_count(
        len(await site.runs["completed"].journal())
    )


async def test_a_run_that_waits_says_for_what(site: Site, visit: Visiting):
    page = await visit(f"/runs/{site.runs['waiting'].id}")
    await expect(page.get_by_text("it waits for a signal to hook 'approval'")).to_be_visible()
    await page.goto(f"/runs/{site.runs['blocked'].id}")
    await expect(page.locator(".waits")).to_contain_text("it waits for a person: waits_for_nothing")
    await page.goto(f"/runs/{site.runs['sleeping'].id}")
    await expect(page.locator(".waits")).to_contain_text("it waits for timer sleep#1 until")


async def test_the_receipt_of_a_cancelled_run_is_on_its_page(site: Site, visit: Visiting):
    page = await visit(f"/runs/{site.runs['cancelled'].id}")
    receipt = page.locator("#receipt")
    await expect(receipt).to_contain_text("no longer wanted")
    await expect(receipt.get_by_role("row", name="shop.reserve")).to_contain_text("undone")
    await expect(receipt.get_by_role("row", name="shop.charge")).to_contain_text("performed")


async def test_a_large_value_is_clipped_and_whole_elsewhere(site: Site, visit: Visiting):
    page = await visit(f"/runs/{site.runs['large'].id}")
    shown = await page.get_by_role("region", name="Output").locator("pre").inner_text()
    assert len(shown) < 5_000
    answer = await page.request.get(f"/runs/{site.runs['large'].id}/output")
    assert answer.headers["content-type"] == "application/json"
    assert (await answer.json())["text"] == "holdfast " * 2_000
    assert await (await page.request.get(f"/runs/{site.runs['large'].id}/input")).json() == {"pages": 2, "words": 2_000}


async def test_what_users_wrote_is_shown_and_never_run(site: Site, visit: Visiting):
    page = await visit("/runs?workflow=shop.slow&status=running")
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    await expect(page.get_by_text('"><b>bold</b>')).to_be_visible()
    await page.goto(f"/runs/{site.runs['running'].id}")
    await expect(page.get_by_role("region", name="Input")).to_contain_text("<script>alert(1)</script>")
    await page.goto("/runs?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E&attributes=%3Cb%3E")
    await expect(page.get_by_role("searchbox")).to_have_value('<b> "><script>alert(1)</script>')
    await page.goto("/runs/%3Cscript%3Ealert(1)")
    await expect(page.get_by_role("heading", level=1)).to_be_visible()


async def test_what_is_not_there_is_not_found(visit: Visiting):
    page = await visit("/")
    for path in ("/runs/nobody/input", "/runs/a%20b", "/workflows/shop.nothing", "/runs/nobody"):
        answer = await page.goto(path)
        assert answer is not None
        assert answer.status == 404, path
    await expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    await page.get_by_role("link", name="Overview").click()
    await expect(page.get_by_role("heading", name="Overview")).to_be_visible()


async def test_a_workflow_shows_what_it_declares(visit: Visiting):
    page = await visit("/workflows")
    await page.get_by_role("link", name="shop.checkout").click()
    await expect(page.get_by_text("Reserves the goods, charges the customer")).to_be_visible()
    await expect(page.locator(".facts")).to_contain_text("order:{order}")
    await expect(page.get_by_role("region", name="Markers")).to_contain_text("charged then approved")
    await expect(page.locator("#schema-input")).to_contain_text('"customer"')
    await expect(page.get_by_label("Input, as JSON")).to_have_value(re.compile('"sku": ""'))


async def test_workers_are_listed_with_what_they_serve(site: Site, visit: Visiting):
    page = await visit("/workers")
    row = page.get_by_role("row", name=site.hf.runtime.instance)
    await expect(row).to_contain_text("of 200")
    await expect(row.get_by_role("link", name="shop.checkout")).to_be_visible()


async def test_the_keyboard_reaches_the_content_first(visit: Visiting):
    page = await visit("/runs")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).to_be_focused()
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("searchbox")).to_be_focused()


async def test_the_chosen_theme_stays(visit: Visiting):
    page = await visit("/", color_scheme="light")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = await page.evaluate(ground)
    switch = page.get_by_role("button", name="Theme:")
    await switch.click()  # light
    await switch.click()
    await expect(switch).to_have_text("Theme: dark")
    assert await page.evaluate(ground) != light
    await page.goto("/runs")
    await expect(page.get_by_role("button", name="Theme:")).to_have_text("Theme: dark")
    assert await page.evaluate(ground) != light


async def test_every_page_reads_without_javascript(site: Site, visit: Visiting):
    page = await visit("/", java_script_enabled=False, color_scheme="dark")
    for name in (*PAGES, *RUNS):
        await page.goto(path_of(name, site))
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        await expect(page.get_by_role("button", name="Theme:")).to_be_hidden()
    await expect(page.get_by_role("img", name="at_the_gate#1:")).to_be_visible()

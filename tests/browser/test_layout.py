"""Nothing is clipped, nothing jumps, and a page stays small however much a run has done."""

from __future__ import annotations

import asyncio
import re
from typing import Literal

import pytest
from playwright.async_api import Page, expect

from holdfast.events import EffectBegan
from holdfast.testing import EventRecorder
from tests.browser.conftest import PATIENCE_SECONDS, Site, Visiting
from tests.browser.demo import stock
from tests.browser.test_pages import PAGES, RUNS, path_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLIPPED = """
() => Array.from(document.querySelectorAll(".scroll, .card, .panel, main"))
  .filter((each) => each.checkVisibility() && each.scrollWidth > each.clientWidth + 1)
  .map((each) => `${each.className} ${each.getAttribute("aria-label")}: ${each.scrollWidth - each.clientWidth}`)
"""
BYTES_MAX = 150_000
NODES_MAX = 2_500
HEIGHT_MAX = 8_000
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@pytest.mark.parametrize("width", [1280, 390])
async def test_no_column_is_clipped(width: int, site: Site, visit: Visiting):
    page = await visit("/", width=width)
    found: dict[str, list[str]] = {}
    for path in (*(path_of(name, site) for name in (*PAGES, *RUNS)), "/runs?children=shown"):
        await page.goto(path)
        await expect(page.locator("h1")).to_be_visible()
        for theme in THEMES:
            await page.emulate_media(color_scheme=theme)
            found[f"{path} {theme}"] = await page.evaluate(CLIPPED)
    assert not {path: clipped for path, clipped in found.items() if clipped}


async def places(page: Page) -> dict[str, tuple[float, float]]:
    """Where the buttons are."""
    boxes = await page.locator(".act > summary").evaluate_all(
        "all => all.map(one => [one.textContent, one.getBoundingClientRect().x, one.getBoundingClientRect().y])"
    )
    return {label: (x, y) for label, x, y in boxes}


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
async def test_actions_stay_in_their_place(width: int, scripts: bool, site: Site, visit: Visiting):
    page = await visit(f"/runs/{site.runs['failed'].id}", width=width, java_script_enabled=scripts)
    before = await places(page)
    assert list(before) == ["Retry", "Fork", "Release the key"]
    for label in (*before, "Retry"):
        await page.locator(".act > summary", has_text=label).click()
        await expect(page.locator(".act[open]")).to_have_count(1)  # one is open at a time
        await expect(page.locator(".act[open] .will")).to_be_visible()  # and says what will happen
        assert await places(page) == before


async def test_the_actions_are_in_sight_wherever_one_reads(site: Site, visit: Visiting):
    page = await visit(f"/runs/{site.runs['completed'].id}")
    await page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    await expect(page.locator(".act > summary", has_text="Fork")).to_be_in_viewport()


async def size_of(page: Page, path: str) -> tuple[int, int, int]:
    answer = await page.goto(path)
    assert answer is not None
    assert answer.status == 200
    nodes, height = await page.evaluate("[document.querySelectorAll('*').length, document.body.scrollHeight]")
    return len(await answer.body()), nodes, height


async def test_the_page_of_ten_thousand_steps_is_small(site: Site, visit: Visiting):
    heard = EventRecorder(site.hf)
    run, _ = await site.hf.start(stock("large", 10_001, wait=True))
    await heard.until(EffectBegan, step="at_the_gate#1", run_id=run.id, within=PATIENCE_SECONDS * 4)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(await run.journal()) < 10_000:  # it has begun; the steps before it are about to be recorded
            await asyncio.sleep(0.05)
    page = await visit("/")
    for query in ("", "?group=count_item", "?group=count_item&row=9990", "?state=done&row=5000", "?journal=0"):
        size = await size_of(page, f"/runs/{run.id}{query}")
        assert all(is_ <= most for is_, most in zip(size, (BYTES_MAX, NODES_MAX, HEIGHT_MAX), strict=True)), (
            query,
            size,
        )
    await page.goto(f"/runs/{run.id}")
    await expect(page.get_by_role("img", name="at_the_gate#1:")).to_be_visible()  # what goes on is in sight
    group = page.get_by_role("img", name="count_item: 10,000 steps")
    await expect(group).to_be_visible()


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
async def test_one_jumps_to_the_failure_of_a_long_run(scripts: bool, site: Site, visit: Visiting):
    run = await site.counted(f"jump-{scripts}", 500)
    page = await visit(f"/runs/{run.id}", java_script_enabled=scripts)
    failed = page.get_by_role("img", name="gave up after attempt 1")
    await expect(failed).to_be_visible()
    await page.get_by_role("link", name="The failure").click()
    await expect(page).to_have_url(re.compile(r"since=.*#track-\d+$"))
    await expect(failed.first).to_be_in_viewport()
    await page.goto(f"/runs/{run.id}")  # of a run that took only some milliseconds, a stretch may be all there is
    await page.locator(".fold", has_text="count_item").click()
    await expect(page.get_by_text("0/count_item#1", exact=True)).to_be_visible()
    await page.get_by_role("link", name="Later rows").click()
    await expect(page.get_by_text("40/count_item#1", exact=True)).to_be_visible()
    await page.go_back()
    await expect(page.get_by_text("0/count_item#1", exact=True)).to_be_visible()


async def test_a_stretch_of_the_minimap_is_shown_larger(site: Site, visit: Visiting):
    run = await site.counted("stretch", 500)
    page = await visit(f"/runs/{run.id}")
    await page.locator(".minimap a").nth(3).click()
    await expect(page).to_have_url(re.compile("since=.*until="))
    await expect(page.locator(".minimap .shown")).to_have_count(1)
    narrow = page.url
    await page.get_by_role("link", name="Zoom out").click()
    await expect(page).not_to_have_url(narrow)  # or the next click may go to a page that is on its way out
    await page.get_by_role("link", name="All", exact=True).click()
    await expect(page.locator(".minimap .shown")).to_have_count(0)


async def test_a_stretch_is_chosen_by_dragging(site: Site, visit: Visiting):
    page = await visit(f"/runs/{site.runs['long'].id}")
    stretches = page.locator(".minimap a")  # there are fewer than 24 if the run took only some milliseconds
    boxes = [await stretches.nth(number).bounding_box() for number in (1, await stretches.count() // 2)]
    (begin, end) = [(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for box in boxes if box is not None]
    await page.mouse.move(*begin)
    await page.mouse.down()
    await page.mouse.move(*end)
    await page.mouse.up()
    await expect(page).to_have_url(re.compile("since=.*until="))
    width = await page.locator(".minimap .shown").get_attribute("width")
    assert 0 < float(width or 0) < 120


async def test_children_unfold_into_a_tree(site: Site, visit: Visiting):
    run = site.runs["large"]
    page = await visit(f"/runs/{run.id}")
    tree = page.get_by_role("region", name="Children")
    await expect(tree.get_by_role("link", name="ship:page-0")).to_be_visible()
    await expect(tree.get_by_role("link", name="2 completed")).to_have_attribute("href", re.compile("holdfast.parent"))
    await tree.locator(".branch > summary").first.click()
    await expect(tree.get_by_text("It has started no runs.")).to_be_visible()
    await tree.get_by_role("link", name="2 completed").click()
    await expect(page.locator("td.grow a")).to_have_count(2)
    await page.goto(f"/runs/{run.id}/children")
    await expect(page.get_by_role("link", name="ship:page-1")).to_be_visible()


async def test_the_form_of_a_signal_begins_with_what_the_hook_takes(site: Site, visit: Visiting):
    page = await visit(f"/runs/{site.runs['waiting'].id}")
    await expect(page.get_by_label("Payload, as JSON")).to_have_value(re.compile('"by": "",\\s+"approved": false'))
    await expect(page.locator(".shape")).to_contain_text("note text, may be left out")

"""/docs in a browser: without scripts, in both themes, on a phone, and without other servers."""

from __future__ import annotations

import pytest
from playwright.async_api import Request, expect

from tests.browser.conftest import SCREENSHOTS, Visiting
from tests.browser.test_pages import grave_findings

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_reference_is_accessible_in_both_themes(visit: Visiting):
    page = await visit("/docs", color_scheme="light", reduced_motion="reduce", bypass_csp=True)  # axe is a script
    await expect(page.locator("h1")).to_have_text("The HTTP API")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=SCREENSHOTS / "reference-light.png")
    assert not await grave_findings(page)
    await page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    await page.screenshot(path=SCREENSHOTS / "reference-dark.png")
    assert not await grave_findings(page, runOnly=["color-contrast"])


async def test_the_reference_works_without_scripts_and_asks_no_other_server(visit: Visiting):
    page = await visit("/docs", java_script_enabled=False)
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(request.url)

    page.on("request", note)
    await page.reload()
    await page.get_by_role("navigation").get_by_role("link", name="POST /v1/runs/{run_id}/decide").click()
    article = page.locator("#runs-decide")
    await expect(article).to_be_in_viewport()
    await article.get_by_text("Example", exact=True).last.click()
    await expect(article.locator("pre").first).to_contain_text("curl -sS -X POST")
    # The style is allowed by its digest: were it refused, the page would have one column.
    assert await page.locator("body").evaluate("each => getComputedStyle(each).display") == "grid"
    assert {url.partition("#")[0] for url in asked} <= {page.url.partition("#")[0], _icon(page.url)}


def _icon(url: str) -> str:
    return url.partition("/docs")[0] + "/favicon.ico"  # which browsers ask for by themselves


async def test_the_reference_fits_a_phone(visit: Visiting):
    page = await visit("/docs", width=360)
    over = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert over <= 0
    await page.screenshot(path=SCREENSHOTS / "reference-phone.png")

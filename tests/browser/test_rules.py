"""Breakers and limits on their page, and a person who opens and closes a breaker there."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from holdfast.kernel import breakers, effect_limits
from holdfast.kernel.effect_limits import LimitSlots, Share
from tests.browser.conftest import Site, Visiting

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def prepare(site: Site, name: str) -> None:
    """A breaker and a limit that replicas have used before."""
    store, namespace = site.hf.runtime.store, site.hf.namespace
    slots = LimitSlots(10, {"app-1-4120-b7d0.nonce": Share(7, 9)})
    now_ms = store.now_ms()
    await store.write(
        [
            breakers.writing(namespace, name, None, breakers.NEW, now_ms=now_ms),
            effect_limits.writing(namespace, name, None, slots, now_ms=now_ms),
        ]
    )


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
async def test_a_person_opens_and_closes_a_breaker(scripts: bool, site: Site, visit: Visiting):
    name = f"stripe-{scripts}"
    await prepare(site, name)
    page = await visit("/rules", java_script_enabled=scripts)
    row = page.get_by_role("row").filter(has_text=f"Open {name}")
    await row.get_by_label("Who does it").fill("eve")
    await page.get_by_role("button", name=f"Open {name}").click()
    await expect(page.get_by_text("opened by eve")).to_be_visible()
    assert (await site.hf.breaker(name)).state == "open"
    await page.get_by_role("button", name=f"Close {name}").click()
    await expect(page.get_by_role("button", name=f"Open {name}")).to_be_visible()
    assert (await site.hf.breaker(name)).state == "closed"


async def test_the_slots_of_a_limit_are_shown_by_replica(site: Site, visit: Visiting):
    await prepare(site, "slots")
    page = await visit("/rules")
    row = page.locator("#l-slots")
    await expect(row).to_contain_text("7 of 10")
    await expect(row).to_contain_text("app-1-4120-b7d0")
    await expect(row).to_contain_text("of 9 wanted")

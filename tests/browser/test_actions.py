"""Everything that can be done on a page: it happens, once, and the page says so."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Page, expect

from holdfast.kernel.attributes import FORKED_FROM
from holdfast.kernel.journal import Received
from tests.browser.conftest import ITEMS, SCREENSHOTS, Site, Visiting, served
from tests.browser.demo import checkout, loan, survey, world
from tests.browser.test_pages import grave_findings

pytestmark = pytest.mark.asyncio(loop_scope="module")

APPROVED = '{"by": "eve", "approved": true}'


def status(page: Page, text: str) -> object:
    return expect(page.locator("main .head").get_by_role("status")).to_have_text(text)


@pytest.mark.parametrize("name", ["completed", "waiting", "cancelled", "blocked", "doubtful", "failed", "running"])
async def test_the_buttons_are_exactly_what_may_be_done(name: str, site: Site, visit: Visiting):
    run = site.runs[name]
    page = await visit(f"/runs/{run.id}")
    found = await page.locator("main form[method=post]").evaluate_all("forms => forms.map(form => form.action)")
    assert [each.rpartition("/")[2] for each in found] == list((await run.explain()).next_actions)


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
async def test_a_signal_is_delivered(scripts: bool, site: Site, visit: Visiting):
    run = await site.approvable(f"signalled-{scripts}")
    page = await visit(f"/runs/{run.id}", java_script_enabled=scripts)
    await expect(page.get_by_role("combobox", name="Hook")).to_have_value("approval")
    await page.get_by_label("Payload, as JSON").fill(APPROVED)
    await page.get_by_role("button", name="Send the signal").click()
    await expect(page.get_by_text("The signal is recorded")).to_be_visible()
    assert await run.result(30) == {
        "payment": f"payment of 67.00 for signalled-{scripts}",
        "parcel": f"signalled-{scripts} is on its way",
    }


@pytest.mark.parametrize(
    ("payload", "why"),
    [("yes", "the payload is not JSON"), ('{"by": 7}', "does not fit"), ('{"by": "eve"}', "does not fit")],
)
async def test_a_signal_that_is_refused_says_why_and_keeps_what_was_typed(
    payload: str, why: str, site: Site, visit: Visiting
):
    page = await visit(f"/runs/{site.runs['waiting'].id}")
    await page.get_by_label("Payload, as JSON").fill(payload)
    await page.get_by_role("button", name="Send the signal").click()
    await expect(page.get_by_role("alert")).to_contain_text(why)
    await expect(page.get_by_label("Payload, as JSON")).to_have_value(payload)
    assert (await site.runs["waiting"].refresh()).status == "waiting"


async def test_a_form_that_is_sent_twice_counts_once(site: Site, visit: Visiting):
    run = await site.approvable("pressed-twice")
    page = await visit(f"/runs/{run.id}")
    form = await page.locator("#form-signal").evaluate("form => Object.fromEntries(new FormData(form))")
    form |= {"hook": "approval", "payload": APPROVED}
    for _ in range(2):
        answer = await page.request.post(f"/runs/{run.id}/signal", form=form, max_redirects=0)
        assert answer.status in {303, 409}  # the run may have ended by then
    await run.result(30)
    assert sum(isinstance(entry, Received) for entry in await run.journal()) == 1

    await page.goto("/workflows/shop.slow")
    form = await page.locator("#form-start").evaluate("form => Object.fromEntries(new FormData(form))")
    form["input"] = '{"order": "twice"}'
    places = [
        (await page.request.post("/workflows/shop.slow/start", form=form, max_redirects=0)).headers["location"]
        for _ in range(2)
    ]
    assert places[0] == places[1]


async def test_cancelling_answers_with_the_receipt(site: Site, visit: Visiting):
    run = await site.approvable("cancelled-here")
    page = await visit(f"/runs/{run.id}")
    await page.locator("summary", has_text="Cancel").click()
    await page.get_by_label("Reason").first.fill("the customer left")
    await page.get_by_role("button", name="Cancel the run").click()
    await status(page, "cancelled")
    receipt = page.locator("#receipt")
    await expect(receipt).to_contain_text("the customer left")
    await expect(receipt.get_by_role("row", name="shop.reserve")).to_contain_text("undone")
    assert (await run.refresh()).status == "cancelled"


async def test_a_cancellation_that_takes_long_goes_on_without_the_request(visit: Visiting):
    async with served(cancel_seconds_max=0.1) as fresh:
        run, _ = await fresh.hf.start(loan("a boat"))
        await fresh.reached(run, "waiting")
        page = await visit(f"/runs/{run.id}", at=fresh.url)
        await page.locator("summary", has_text="Cancel").click()
        await page.get_by_label("Reason").first.fill("it is needed here")
        await page.get_by_label("Deadline").fill("400d")
        await page.get_by_role("button", name="Cancel the run").click()
        await expect(page.get_by_text("The cancellation was asked for and goes on.")).to_be_visible()
        assert (await run.refresh()).finished_at is None
        world.gate.set()
        await status(page, "cancelled")
        await expect(page.get_by_text("The run was cancelled.")).to_be_visible()
        await expect(page.locator("#receipt")).to_contain_text("it is needed here")
        await page.close()  # before its server is gone, which it would complain about


async def test_nothing_is_cancelled_where_there_is_no_place_to_wait(visit: Visiting):
    async with served() as fresh:
        run, _ = await fresh.hf.start(loan("a net"))
        await fresh.reached(run, "waiting")
        page = await visit(f"/runs/{run.id}", at=fresh.url, java_script_enabled=False)  # so it holds no place itself
        token = await page.locator("#form-cancel input[name=token]").get_attribute("value")
        fresh.wait_limit.slots = 0
        answer = await page.request.post(f"/runs/{run.id}/cancel", form={"token": token or ""}, max_redirects=0)
        assert answer.status == 503
        assert "requests wait here already" in await answer.text()
        assert (await run.explain()).next_actions == ("signal", "cancel")
        assert fresh.wait_limit.taken == 0


async def test_a_deadline_that_is_no_duration_is_refused(site: Site, visit: Visiting):
    page = await visit(f"/runs/{site.runs['running'].id}")
    await page.locator("summary", has_text="Cancel").click()
    await page.get_by_label("Deadline").fill("soon")
    await page.get_by_role("button", name="Cancel the run").click()
    await expect(page.get_by_role("alert")).to_contain_text("'soon' is not a duration")
    await expect(page.get_by_label("Deadline")).to_have_value("soon")


async def test_a_blocked_run_is_retried(site: Site, visit: Visiting):
    run = await site.blocked("retried-blocked")
    page = await visit(f"/runs/{run.id}")
    await page.locator("summary", has_text="Retry").click()
    await expect(page.get_by_text("Nothing that is recorded is done again")).to_be_visible()
    await page.get_by_role("button", name="Retry the run").click()
    await expect(page.get_by_text("The run is tried again")).to_be_visible()
    assert await run.result(30) == "refunded"


async def test_a_failed_run_is_retried_without_scripts(site: Site, visit: Visiting):
    run = await site.failed("retried-failed")
    page = await visit(f"/runs/{run.id}", java_script_enabled=False)
    await expect(page.get_by_role("region", name="Why it failed")).to_contain_text("the bank does not answer")
    await page.locator("summary", has_text="Retry").click()
    await expect(page.get_by_text("Nothing that is recorded is done again")).to_be_visible()
    await page.get_by_role("button", name="Retry the run").click()
    await expect(page.get_by_text("The run is tried again")).to_be_visible()
    await site.reached(run, "completed")


async def test_a_cancelled_run_is_resumed(site: Site, visit: Visiting):
    run, _ = await site.hf.start(survey("resumed"))
    await site.reached(run, "waiting")
    await run.cancel("for a while")
    page = await visit(f"/runs/{run.id}")
    await expect(page.locator("#receipt")).to_contain_text("resumable")
    await page.locator("summary", has_text="Resume").click()
    await page.get_by_role("button", name="Resume the run").click()
    await expect(page.get_by_text("The run goes on.")).to_be_visible()
    await site.reached(run, "waiting")


async def test_a_run_is_forked_from_a_step(site: Site, visit: Visiting):
    run = await site.failed("forked")
    page = await visit(f"/runs/{run.id}")
    await page.locator("summary", has_text="Fork").click()
    await page.get_by_label("From step").select_option("charge#1")
    await page.get_by_role("button", name="Fork").click()
    await expect(page.get_by_text("This is the fork.")).to_be_visible()
    await expect(page.locator(".facts").get_by_role("link", name=run.id)).to_be_visible()
    fork = await site.hf.get(page.url.partition("?")[0].rpartition("/")[2])
    assert fork.id != run.id
    await site.reached(fork, "completed")


async def test_a_fork_form_that_is_sent_twice_makes_one_fork(site: Site, visit: Visiting):
    run = site.runs["large"]  # it has no key that could keep a second fork out
    page = await visit(f"/runs/{run.id}")
    form = await page.locator("#form-fork").evaluate("form => Object.fromEntries(new FormData(form))")
    steps = await page.get_by_label("From step").locator("option").all_text_contents()

    async def sent(at: str, **others: str) -> str:
        fields = form | {"at": at} | others
        answer = await page.request.post(f"/runs/{run.id}/fork", form=fields, max_redirects=0)
        assert answer.status == 303
        return answer.headers["location"]

    places = {*await asyncio.gather(sent(steps[0]), sent(steps[0])), await sent(steps[0])}
    assert len(places) == 1
    # Another step, or the form of a page that was loaded again, is another wish.
    places |= {await sent(steps[-1]), await sent(steps[0], nonce="another")}
    forks = [each.id async for each in site.hf.runs(attributes={FORKED_FROM: run.id})]
    assert sorted(f"/runs/{each}?done=fork" for each in forks) == sorted(places)
    assert len(forks) == 3


async def test_a_key_is_released(site: Site, visit: Visiting):
    run = await site.failed("released")
    page = await visit(f"/runs/{run.id}")
    await page.locator("summary", has_text="Release the key").click()
    await page.get_by_label("Reason").last.fill("a test")
    await page.get_by_role("button", name="Release the key").click()
    await expect(page.get_by_text("The key is free.")).to_be_visible()
    await expect(page.locator(".facts")).to_contain_text("no longer its own")
    assert not (await run.refresh()).holds_key


async def test_a_run_is_started_and_a_second_start_joins_it(site: Site, visit: Visiting):
    page = await visit("/workflows/shop.checkout")
    text = '{"order": "typed", "customer": "zoe", "items": [], "approval": true}'
    for told in ("The run was started.", "A run holds this key already"):
        await page.goto("/workflows/shop.checkout")
        await page.get_by_label("Input, as JSON").fill(text)
        await page.get_by_role("button", name="Start").click()
        await expect(page.get_by_text(told)).to_be_visible()
        await expect(page.get_by_role("heading", level=1)).to_have_text("order:typed")
    found = [run async for run in site.hf.runs(checkout, key_prefix="order:typed")]
    assert len(found) == 1


@pytest.mark.parametrize(
    ("label", "text", "why"),
    [
        ("Input, as JSON", "{", "does not fit"),
        ("Input, as JSON", '{"order": "x"}', "Object missing required field `customer`"),
        ("Input, as JSON", '{"order": "x", "customer": "y", "items": [], "odd": 1}', "it has no parameter 'odd'"),
        ("Delay", "soon", "'soon' is not a duration"),
        ("Priority", "high", "is not a whole number"),
    ],
)
async def test_a_start_that_is_refused_says_why_and_keeps_what_was_typed(
    label: str, text: str, why: str, visit: Visiting
):
    page = await visit("/workflows/shop.checkout")
    await page.get_by_label(label).fill(text)
    await page.get_by_role("button", name="Start").click()
    await expect(page.get_by_role("alert")).to_contain_text(why)
    await expect(page.get_by_label(label)).to_have_value(text)


async def test_a_key_with_another_input_leads_to_the_run_that_has_it(site: Site, visit: Visiting):
    run, _ = await site.hf.start(checkout("taken", "ada", ITEMS))
    page = await visit("/workflows/shop.checkout")
    await page.get_by_label("Input, as JSON").fill('{"order": "taken", "customer": "eve", "items": []}')
    await page.get_by_role("button", name="Start").click()
    await expect(page.get_by_role("alert")).to_contain_text("which has a different input")
    await page.get_by_role("link", name="See that run").click()
    await expect(page).to_have_url(re.compile(f"/runs/{run.id}$"))


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
async def test_all_runs_that_match_are_retried_after_a_look_at_what_will_happen(scripts: bool, visit: Visiting):
    async with served() as fresh:
        runs = [await fresh.failed(f"bulk-{number}") for number in range(3)]
        spare = await fresh.failed("spare")
        await spare.release_key()
        page = await visit("/runs?status=failed&key=order:bulk", at=fresh.url, java_script_enabled=scripts)
        acts = page.get_by_role("navigation", name="Act on all runs that match")
        await expect(acts.get_by_role("link")).to_have_text(["Retry …"])
        await acts.get_by_role("link", name="Retry …").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Retry 3 runs")
        await expect(page.get_by_text("Each is tried again from its last record.")).to_be_visible()
        await expect(page.locator("#r-" + runs[0].id)).to_contain_text("yes")
        await page.get_by_label("Reason").fill("the bank is back")
        await page.get_by_label("Rate").fill("often")
        await page.get_by_role("button", name="Retry 3 runs").click()
        await expect(page.get_by_role("alert")).to_contain_text("'often' is not a rate")
        await expect(page.get_by_label("Reason")).to_have_value("the bank is back")
        await page.get_by_label("Rate").fill("2/10ms")
        await page.get_by_role("button", name="Retry 3 runs").click()
        await expect(page.get_by_text("It has begun. This page shows how far it is.")).to_be_visible()
        for run in runs:
            assert (await (await run.refresh()).wait(30)).status == "completed"
        [bulk] = [each async for each in fresh.hf.runs("holdfast.bulk")]
        assert (await bulk.result(30)).done == 3
        await page.goto(f"/runs/{bulk.id}")
        await expect(page.get_by_text("Retry: 3 of 3 done, 0 skipped, 0 failed.")).to_be_visible()
        await page.screenshot(path=SCREENSHOTS / "bulk-run-light.png", full_page=True)
        assert not scripts or not await grave_findings(page)
        assert (await spare.refresh()).status == "failed"
        await page.goto("/bulk?verb=retry&status=failed")
        await expect(page.get_by_role("heading", level=1)).to_have_text(
            "Retry 1 run: 1 of the first 1 would be refused"
        )
        await expect(page.locator("#r-" + spare.id)).to_contain_text("no longer holds its key")


async def test_a_bulk_form_that_is_sent_twice_starts_one_bulk_run(visit: Visiting):
    async with served() as fresh:
        run = await fresh.approvable("in-bulk")
        page = await visit("/bulk?verb=signal&key=order:", at=fresh.url)
        await expect(page.get_by_role("heading", level=1)).to_have_text("Signal 1 run")
        form = await page.locator("#form-bulk").evaluate("form => Object.fromEntries(new FormData(form))")
        form |= {"hook": "approval", "payload": APPROVED}
        places = [(await page.request.post("/bulk", form=form, max_redirects=0)).headers["location"] for _ in range(2)]
        assert places[0] == places[1]
        await run.result(30)
        [bulk] = [each async for each in fresh.hf.runs("holdfast.bulk")]
        assert (await bulk.result(30)).done == 1


async def test_what_no_bulk_verb_can_do_is_said(site: Site, visit: Visiting):
    page = await visit("/runs?status=completed")
    await expect(page.get_by_role("navigation", name="Act on all runs that match")).to_have_count(0)
    for path, words in (
        ("/bulk?verb=burn", "'burn' is not a bulk verb"),
        ("/bulk?verb=retry&status=completed", "a run that is completed cannot be retried"),
        ("/bulk?verb=retry&attributes=%3D", "is not a condition"),
    ):
        answer = await page.request.get(path)
        assert answer.status in {400, 422}, path
        assert words in (await answer.text()).replace("&#39;", "'"), path
    await page.goto("/bulk?status=failed")  # no verb yet: it is chosen in the list
    await expect(page).to_have_url(re.compile("/runs[?].*failed"))
    await expect(page.get_by_role("link", name="Retry …")).to_be_visible()
    await page.goto("/bulk?verb=resume&key=nothing-like-it")
    await expect(page.get_by_text("No run that fits these filters can be resumed.")).to_be_visible()

"""Who comes in, and what is refused: sessions, tokens of forms, API keys, headers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

import httpx2
import pytest
import pytest_asyncio
from playwright.async_api import expect

from holdfast.dashboard.app import PAGE_ROUTES
from holdfast.dashboard.middleware import HEADERS
from holdfast.dashboard.sessions import LIFETIME_MS_MAX, BrowserSession, Sessions
from holdfast.kernel.apikeys import Scope
from tests.browser.conftest import PATIENCE_SECONDS, Site, Visiting, served

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKEN = 'name="token" value="'
POSTS = [place.path for place in PAGE_ROUTES if place.method == "POST"]
GETS = [place.path for place in PAGE_ROUTES if place.method == "GET"]


class Visitor:
    """Somebody who comes without a browser, and can therefore do what browsers would not."""

    def __init__(self, url: str) -> None:
        self.http = httpx2.AsyncClient(base_url=url, timeout=PATIENCE_SECONDS, trust_env=False)

    async def token(self, path: str = "/workflows/shop.checkout") -> str:
        """The token that the forms of a page carry."""
        page = (await self.http.get(path)).text
        return page.partition(TOKEN)[2].partition('"')[0]

    async def log_in(self, key: str) -> httpx2.Response:
        form = {"token": await self.token("/login"), "key": key, "next": "/"}
        return await self.http.post("/login", data=form)


@pytest_asyncio.fixture(loop_scope="module")
async def visitor(site: Site) -> AsyncGenerator[Visitor]:
    visitor = Visitor(site.url)
    yield visitor
    await visitor.http.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded() -> AsyncGenerator[Site]:
    """A site that asks for API keys."""
    async with served(require_keys=True) as site:
        site.runs["waiting"] = await site.approvable("guarded")
        yield site


@pytest_asyncio.fixture(loop_scope="module")
async def stranger(guarded: Site) -> AsyncGenerator[Callable[[], Visitor]]:
    made: list[Visitor] = []

    def stranger() -> Visitor:
        made.append(Visitor(guarded.url))
        return made[-1]

    yield stranger
    for each in made:
        await each.http.aclose()


def filled(path: str, site: Site) -> str:
    return path.format(run_id=site.runs["waiting"].id, name="shop.checkout")


@pytest.mark.parametrize("path", POSTS)
async def test_a_form_without_the_token_of_the_session_does_nothing(path: str, site: Site, visitor: Visitor):
    await visitor.token()
    for form in ({"reason": "none"}, {"token": ""}, {"token": "0" * 64}, {"token": "é"}):
        answer = await visitor.http.post(filled(path, site), data=form)
        assert answer.status_code == 403, form
        assert "does not have the token of your session" in answer.text
    assert (await site.runs["waiting"].refresh()).status == "waiting"


async def test_the_token_of_another_session_does_nothing(site: Site, visitor: Visitor):
    other = Visitor(site.url)
    token = await other.token()
    await other.http.aclose()
    await visitor.token()
    answer = await visitor.http.post(f"/runs/{site.runs['waiting'].id}/cancel", data={"token": token})
    assert answer.status_code == 403


async def test_a_cookie_that_was_tampered_with_is_no_session(visitor: Visitor):
    token = await visitor.token()
    cookie = visitor.http.cookies["holdfast_session"]
    for bad in (cookie[:-1] + ("0" if cookie[-1] != "0" else "1"), "x" + cookie, "a.b.c.d", "...", "é"):
        visitor.http.cookies.clear()
        headers = {"Cookie": f"holdfast_session={bad}".encode()}
        answer = await visitor.http.post("/workflows/shop.slow/start", data={"token": token}, headers=headers)
        assert answer.status_code == 403, bad


async def test_a_form_of_another_kind_or_size_is_refused(visitor: Visitor):
    token = await visitor.token()
    path = "/workflows/shop.slow/start"
    assert (await visitor.http.post(path, json={"token": token})).status_code == 400
    assert (await visitor.http.post(path, data={"token": token, "input": "x" * 2_000_000})).status_code == 413


async def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(visitor: Visitor):
    cookie = (await visitor.http.get("/")).headers["set-cookie"].lower()
    assert {"httponly", "samesite=strict", "path=/"} <= {part.strip() for part in cookie.split(";")}
    assert "set-cookie" not in (await visitor.http.get("/")).headers  # it is kept


@pytest.mark.parametrize("path", [*GETS, "/login", "/nothing-of-the-kind"])
async def test_every_page_forbids_what_is_not_ours(path: str, site: Site, visitor: Visitor):
    answer = await visitor.http.get(filled(path, site))
    if path == "/nothing-of-the-kind":
        assert answer.status_code == 404
        return
    for name, value in HEADERS.items():
        assert answer.headers[name] == value, name
    assert "style=" not in answer.text
    assert "onclick" not in answer.text


async def test_files_are_kept_for_ever_under_an_address_that_changes_with_them(visitor: Visitor):
    page = (await visitor.http.get("/")).text
    address = page.partition('rel="stylesheet" href="')[2].partition('"')[0]
    answer = await visitor.http.get(address)
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-type"].startswith("text/css")
    assert (await visitor.http.get(address.partition("?")[0])).headers["cache-control"] == "no-cache"
    for path in ("/static/nothing.css", "/static/..%2fapp.py", "/static/%2e%2e/app.py"):
        assert (await visitor.http.get(path)).status_code == 404


async def test_a_link_on_another_site_does_not_cost_the_session(visitor: Visitor):
    # A browser keeps a strict cookie back when it comes from elsewhere. The page asks it to come again, from here.
    answer = await visitor.http.get("/", headers={"Sec-Fetch-Site": "cross-site"})
    assert "set-cookie" not in answer.headers
    assert 'http-equiv="refresh"' in answer.text
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    forged = await visitor.http.post("/workflows/shop.slow/start", headers=elsewhere, data={"input": "{}"})
    assert forged.status_code == 403


# -- with API keys


async def key_of(site: Site, scope: Scope, *, namespace: str | None = None) -> tuple[str, str]:
    token, key = await site.hf.api_keys.create(f"a {scope} key", namespace=namespace or site.hf.namespace, scope=scope)
    return token, key.id


@pytest.mark.parametrize("path", [*GETS, "/live"])
async def test_nobody_sees_anything_without_a_key(path: str, guarded: Site, stranger: Callable[[], Visitor]):
    answer = await stranger().http.get(filled(path, guarded))
    if path == "/live":
        assert answer.status_code == 401
    else:
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/login?next=%2F")
    assert "guarded" not in answer.text


@pytest.mark.parametrize("path", POSTS)
async def test_nobody_does_anything_without_a_key(path: str, guarded: Site, stranger: Callable[[], Visitor]):
    visitor = stranger()
    answer = await visitor.http.post(filled(path, guarded), data={"token": await visitor.token("/login")})
    assert answer.status_code == 401


async def test_one_logs_in_with_a_key_comes_to_where_one_wanted_and_logs_out(guarded: Site, visit: Visiting):
    token, _ = await key_of(guarded, "write")
    page = await visit("/runs?key=order:", at=guarded.url)
    await page.get_by_label("API key").fill("hf_0123456789abcdef_" + "x" * 43)
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("alert")).to_contain_text("this API key is not known here")
    await page.get_by_label("API key").fill(token)
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("searchbox")).to_have_value("key:order:")
    await expect(page.get_by_text("a write key")).to_be_visible()
    assert token not in str(await page.context.cookies())
    await page.get_by_role("link", name="order:guarded").click()
    await expect(page.get_by_role("button", name="Send the signal")).to_be_visible()
    await expect(page.locator("summary", has_text="Release the key")).to_have_count(0)  # that takes admin
    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    await page.goto("/runs")
    await expect(page.get_by_role("heading", name="Log in")).to_be_visible()


@pytest.mark.parametrize(
    "elsewhere", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:1", ""]
)
async def test_after_the_login_one_stays_here(elsewhere: str, guarded: Site, stranger: Callable[[], Visitor]):
    visitor = stranger()
    token, _ = await key_of(guarded, "read")
    form = {"token": await visitor.token("/login"), "key": token, "next": elsewhere}
    answer = await visitor.http.post("/login", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


async def test_a_key_that_may_read_sees_and_does_nothing(guarded: Site, stranger: Callable[[], Visitor]):
    visitor = stranger()
    await visitor.log_in((await key_of(guarded, "read"))[0])
    page = (await visitor.http.get(filled("/runs/{run_id}", guarded))).text
    assert "Your key may look, but not act." in page
    assert "/signal" not in page
    token = await visitor.token("/")
    for path in POSTS:
        answer = await visitor.http.post(filled(path, guarded), data={"token": token})
        assert answer.status_code == 403, path
        assert "this needs the scope" in answer.text
    assert (await guarded.runs["waiting"].refresh()).status == "waiting"


async def test_only_an_admin_releases_keys(guarded: Site, stranger: Callable[[], Visitor]):
    run = await guarded.approvable("released-by-admin")
    for scope, status in (("write", 403), ("admin", 303)):
        visitor = stranger()
        await visitor.log_in((await key_of(guarded, scope))[0])
        answer = await visitor.http.post(f"/runs/{run.id}/release_key", data={"token": await visitor.token()})
        assert answer.status_code == status


async def test_a_key_of_another_namespace_finds_nothing(guarded: Site, stranger: Callable[[], Visitor]):
    visitor = stranger()
    await visitor.log_in((await key_of(guarded, "admin", namespace="other"))[0])
    token = await visitor.token()
    for place in PAGE_ROUTES:
        path = filled(place.path, guarded)
        data = {"token": token} if place.method == "POST" else None
        answer = await visitor.http.request(place.method, path, data=data)
        assert "guarded" not in answer.text, path
        if "{run_id}" in place.path:
            assert answer.status_code == 404, path
    assert (await guarded.runs["waiting"].refresh()).status == "waiting"


async def test_a_key_that_is_revoked_opens_nothing_more(guarded: Site, stranger: Callable[[], Visitor]):
    visitor = stranger()
    token, key_id = await key_of(guarded, "admin")
    await visitor.log_in(token)
    assert (await visitor.http.get("/")).status_code == 200
    await guarded.hf.api_keys.revoke(guarded.hf.namespace, key_id)
    assert (await visitor.http.get("/")).status_code == 303


async def test_a_session_is_known_to_every_replica(guarded: Site, stranger: Callable[[], Visitor]):
    visitor = stranger()
    await visitor.log_in((await key_of(guarded, "read"))[0])
    replica = Sessions(  # which has nothing but the store
        guarded.hf.runtime.common_documents
    )
    await replica.prepare()
    assert replica.known(visitor.http.cookies["holdfast_session"]) is not None


async def test_replicas_that_need_the_secret_at_once_agree_on_one():
    async with served() as fresh:
        replicas = [Sessions(fresh.hf.runtime.common_documents) for _ in range(5)]
        await asyncio.gather(*(replica.prepare() for replica in replicas))
        session = replicas[0].begin()
        assert len({replica.cookie(session) for replica in replicas}) == 1


async def test_a_session_ends_unless_it_is_used(site: Site):
    sessions = Sessions(site.hf.runtime.common_documents)
    await sessions.prepare()
    fresh = sessions.begin()
    assert sessions.renewed(fresh) is fresh
    now_ms = site.hf.runtime.common_documents.now_ms()
    old = BrowserSession(fresh.id, "", now_ms, now_ms + 60_000)
    assert sessions.renewed(old).until_ms > old.until_ms
    assert sessions.token(sessions.renewed(old)) == sessions.token(old)  # forms that are open stay good
    assert sessions.known(sessions.cookie(old)) == old
    assert sessions.known(sessions.cookie(BrowserSession(fresh.id, "", now_ms, now_ms - 1))) is None
    aged = BrowserSession(fresh.id, "", now_ms - LIFETIME_MS_MAX + 120_000, now_ms + 60_000)
    assert sessions.renewed(aged).until_ms == now_ms + 120_000  # used every day, it ends all the same


async def test_a_link_that_leads_nowhere_leads_home_after_the_login(stranger: Callable[[], Visitor]):
    for wrong in ("//[", "//elsewhere.example", "/\\elsewhere", "https://elsewhere.example", "\t//x"):
        answer = await stranger().http.get("/login", params={"next": wrong})
        assert answer.status_code == 200, wrong
        assert "elsewhere" not in answer.text


async def test_a_session_over_tls_is_for_tls_only(stranger: Callable[[], Visitor]):
    for proto, secure in (("https", True), ("http", False)):
        answer = await stranger().http.get("/login", headers={"X-Forwarded-Proto": proto})
        assert ("Secure" in answer.headers["set-cookie"]) is secure

"""/docs: the reference, as a page that needs nothing else."""

from __future__ import annotations

import re

from tests.gateway.conftest import Gateway, Serve
from tests.gateway.works import Works


async def test_the_page_is_for_all_and_says_where_it_is(serve: Serve, works: Works) -> None:
    gateway = await serve(works.pack, keys=True)
    page = await gateway.http.get("/docs")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert f"<code>{gateway.url}</code>" in page.text
    assert f"{gateway.url}/v1/runs" in page.text
    assert "w.plain" not in page.text  # nothing about this installation


async def test_the_page_may_load_nothing_and_run_no_script(gateway: Gateway) -> None:
    page = await gateway.http.get("/docs")
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "frame-ancestors 'none'" in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert not re.search(r"<script|<link|<img", page.text)


async def test_a_host_that_is_none_does_not_reach_the_page(serve: Serve, works: Works) -> None:
    gateway = await serve(works.pack, keys=True)
    for host in ('a"><b>x', "no host", "x" * 300):
        page = await gateway.http.get("/docs", headers={"Host": host})
        assert host not in page.text
        assert "<code>http://127.0.0.1:8787</code>" in page.text or page.status_code == 400


async def test_the_page_is_made_again_for_another_name_and_few_are_kept(serve: Serve, works: Works) -> None:
    gateway = await serve(works.pack, keys=True)
    for n in range(12):
        page = await gateway.http.get("/docs", headers={"Host": f"h{n}.example"})
        assert f"<code>http://h{n}.example</code>" in page.text


async def test_the_document_names_its_server(gateway: Gateway) -> None:
    document = (await gateway.http.get("/openapi.json")).json()
    assert [each["url"] for each in document["servers"]] == [gateway.url]

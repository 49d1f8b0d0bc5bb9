"""Endpoints are found by the segments of a path, as the framework would find them."""

from __future__ import annotations

from hypothesis import example, given, strategies as st
from starlette.routing import Match, Route

from holdfast.gateway.app import ENDPOINTS
from holdfast.gateway.paths import PathTree

PATHS = {endpoint.path for endpoint in ENDPOINTS}
SEGMENTS = sorted({segment for path in PATHS for segment in path.split("/")} | {"a", "b.c", " ", "\n", "{name}"})
ROUTES = {path: Route(path, lambda _: None) for path in PATHS}


def known() -> PathTree[str]:
    tree = PathTree[str]()
    for path in sorted(PATHS):
        tree.add(path, path)
    return tree


TREE = known()


@given(st.lists(st.sampled_from(SEGMENTS), max_size=6).map(lambda segments: "/" + "/".join(segments)))
@example("/v1/workflows/bench.one/runs")
@example("/v1/tasks/claim")
@example("/v1/tasks/claim/complete")
@example("/v1/runs/")
@example("/v1/runs//cancel")
def test_what_is_found_is_what_the_framework_finds(path: str) -> None:
    found = TREE.find(path)
    if found is not None:
        match, scope = ROUTES[found[0]].matches({"type": "http", "method": "GET", "path": path})
        assert match is Match.FULL
        assert scope["path_params"] == found[1]


def test_every_path_of_plain_segments_is_found() -> None:
    for path in PATHS:
        segments = ["x" if segment.startswith("{") else segment for segment in path.split("/")]
        found = TREE.find("/".join(segments))
        assert (found is None) == (":" in path), path
        assert found is None or found[0] == path


def test_a_parameter_is_never_empty() -> None:
    assert TREE.find("/v1/workflows//runs") is None
    assert TREE.find("/v1/runs/") is None


def test_a_path_that_only_begins_like_a_known_one_is_not_found() -> None:
    assert TREE.find("/v1") is None
    assert TREE.find("/v1/workflows/x/runs/more") is None

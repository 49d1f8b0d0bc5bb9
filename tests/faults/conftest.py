"""What the tests of faults share: the server that forks processes, and worlds that are cleared away afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.cases import Case, RedisCase
from tests.faults.processes import ForkServer

NewCase = Callable[[str], Case]
NewRedisCase = Callable[..., RedisCase]
SERVERS = {"redis": "redis_server", "cluster": "redis_cluster"}


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    fork_server = ForkServer()
    yield fork_server
    fork_server.close()


@pytest.fixture
def kept() -> Iterator[list[Case]]:
    """The worlds of a test. Nothing of them outlives it."""
    cases: list[Case] = []
    yield cases
    for case in cases:
        case.processes.clear_away()


@pytest.fixture
def new_case(tmp_path: Path, fork_server: ForkServer, kept: list[Case]) -> NewCase:
    """Makes worlds by name, each with a file of its own."""

    def make(name: str) -> Case:
        kept.append(case := Case(tmp_path / name, fork_server))
        return case

    return make


@pytest.fixture
def case(new_case: NewCase) -> Case:
    return new_case("case")


@pytest.fixture
def case_on(tmp_path: Path, fork_server: ForkServer, kept: list[Case]) -> NewRedisCase:
    """Makes worlds on servers of the test's own."""

    def make(servers: Any, name: str = "case", **options: Any) -> RedisCase:
        kept.append(case := RedisCase(tmp_path / name, fork_server, servers, **options))
        return case

    return make


@pytest.fixture(params=SERVERS)
def new_redis_case(request: pytest.FixtureRequest, case_on: NewRedisCase) -> NewRedisCase:
    """Makes worlds by name on a single Redis, and on a cluster."""
    servers = request.getfixturevalue(SERVERS[request.param])
    return lambda name="case": case_on(servers, name)


@pytest.fixture
def redis_case(new_redis_case: NewRedisCase) -> RedisCase:
    return new_redis_case()


@pytest.fixture(params=["sqlite", *SERVERS])
def any_case(request: pytest.FixtureRequest, new_case: NewCase, case_on: NewRedisCase) -> Case:
    """One world on each kind of store."""
    if request.param == "sqlite":
        return new_case("case")
    return case_on(request.getfixturevalue(SERVERS[request.param]))

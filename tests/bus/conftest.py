from __future__ import annotations

from collections.abc import AsyncIterator
from secrets import token_hex

import pytest

from holdfast.lab.cluster.servers import NatsServer
from tests.bus.ends import Ends, MemoryEnds, NatsEnds


@pytest.fixture(params=["memory", "nats"])
async def ends(request: pytest.FixtureRequest) -> AsyncIterator[Ends]:
    """The contract is the same for every bus."""
    if request.param == "memory":
        made: Ends = MemoryEnds()
    else:
        server: NatsServer = request.getfixturevalue("nats_server")
        made = NatsEnds(server.url, token_hex(6))
    yield made
    await made.close()


@pytest.fixture
async def nats_ends(nats_server: NatsServer) -> AsyncIterator[NatsEnds]:
    made = NatsEnds(nats_server.url, token_hex(6))
    yield made
    await made.close()

from __future__ import annotations

import asyncio
import os

from holdfast.lab.cluster.ports import free_port
from holdfast.lab.gate import ledger
from holdfast.lab.gate.installation import LedgerProcess


async def test_every_call_is_in_the_file_when_its_caller_is_answered(tmp_path, monkeypatch) -> None:
    port = free_port()
    monkeypatch.setenv(ledger.ADDRESS, str(port))
    with LedgerProcess(tmp_path, port) as file:
        seen = ledger.Reader(file)

        async def call(number: int) -> None:
            await ledger.post(key=f"k{number}", run="r", step="charge", order="o", attempt=1, hold_ms=0)
            assert f"k{number}" in {line.key for line in seen.look()}

        await asyncio.gather(*map(call, range(60)))
        assert len(seen.calls) == 60
        assert {line.pid for line in seen.calls} == {os.getpid()}


async def test_a_caller_that_dies_in_the_middle_of_its_line_leaves_nothing_and_harms_nobody(
    tmp_path, monkeypatch
) -> None:
    port = free_port()
    monkeypatch.setenv(ledger.ADDRESS, str(port))
    with LedgerProcess(tmp_path, port) as file:
        _, writer = await asyncio.open_connection(ledger.HOST, port)
        writer.write(b'{"key":"half')
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        await ledger.post(key="whole", run="r", step="charge", order="o", attempt=1, hold_ms=0)
        assert [line.key for line in ledger.Reader(file).look()] == ["whole"]

"""What is damaged in a row, a message or a notice concerns that one alone."""

from __future__ import annotations

import pytest

from holdfast.buses.memory import MemoryBus, MemoryExchange
from holdfast.kernel.runs import Run
from holdfast.ports import notices
from holdfast.ports.notices import ANYTHING, Notice
from holdfast.stores.redis import rows
from holdfast.stores.redis.net.client import Word
from holdfast.stores.redis.notifier import Notifier
from tests.builders import FakeClock, a_run, a_signal, a_value

RUN = a_run(input=a_value())
MOVED = Notice(runs=("run-1",))


def _stored(word: Word) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()


def _row(run: Run, **fields: bytes) -> list[bytes | None]:
    """The row of a run that was just admitted, with these fields instead."""
    stored = {name: _stored(word) for name, word in zip(rows.NEW, rows.new_values(run, ()), strict=True)}
    stored |= fields
    assert set(rows.ROW) - set(stored) == {"la", "as"}  # only runs with a lane have these
    return [stored.get(name) for name in rows.ROW]


def test_a_run_comes_back_from_its_row() -> None:
    assert rows.run_of([*_row(RUN)]) == RUN


@pytest.mark.parametrize("damaged", [b"{", b'{"blob":"\xff"}', b'{"json":' + b"[" * 5_000 + b"]" * 5_000 + b"}"])
def test_a_run_whose_input_cannot_be_read_can_be_claimed(damaged: bytes) -> None:
    run = rows.run_of([*_row(RUN, i=damaged)])
    assert run is not None
    assert (run.id, run.input) == (RUN.id, None)


@pytest.mark.parametrize("damaged", [b"{", b'{"what":"teleported"}', b'{"what":"signal","id":"\xff"}'])
def test_a_message_that_cannot_be_read_is_none(damaged: bytes) -> None:
    message = a_signal()
    assert rows.message_of(rows.encode_message(message)) == message
    assert rows.message_of(damaged) is None


@pytest.mark.parametrize("body", [b"", b"\xc1", notices.encode(MOVED).replace(b"run", b"\xffun")])
async def test_a_notice_that_cannot_be_read_is_anything(body: bytes) -> None:
    notifier = Notifier(MemoryBus(MemoryExchange(), clock=FakeClock()))
    heard: list[Notice] = []
    notifier.watch(lambda notice: not heard.append(notice))
    notifier._hear(body)
    notifier._hear(notices.encode(MOVED))
    assert heard == [ANYTHING, MOVED]

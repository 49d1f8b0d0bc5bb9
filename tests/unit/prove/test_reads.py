"""What code reads that no journal records is told with its line; what a library reads is not."""

from __future__ import annotations

import datetime as dt
import logging
import os
import random
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.prove import reads
from holdfast.prove.reads import CURES, reads_noted


def seen_in(work: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, *, in_workflow: bool = True) -> list[str]:
    monkeypatch.setattr(reads, "running_scope", lambda: object() if in_workflow else None)
    noted: list[tuple[str, str]] = []
    with reads_noted(lambda what, line: noted.append((what, line))):
        work()
    for _, line in noted:
        assert line.startswith(f"{Path(__file__).name}:"), line
    return list(dict.fromkeys(what for what, _ in noted))


@pytest.mark.parametrize(
    ("fn", "arguments", "what"),
    [
        (time.time, (), "the time"),
        (time.monotonic_ns, (), "the time"),
        (dt.datetime.now, (), "the time"),
        (dt.date.today, (), "the time"),
        (random.random, (), "chance"),
        (random.choice, ([1, 2],), "chance"),
        (random.Random(1).randint, (1, 6), "chance"),
        (uuid.uuid4, (), "an id by chance"),
        (os.environ.__getitem__, ("PATH",), "the environment"),
        (os.getenv, ("PATH",), "the environment"),
        (os.environ.get, ("NOT_THERE", ""), "the environment"),
        (os.getpid, (), "its process"),
        (socket.gethostname, (), "its process"),
    ],
)
def test_a_read_is_noted_with_the_line_that_asked(monkeypatch, fn, arguments, what):
    assert seen_in(lambda: fn(*arguments), monkeypatch)[:1] == [what]


def test_what_a_library_reads_is_not(monkeypatch):
    assert seen_in(lambda: logging.getLogger("a test").makeRecord("a", 1, "b", 1, "c", (), None), monkeypatch) == []


def test_nothing_is_noted_outside_of_a_workflow(monkeypatch):
    assert seen_in(lambda: [time.time()], monkeypatch, in_workflow=False) == []
    assert seen_in(lambda: [time.time()], monkeypatch) == ["the time"]


def test_nothing_is_noted_after_the_block(monkeypatch):
    monkeypatch.setattr(reads, "running_scope", object)
    noted: list[str] = []
    with reads_noted(lambda what, _: noted.append(what)):
        pass
    time.time()
    assert noted == []


def test_there_is_a_cure_for_each_kind():
    assert set(CURES) == set(reads._BUILTIN.values()) | set(reads._PYTHON.values())

"""What code reads that no journal records is told with its line; what a library reads is not."""

from __future__ import annotations

import datetime as dt
import logging
import os
import random
import secrets
import socket
import sysconfig
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
        (time.clock_gettime, (time.CLOCK_REALTIME,), "the time"),
        (dt.datetime.today, (), "the time"),
        (random.triangular, (), "chance"),
        (random.expovariate, (1.0,), "chance"),
        (random.betavariate, (1.0, 1.0), "chance"),
        (random.randbytes, (2,), "chance"),
        (random.SystemRandom().random, (), "chance"),
        (random.SystemRandom().choice, ([1, 2],), "chance"),
        (random.Random, (), "chance"),
        (secrets.token_hex, (), "chance"),
        (secrets.choice, ([1, 2],), "chance"),
        (secrets.randbelow, (6,), "chance"),
        (os.urandom, (2,), "chance"),
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


@pytest.mark.parametrize(
    "work",
    [
        lambda: time.strftime("%Y"),
        lambda: time.localtime(),  # noqa: PLW0108 - called from a line of this file
        lambda: time.gmtime(),  # noqa: PLW0108 - called from a line of this file
        lambda: time.ctime(),  # noqa: PLW0108 - called from a line of this file
        lambda: time.asctime(),  # noqa: PLW0108 - called from a line of this file
    ],
)
def test_words_for_the_present_time_are_a_read(monkeypatch, work):
    assert seen_in(work, monkeypatch) == ["the time"]


@pytest.mark.parametrize(
    "work",
    [
        lambda: time.strftime("%Y", (2026, 1, 1, 0, 0, 0, 0, 1, 0)),
        lambda: time.gmtime(0),
        lambda: time.ctime(0),
        lambda: random.Random("o-1").random(),
        lambda: random.Random("o-1").shuffle([1, 2]),
        lambda: random.Random(7).choice([1, 2]),
    ],
)
def test_what_follows_from_what_is_given_is_no_read(monkeypatch, work):
    assert seen_in(work, monkeypatch) == []


@pytest.mark.parametrize(("packages", "count"), [((), 0), (("my_shop",), 1), (("holdfast",), 0)])
def test_the_users_own_package_may_be_installed(monkeypatch, packages, count):
    monkeypatch.setattr(reads, "running_scope", object)
    installed: dict[str, Any] = {"__name__": "my_shop.orders", "time": time}
    file = Path(sysconfig.get_path("purelib")) / "my_shop" / "orders.py"
    exec(compile("def look():\n    return time.time()\n", str(file), "exec"), installed)
    noted: list[str] = []
    with reads_noted(lambda _, line: noted.append(line), packages=packages):
        installed["look"]()
    assert noted == ["orders.py:2"] * count


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

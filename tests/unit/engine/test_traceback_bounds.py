"""How much of a traceback is recorded, whatever the exception is like."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

import msgspec
import pytest

from holdfast.engine.failures import (
    FRAMES_MAX,
    NAME_MAX,
    TRACEBACK_MAX,
    TRACEBACKS_MAX,
    described,
    rebuilt,
)
from holdfast.kernel.journal import Failure
from tests.unit.engine.driving import CODEC


def caught(raising: Callable[[], Any]) -> Failure:
    """What is recorded of what it raises, read back from its record."""
    try:
        raising()
    except BaseException as error:
        failure = described(error, CODEC)
        return msgspec.json.decode(msgspec.json.encode(failure), type=Failure)
    raise AssertionError("nothing was raised")


def frames(text: str) -> int:
    return text.count('  File "')


def deep(levels: int) -> None:
    if levels:
        deep(levels - 1)
    else:
        raise ValueError("at the bottom")


def test_of_many_frames_the_innermost_are_kept():
    failure = caught(lambda: deep(200))
    assert frames(failure.traceback) == FRAMES_MAX
    assert failure.traceback.startswith("  ...\n")
    assert 'raise ValueError("at the bottom")' in failure.traceback.splitlines()[-1]
    assert frames(caught(lambda: deep(3)).traceback) == 3 + 3  # with this test, its lambda and `caught`
    assert not caught(lambda: deep(3)).traceback.startswith("  ...")


def named(filename: str, source: str = "def boom():\n    raise ValueError('x')\n") -> Callable[[], None]:
    """A function whose code lies in a file of this name."""
    space: dict[str, Any] = {}
    code: CodeType = compile(source, filename, "exec")
    exec(code, space)
    return space["boom"]


def test_a_long_traceback_is_cut_at_its_beginning_and_on_a_line():
    def down(level: int) -> None:
        if level:
            down(level - 1)
        else:
            named("/" + "x" * 900 + ".py")()

    long = "/" + "y" * 900 + ".py"
    source = "def boom(n=25):\n    boom(n - 1) if n else 1 / 0\n"
    failure = caught(named(long, source))
    assert len(failure.traceback.encode()) <= TRACEBACK_MAX
    head, *rest = failure.traceback.splitlines()
    assert head == "  ..."
    assert all(line.startswith('  File "/yyy') for line in rest)
    assert len(caught(lambda: down(30)).traceback.encode()) <= TRACEBACK_MAX


def test_text_of_several_bytes_is_cut_between_characters():
    source = "def boom(n=25):\n    boom(n - 1) if n else 1 / 0\n"
    failure = caught(named("/" + "ü€𝄞" * 250 + ".py", source))
    assert 0 < len(failure.traceback.encode()) <= TRACEBACK_MAX
    assert "\ufffd" not in failure.traceback


def test_the_tracebacks_of_a_group_share_their_room():
    def one(n: int) -> Exception:
        try:
            named("/" + "z" * 900 + ".py", "def boom(n=25):\n    boom(n - 1) if n else 1 / 0\n")()
        except ZeroDivisionError as error:
            return error
        raise AssertionError(n)

    def raising() -> None:
        raise ExceptionGroup("many", [one(n) for n in range(40)])

    failure = caught(raising)
    total = sum(len(each.traceback.encode()) for each in (failure, *failure.members))
    assert total <= TRACEBACKS_MAX
    assert failure.members[0].traceback
    assert failure.members[-1].traceback == ""
    assert len(failure.members) == 40  # what they say is recorded all the same


def test_causes_are_told_first_and_each_once_though_they_go_round():
    first, second = ValueError("first"), KeyError("second")

    def raising() -> None:
        try:
            raise first
        except ValueError:
            try:
                raise second from first
            except KeyError:
                first.__cause__ = second  # each is the cause of the other
                raise

    text = caught(raising).traceback
    assert text.count("caused:\n") == 1
    assert text.startswith("ValueError: first\n")
    assert text.count("raise first") == 1
    assert text.count("raise second from first") == 1


def test_an_exception_that_is_its_own_cause_is_told_once():
    def raising() -> None:
        error = ValueError("mine")
        error.__cause__ = error
        raise error

    assert "caused:" not in caught(raising).traceback


def test_of_a_long_chain_of_causes_some_are_told():
    def chain(n: int) -> None:
        try:
            if n:
                chain(n - 1)
            else:
                raise ValueError("the root")
        except ValueError as error:
            raise ValueError(f"link {n}") from error

    failure = caught(lambda: chain(100))
    assert failure.traceback.count("caused:\n") <= 4
    assert frames(failure.traceback) <= FRAMES_MAX
    assert "link 100" in failure.message


def test_a_huge_message_of_a_cause_is_cut():
    def raising() -> None:
        try:
            raise ValueError("x" * 1_000_000)
        except ValueError as error:
            raise KeyError("y") from error

    failure = caught(raising)
    assert failure.traceback.splitlines()[0].startswith("ValueError: xxx")
    assert len(failure.traceback.splitlines()[0]) <= NAME_MAX
    assert len(failure.traceback) <= TRACEBACK_MAX


def test_a_huge_source_line_is_cut(tmp_path):
    path = tmp_path / "wide.py"
    source = f"def boom():\n    raise ValueError('x')  # {'w' * 100_000}\n"
    path.write_text(source)
    failure = caught(named(str(path), source))
    assert "raise ValueError('x')" in failure.traceback
    assert max(map(len, failure.traceback.splitlines())) <= NAME_MAX + len("    ")


@pytest.mark.parametrize("name", ["/app/caf\udce9.py", "/app/\ud83d.py"])
def test_a_file_name_that_is_no_utf_8_can_be_recorded(name: str):
    failure = caught(named(name))
    assert "\\ud" in failure.traceback
    assert failure.line.endswith(".py:2")


def test_a_source_that_is_no_utf_8_can_be_recorded(tmp_path):
    path = tmp_path / "latin.py"
    path.write_bytes(b"def boom():\n    raise ValueError('caf\xe9')\n")
    failure = caught(named(str(path), "def boom():\n    raise ValueError('caf\\xe9')\n"))
    assert f'File "{path}", line 2, in boom' in failure.traceback


def test_a_message_that_is_no_utf_8_can_be_recorded():
    def raising() -> None:
        try:
            raise ValueError("caf\udce9")
        except ValueError as error:
            raise KeyError("x") from error

    assert "caf\\udce9" in caught(raising).traceback


def test_the_record_of_a_record_does_not_grow():
    """Each process that passes a failure on records it again: parent, grandparent, and so on."""
    failure = caught(lambda: deep(30))
    for _ in range(10):

        def passed_on(failure: Failure = failure) -> None:
            raise rebuilt(failure, CODEC, step="deep#1")

        failure = caught(passed_on)
        assert len(failure.traceback.encode()) <= TRACEBACK_MAX
    assert 'raise ValueError("at the bottom")' in failure.traceback


def test_where_nothing_was_raised_there_are_no_frames():
    assert described(ValueError("made, not raised"), CODEC).traceback == ""

"""Worlds that can be lived again, and reports as pages."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from holdfast.errors import UsageError
from holdfast.kernel.times import Millis
from holdfast.prove import report
from holdfast.prove.page import draw, page
from holdfast.prove.report import FORMAT, CaseReport, FoundReport, ProveReport, Repeatable, read_repeatable
from holdfast.prove.schedules import PlannedFault, Schedule
from holdfast.prove.worlds.trace import Happening
from holdfast.testing.report_pages import number, table

SCHEDULE = Schedule((PlannedFault(3, "crash"),), signals="twice")
AGAIN = Repeatable(
    target=("shop.orders",),
    case="shop.checkout",
    seed=1,
    lease_seconds=6.0,
    schedule=SCHEDULE,
    rule="another end",
    what="it is failed",
)
FOUND = FoundReport(
    rule="another <end>",
    what="it is failed",
    step="charge#1",
    line="shop.py:7",
    schedule=SCHEDULE,
    told=("worker-1 is killed",),
    happenings=(
        Happening(Millis(5), "worker-1", "call", "calls charge#1", "charge#1"),
        Happening(Millis(9), "caller-2", "fault", "the run is cancelled"),
    ),
    file="world.json",
)


def a_report(*cases: CaseReport) -> ProveReport:
    return ProveReport(target=("shop",), seed=1, budget=2_000, at="now", seconds=1.5, versions={}, cases=cases)


def test_a_world_is_read_as_it_was_written(tmp_path: Path):
    file = tmp_path / "prove" / "world.json"
    AGAIN.write(file)
    assert read_repeatable(file) == AGAIN


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file"),
        (b"{}", "does not say which world to repeat"),
        (b"not JSON", "does not say which world to repeat"),
        (msgspec.json.encode(msgspec.structs.replace(AGAIN, format=FORMAT + 1)), f"has format {FORMAT + 1}"),
    ],
)
def test_what_is_not_such_a_file_is_refused(tmp_path: Path, content, message):
    file = tmp_path / "world.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        read_repeatable(file)


@pytest.mark.parametrize(
    ("verdicts", "is_proved"),
    [(("proved", "proved"), True), (("proved", "failed"), False), (("not proved",), False), ((), True)],
)
def test_a_report_is_one_of_a_proof_if_every_case_is_proved(verdicts, is_proved):
    cases = [CaseReport(name=f"case {at}", workflow="w", verdict=verdict) for at, verdict in enumerate(verdicts)]
    assert a_report(*cases).is_proved is is_proved


def test_the_page_escapes_what_it_shows_and_says_how_to_repeat_a_mistake():
    made = page(a_report(CaseReport(name="a <case>", workflow="w", verdict="failed", worlds=1_234, found=(FOUND,))))
    assert "a &lt;case&gt;" in made
    assert "another &lt;end&gt; · shop.py:7" in made
    assert "holdfast prove --repeat world.json" in made
    assert "1,234 worlds were lived, and 1 mistake was found." in made
    assert not re.search(r"(src|href)=", made)  # nothing is loaded from elsewhere


def test_a_drawing_has_a_column_for_each_process_and_marks_the_step():
    drawn = draw(FOUND.happenings, "charge#1")
    assert re.findall(r'text-anchor="middle">([^<]+)<', drawn) == ["worker-1", "caller"]
    assert re.findall(r'<rect class="(\w+)"', drawn) == ["row", "again"]


def test_a_column_with_a_number_in_it_is_one_of_numbers():
    made = table(("name", "count"), [("a", number(1_234)), ("b", number(0.25, digits=1))])
    assert made.count('class="number"') == 3  # the heading, too
    assert '<td class="number">1,234</td>' in made
    assert '<td class="number">0.2</td>' in made


def test_why_a_clean_run_is_blocked_is_told_in_words():
    error = b'{"type":"replay_diverged","message":"the code asks for another step"}'
    assert report.blocked_in_words(error).endswith("until a person decides: the code asks for another step")
    assert "never began" in report.blocked_in_words(None)

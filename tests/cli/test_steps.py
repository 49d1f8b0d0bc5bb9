"""`holdfast show` of a run with many steps."""

from __future__ import annotations

import re

from holdfast import Holdfast, Pack, Permanent, Retry
from holdfast.cli.steps import StepEntries, steps_of
from tests.builders import joined, performed, spawned

many = Pack("many")


@many.effect(retry=Retry(attempts=1))
async def count(number: int) -> int:
    if number == 30:
        raise Permanent("thirty is too many")
    return number


@many.workflow(key="tally:{numbers}")
async def tally(numbers: int) -> str:
    """Counts, and goes on where that fails."""
    for number in range(numbers):
        try:
            await count(number)
        except Permanent:
            continue
    return "done"


def show(cli, numbers, *options):
    url = f"sqlite:///many-{numbers}.db"
    with Holdfast.blocking(url, packs=[many]) as hf:
        run = hf.start(tally(numbers)).run
        run.result(timeout=60)
    return cli("show", run.id, "--url", url, *options).out


def test_many_steps_are_grouped_by_name_after_what_failed(cli):
    rows = show(cli, 50).partition("many.tally completed")[2].strip().splitlines()
    assert "✗ count#31" in rows[0]
    assert "thirty is too many" in rows[1]
    assert len(rows) == 6
    assert any(row.endswith("✓ count, 49 times") for row in rows)
    assert "52 rows, grouped by name: --all shows each" in rows[-1]


def test_all_of_them_are_shown_in_the_order_of_time_if_that_is_wanted(cli):
    said = show(cli, 50, "--all")
    assert [int(number) for number in re.findall(r"[✓✗] count#(\d+)", said)] == [*range(1, 51)]
    assert "grouped" not in said


def test_a_few_steps_are_not_grouped(cli):
    assert show(cli, 5).count("✓ count#") == 5


def test_a_step_stands_where_the_last_that_is_told_of_it_happened():
    told = steps_of((spawned("pay#1"), performed("count#1"), joined("pay#1")))
    assert [each.name for each in told if isinstance(each, StepEntries)] == ["count#1", "pay#1"]

"""The picture and the walks of docs/internals/architecture.md are what the imports of the code say."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise

import pytest

from tests.unit.repository.sources import PACKAGE, ROOT, imports_of, sources

PAGE = (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
FILES_MAX = 20
NODE = re.compile(r'^\s*(\w+)\["([\w/.]+)<br/>', re.MULTILINE)
ARROW = re.compile(r"^\s*(\w+) --> (\w+)$", re.MULTILINE)
ROW = re.compile(
    r"^\| (?P<number>\d+) \| `(?P<file>[^`]+)` \|(?: (?P<source>\d+)(?:, by `(?P<port>[^`]+)`)?)? \|", re.MULTILINE
)
WALKS = ["The walk of a start", "The walk of an HTTP request"]


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


@cache
def imports() -> dict[str, set[str]]:
    return {path: imports_of(source) for path, source in sources().items()}


def meet(one: str, other: str) -> bool:
    """Whether one of the two files imports the other."""
    return other in imports()[one] or one in imports()[other]


def files_in(room: str) -> set[str]:
    return {path for path in imports() if path == room or path.startswith(f"{room}/")}


def steps_of(walk: str) -> list[re.Match[str]]:
    return list(ROW.finditer(section(walk)))


@pytest.mark.parametrize("walk", WALKS)
def test_each_step_of_a_walk_is_reached_by_an_import_or_through_a_named_port(walk):
    files = {int(step["number"]): step["file"] for step in steps_of(walk)}
    for step in steps_of(walk)[1:]:
        assert int(step["source"]) < int(step["number"]), step[0]
        way = [files[int(step["source"])], *filter(None, [step["port"]]), step["file"]]
        for one, other in pairwise(way):
            assert meet(one, other), f"{one} and {other} do not meet: {step[0]}"


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_is_complete_and_short(walk):
    steps = steps_of(walk)
    rows = [line for line in section(walk).splitlines() if line.startswith("| ")]
    assert [int(step["number"]) for step in steps] == list(range(1, len(rows)))  # one row is the heading
    assert len({file for step in steps for file in (step["file"], step["port"]) if file}) <= FILES_MAX


def test_an_arrow_between_two_rooms_is_an_import():
    rooms = dict(NODE.findall(section("The rooms")))
    arrows = ARROW.findall(section("The rooms"))
    assert len(arrows) > 20
    for one, other in arrows:
        imported = set().union(*(imports()[file] for file in files_in(rooms[one])))
        assert imported & files_in(rooms[other]), f"{rooms[one]} does not import {rooms[other]}"


def test_every_room_of_the_engine_and_every_layer_is_in_the_picture():
    drawn = set(dict(NODE.findall(section("The rooms"))).values())
    rooms = {f"engine/{path.name}" for path in (PACKAGE / "engine").iterdir() if (path / "__init__.py").is_file()}
    assert rooms | {"kernel", "ports", "stores", "buses", "client.py", "assembly.py"} <= drawn
    assert all(files_in(room) for room in drawn)

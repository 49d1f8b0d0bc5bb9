"""Names: a class name means one thing, and a module that a page names exists."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.unit.repository.sources import PACKAGE, ROOT, name_of, pages, sources

# Names that two modules define. `Run`, `Started` and `Lane` are public, and are also what the kernel calls the row of a
# run, the first entry of its journal, whose stored name is that of the class, and a lane without its places.
SHARED_NAMES = {"Lane", "Run", "Started"}

CODE_SPAN = re.compile(r"`([^`\n]+)`")
BLOCK = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"(?<![\w./:*-])(?:[\w-]+/)*[\w-]+\.(?:py|lua|sql)\b(?!:)")
FOLDER = re.compile(r"(?<![\w./:{-])(?:[a-z_]+/)+(?=$|\s)")
IMPORTED = re.compile(r"^\s*(?:from|import) (holdfast(?:\.\w+)*)", re.MULTILINE)
DOTTED = re.compile(r"(?<![\w./-])holdfast\.([a-z_]+)((?:\.\w+)*)")


@cache
def defined() -> Counter[str]:
    return Counter(name for source in sources().values() for name in re.findall(r"^class (\w+)", source, re.MULTILINE))


def test_a_class_name_is_defined_once():
    twice = {name for name, count in defined().items() if count > 1 and not name.startswith("_")}
    assert twice - SHARED_NAMES == set()


def test_no_name_is_excused_that_is_defined_once_by_now():
    assert {name for name in SHARED_NAMES if defined()[name] <= 1} == set()


@cache
def file_names() -> set[str]:
    below = ("src", "tests", "docs", "bench", "examples")
    return {path.name for folder in below for path in (ROOT / folder).rglob("*.*") if path.suffix != ".pyc"}


def is_there(named: str, page: Path) -> bool:
    if "/" not in named:
        return named in file_names()
    return any((base / named).exists() for base in (ROOT, PACKAGE, page.parent))


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_a_file_that_a_page_names_exists(page):
    text = page.read_text(encoding="utf-8")
    spans = CODE_SPAN.findall(BLOCK.sub("", text))
    named = {found for span in spans for found in (*FILE.findall(span), *FOLDER.findall(span))}
    if any(block["info"] == "python file" for block in BLOCK.finditer(text)):
        named.discard("shop.py")  # the reader is told to save it
    assert {each for each in named if not is_there(each, page)} == set()


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_a_module_that_a_page_names_exists(page):
    text = page.read_text(encoding="utf-8")
    named = {name for block in BLOCK.finditer(text) for name in IMPORTED.findall(block["body"])}
    for span in CODE_SPAN.findall(BLOCK.sub("", text)):
        for top, rest in DOTTED.findall(span):
            if rest and find_spec(f"holdfast.{top}"):  # the names of settings and of span attributes look alike
                modules_of_it = [part for part in rest.split(".") if part.islower()]
                named.add(".".join(["holdfast", top, *modules_of_it]))
    assert {name for name in named if find_spec(name) is None} == set()


def test_the_glossary_is_in_order_and_explains_each_word_once():
    page = ROOT / "docs" / "internals" / "glossary.md"
    words = [row.split(" | ")[0].strip("| ") for row in page.read_text(encoding="utf-8").splitlines() if "` |" in row]
    assert len(words) > 40
    assert words == sorted(set(words), key=str.lower)

"""The code of the documentation, taken out of it so that it can be run.

A fence says how:

    ```python run       all such blocks of a page are one program, in their order; `await` may stand at the top level,
                        as in `python -m asyncio`
    ```python script    a complete program of its own; a ```text block right behind it is what it prints (`...`
                        stands for anything)
    ```python file      a file that the reader is told to save; a test of its own does with it what the page says
    ```python           only to be read
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    info: str
    body: str
    line: int
    end: int  # where it ends in the page's text


def pages() -> list[Path]:
    beside = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "bench/README.md")
    return [*(ROOT / name for name in beside), *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(found["info"].strip(), found["body"], text.count("\n", 0, found.start()) + 2, found.end())
        for found in FENCE.finditer(text)
    ]


def scripts(page: Path) -> Iterator[tuple[Block, str | None]]:
    """The complete programs of a page, each with what it should print, if a ```text block right behind it says so."""
    text = page.read_text(encoding="utf-8")
    printed = {block.line: block.body for block in blocks(page) if block.info == "text"}
    for block in blocks(page):
        if block.info == "python script":
            behind = text[block.end :]
            blank = len(behind) - len(behind.lstrip("\n"))
            yield block, printed.get(text.count("\n", 0, block.end + blank) + 2)


async def run_page(page: Path) -> None:
    """Run the `python run` blocks of a page as one program."""
    module = ModuleType("page_" + re.sub(r"\W", "_", name_of(page)))
    sys.modules[module.__name__] = module  # dataclasses, and exceptions that are rebuilt by name, look for it
    try:
        for block in blocks(page):
            if block.info == "python run":
                source = "\n" * (block.line - 1) + block.body
                code = compile(source, name_of(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                result = eval(code, vars(module))
                if inspect.iscoroutine(result):
                    await result
    finally:
        del sys.modules[module.__name__]


def printed_as(expected: str, printed: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in expected.strip().split("..."))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None

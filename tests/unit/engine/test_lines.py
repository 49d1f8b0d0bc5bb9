"""Where the code of a run asks for something: its file and line."""

from __future__ import annotations

import sys
from typing import Any

from holdfast.engine.code.lines import line_of

SOURCE = "def ask(look):\n    return look()\n"


def test_equal_code_in_two_files_has_the_line_of_its_own_file():
    places: list[str] = []
    for file in ("/app/shop.py", "/app/bank.py"):
        names: dict[str, Any] = {}
        exec(compile(SOURCE, file, "exec"), names)
        places.append(names["ask"](lambda: line_of(sys._getframe(1))))
    assert places == ["shop.py:2", "bank.py:2"]

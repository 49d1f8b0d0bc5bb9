"""The statements of queries.sql, by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import resources
from operator import itemgetter
from typing import Any

from holdfast.stores.sqlite.rows import COLUMNS

_NAME = re.compile(r":(\w+)")
_COMMENT = re.compile(r"--.*")


def _queries() -> dict[str, str]:
    text = resources.files("holdfast.stores.sqlite").joinpath("queries.sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)[1:]
    return {name: sql.strip().replace("{columns}", COLUMNS) for name, sql in zip(parts[::2], parts[1::2], strict=True)}


SQL = _queries()


def binder(sql: str, given: tuple[str, ...]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """Puts values that come in the order of the names `given` into the order in which the statement has them.

    SQLite numbers names as they come, and binding by number takes a third of the time of a whole insert less than
    binding by name. So the statements that each run needs are bound by number, and written with names all the same.
    """
    names = dict.fromkeys(_NAME.findall(_COMMENT.sub("", sql)))
    return itemgetter(*(given.index(name) for name in names))

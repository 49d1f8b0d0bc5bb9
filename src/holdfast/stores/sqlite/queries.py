"""The statements of queries.sql, by name."""

from __future__ import annotations

import re
from importlib import resources

from holdfast.stores.sqlite.rows import COLUMNS


def _queries() -> dict[str, str]:
    text = resources.files("holdfast.stores.sqlite").joinpath("queries.sql").read_text(encoding="utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)[1:]
    return {name: sql.strip().replace("{columns}", COLUMNS) for name, sql in zip(parts[::2], parts[1::2], strict=True)}


SQL = _queries()

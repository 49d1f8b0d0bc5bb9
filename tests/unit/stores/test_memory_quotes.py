"""The memory store quotes the rules that it keeps: each quotation is one, word for word."""

from __future__ import annotations

import inspect
import re

from holdfast.kernel import changes
from holdfast.stores.memory import writes


def _words(text: str) -> str:
    return " ".join(re.sub(r"^\s*#? ?-? ?", "", line) for line in text.splitlines()).replace("  ", " ")


def test_every_quoted_rule_is_a_rule_of_the_kernel() -> None:
    comments = re.findall(r"#[^\n]*(?:\n\s*#[^\n]*)*", inspect.getsource(writes))
    quoted = [quote for comment in comments for quote in re.findall(r'"([^"]+)"', _words(comment))]
    rules = _words(inspect.getsource(changes)).casefold()
    assert len(quoted) > 12
    assert [quote for quote in quoted if quote.casefold() not in rules] == []

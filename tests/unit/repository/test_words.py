"""Plain English: words that make a reader stop are found by a test, in pages and in the prose of the code."""

from __future__ import annotations

import io
import re
import tokenize

import pytest

from tests.unit.repository.sources import PACKAGE, ROOT, name_of, pages

# docs/internals/style.md says what to write in place of each.
WORDS = re.compile(r"\b(answers|somebody|nobody|whoever|anew|for\s+ever|in\s+vain|lest)\b", re.IGNORECASE)
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)

# Sentences of the HTTP API's own description, which stays as it was published.
PUBLISHED = ("Whether this process answers", "This process answers.", "What a run has done, since it last began anew")
# Strings and f-strings; the parts of an f-string are tokens of their own from Python 3.12 on.
PROSE = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}

SOURCES = sorted(PACKAGE.rglob("*.py"))
EXAMPLES = sorted(path for folder in ("examples", "docs") for path in (ROOT / folder).rglob("*.py"))


def _own(text: str) -> str:
    for published in PUBLISHED:
        text = text.replace(published, "")
    return text


def prose_of(source: str) -> list[str]:
    return [token.string for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type in PROSE]


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_a_page_is_plain_english(page):
    assert WORDS.findall(_own(CODE.sub("", page.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize("path", [*SOURCES, *EXAMPLES], ids=name_of)
def test_the_prose_of_a_module_is_plain_english(path):
    source = path.read_text(encoding="utf-8")
    if WORDS.search(source):  # most need not be taken apart
        assert [text for text in prose_of(source) if WORDS.search(_own(text))] == []


def test_a_name_in_code_is_not_prose():
    assert not any(map(WORDS.search, prose_of("answers = AskedInVain(nobody)  # the replies")))
    assert any(map(WORDS.search, prose_of("x = 1  # nobody reads it\n")))
    assert any(map(WORDS.search, prose_of('"""It answers."""\n')))

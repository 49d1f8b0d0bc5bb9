"""Reports as one page of HTML, of the gate and of `holdfast prove`: nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


class NumberCell(str):
    """A cell of numbers: they stand below each other."""

    __slots__ = ()


def number(value: float, *, digits: int = 0) -> NumberCell:
    return NumberCell(f"{value:,.{digits}f}")


def document(title: str, *, style: str, body: Iterable[str]) -> str:
    """The whole page."""
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>\n'


def verdict_mark(verdict: str) -> str:
    """A verdict in its colour, which the style gives."""
    return f'<span class="verdict {verdict.replace(" ", "-")}">{verdict}</span>'


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already. A column that has a number in it is one of numbers."""
    listed = [list(row) for row in rows]
    numbers = {at for row in listed for at, cell in enumerate(row) if isinstance(cell, NumberCell)}

    def cells(tag: str, row: Sequence[str]) -> str:
        kinds = (' class="number"' if at in numbers else "" for at in range(len(row)))
        return "".join(f"<{tag}{kind}>{cell}</{tag}>" for kind, cell in zip(kinds, row, strict=True))

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in listed)
    head = f"<thead><tr>{cells('th', columns)}</tr></thead>"
    return f'<div class="scroll"><table>{head}<tbody>{body}</tbody></table></div>'

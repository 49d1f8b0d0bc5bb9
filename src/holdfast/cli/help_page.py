"""What `holdfast --help` shows: the options and, panel by panel, every command with its words.

Typer would draw the same page, but its import takes five times as long as the start of the interpreter, and Typer
would have to import every command to know its words. So the page is drawn here, and Typer shows it too
(`holdfast.cli.main`). For the same reason this module imports next to nothing.
"""

from __future__ import annotations

import os
import sys

from holdfast.cli.commands import ABOUT, PANELS

USAGE = "holdfast [OPTIONS] COMMAND [ARGS]..."
VERSION = "Print the version and exit."
OPTIONS = {
    "--version": VERSION,
    "--install-completion": "Install completion for the current shell.",
    "--show-completion": "Show completion for the current shell, to copy it or customize the installation.",
    "--help, -h": "Show this message and exit.",
}
WIDTH = 80  # where there is no terminal to ask
BOLD, DIM, YELLOW, CYAN = "1", "2", "1;33", "1;36"
ASCII = str.maketrans("╭╮╰╯─│", "++++-|")


def help_page() -> str:
    """The page, as it suits the standard output of this process."""
    page = HelpPage(_width(), coloured=_is_coloured()).text()
    return page if (sys.stdout.encoding or "").lower().startswith("utf") else page.translate(ASCII)


class HelpPage:
    """The page for a width, with colours or without."""

    def __init__(self, width: int, *, coloured: bool) -> None:
        self._width = width
        self._coloured = coloured

    def text(self) -> str:
        usage = f" {self._painted(YELLOW, 'Usage:')} {self._painted(BOLD, USAGE)}"
        lines = ["", usage, "", *(f" {line}" for line in wrap(ABOUT, self._width - 2)), ""]
        lines += self._panel("Options", OPTIONS, max(map(len, OPTIONS)))
        column = max(len(name) for commands in PANELS.values() for name in commands)
        for title, commands in PANELS.items():
            lines += self._panel(title, {name: words for name, (_, words) in commands.items()}, column)
        return "\n".join([*lines, ""])

    def _panel(self, title: str, rows: dict[str, str], column: int) -> list[str]:
        edge, room = self._painted(DIM, "│"), self._width - column - 6
        lines = [self._painted(DIM, f"╭─ {title} {'─' * (self._width - len(title) - 5)}╮")]
        for row, words in rows.items():
            name = row
            for line in wrap(words, room):
                lines.append(f"{edge} {self._painted(CYAN, name.ljust(column))}  {line.ljust(room)} {edge}")
                name = ""
        return [*lines, self._painted(DIM, f"╰{'─' * (self._width - 2)}╯")]

    def _painted(self, style: str, text: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._coloured else text


def wrap(text: str, room: int) -> list[str]:
    """The words of a text in lines that are no longer than `room`, unless one word is. `textwrap` would load `re`."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > room:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def _width() -> int:
    """As Rich finds it for the help of the commands: what is set, or the width of the terminal, even behind a pipe."""
    if (columns := os.environ.get("COLUMNS", "")).isdigit():
        return int(columns)
    for descriptor in (0, 1, 2):
        try:
            return os.get_terminal_size(descriptor).columns or WIDTH
        except OSError:  # no terminal
            continue
    return WIDTH


def _is_coloured() -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    is_terminal = sys.stdout.isatty() and os.environ.get("TERM") not in {"dumb", "unknown"}
    return is_terminal or bool(os.environ.get("FORCE_COLOR"))

"""Where a command's words go: results to stdout, everything else to stderr.

Rules
- People get tables and trees, with colours on a terminal only (and not under NO_COLOR); a pipe is never wrapped.
- Programs (`--json`) get one JSON document, or one per line where there is no end in sight. The shapes are those of
  the gateway.
- Text of others is never markup, and its control characters are shown, not obeyed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import msgspec
from rich.console import Console, RenderableType
from rich.json import JSON
from rich.progress import Progress
from rich.text import Text

from holdfast.errors import HoldfastError

PIPE_WIDTH = 4096
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def plain(text: str, style: str = "") -> Text:
    """Text of others, as it is."""
    return Text(_CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text), style=style)


def encoded(value: object) -> bytes:
    """A value as JSON, with its fields in their own order."""
    return _encode(value)


def _of_model(value: Any) -> Any:
    return value.model_dump(mode="json")  # pydantic's; whatever else there is was refused when it was to be stored


_encode = msgspec.json.Encoder(enc_hook=_of_model).encode


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE_WIDTH
    return console


class Output:
    """What a command says."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.console = _console(stderr=False)
        self.errors = _console(stderr=True)

    @property
    def is_live(self) -> bool:
        """Whether a view may be redrawn in place."""
        return self.console.is_terminal and not self.as_json

    def show(self, document: object, view: RenderableType) -> None:
        """The result of a command: `document` for programs, `view` for people."""
        if self.as_json:
            self._write(msgspec.json.format(encoded(document), indent=2))
        else:
            self._print(view)

    def line(self, document: object, view: RenderableType) -> None:
        """One of many results, as soon as it is there."""
        if self.as_json:
            self._write(encoded(document))
        else:
            self._print(view)

    def record(self, document: object) -> None:
        """One of many results that are JSON for people, too."""
        self._write(encoded(document))

    def value(self, document: object, value: object) -> None:
        """A value of a user's own type: `document` holds it for programs, people see it as JSON."""
        self.show(document, JSON(encoded(value).decode(), indent=2).text)

    @property
    def is_watched(self) -> bool:
        """Whether a person sees what is said beside the result."""
        return self.errors.is_terminal and not self.as_json

    def note(self, text: str, style: str = "") -> None:
        """A word beside the result, for people only."""
        if not self.as_json:
            self.errors.print(plain(text, style))

    def progress_line(self, text: str) -> None:
        """How far it is, where no one watches a bar: for logs."""
        if self.as_json:
            self.errors.file.write(encoded({"progress": text.strip()}).decode() + "\n")
        else:
            self.errors.print(plain(text))
        self.errors.file.flush()

    def warning(self, text: str) -> None:
        """What was done, and was perhaps not meant."""
        if self.as_json:
            self.errors.file.write(encoded({"warning": text}).decode() + "\n")
        else:
            self.errors.print(Text.assemble(("warning: ", "bold yellow"), plain(text)))

    def problem(self, error: HoldfastError, code: int) -> None:
        """What went wrong, and what to do now."""
        if self.as_json:
            problem = {"code": error.code, "message": error.message, "hint": error.hint, "exit_code": code}
            run_id = getattr(error, "run_id", None)
            meant = {} if run_id is None else {"run_id": run_id}
            self.errors.file.write(encoded(problem | meant).decode() + "\n")
            return
        self.errors.print(Text.assemble(("error: ", "bold red"), plain(error.message)))
        if error.hint:
            self.errors.print(Text.assemble(("hint: ", "bold"), plain(error.hint)))

    @contextmanager
    def waiting(self, text: str) -> Generator[Callable[[str], None]]:
        """While something is waited for, people see what it is. Yields a function that changes the words."""
        if not self.is_watched:
            yield lambda _: None
            return
        with self.errors.status(plain(text)) as status:
            yield lambda words: status.update(plain(words))

    def progress(self) -> Progress:
        """A bar for long work; nothing where no one looks."""
        return Progress(console=self.errors, transient=True, disable=not self.is_watched)

    def _print(self, view: RenderableType) -> None:
        """Text is left to the terminal to wrap, so that it can be copied; tables are fitted."""
        words = plain(view) if isinstance(view, str) else view
        self.console.print(words, soft_wrap=isinstance(words, Text))

    def _write(self, data: bytes) -> None:
        self.console.file.write(data.decode() + "\n")
        self.console.file.flush()

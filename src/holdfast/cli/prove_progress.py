"""How far a proof is: a bar for each case on a terminal; elsewhere a line now and then, so that a log shows it.

What users print while their code is imported or proved goes to stderr: stdout has the report alone.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING

from holdfast.cli.output import Output

if TYPE_CHECKING:  # other commands need none of it
    from rich.progress import Progress

    from holdfast.prove.explorer import Explored
    from holdfast.prove.report import CaseReport

EVERY_SECONDS = 10.0
MARKS = {"proved": "✓", "failed": "✗", "not proved": "?"}


class ProveProgress:
    """Told of every world and of every case that is done. Lines are told by a thread: worlds leave no loop a turn."""

    def __init__(self, out: Output, *, cases: int, budget: int) -> None:
        self.done: list[CaseReport] = []
        self._out = out
        self._cases = cases
        self._budget = budget
        self._bars: dict[str, int] = {}
        self._bar: Progress | None = None
        self._at = ""  # the case that is tried at present, and how far it is
        self._ended = threading.Event()

    @contextmanager
    def shown(self) -> Generator[None]:
        """Until the end of the block."""
        with self._out.progress() as self._bar:
            if not self._out.is_watched:
                threading.Thread(target=self._tell_now_and_then, name="holdfast-progress", daemon=True).start()
            try:
                yield
            finally:
                self._ended.set()

    def tell(self, name: str, explored: Explored) -> None:
        """A case has got this far."""
        known = min(self._budget, max(explored.worlds_known, explored.worlds, explored.planned))
        of = f" of {known:,}" if known > explored.worlds else ""
        wrong = f", {len(explored.found)} mistakes so far" if explored.found else ""
        self._at = f"{name}: {explored.worlds:,}{of} worlds{wrong}"
        if self._bar is not None:
            if name not in self._bars:
                self._bars[name] = int(self._bar.add_task(name, total=self._budget))
            self._bar.update(self._bars[name], completed=explored.worlds, total=known)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    def finished(self, case: CaseReport) -> None:
        """A case is done, and what came of it is written."""
        self.done.append(case)
        self._at = ""
        if not self._out.is_watched:
            problem = f": {case.problem}" if case.problem else ""
            self._out.progress_line(
                f"{MARKS[case.verdict]} {case.name} {case.verdict}, {case.worlds:,} worlds{problem}"
            )

    @property
    def so_far(self) -> str:
        """What to say when it is stopped."""
        at = f"; {self._at}" if self._at else ""
        return f"stopped: {len(self.done)} of {self._cases} cases are done{at}"

    def _tell_now_and_then(self) -> None:
        while not self._ended.wait(EVERY_SECONDS):
            if at := self._at:
                self._out.progress_line(f"  {at}")


@contextmanager
def users_output_aside() -> Generator[None]:
    """Until the end of the block, what users print goes to stderr."""
    with redirect_stdout(sys.stderr):
        yield

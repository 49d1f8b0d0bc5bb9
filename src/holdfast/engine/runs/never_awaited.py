"""What becomes of a call that the code of a run has not awaited: a warning at its line, or an error in strict mode."""

from __future__ import annotations

import warnings

from holdfast.engine.code.dropped_calls import DroppedCall
from holdfast.errors import NeverAwaited
from holdfast.kernel.runs import Run
from holdfast.warnings import CallNeverAwaited


def tell(call: DroppedCall, run: Run, *, strict: bool) -> None:
    """Warn of it. Raises `NeverAwaited` in strict mode, or where a filter makes an error of the warning."""
    said = f"{call.name} was called and never awaited, so it was not performed"
    if not strict:
        try:
            warnings.warn_explicit(said, CallNeverAwaited, call.path, call.number)
        except CallNeverAwaited:
            pass
        else:
            return
    raise NeverAwaited(f"run {run.id}: {said}, at {call.line}")

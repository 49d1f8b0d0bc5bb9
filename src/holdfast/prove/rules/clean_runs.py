"""Rules about the clean run itself: what is proved of a run that fails at once is not what its author believes.

rule                                   what it compares
─────────────────────────────────────  ──────────────────────────────────────────────────────────────────
not proved: the clean run fails        its end with the failure that the proof declares
"""

from __future__ import annotations

from holdfast.engine.failures import rebuilt
from holdfast.kernel.journal import Failure
from holdfast.kernel.runs import Run
from holdfast.prove.rules.wording import failure_of, of_failure
from holdfast.prove.samples import CODEC


def unexpected_end(run: Run, declared: type[BaseException] | None) -> str:
    """Why nothing is proved of a clean run that has ended like this; empty if its proof says that it ends so."""
    failure = failure_of(run)
    if failure is None:
        return "" if declared is None else f"the clean run does not fail, and is to fail with {declared.__name__}"
    if declared is not None and _is_a(failure, declared):
        return ""
    where = f" ({failure.line})" if failure.line else ""
    name = failure.type.rpartition(".")[2]
    is_to = (
        f"if that is meant, say so: @prove(..., fails={name})" if declared is None else f"not with {declared.__name__}"
    )
    return f"the clean run fails with {of_failure(failure)}{where}; {is_to}"


def _is_a(failure: Failure, declared: type[BaseException]) -> bool:
    named = f"{declared.__module__}.{declared.__qualname__}"  # of a class that cannot be imported, too
    return failure.type == named or isinstance(rebuilt(failure, CODEC), declared)

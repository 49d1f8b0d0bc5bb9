"""Throttles: starts that are late, and never refused, so that no more of them begin than a rate says.

    a start                                     the rate             when the run may be claimed
    ──────────────────────────────────────────  ───────────────────  ─────────────────────────────────────
    is admitted                                 `cost` is taken      when the rate lets it go, and as much
                                                                     later as the start asks for with `delay=`
    finds its run there already                 nothing is taken     as that run is
    is refused: the key is taken, the lane full nothing is taken     -
    is of a fork, a retry, a successor          nothing is taken     at once

Rules
- A rate has a name in a namespace: the workflow, and what its template `by` gives. What is kept of it is the one number
  of `rates`, and that only as long as it lies in the future.
- It is taken in the commit that admits the run, by the store's clock. So it is exact however many processes start runs,
  and a start that is offered again takes nothing.
- A run that a worker was to have at once is pending instead if it has to wait.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from holdfast.errors import UsageError
from holdfast.kernel import ids, keys, rates
from holdfast.kernel.rates import COUNT_MAX, Micros, Rate, Taking
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.times import Instant, Millis

WAITS: Final = b'[{"kind":"throttle"}]'  # what the run waits for until it goes


class Throttle(NamedTuple):
    """A rate as a workflow declares it: `by` says which starts share it."""

    rate: Rate
    by: keys.Template | None

    def taking(self, workflow: str, arguments: dict[str, object]) -> Taking:
        """What a start with these arguments takes."""
        name = ids.joined(workflow, "" if self.by is None else self.by.fill(arguments))
        return Taking(name, self.rate, _cost(workflow, self.rate.cost, arguments))


def declared(rate: object, *, parameters: frozenset[str], owner: str) -> Throttle:
    """What `throttle=` says, or a `UsageError`."""
    if not isinstance(rate, Rate):
        raise UsageError(
            f"throttle={rate!r:.60} of {owner} is no rate",
            hint='Say how many in how long: throttle=Rate(100, per="1m").',
        )
    if rate.cost and rate.cost not in parameters:
        raise UsageError(
            f"throttle= of {owner} has cost={rate.cost!r}, which is not a parameter",
            hint=f"Its parameters are: {', '.join(sorted(parameters)) or 'none'}.",
        )
    by = keys.parse(rate.by, parameters=parameters, owner=f"throttle= of {owner}") if rate.by else None
    return Throttle(rate, by)


def take(taking: Taking, run: Run, due_at_us: Micros, *, now_ms: Instant) -> tuple[Micros, Run]:
    """What is kept of the rate once `run` is admitted, and its row: it may have to wait."""
    kept_us, goes_at_ms = rates.reserve(taking.rate, due_at_us, now_ms=now_ms, cost=taking.cost)
    return kept_us, late(run, goes_at_ms, now_ms=now_ms)


def late(run: Run, goes_at_ms: Instant, *, now_ms: Instant) -> Run:
    """The row of a run that is admitted now, and which its rate lets go then."""
    if goes_at_ms <= now_ms:
        return run
    if run.status is Status.RUNNING:
        run = replace(
            run, status=Status.PENDING, epoch=0, nonce="", owner=None, wake_at_ms=run.created_at_ms, started_at_ms=None
        )
    assert run.wake_at_ms is not None, run
    delay_ms = Millis(run.wake_at_ms - run.created_at_ms)  # as its start has asked for
    wake_at_ms = Instant(goes_at_ms + delay_ms)
    return replace(run, wake_at_ms=wake_at_ms, waits=run.waits or WAITS)


def _cost(workflow: str, name: str, arguments: dict[str, object]) -> int:
    cost = arguments[name] if name else 1
    if isinstance(cost, bool) or not isinstance(cost, int) or not 1 <= cost <= COUNT_MAX:
        raise UsageError(
            f"a start of {workflow} has {name}={cost!r:.60}, which says how much it takes of its rate",
            hint=f"Use a whole number from 1 to {COUNT_MAX:,}.",
        )
    return cost

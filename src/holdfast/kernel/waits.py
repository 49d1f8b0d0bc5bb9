"""Why a run waits, and what may be done about it.

    status      waits for
    ──────────  ────────────────────────────────────────────────────────────────────
    pending     its turn in a lane; a delayed start; a rule of its workflow that lets it go later; those that go before
                it in its line; a free worker; a worker at all, if none serves it, or none the version it is pinned to
    running     its effects that run now, each with the instance that performs it; as long as none is known, that
                instance; and, in its story, the outcome of a `once` effect that was begun
    waiting     timers, hooks, children, retries, breakers and limits, as they were when it was let go
    blocked     a person
    ended       nothing

Nothing is ever stuck without a legal next action: every status has at least one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Literal, assert_never

import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from holdfast.kernel.journal import Failure
from holdfast.kernel.lanes import LaneStanding, LaneState
from holdfast.kernel.leases import instance_of
from holdfast.kernel.running_effects import RunningEffect, StepAtWork
from holdfast.kernel.runs import ENDED, Run, Status
from holdfast.kernel.times import Instant
from holdfast.kernel.units import utc_of, utc_or_none

Kind = Literal[
    "timer",
    "hook",
    "child",
    "retry",
    "breaker",
    "limit",
    "lane",
    "delay",
    "throttle",
    "debounce",
    "batch",
    "turn",
    "worker",
    "no_worker",
    "running",
    "outcome",
    "blocked",
]
RULES = frozenset({"throttle", "debounce", "batch"})  # what a workflow declares, and what lets its runs go later
HEARTBEAT_CHARACTERS = 80  # of the details, in words


class LanePlace(Struct, frozen=True, gc=False, omit_defaults=True):
    """Where a parked run stands: how many are ahead of it, which of them is the first, and when that one began."""

    ahead: int
    first: str | None = None
    since_ms: Instant | None = None
    paused: bool = False

    @property
    def since(self) -> datetime | None:
        """When the first run ahead began; None if it has not."""
        return utc_or_none(self.since_ms)

    def __str__(self) -> str:
        paused = ", and the lane is paused" if self.paused else ""
        if self.first is None:
            return f"it is next{paused}"
        since = "" if self.since is None else f" since {self.since.isoformat(timespec='milliseconds')}"
        return f"{self.ahead} ahead of it, the first (run {self.first}){since}{paused}"


class Wait(Struct, frozen=True, gc=False, omit_defaults=True):
    """One thing that a run waits for; as text, a sentence's end: `waits for ...`. `effect` is there if one runs."""

    kind: Kind
    name: str = ""
    until_ms: Instant | None = None
    step: str = ""
    effect: RunningEffect | None = None
    error: str = ""  # of a retry: why the last attempt failed
    version: str = ""  # of the worker, if the run is pinned to it
    detail: str = ""  # of a breaker or a limit: how it stands
    place: LanePlace | None = None  # in a lane
    ahead: int = 0  # how many runs go before it; of a batch, how many items it has

    @property
    def until(self) -> datetime | None:
        """When it is over at the latest, if that is known."""
        return None if self.until_ms is None else utc_of(self.until_ms)

    @property
    def instance(self) -> str:
        """The process that executes the run, by the name that it has in logs and metrics; empty if none does."""
        return instance_of(self.name) if self.kind == "running" else ""

    def __str__(self) -> str:  # noqa: C901, PLR0911, PLR0912 - a table, as long as there are kinds
        until = "" if self.until is None else self.until.isoformat(timespec="milliseconds")
        match self.kind:
            case "timer":
                return f"timer {self.step} until {until}"
            case "hook":
                return f"a signal to hook {self.name!r}"
            case "child":
                return f"child run {self.name} ({self.step})"
            case "retry":
                return f"the retry of {self.step} at {until}" + (f", after {self.error}" if self.error else "")
            case "breaker":
                open_until = "open until it is closed by hand" if not until else f"open until {until}"
                return f"breaker {self.name!r}, which is {', '.join(filter(None, (open_until, self.detail)))}"
            case "limit":
                return f"limit {self.name!r}: {self.detail}"
            case "lane":
                return f"lane {self.name!r}: {self.place}"
            case "delay":
                return f"its delayed start at {until}"
            case "throttle":
                return f"its throttle, which lets it go at {until}"
            case "debounce":
                return f"its debounce: it goes at {until} unless another start comes"
            case "batch":
                return f"its batch, which has {self.ahead:,} items and goes at {until}"
            case "turn":
                return f"its turn: {self.ahead:,} go before it, as {self.name!r} takes turns with others"
            case "worker":
                return f"a free worker of queue {self.name!r}"
            case "no_worker" if self.version:
                return f"a worker: none serves version {self.version!r}, to which it is pinned"
            case "no_worker":
                return f"a worker: none serves queue {self.name!r}"
            case "running" if self.effect is not None:
                return _running(self.step, self.effect, self.instance)
            case "running":
                return f"instance {self.instance}, which executes it"
            case "outcome":
                return f"the outcome of {self.step}, which was begun"
            case "blocked":
                return f"a person: {self.name}"
            case _:  # pragma: no cover
                assert_never(self.kind)


def _running(step: str, effect: RunningEffect, instance: str) -> str:
    what, where = f"effect {step}, attempt {effect.attempt}", f"on instance {instance}"
    if effect.lost:
        return f"{what}, which ran {where} when its lease expired"
    since = effect.since.isoformat(timespec="milliseconds")
    beat = "" if effect.heartbeat_json is UNSET else f"; last heartbeat: {_clipped(effect.heartbeat_json)}"
    return f"{what}, {'with remote workers' if effect.remote else 'running'} since {since} {where}{beat}"


def _clipped(json: Raw) -> str:
    text = bytes(json).decode()
    return text if len(text) <= HEARTBEAT_CHARACTERS else text[:HEARTBEAT_CHARACTERS].rstrip() + " ..."


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(tuple[Wait, ...]).decode
_decode_failure = msgspec.json.Decoder(Failure).decode


def waits_of(
    run: Run,
    *,
    served: Collection[str],
    now_ms: Instant,
    running: Iterable[StepAtWork] = (),
    place: LanePlace | None = None,
) -> tuple[Wait, ...]:
    """What `run` waits for.

    `served` are the workflows that some live worker executes, see also `lacking`; `running` is what it is at; `place`
    is where it stands if it is parked in a lane.
    """
    match run.status:
        case Status.PENDING if place is not None:
            turn = Wait("lane", run.lane, place=place)
            return (turn,) if run.workflow in served else (turn, _worker(run, served))
        case Status.PENDING if lacking(run.workflow, run.version) in served and _was_given_back_or_is_due(run, now_ms):
            return (Wait("no_worker", run.queue, version=run.version),)
        case Status.PENDING if run.wake_at_ms is not None and run.wake_at_ms > now_ms:
            return (_later(run),)
        case Status.PENDING:
            return (_worker(run, served),)
        case Status.RUNNING:
            owner = run.owner or ""
            at_work = tuple(Wait("running", owner, each.effect.until_ms, each.step, each.effect) for each in running)
            return at_work or (Wait("running", owner),)
        case Status.WAITING if run.wake_at_ms is not None and run.wake_at_ms <= now_ms:
            return (_worker(run, served),)
        case Status.WAITING:
            return () if run.waits is None else decode(run.waits)
        case Status.BLOCKED:
            failure = None if run.error is None else _decode_failure(run.error)
            return (Wait("blocked", "" if failure is None else f"{failure.type}: {failure.message}"),)
        case _:
            return ()


def _later(run: Run) -> Wait:
    """Why a run may not begin yet: a rule of its workflow, or its delay."""
    told = () if run.waits is None else decode(run.waits)
    rule = next((wait for wait in told if wait.kind in RULES), Wait("delay"))
    return replace(rule, until_ms=run.wake_at_ms, ahead=run.unread if rule.kind == "batch" else rule.ahead)


def lacking(workflow: str, version: str) -> str:
    """What is among `served` if no live worker executes this version, to which runs of the workflow are pinned."""
    return f"{workflow}\0{version}"


def _was_given_back_or_is_due(run: Run, now_ms: Instant) -> bool:
    """Whether it would be executed by now, if there were a worker: it does not wait for its delayed start."""
    return run.epoch > 0 or run.wake_at_ms is None or run.wake_at_ms <= now_ms


def may_be_parked(run: Run) -> bool:
    """Whether the row looks like that of a run that is parked in a lane. Its place there tells for sure."""
    return run.lane != "" and run.status is Status.PENDING and run.wake_at_ms is None


def place_of(standing: LaneStanding, found: LaneState | None, first: Run | None) -> LanePlace | None:
    """Where a run is parked, by what the store says; None if it is active by now."""
    if standing.active:
        return None
    since_ms = None if first is None else first.started_at_ms
    return LanePlace(standing.ahead, standing.first, since_ms, found is not None and found.lane.paused)


def _worker(run: Run, served: Collection[str]) -> Wait:
    return Wait("worker" if run.workflow in served else "no_worker", run.queue)


def next_actions(run: Run) -> tuple[str, ...]:
    """The verbs that may be used on the run as it is."""
    release = ("release_key",) if run.key is not None and run.holds_key else ()
    may_go_on = run.key is None or run.holds_key or b'"holdfast.batch"' in run.attributes  # see `batches`
    match run.status:
        case Status.PENDING | Status.RUNNING | Status.WAITING:
            return ("signal", "cancel", *release)
        case Status.BLOCKED:
            return ("retry", "cancel", "signal", *release) if may_go_on else ("cancel", "signal")
        case Status.FAILED:
            return ("retry", "fork", *release) if may_go_on else ("fork",)
        case Status.CANCELLED:
            return ("resume", "fork", *release) if may_go_on else ("fork",)
        case _:
            assert run.status in ENDED, run
            return ("fork", *release)

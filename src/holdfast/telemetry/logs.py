"""Structured logs: the only module that words a log line.

A line is a constant phrase and fields; `instance` names the Holdfast that says it. Levels: debug, something moved as it
should; info, something changed that a person may want to see; warning, we recovered by ourselves; error, a person must
act.

`HOLDFAST_LOG=json` or `HOLDFAST_LOG=text` writes lines to stderr. Otherwise they go to the logger `holdfast`, for the
application to configure as it likes; where it has not configured any logging, warnings and errors go to stderr.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from holdfast import events
from holdfast.errors import InvalidConfig
from holdfast.events import Emit, Event
from holdfast.kernel.journal import Failure

log = logging.getLogger("holdfast")

PHRASES: dict[type[Event], tuple[int, str]] = {
    events.ReplicaStarted: (logging.INFO, "replica started"),
    events.ReplicaStopped: (logging.INFO, "replica stopped"),
    events.RunAdmitted: (logging.INFO, "run admitted"),
    events.RunParked: (logging.DEBUG, "run parked"),
    events.LaneSet: (logging.INFO, "lane set"),
    events.RunJoined: (logging.INFO, "run joined by key"),
    events.RunDebounced: (logging.INFO, "run given newer arguments"),
    events.RunThrottled: (logging.DEBUG, "run throttled"),
    events.RunsClaimed: (logging.DEBUG, "runs claimed"),
    events.AskedInVain: (logging.DEBUG, "nothing to do"),
    events.RunLetGo: (logging.DEBUG, "run let go"),
    events.RunEnded: (logging.INFO, "run ended"),
    events.RunBlocked: (logging.ERROR, "run blocked"),
    events.CallDropped: (logging.WARNING, "call never awaited"),
    events.RunRetried: (logging.INFO, "run retried"),
    events.RetryRequested: (logging.INFO, "next attempt to begin at once"),
    events.StepDecided: (logging.WARNING, "step decided by hand"),
    events.RunContinued: (logging.INFO, "run continued as new"),
    events.RunResumed: (logging.INFO, "run resumed"),
    events.RunForked: (logging.INFO, "run forked"),
    events.RunSignalled: (logging.DEBUG, "run signalled"),
    events.CancelRequested: (logging.INFO, "cancellation requested"),
    events.TimeLimitPassed: (logging.WARNING, "time limit of a run passed"),
    events.UndoBegan: (logging.WARNING, "failed run is being undone"),
    events.KeyWasReleased: (logging.WARNING, "key released"),
    events.OutcomeUndeclared: (logging.ERROR, "undeclared outcome"),
    events.RunOvertaken: (logging.WARNING, "run overtaken"),
    events.EffectBegan: (logging.DEBUG, "effect began"),
    events.EffectPerformed: (logging.DEBUG, "effect performed"),
    events.EffectWillRetry: (logging.WARNING, "effect will be retried"),
    events.EffectGaveUp: (logging.WARNING, "effect gave up"),
    events.ThreadGivenUp: (logging.WARNING, "thread given up"),
    events.ThreadsUsedUp: (logging.ERROR, "threads used up"),
    events.ResourceOpened: (logging.INFO, "resource opened"),
    events.ResourceNotClosed: (logging.WARNING, "resource not closed"),
    events.BatchCommitted: (logging.DEBUG, "batch committed"),
    events.StoreTroubled: (logging.WARNING, "store in trouble"),
    events.StoreMayLose: (logging.WARNING, "store may lose what it has confirmed"),
    events.NoticesPolled: (logging.WARNING, "commits of others are looked for"),
    events.LeaseWasLost: (logging.WARNING, "lease lost"),
    events.RunsRescued: (logging.WARNING, "runs rescued"),
    events.RunSuspected: (logging.WARNING, "run suspected"),
    events.RunHandedOver: (logging.WARNING, "run handed over"),
    events.RunTakenUp: (logging.WARNING, "run taken up"),
    events.RunWaitsForVersion: (logging.WARNING, "run waits for its version"),
    events.RunsPruned: (logging.INFO, "runs pruned"),
    events.MessagesRelayed: (logging.WARNING, "messages relayed"),
    events.Elected: (logging.INFO, "duty taken up"),
    events.Deposed: (logging.WARNING, "duty lost"),
    events.LimitChecked: (logging.DEBUG, "limit checked"),
    events.LimitsFellBack: (logging.WARNING, "limits counted by each replica"),
    events.LimitsCountedAgain: (logging.INFO, "limits counted in the store again"),
    events.EffectHeld: (logging.DEBUG, "effect held"),
    events.BreakerChanged: (logging.WARNING, "breaker changed"),
    events.BreakerProbed: (logging.INFO, "breaker probed"),
    events.SlotsMoved: (logging.DEBUG, "slots of a limit moved"),
    events.DecidesAlone: (logging.WARNING, "rule decided alone"),
    events.DecidesTogether: (logging.INFO, "rule shared again"),
    events.RequestReplayed: (logging.DEBUG, "request replayed"),
    events.RequestTakenOver: (logging.WARNING, "request taken over"),
    events.RequestOvertaken: (logging.WARNING, "request overtaken"),
    events.ReplyNotKept: (logging.WARNING, "reply not kept"),
    events.ProcessStarted: (logging.INFO, "process started"),
    events.ProcessEnded: (logging.WARNING, "process ended"),
    events.ProcessKilled: (logging.WARNING, "process killed"),
    events.EvidenceWaived: (logging.WARNING, "started without evidence"),
    events.DutyFailed: (logging.WARNING, "duty failed"),
    events.PartFailed: (logging.ERROR, "part of the replica failed"),
}

FAILED = (logging.ERROR, "run failed")  # as a run has ended that raised

_URGENCY = {cls: level for cls, (level, _) in PHRASES.items()} | {events.RunEnded: 0}  # how the run has ended tells


def _reason(event: Event) -> dict[str, str]:
    """Why a run has failed, in words instead of its record."""
    if type(event) is not events.RunEnded:
        return {}
    try:
        failure = msgspec.json.decode(event.error, type=Failure)
    except msgspec.DecodeError:
        return {}
    return {"error": f"{failure.type}: {failure.message}", "line": failure.line, "traceback": failure.traceback}


def log_events(instance: str) -> Emit:
    """A listener that writes each event, with the name of the process that it comes from."""
    is_enabled, urgency = log.isEnabledFor, _URGENCY

    def listen(event: Event) -> None:
        level = urgency[type(event)] or _level_of_end(event)
        if is_enabled(level):
            _write(event, level, instance)

    return listen


def _level_of_end(event: Event) -> int:
    """The level at which it is said that a run has ended: its type alone does not tell."""
    failed = isinstance(event, events.RunEnded) and event.status == "failed"
    return FAILED[0] if failed else PHRASES[events.RunEnded][0]


def _write(event: Event, level: int, instance: str) -> None:
    phrase = FAILED[1] if isinstance(event, events.RunEnded) and level == FAILED[0] else PHRASES[type(event)][1]
    fields = msgspec.to_builtins(event) | {"instance": instance}
    log.log(level, phrase, extra={"holdfast": fields | _reason(event) if level == logging.ERROR else fields})


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # one event is one line, whatever an error says


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        return msgspec.json.encode(fields | getattr(record, "holdfast", {})).decode()


class TextLines(logging.Formatter):
    """One line for people."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(
            f"{name}={round(value, 3) if isinstance(value, float) else value}"
            for name, value in getattr(record, "holdfast", {}).items()
            if value not in ("", None)
        )
        line = f"{_time(record)} {record.levelname.lower():7} {record.getMessage():24} {fields}".rstrip()
        return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), line)


class LastResort(logging.StreamHandler[TextIO]):
    """Says warnings and errors with their fields where the application has configured no logging at all."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setLevel(logging.WARNING)
        self.setFormatter(TextLines())

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            super().emit(record)


FORMATS: dict[str, type[logging.Formatter]] = {"json": JsonLines, "text": TextLines}


def configure() -> None:
    """Follow HOLDFAST_LOG, if it is set."""
    wanted = os.environ.get("HOLDFAST_LOG", "")
    if not wanted:
        if not log.handlers:
            log.addHandler(LastResort())
        return
    if wanted not in FORMATS:
        raise InvalidConfig(f"HOLDFAST_LOG={wanted!r} is not known", hint="Use json or text.")
    level = os.environ.get("HOLDFAST_LOG_LEVEL", "info").upper()
    if level not in logging.getLevelNamesMapping():
        raise InvalidConfig(f"HOLDFAST_LOG_LEVEL={level!r} is not known", hint="Use debug, info, warning or error.")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMATS[wanted]())
    log.handlers = [handler]
    log.propagate = False
    log.setLevel(level)

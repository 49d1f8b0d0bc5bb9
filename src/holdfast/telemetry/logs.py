"""Structured logs: the only module that words a log line.

A line is a constant phrase and fields. Levels: debug, something moved as it should; info, something changed that a
person may want to see; warning, we recovered by ourselves; error, a person must act.

`HOLDFAST_LOG=json` or `HOLDFAST_LOG=text` writes lines to stderr. Otherwise they go to the logger `holdfast`, for the
application to configure as it likes.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import msgspec

from holdfast.engine import events
from holdfast.engine.events import Event
from holdfast.errors import InvalidConfig

log = logging.getLogger("holdfast")

PHRASES: dict[type[Event], tuple[int, str]] = {
    events.ReplicaStarted: (logging.INFO, "replica started"),
    events.ReplicaStopped: (logging.INFO, "replica stopped"),
    events.RunAdmitted: (logging.INFO, "run admitted"),
    events.RunJoined: (logging.INFO, "run joined by key"),
    events.RunsClaimed: (logging.DEBUG, "runs claimed"),
    events.RunLetGo: (logging.DEBUG, "run let go"),
    events.RunEnded: (logging.INFO, "run ended"),
    events.RunBlocked: (logging.ERROR, "run blocked"),
    events.RunRetried: (logging.INFO, "run retried"),
    events.RunOvertaken: (logging.WARNING, "run overtaken"),
    events.EffectBegan: (logging.DEBUG, "effect began"),
    events.EffectPerformed: (logging.DEBUG, "effect performed"),
    events.EffectWillRetry: (logging.WARNING, "effect will be retried"),
    events.EffectGaveUp: (logging.WARNING, "effect gave up"),
    events.BatchCommitted: (logging.DEBUG, "batch committed"),
    events.StoreTroubled: (logging.WARNING, "store in trouble"),
    events.LeaseWasLost: (logging.WARNING, "lease lost"),
    events.RunsRescued: (logging.WARNING, "runs rescued"),
    events.RunsPruned: (logging.INFO, "runs pruned"),
    events.DutyFailed: (logging.WARNING, "duty failed"),
}


def log_events(event: Event) -> None:
    """Write one event."""
    level, phrase = PHRASES[type(event)]
    if log.isEnabledFor(level):
        log.log(level, phrase, extra={"holdfast": msgspec.to_builtins(event)})


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        return msgspec.json.encode(fields | getattr(record, "holdfast", {})).decode()


class TextLines(logging.Formatter):
    """One line for people."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(
            f"{name}={value}" for name, value in getattr(record, "holdfast", {}).items() if value not in ("", None)
        )
        return f"{self.formatTime(record)} {record.levelname.lower():7} {record.getMessage():24} {fields}".rstrip()


FORMATS: dict[str, type[logging.Formatter]] = {"json": JsonLines, "text": TextLines}


def configure() -> None:
    """Follow HOLDFAST_LOG, if it is set."""
    wanted = os.environ.get("HOLDFAST_LOG", "")
    if not wanted:
        return
    if wanted not in FORMATS:
        raise InvalidConfig(f"HOLDFAST_LOG={wanted!r} is not known", hint="Use json or text.")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMATS[wanted]())
    log.handlers = [handler]
    log.propagate = False
    log.setLevel(os.environ.get("HOLDFAST_LOG_LEVEL", "INFO").upper())

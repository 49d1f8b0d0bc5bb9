from __future__ import annotations

import json
import logging
import typing
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from holdfast import events
from holdfast.errors import InvalidConfig
from holdfast.events import Event
from holdfast.telemetry import logs
from holdfast.telemetry.logs import PHRASES, JsonLines, TextLines, configure

log_events = logs.log_events("box-1-a0f3")


def _subclasses(cls: type) -> Iterator[type]:
    for each in cls.__subclasses__():
        yield each
        yield from _subclasses(each)


EVENTS = sorted({cls for cls in _subclasses(Event) if cls.__module__ == events.__name__}, key=lambda cls: cls.__name__)


def an_event(cls: type[Event]) -> Event:
    """One of each, with something in every field."""
    values: dict[Any, Any] = {str: "some text", int: 7, tuple[str, ...]: ("a", "b"), float: 1.5, bool: True}
    hints = typing.get_type_hints(cls)
    return cls(
        **{name: values.get(hints[name], "text" if hints[name] == str | None else 7) for name in cls.__struct_fields__}
    )


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """The logger, put back afterwards as it was."""
    log = logs.log
    before = (list(log.handlers), log.propagate, log.level)
    log.handlers = []
    yield log
    log.handlers, log.propagate = before[0], before[1]
    log.setLevel(before[2])


def recorded(event: Event, log: logging.Logger) -> logging.LogRecord:
    records: list[logging.LogRecord] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    log.handlers = [Keeper()]
    log.setLevel(logging.DEBUG)
    log_events(event)
    [record] = records
    return record


def test_every_event_has_a_phrase_and_every_phrase_an_event():
    assert set(PHRASES) == set(EVENTS)
    phrases = [phrase for _, phrase in PHRASES.values()]
    assert len(set(phrases)) == len(phrases)
    assert all(phrase == phrase.lower() for phrase in phrases)


@pytest.mark.parametrize("cls", EVENTS, ids=lambda cls: cls.__name__)
def test_a_json_line_has_the_phrase_and_every_field(cls, log):
    event = an_event(cls)
    record = recorded(event, log)
    line = JsonLines().format(record)
    assert "\n" not in line
    fields = json.loads(line)
    level, phrase = PHRASES[cls]
    assert phrase in fields.values()
    assert fields["level"] == logging.getLevelName(level).lower()
    assert datetime.fromisoformat(fields["time"]).tzinfo is not None
    for name, logged in zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True):
        value = getattr(event, name)
        assert fields[logged] == (list(value) if isinstance(value, tuple) else value)


@pytest.mark.parametrize("cls", EVENTS, ids=lambda cls: cls.__name__)
def test_a_text_line_has_the_phrase_and_every_field(cls, log):
    event = an_event(cls)
    line = TextLines().format(recorded(event, log))
    assert PHRASES[cls][1] in line
    for name, logged in zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True):
        assert f"{logged}={getattr(event, name)}".replace("(", "").split("'")[0].rstrip("[") in line.replace("(", "")


@pytest.mark.parametrize("cls", EVENTS, ids=lambda cls: cls.__name__)
def test_every_line_names_the_instance(cls, log):
    record = recorded(an_event(cls), log)
    assert json.loads(JsonLines().format(record))["instance"] == "box-1-a0f3"
    assert TextLines().format(record).endswith(" instance=box-1-a0f3")


def test_fields_without_a_value_are_left_out_of_text(log):
    line = TextLines().format(recorded(events.RunAdmitted("run-1", "shop.checkout", None), log))
    assert "key=" not in line
    assert "run_id=run-1" in line


def test_text_is_for_people_and_has_no_more_digits_than_they_read(log):
    event = events.EffectPerformed("run-1", "charge#1", 1, "shop.charge", 12.345678)
    assert "took_ms=12.346" in TextLines().format(recorded(event, log)).split()
    assert json.loads(JsonLines().format(recorded(event, log)))["took_ms"] == 12.345678


@pytest.mark.parametrize("formatter", [JsonLines(), TextLines()])
def test_a_text_of_several_lines_stays_on_one(formatter, log):
    record = recorded(events.EffectGaveUp("run-1", "charge#1", 3, "boom\nsecond\r\nthird"), log)
    assert len(formatter.format(record).splitlines()) == 1


def test_levels_say_who_must_act(log):
    assert PHRASES[events.RunBlocked][0] == logging.ERROR  # a person must act
    assert PHRASES[events.LeaseWasLost][0] == logging.WARNING  # we recover by ourselves
    assert PHRASES[events.RunEnded][0] == logging.INFO
    assert PHRASES[events.BatchCommitted][0] == logging.DEBUG


def test_nothing_is_made_of_an_event_that_nobody_wants_to_see(log):
    record = recorded(events.RunEnded("run-1", "shop.checkout", "completed"), log)
    assert record.levelno == logging.INFO
    log.setLevel(logging.WARNING)
    seen: list[Any] = []
    log.addFilter(seen.append)
    log_events(events.RunEnded("run-1", "shop.checkout", "completed"))
    log.filters.clear()
    assert not seen


# -- HOLDFAST_LOG


@pytest.mark.parametrize(("wanted", "formatter"), [("json", JsonLines), ("text", TextLines)])
def test_lines_go_to_stderr_in_the_form_that_is_asked_for(wanted, formatter, log, monkeypatch, capsys):
    monkeypatch.setenv("HOLDFAST_LOG", wanted)
    monkeypatch.delenv("HOLDFAST_LOG_LEVEL", raising=False)
    configure()
    configure()  # a second Holdfast in one process does not double the lines
    [handler] = log.handlers
    assert type(handler.formatter) is formatter
    assert not log.propagate
    log_events(events.RunEnded("run-1", "shop.checkout", "completed"))
    log_events(events.RunsClaimed(3))  # debug: not by default
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "run ended" in err


@pytest.mark.parametrize(("level", "lines"), [("debug", 2), ("DEBUG", 2), ("warning", 0), ("Info", 1)])
def test_the_level_may_be_chosen(level, lines, log, monkeypatch, capsys):
    monkeypatch.setenv("HOLDFAST_LOG", "json")
    monkeypatch.setenv("HOLDFAST_LOG_LEVEL", level)
    configure()
    log_events(events.RunEnded("run-1", "shop.checkout", "completed"))
    log_events(events.RunsClaimed(3))
    assert len(capsys.readouterr().err.splitlines()) == lines


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"HOLDFAST_LOG": "xml"}, "HOLDFAST_LOG='xml'"),
        ({"HOLDFAST_LOG": "JSON "}, "HOLDFAST_LOG="),
        ({"HOLDFAST_LOG": "json", "HOLDFAST_LOG_LEVEL": "loud"}, "HOLDFAST_LOG_LEVEL"),
    ],
)
def test_a_setting_that_is_not_known_is_refused(variables, says, log, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidConfig, match=says) as caught:
        configure()
    assert caught.value.hint
    assert not log.handlers


def test_without_a_setting_the_application_decides(log, monkeypatch, caplog):
    monkeypatch.delenv("HOLDFAST_LOG", raising=False)
    configure()
    assert log.propagate
    with caplog.at_level(logging.INFO, logger="holdfast"):
        log_events(events.RunEnded("run-1", "shop.checkout", "completed"))
    assert [record.getMessage() for record in caplog.records] == ["run ended"]
    [record] = caplog.records
    assert record.holdfast["run_id"] == "run-1"


def test_where_nobody_has_configured_logging_warnings_are_said_with_their_fields(log, monkeypatch, capsys):
    monkeypatch.delenv("HOLDFAST_LOG", raising=False)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    configure()
    configure()
    log_events(events.StoreTroubled("locked"))
    log_events(events.RunsClaimed(3))
    [line] = capsys.readouterr().err.splitlines()
    assert "store in trouble" in line
    assert "locked" in line


def test_where_the_application_has_configured_logging_nothing_is_said_twice(log, monkeypatch, capsys, caplog):
    monkeypatch.delenv("HOLDFAST_LOG", raising=False)
    configure()
    assert logging.getLogger().handlers  # those of the test runner
    log_events(events.StoreTroubled("locked"))
    assert capsys.readouterr().err == ""
    assert [record.getMessage() for record in caplog.records] == ["store in trouble"]

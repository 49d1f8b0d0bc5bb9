from __future__ import annotations

import typing

import msgspec
import pytest
from msgspec import UNSET, Raw
from msgspec.structs import replace

from holdfast.kernel.journal import Value
from holdfast.kernel.messages import (
    CancelRequest,
    KeyTaken,
    Message,
    OutcomeMessage,
    SignalMessage,
    Watcher,
    blob_of,
    outcome_message,
)
from holdfast.kernel.runs import ENDED, Fenced, Status, with_key_released
from tests.builders import NOW_MS, a_failure, a_run, a_signal, a_value, running


def test_three_statuses_are_ends():
    assert {Status.COMPLETED, Status.FAILED, Status.CANCELLED} == ENDED


def test_the_fence_of_a_run_is_its_epoch_and_nonce():
    run = running(epoch=7, nonce="n")
    assert run.fence == Fenced("run-1", 7, "n")
    assert run.fence != replace(run, nonce="m").fence
    assert run.fence != replace(run, epoch=8).fence


def test_a_watcher_is_told_the_outcome_under_an_id_that_a_repetition_shares():
    run = a_run(status=Status.COMPLETED, epoch=3, output=b'{"json":1}')
    message = outcome_message(run, Watcher("parent", "1.0/pay#1"))
    assert message == outcome_message(run, Watcher("parent", "1.0/pay#1"))
    assert (message.step, message.from_run, message.status) == ("1.0/pay#1", "run-1", Status.COMPLETED)
    assert (message.output, message.error) == (Raw(run.output or b""), UNSET)
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


def test_a_watcher_of_a_failed_run_is_told_why():
    failure = msgspec.json.encode(a_failure())
    message = outcome_message(a_run(status=Status.FAILED, error=failure), Watcher("parent", "pay#1"))
    assert (message.output, message.error) == (UNSET, Raw(failure))


MESSAGES = [
    OutcomeMessage("run-2/1/pay#1", "pay#1", "run-2", Status.COMPLETED, Raw(b'{"json":1}')),
    OutcomeMessage("run-2/1/pay#1", "pay#1", "run-2", Status.FAILED, error=Raw(b'{"type":"ValueError"}')),
    a_signal(payload={"deep": [1, None, "é"]}),
    CancelRequest("cancel/n-1", NOW_MS, "no longer wanted"),
    CancelRequest("cancel/n-1", NOW_MS),
    KeyTaken("key_taken/n-1", "by hand"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_read_back_as_it_was_written(message):
    assert msgspec.json.decode(msgspec.json.encode(message), type=Message) == message


def test_each_kind_of_message_was_tried():
    assert {type(message) for message in MESSAGES} == set(typing.get_args(Message))
    assert SignalMessage in typing.get_args(Message)


def test_only_an_outcome_brings_a_blob_along():
    assert [blob_of(message) for message in MESSAGES] == [None] * len(MESSAGES)


def test_a_second_end_after_a_retry_is_another_message():
    run, watcher = a_run(status=Status.FAILED, epoch=3), Watcher("parent", "pay#1")
    again = replace(run, epoch=5, status=Status.COMPLETED)
    assert outcome_message(run, watcher).id != outcome_message(again, watcher).id
    assert outcome_message(run, watcher).id != outcome_message(run, Watcher("parent", "pay#2")).id


def test_a_message_names_the_blob_that_a_store_has_to_copy_along():
    def told(output: bytes | None) -> str | None:
        return blob_of(outcome_message(a_run(status=Status.COMPLETED, output=output), Watcher("parent", "pay#1")))

    assert told(None) is None
    assert told(msgspec.json.encode(a_value("small"))) is None
    assert told(msgspec.json.encode(Value(blob="d1", size=300_000))) == "d1"


def test_whoever_lost_its_key_can_no_longer_be_revived_at_its_old_fence():
    """A retry decided before the takeover must be refused after it, or two live runs would share a key."""
    holder = a_run(status=Status.FAILED, epoch=2, finished_at_ms=NOW_MS)
    released = with_key_released(holder)
    assert not released.holds_key
    assert released.key == holder.key  # it is still shown
    assert released.fence != holder.fence


def test_a_live_run_that_loses_its_key_keeps_its_owner():
    """It goes on, to record the loss and to clean up: only its key is gone."""
    holder = running(epoch=2)
    assert with_key_released(holder) == replace(holder, holds_key=False)

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st
from msgspec import Raw
from msgspec.structs import replace

from holdfast.errors import UsageError
from holdfast.kernel import hooks, waits
from holdfast.kernel.changes import Alive, TokenHeldBy
from holdfast.kernel.messages import Envelope, SignalMessage
from holdfast.kernel.runs import Status
from holdfast.kernel.waits import Wait
from tests.builders import a_run, a_signal

TEXTS = st.text("ab/0123456789", min_size=1, max_size=6)


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_distinct_hooks_and_dedupe_ids_never_give_one_signal(hook, dedupe, other_hook, other_dedupe):
    same = (hook, dedupe) == (other_hook, other_dedupe)
    assert (hooks.signal_id(hook, dedupe) == hooks.signal_id(other_hook, other_dedupe)) is same


WAYS = {"run": hooks.signal_id, "key": hooks.key_signal_id, "token": hooks.token_signal_id}
NAMES = st.text("ab/ -0123456789", min_size=1, max_size=6) | st.builds("token {}".format, TEXTS)


@given(st.sampled_from(sorted(WAYS)), NAMES, NAMES, st.sampled_from(sorted(WAYS)), NAMES, NAMES)
def test_signals_that_were_sent_in_different_ways_never_have_one_id(way, name, dedupe, other_way, other, other_dedupe):
    same = (way, name, dedupe) == (other_way, other, other_dedupe)
    assert (WAYS[way](name, dedupe) == WAYS[other_way](other, other_dedupe)) is same


@given(NAMES, NAMES)
def test_the_former_id_of_a_signal_to_a_key_or_a_token_is_that_of_a_signal_to_a_hook(name, dedupe):
    """As earlier versions made it. It is looked for where only such signals are known: under the key, or the token."""
    assert hooks.former_id(hooks.key_signal_id(name, dedupe)) == hooks.signal_id(name, dedupe)
    assert hooks.former_id(hooks.token_signal_id(name, dedupe)) == hooks.signal_id(f"token {name}", dedupe)
    assert hooks.former_id(hooks.signal_id(name, dedupe)) == ""


def test_a_signal_has_the_id_of_the_way_in_which_it_is_sent():
    assert hooks.signal("items", b"1", dedupe="d", nonce="n").id == "signal/5/items/d"  # as ever: stores remember it
    assert hooks.signal("items", b"1", dedupe="d", nonce="n", by_key=True).id == "signal/key/5/items/d"
    signal = hooks.token_signal("T", "items", b"1", dedupe="d", nonce="n")
    assert (signal.id, signal.hook, signal.payload, signal.by_key) == ("signal/token/1/T/d", "items", Raw(b"1"), False)
    assert hooks.token_signal("T", "items", b"1", dedupe=None, nonce="n").id == "signal/token/1/T/n"


@pytest.mark.parametrize(("token", "dedupe"), [("", None), ("x" * 256, None), ("T", ""), ("T", "x" * 256)])
def test_tokens_are_as_long_as_keys(token, dedupe):
    with pytest.raises(UsageError):
        hooks.token_signal(token, "items", b"1", dedupe=dedupe, nonce="n")


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_distinct_tokens_never_share_a_scope(namespace, token, other_namespace, other_token):
    same = (namespace, token) == (other_namespace, other_token)
    assert (hooks.token_scope(namespace, token) == hooks.token_scope(other_namespace, other_token)) is same


WORKFLOWS = st.from_regex(r"[ab]{1,3}\.[ab]{1,3}", fullmatch=True)  # as packs name them: never with a slash


@given(TEXTS, WORKFLOWS, TEXTS, TEXTS, WORKFLOWS, TEXTS)
def test_distinct_keys_never_share_a_scope(namespace, workflow, key, other_namespace, other_workflow, other_key):
    same = (namespace, workflow, key) == (other_namespace, other_workflow, other_key)
    one = hooks.key_scope(namespace, workflow, key)
    assert (one == hooks.key_scope(other_namespace, other_workflow, other_key)) is same
    assert one != hooks.token_scope(namespace, f"{workflow}/{key}")


def test_a_signal_with_a_dedupe_id_is_the_same_whoever_sends_it():
    assert a_signal(nonce="n-1") == a_signal(nonce="n-2")
    assert a_signal(dedupe="d-1") != a_signal(dedupe="d-2")
    assert a_signal("items").id != a_signal("approval").id


def test_without_a_dedupe_id_each_is_a_signal_of_its_own():
    assert a_signal(dedupe=None, nonce="n-1").id != a_signal(dedupe=None, nonce="n-2").id


def test_a_signal_carries_its_payload_as_it_is():
    signal = hooks.signal("items", b'{"a": 1}', dedupe=None, nonce="n")
    assert (signal.hook, signal.payload, signal.by_key) == ("items", Raw(b'{"a": 1}'), False)
    assert hooks.signal("items", b"1", dedupe=None, nonce="n", by_key=True).by_key


@pytest.mark.parametrize(("hook", "dedupe"), [("", None), ("x" * 256, None), ("items", ""), ("items", "x" * 256)])
def test_names_and_ids_are_as_long_as_keys(hook, dedupe):
    with pytest.raises(UsageError):
        hooks.signal(hook, b"1", dedupe=dedupe, nonce="n")


def test_a_signal_to_a_run_is_delivered_while_it_lives():
    signal = a_signal()
    change = hooks.to_run("run-1", signal)
    assert change.guard == Alive("run-1")
    assert change.envelopes == (Envelope("run-1", signal),)
    assert change.run is None  # nothing about the run itself is written


def test_a_signal_to_a_key_is_delivered_while_the_run_owns_it():
    """K8: a run that has just been superseded lives on to clean up; the signal is not meant for it."""
    signal = a_signal()
    change = hooks.to_owner("run-1", signal, scope="key/1")
    assert change.guard == Alive("run-1", holds_key=True)
    assert change.envelopes == (Envelope("run-1", signal, "key/1"),)


def test_a_repeated_signal_is_the_same_change_and_another_one_is_not():
    ids = {
        hooks.to_run(run_id, signal).id
        for run_id in ("run-1", "run-2")
        for signal in (a_signal(), a_signal(dedupe="d-2"), a_signal("approval"))
    }
    assert len(ids) == 6
    assert hooks.to_run("run-1", a_signal(nonce="n-9")).id in ids


def test_a_signal_to_a_token_is_delivered_while_the_run_holds_it():
    signal = a_signal()
    change = hooks.to_token("run-1", "default", "token-1", signal)
    assert change.guard == TokenHeldBy("run-1", "default", "token-1")
    assert change.envelopes == (Envelope("run-1", signal, hooks.token_scope("default", "token-1")),)
    assert isinstance(change.envelopes[0].message, SignalMessage)


def test_a_signal_knows_the_token_that_it_was_sent_to():
    assert hooks.token_of(hooks.token_signal_id("a/b", "c/d")) == "a/b"
    assert hooks.token_of(hooks.signal_id("token", "x")) is None
    assert hooks.token_of(hooks.key_signal_id("token", "x")) is None


@pytest.mark.parametrize(
    ("hook", "status", "waits_for", "said"),
    [
        (
            "aproval",
            Status.WAITING,
            ("approval",),
            "it waits for 'approval'. Did you mean 'approval'? The signal is kept",
        ),
        ("stop", Status.WAITING, ("approval", "bill"), "it waits for 'approval', 'bill'. The signal is kept"),
        ("approval", Status.WAITING, ("approval",), ""),
        ("approval", Status.WAITING, (), ""),
        ("approval", Status.WAITING, None, ""),
        ("aproval", Status.RUNNING, ("approval",), ""),  # what it waited for when it was let go, before
        ("aproval", Status.PENDING, ("approval",), ""),
    ],
)
def test_the_sender_is_told_of_other_hooks_only_if_the_run_is_known_to_wait_for_them(hook, status, waits_for, said):
    timer = Wait("timer", "sleep#1")
    known = None if waits_for is None else waits.encode([timer, *(Wait("hook", name) for name in waits_for)])
    run = replace(a_run(), status=status, waits=known)
    assert said in hooks.caution(run, hook)
    assert bool(hooks.caution(run, hook)) is bool(said)

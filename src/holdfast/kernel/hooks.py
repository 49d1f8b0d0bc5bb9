"""Hooks and signals: names, ids, and where an id counts.

Rules
- A signal is received once per dedupe id and hook. Without a dedupe id every call is a signal of its own.
- The id counts in the run that received it; for signal-or-start also under the key, for a token also under the
  token, so that a repeated call meets the first one even if another run owns the key or the token by now.
- It is remembered as long as the run that received it.
"""

from __future__ import annotations

from msgspec import Raw

from holdfast.kernel import ids, keys
from holdfast.kernel.changes import Alive, Change, Envelope, Signal, TokenHeldBy


def signal_id(hook: str, dedupe: str) -> str:
    """The id of a signal; distinct (hook, dedupe) never give the same one."""
    return f"signal/{len(hook)}/{hook}/{dedupe}"


def signal(hook: str, payload: bytes, *, dedupe: str | None, nonce: str, by_key: bool = False) -> Signal:
    """A signal; `nonce` makes it one of its own if no dedupe id says which one it is."""
    keys.checked(hook, what="hook name")
    if dedupe is not None:
        keys.checked(dedupe, what="dedupe id")
    return Signal(signal_id(hook, nonce if dedupe is None else dedupe), hook, Raw(payload), by_key)


def key_scope(namespace: str, workflow: str, key: str) -> str:
    return f"key/{len(namespace)}/{namespace}/{ids.joined(workflow, key)}"


def token_scope(namespace: str, token: str) -> str:
    return f"token/{len(namespace)}/{namespace}/{token}"


def to_run(run_id: str, message: Signal) -> Change:
    """Deliver a signal to a run, as long as it has not ended."""
    return Change(f"{run_id}/{message.id}", Alive(run_id), envelopes=(Envelope(run_id, message),))


def to_owner(run_id: str, message: Signal, *, scope: str) -> Change:
    """Deliver a signal to the owner of a key, as long as it lives and owns the key."""
    guard = Alive(run_id, holds_key=True)
    return Change(f"{run_id}/{message.id}", guard, envelopes=(Envelope(run_id, message, scope),))


def to_token(run_id: str, namespace: str, token: str, message: Signal) -> Change:
    """Deliver a signal to the run that holds a token, as long as it does."""
    guard = TokenHeldBy(run_id, namespace, token)
    envelope = Envelope(run_id, message, token_scope(namespace, token))
    return Change(f"{run_id}/{message.id}", guard, envelopes=(envelope,))

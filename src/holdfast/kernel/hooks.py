"""Hooks and signals: names, ids, and where an id counts.

    sent to    the id counts                          form of the id
    ─────────  ─────────────────────────────────────  ───────────────────────────────────────────
    a run      in the run, per hook                   signal/<length>/<hook>/<dedupe>
    a key      under the key, per hook                signal/key/<length>/<hook>/<dedupe>
    a token    under the token, whatever its hook is  signal/token/<length>/<token>/<dedupe>

Rules
- A signal is received once per dedupe id and place. Without a dedupe id every call is a signal of its own.
- All signals to a run lie in one inbox, which knows them by their ids. So the three ways have ids of their own: a
  dedupe id of one never meets that of another.
- What was sent to a key or a token is known there, so that a repeated call meets the first one even if another run owns
  the key or the token by now.
- It is remembered as long as the run that received it.
- Signals to keys and tokens once had ids of the first form, a token as if it were a hook called `token <token>`. Under
  its key or token such a signal is still known: there the old form has one meaning only.
"""

from __future__ import annotations

from difflib import get_close_matches

from msgspec import Raw

from holdfast.kernel import ids, keys, waits
from holdfast.kernel.changes import Alive, Change, TokenHeldBy
from holdfast.kernel.messages import Envelope, SignalMessage
from holdfast.kernel.runs import Run, Status

_KEY, _TOKEN = "key", "token"  # no length looks like these
_BY_TOKEN = f"signal/{_TOKEN}/"
_AS_A_HOOK = "token "  # what went before a token


def signal_id(hook: str, dedupe: str) -> str:
    """The id of a signal to a run; distinct (hook, dedupe) never give the same one."""
    return f"signal/{len(hook)}/{hook}/{dedupe}"


def key_signal_id(hook: str, dedupe: str) -> str:
    """The id of a signal to a key."""
    return f"signal/{_KEY}/{len(hook)}/{hook}/{dedupe}"


def token_signal_id(token: str, dedupe: str) -> str:
    """The id of a signal to a token."""
    return f"signal/{_TOKEN}/{len(token)}/{token}/{dedupe}"


def token_of(signal_id: str) -> str | None:
    """The token that this signal was sent to; None if it was sent to a run or to a key."""
    if not signal_id.startswith(_BY_TOKEN):
        return None
    length, _, rest = signal_id.removeprefix(_BY_TOKEN).partition("/")
    return rest[: int(length)]


def former_id(signal_id: str) -> str:
    """The id that this signal to a key or a token would have had when those had none of their own."""
    _, way, rest = signal_id.split("/", 2)
    if way == _TOKEN:
        length, _, rest = rest.partition("/")
        return f"signal/{int(length) + len(_AS_A_HOOK)}/{_AS_A_HOOK}{rest}"
    return f"signal/{rest}" if way == _KEY else ""


def signal(hook: str, payload: bytes, *, dedupe: str | None, nonce: str, by_key: bool = False) -> SignalMessage:
    """A signal to a run or to a key; `nonce` makes it one of its own if no dedupe id says which one it is."""
    keys.checked(hook, what="hook name")
    name = _checked(dedupe, nonce)
    return SignalMessage(key_signal_id(hook, name) if by_key else signal_id(hook, name), hook, Raw(payload), by_key)


def token_signal(token: str, hook: str, payload: bytes, *, dedupe: str | None, nonce: str) -> SignalMessage:
    """A signal to a token, for the hook that was opened with it."""
    keys.checked(token, what="token")
    return SignalMessage(token_signal_id(token, _checked(dedupe, nonce)), hook, Raw(payload))


def _checked(dedupe: str | None, nonce: str) -> str:
    return nonce if dedupe is None else keys.checked(dedupe, what="dedupe id")


def key_scope(namespace: str, workflow: str, key: str) -> str:
    return f"key/{len(namespace)}/{namespace}/{ids.joined(workflow, key)}"


def token_scope(namespace: str, token: str) -> str:
    return f"token/{len(namespace)}/{namespace}/{token}"


def to_run(run_id: str, message: SignalMessage) -> Change:
    """Deliver a signal to a run, as long as it has not ended."""
    return Change(f"{run_id}/{message.id}", Alive(run_id), envelopes=(Envelope(run_id, message),))


def to_owner(run_id: str, message: SignalMessage, *, scope: str) -> Change:
    """Deliver a signal to the owner of a key, as long as it lives and owns the key."""
    guard = Alive(run_id, holds_key=True)
    return Change(f"{run_id}/{message.id}", guard, envelopes=(scoped(run_id, message, scope),))


def to_token(run_id: str, namespace: str, token: str, message: SignalMessage) -> Change:
    """Deliver a signal to the run that holds a token, as long as it does."""
    guard = TokenHeldBy(run_id, namespace, token)
    envelope = scoped(run_id, message, token_scope(namespace, token))
    return Change(f"{run_id}/{message.id}", guard, envelopes=(envelope,))


def scoped(run_id: str, message: SignalMessage, scope: str) -> Envelope:
    """A signal whose id counts beyond the run that gets it, in the form of today and in the former one."""
    return Envelope(run_id, message, scope, former_id(message.id))


def caution(run: Run, hook: str) -> str:
    """What there is to say to the sender of a signal if the run waits for other hooks than this; else nothing.

    It may be right all the same: a signal may come before its hook is opened, and of a run in memory it is not known
    what it waits for.
    """
    if run.status is not Status.WAITING or run.waits is None:
        return ""
    open_hooks = [wait.name for wait in waits.decode(run.waits) if wait.kind == "hook"]
    if not open_hooks or hook in open_hooks:
        return ""
    listed = ", ".join(map(repr, open_hooks))
    meant = get_close_matches(hook, open_hooks, n=1)
    question = f" Did you mean {meant[0]!r}?" if meant else ""
    return (
        f"run {run.id} has no open hook {hook!r}: it waits for {listed}.{question} "
        "The signal is kept until its code opens that hook."
    )

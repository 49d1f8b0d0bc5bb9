"""Signals: payloads for the hooks of running workflows, delivered durably and once."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.engine.access import Access
from holdfast.engine.events import RunSignalled
from holdfast.errors import NotAllowedNow, PayloadRefused, UnknownHook, UnknownRun
from holdfast.kernel import hooks, keys, shapes
from holdfast.kernel.changes import Committed, HookOpen, Run, Signal


class Signals:
    """Delivers to a run, or to whoever holds a token."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def signal(self, hook: str, payload: Any, dedupe: str | None, *, by_key: bool = False) -> Signal:
        """A signal, ready to be sent; the same one however often its sending has to be tried."""
        data = self._access.codec.encode(payload, what=f"the payload for hook {hook!r}")
        return hooks.signal(hook, data, dedupe=dedupe, nonce=self._access.ids.nonce(), by_key=by_key)

    async def to_run(self, run_id: str, hook: str, payload: Any, dedupe: str | None) -> Run:
        self._access.require_open()
        message = self.signal(hook, payload, dedupe)
        check(await self._access.store.hook(run_id, hook), message)
        answer = await self._access.commit(hooks.to_run(run_id, message))
        if isinstance(answer, Committed):
            assert answer.run is not None
            self._access.emit(RunSignalled(answer.run.id, hook))
            return answer.run
        if answer.current is None:
            raise UnknownRun(f"no run has the id {run_id!r}")
        raise NotAllowedNow(
            f"run {run_id} is {answer.current.status}, so nobody would read a signal to its hook {hook!r}",
            hint="Start a new run; start(call, signal=...) does either in one step.",
        )

    async def to_token(self, token: str, payload: Any, dedupe: str | None) -> Run:
        access = self._access
        access.require_open()
        keys.checked(token, what="token")
        nonce = access.ids.nonce()
        while True:
            known = await access.store.hook_of_token(access.namespace, token)
            hook = HookOpen("", token) if known is None else known.hook
            data = access.codec.encode(payload, what=f"the payload for token {token!r}")
            message = hooks.token_signal(token, hook.name or "-", data, dedupe=dedupe, nonce=nonce)
            check(hook, message)
            holder = "" if known is None else known.run.id
            answer = await access.commit(hooks.to_token(holder, access.namespace, token, message))
            if isinstance(answer, Committed):
                assert answer.run is not None
                access.emit(RunSignalled(answer.run.id, hook.name))
                return answer.run
            again = await access.store.hook_of_token(access.namespace, token)
            if again is None or again.run.finished_ms is not None:
                raise UnknownHook(token)


def check(hook: HookOpen | None, message: Signal) -> None:
    """Raises `PayloadRefused` if what is known about the hook says that the payload does not fit."""
    if hook is None or hook.schema is None:
        return
    value = msgspec.json.decode(message.payload)
    why = shapes.misfit(value, msgspec.json.decode(hook.schema))
    if why is not None:
        raise PayloadRefused(message.hook, why)

"""Signals: payloads for the hooks of running workflows, delivered durably and once."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.engine.api.scope import Scope
from holdfast.errors import NotAllowedNow, PayloadRefused, UnknownHook, UnknownRun
from holdfast.events import RunSignalled
from holdfast.kernel import hooks, json_schema, keys
from holdfast.kernel.changes import Committed, HookOpen
from holdfast.kernel.messages import SignalMessage
from holdfast.kernel.runs import Run


class Signals:
    """Delivers to a run, or to the run that holds a token."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def signal(self, hook: str, payload: Any, dedupe: str | None, *, by_key: bool = False) -> SignalMessage:
        """A signal, ready to be sent; the same one however often its sending has to be tried."""
        data = self._scope.codec.encode(payload, what=f"the payload for hook {hook!r}")
        return hooks.signal(hook, data, dedupe=dedupe, nonce=self._scope.ids.nonce(), by_key=by_key)

    async def to_run(self, run_id: str, hook: str, payload: Any, dedupe: str | None) -> str:
        """Deliver to a run; what there is to say about it, if its code seems to wait for another hook."""
        self._scope.require_open()
        message = self.signal(hook, payload, dedupe)
        known = await self._scope.store.hook(run_id, hook)
        check(known, message)
        answer = await self._scope.commit(hooks.to_run(run_id, message))
        if isinstance(answer, Committed):
            assert answer.run is not None
            self._scope.emit(RunSignalled(answer.run.id, hook))
            return hooks.caution(answer.run, hook) if known is None else ""
        if answer.current is None:
            raise UnknownRun(f"no run has the id {run_id!r}")
        raise NotAllowedNow(
            f"run {run_id} is {answer.current.status}, so no code would read a signal to its hook {hook!r}",
            hint="Start a new run; start(call, signal=...) does either in one step.",
        )

    async def to_token(self, token: str, payload: Any, dedupe: str | None) -> Run:
        scope = self._scope
        scope.require_open()
        keys.checked(token, what="token")
        nonce = scope.ids.nonce()
        while True:
            known = await scope.store.hook_of_token(scope.namespace, token)
            hook = HookOpen("", token) if known is None else known.hook
            data = scope.codec.encode(payload, what=f"the payload for token {token!r}")
            message = hooks.token_signal(token, hook.name or "-", data, dedupe=dedupe, nonce=nonce)
            check(hook, message)
            holder = "" if known is None else known.run.id
            answer = await scope.commit(hooks.to_token(holder, scope.namespace, token, message))
            if isinstance(answer, Committed):
                assert answer.run is not None
                scope.emit(RunSignalled(answer.run.id, hook.name))
                return answer.run
            again = await scope.store.hook_of_token(scope.namespace, token)
            if again is None or again.run.finished_at_ms is not None:
                raise UnknownHook(token)


def check(hook: HookOpen | None, message: SignalMessage) -> None:
    """Raises `PayloadRefused` if what is known about the hook says that the payload does not fit."""
    if hook is None or hook.schema is None:
        return
    value = msgspec.json.decode(message.payload)
    why = json_schema.misfit(value, msgspec.json.decode(hook.schema))
    if why is not None:
        raise PayloadRefused(message.hook, why)

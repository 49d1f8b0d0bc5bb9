"""For authors: a Pack holds the kernels, effects and workflows of a domain.

Calling a workflow or an effect builds a **call**: pure data, nothing is executed. Inside a workflow, awaiting a
call performs it durably. Outside, `hf.start(call)` admits it.

Everything that can be wrong with a definition is said when its module is imported: a workflow that is not async,
a key that names no parameter, `retry=` where there must be none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Generator, Mapping
from typing import Any, Generic, Literal, ParamSpec, TypeVar, cast, overload

import msgspec
from msgspec.structs import replace

from holdfast.errors import UsageError
from holdfast.kernel import keys
from holdfast.kernel.retries import DEFAULT, ONCE, Retry
from holdfast.kernel.units import Duration, milliseconds
from holdfast.signatures import Signature
from holdfast.workflow import running_scope

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K", bound=Callable[..., Any])
Safety = Literal["keyed", "natural", "once"]
Reconcile = Callable[[str], Any]

_ONLY_EFFECTS_RETRY = (
    "Retries belong to effects alone: only they touch the world. A workflow is continued, not repeated, and a kernel "
    "gives the same answer every time. Put retry= on the effect that may fail."
)


class Call(Generic[R]):
    """A workflow or an effect with its arguments, not yet executed."""

    __slots__ = ("arguments", "target")

    def __init__(self, target: Effect[..., R] | Workflow[..., R], arguments: dict[str, Any]) -> None:
        self.target = target
        self.arguments = arguments

    def __await__(self) -> Generator[Any, None, R]:
        scope = running_scope()
        if scope is None:
            kind, now = (
                ("workflow", "hf.start(call)") if isinstance(self.target, Workflow) else ("effect", "a workflow")
            )
            raise UsageError(
                f"{kind} {self.target.name!r} was awaited outside a workflow", hint=f"Pass the call to {now} instead."
            )
        return cast("Generator[Any, None, R]", scope.perform(self).__await__())

    def __repr__(self) -> str:
        listed = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.target.name}({listed})"


class EffectPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How an effect is carried out. Operators may change it without touching the effect: `pack.with_policy`."""

    retry: Retry
    timeout_ms: int | None
    safety: Safety
    reconcile: Reconcile | None


class Effect(Generic[P, R]):
    """A function that touches the world: the only place where a retry may live."""

    def __init__(self, fn: Callable[P, Any], *, pack: str, key: str | None, policy: EffectPolicy) -> None:
        self.fn = fn
        self.name = f"{pack}.{_name_of(fn)}"
        self.step_name = _name_of(fn)
        self.signature = Signature(fn, owner=f"effect {self.name!r}")
        self.key = (
            None if key is None else keys.parse(key, parameters=self.signature.names, owner=f"effect {self.name!r}")
        )
        self.policy = policy
        self.input_name = f"the input of {self.name}"  # as errors name them
        self.result_name = f"the result of {self.name}"
        self.is_async = inspect.iscoroutinefunction(fn)
        self.__doc__ = fn.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        return Call(self, self.signature.bind(args, kwargs))


class Workflow(Generic[P, R]):
    """An async function that composes effects, waits and children durably."""

    def __init__(
        self,
        fn: Callable[P, Coroutine[Any, Any, R]],
        *,
        pack: str,
        key: str | None,
        retention_ms: int,
        queue: str,
    ) -> None:
        if not inspect.iscoroutinefunction(fn):
            raise UsageError(f"workflow {_name_of(fn)!r} is not async", hint="Write it as `async def`.")
        self.fn = fn
        self.name = f"{pack}.{_name_of(fn)}"
        self.step_name = _name_of(fn)
        self.signature = Signature(fn, owner=f"workflow {self.name!r}")
        self.key = (
            None if key is None else keys.parse(key, parameters=self.signature.names, owner=f"workflow {self.name!r}")
        )
        self.retention_ms = retention_ms
        self.queue = queue
        self.input_name = f"the input of {self.name}"  # as errors name them
        self.result_name = f"the result of {self.name}"
        self.__doc__ = fn.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        return Call(self, self.signature.bind(args, kwargs))


class Pack:
    """A domain: the unit of authoring."""

    def __init__(self, name: str) -> None:
        if not name.isidentifier():
            raise UsageError(
                f"{name!r} is not a pack name", hint="Use letters, digits and underscores, such as 'shop'."
            )
        self.name = name
        self.effects: dict[str, Effect[..., Any]] = {}
        self.workflows: dict[str, Workflow[..., Any]] = {}
        self.kernels: dict[str, Callable[..., Any]] = {}
        self.policies: dict[str, EffectPolicy] = {}

    @overload
    def kernel(self, fn: K, /) -> K: ...
    @overload
    def kernel(self, fn: None = None, /) -> Callable[[K], K]: ...
    def kernel(self, fn: K | None = None, /, **refused: object) -> K | Callable[[K], K]:
        """A pure function of the domain. It stays what it is: call it like any function."""
        _refuse("kernel", refused)

        def decorate(fn: K) -> K:
            if inspect.iscoroutinefunction(fn):
                raise UsageError(
                    f"kernel {_name_of(fn)!r} is async", hint="A kernel does no I/O: write it as a plain `def`."
                )
            self._claim_name(_name_of(fn))
            self.kernels[_name_of(fn)] = fn
            return fn

        return decorate if fn is None else decorate(fn)

    @overload
    def effect(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Effect[P, R]: ...
    @overload
    def effect(self, fn: Callable[P, R], /) -> Effect[P, R]: ...
    @overload
    def effect(
        self,
        fn: None = None,
        /,
        *,
        key: str | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        safety: Safety = "keyed",
        reconcile: Reconcile | None = None,
    ) -> _EffectDecorator: ...
    def effect(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        key: str | None = None,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        safety: Safety = "keyed",
        reconcile: Reconcile | None = None,
        **refused: object,
    ) -> Any:
        """A function that touches the world, async or sync (then it runs in a thread).

        `safety` says what a repetition means: "keyed", the world recognises `effect_key()`; "natural", a repetition
        does no harm; "once", it must never be called again unless `reconcile(key)` says that it did not happen.
        """
        _refuse("effect", refused)
        _check_options("effect", fn, key)
        if retry is not None and not isinstance(retry, Retry):
            raise UsageError(f"retry={retry!r} is not a retry policy", hint="Write retry=Retry(attempts=5).")
        if reconcile is not None and not callable(reconcile):
            raise UsageError(f"reconcile={reconcile!r} cannot be called", hint="Pass a function that takes the key.")
        if safety not in {"keyed", "natural", "once"}:
            raise UsageError(f"safety={safety!r} is not known", hint="Use 'keyed', 'natural' or 'once'.")
        if reconcile is not None and safety != "once":
            raise UsageError("reconcile= is only asked for an effect with safety='once'", hint="Add safety='once'.")
        policy = EffectPolicy(
            retry=retry or (ONCE if safety == "once" else DEFAULT),
            timeout_ms=None if timeout is None else milliseconds(timeout),
            safety=safety,
            reconcile=reconcile,
        )

        def decorate(fn: Callable[P, Any]) -> Effect[P, Any]:
            if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
                raise UsageError(f"effect {_name_of(fn)!r} is a generator", hint="Return a list instead of yielding.")
            self._claim_name(_name_of(fn))
            effect: Effect[P, Any] = Effect(fn, pack=self.name, key=key, policy=policy)
            self.effects[effect.name] = effect
            return effect

        return decorate if fn is None else decorate(fn)

    @overload
    def workflow(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
    @overload
    def workflow(
        self, fn: None = None, /, *, key: str | None = None, retention: Duration = "30d", queue: str = "default"
    ) -> _WorkflowDecorator: ...
    def workflow(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        key: str | None = None,
        retention: Duration = "30d",
        queue: str = "default",
        **refused: object,
    ) -> Any:
        """An async function that composes effects, waits and children durably.

        A finished run keeps its key and its result for `retention`. `queue` says which workers execute it.
        """
        _refuse("workflow", refused)
        _check_options("workflow", fn, key)
        retention_ms = milliseconds(retention)

        def decorate(fn: Callable[P, Coroutine[Any, Any, R]]) -> Workflow[P, R]:
            self._claim_name(_name_of(fn))
            workflow = Workflow(fn, pack=self.name, key=key, retention_ms=retention_ms, queue=queue)
            self.workflows[workflow.name] = workflow
            return workflow

        return decorate if fn is None else decorate(fn)

    def with_policy(
        self,
        effect: str,
        *,
        retry: Retry | None = None,
        timeout: Duration | None = None,
        reconcile: Reconcile | None = None,
    ) -> Pack:
        """This pack with another recovery policy for one effect. The domain's code stays as it is."""
        name = effect if "." in effect else f"{self.name}.{effect}"
        if name not in self.effects:
            known = ", ".join(sorted(self.effects)) or "none"
            raise UsageError(f"pack {self.name!r} has no effect {effect!r}", hint=f"Its effects: {known}.")
        before = self.policies.get(name, self.effects[name].policy)
        copy = Pack(self.name)
        copy.effects, copy.workflows, copy.kernels = self.effects, self.workflows, self.kernels
        copy.policies = self.policies | {
            name: replace(
                before,
                retry=retry or before.retry,
                timeout_ms=before.timeout_ms if timeout is None else milliseconds(timeout),
                reconcile=reconcile or before.reconcile,
            )
        }
        return copy

    def _claim_name(self, name: str) -> None:
        if any(name in names for names in (self.kernels, _short(self.effects), _short(self.workflows))):
            raise UsageError(f"pack {self.name!r} defines {name!r} twice", hint="Rename one of them.")


class _EffectDecorator:
    """Typing only: what `@pack.effect(...)` does to a function."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Effect[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Effect[P, R]: ...
    def __call__(self, fn: Callable[..., Any], /) -> Any: ...


class _WorkflowDecorator:
    """Typing only: what `@pack.workflow(...)` does to a function."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...


def _short(names: Mapping[str, object]) -> set[str]:
    return {name.partition(".")[2] for name in names}


def _name_of(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__name__", type(fn).__name__)


def _check_options(kind: str, fn: object, key: object) -> None:
    if fn is not None and not callable(fn):
        raise UsageError(f"{kind} was given {fn!r} where the function belongs", hint=f"Write @pack.{kind}(key=...).")
    if key is not None and not isinstance(key, str):
        raise UsageError(f"key={key!r} is not a template", hint="Write text such as 'charge:{order}'.")


def _refuse(kind: str, options: Mapping[str, object]) -> None:
    if "retry" in options:
        raise UsageError(f"retry= was given to a {kind}", hint=_ONLY_EFFECTS_RETRY)
    if options:
        raise UsageError(f"{kind} does not take {', '.join(sorted(options))}", hint="Check the spelling of the option.")

"""For authors: a Pack holds the kernels, effects and workflows of a domain.

Calling a workflow or an effect builds a **call**: pure data, nothing is executed. Inside a workflow, awaiting a
call performs it durably. Outside, `hf.start(call)` admits it.

Everything that can be wrong with a definition is said when its module is imported: a workflow that is not async,
a key that names no parameter, `retry=` where there must be none.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, get_args, overload

import msgspec
from msgspec.structs import replace

from holdfast import calls
from holdfast.calls import EffectCall, ItemCall
from holdfast.errors import UsageError
from holdfast.kernel import batches, flow_rules, keys, lane_options, markers as states
from holdfast.kernel.batches import Batch
from holdfast.kernel.breakers import Breaker
from holdfast.kernel.cancels import OUTCOMES, Outcome
from holdfast.kernel.debounces import Debounce
from holdfast.kernel.effect_limits import Limit
from holdfast.kernel.effect_rules import EffectRules, check_alike, rules_of
from holdfast.kernel.flow_rules import RuleOptions, Subject
from holdfast.kernel.lane_options import OnBlocked
from holdfast.kernel.lanes import PARKED_MAX
from holdfast.kernel.rates import Rate
from holdfast.kernel.retries import DEFAULT, ONCE, Retry
from holdfast.kernel.timeouts import OnTimeout
from holdfast.kernel.times import Millis
from holdfast.kernel.units import Duration, milliseconds
from holdfast.resources import Resource
from holdfast.signatures import Signature

if TYPE_CHECKING:
    from holdfast.calls import WorkflowCall as Call
else:
    from holdfast.calls import Call

__all__ = [
    "Batch",
    "Breaker",
    "Call",
    "Debounce",
    "Effect",
    "EffectCall",
    "EffectPolicy",
    "ItemCall",
    "Limit",
    "Markers",
    "OnBlocked",
    "OnFailure",
    "OnTimeout",
    "Pack",
    "Rate",
    "Reconcile",
    "Retry",
    "Safety",
    "Versions",
    "Workflow",
]

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K", bound=Callable[..., Any])
Safety = Literal["keyed", "natural", "once"]
Versions = Literal["preferred", "pinned"]
Reconcile = Callable[[str], Any]
OnFailure = Literal["keep", "undo"]
Markers = Sequence[str] | Mapping[str, Sequence[str]]
UNDO_RESULT = "result"  # the parameter by which an undo gets the result of what it undoes

_ONLY_EFFECTS_RETRY = (
    "Retries belong to effects alone: only they touch the world. A workflow is continued, not repeated, and a kernel "
    "gives the same answer every time. Put retry= on the effect that may fail."
)


class EffectPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How an effect is carried out. Operators may change it without touching the effect: `pack.with_policy`."""

    retry: Retry
    timeout_ms: Millis | None
    safety: Safety
    reconcile: Reconcile | None


class Effect(Generic[P, R]):
    """A function that touches the world: the only place where a retry may live."""

    def __init__(
        self,
        fn: Callable[P, Any],
        *,
        pack: str,
        key: str | None,
        policy: EffectPolicy,
        undo: Effect[..., Any] | None,
        remote: bool = False,
        rules: EffectRules | None = None,
    ) -> None:
        self.fn = fn
        self.name = f"{pack}.{_name_of(fn)}"
        self.step_name = _name_of(fn)
        self.undo = undo
        self.has_counterpart = undo is not None  # it can be undone, or undoes another
        self.is_undo = False
        self.signature = Signature(fn, owner=f"effect {self.name!r}")
        self.key = (
            None if key is None else keys.parse(key, parameters=self.signature.names, owner=f"effect {self.name!r}")
        )
        self.signature.check_early(self.key, arguments=False)  # they are never read back: what is stored is a digest
        self.policy = policy
        self.described = f"effect {self.name}"  # as errors name it
        self.input_name = f"the input of {self.name}"
        self.result_name = f"the result of {self.name}"
        self.is_async = inspect.iscoroutinefunction(fn)
        self.remote = remote
        self.rules = rules  # what stands before it
        # In the task of its run: it needs no thread and no other process, and nothing has to let it begin.
        self.runs_here = self.is_async and not remote and rules is None
        self.is_plain = self.runs_here and not self.signature.resources  # nothing has to be had before it is called
        self.__doc__ = fn.__doc__
        if undo is not None:
            self._check_undo(undo)
            undo.has_counterpart = undo.is_undo = True
        if remote and self.signature.resources:
            raise UsageError(
                f"effect {self.name!r} is remote and uses {', '.join(self.signature.resources)}",
                hint="It is performed by another process: open there what it needs.",
            )

    def _check_undo(self, undo: Effect[..., Any]) -> None:
        unknown = sorted(undo.signature.required - self.signature.names - {UNDO_RESULT})
        if unknown:
            raise UsageError(
                f"effect {self.name!r} cannot be undone by {undo.name!r}, which needs {', '.join(unknown)}",
                hint=f"An undo takes parameters of the effect it undoes, by name, and {UNDO_RESULT!r}.",
            )

    @property
    def undo_needs_result(self) -> bool:
        """Whether it can be undone only if its result is known."""
        return self.undo is not None and UNDO_RESULT in self.undo.signature.names

    def undo_call(self, arguments: Mapping[str, Any], result: Any) -> calls.Call[Any]:
        """The call that undoes this effect, performed with these arguments and this result."""
        assert self.undo is not None
        given = {**arguments, UNDO_RESULT: result}
        signature = self.undo.signature
        undo = calls.Call(
            self.undo, signature.bind((), {name: value for name, value in given.items() if name in signature.names})
        )
        undo.is_taken = True  # the engine performs it
        return undo

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> EffectCall[R]:
        return calls.Call(self, self.signature.bind(args, kwargs))

    def __repr__(self) -> str:
        return f"<effect {self.name!r}>"


class WorkflowTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What a workflow declares about itself, beyond its code."""

    retention_ms: Millis
    queue: str
    markers: Markers
    version: str | None
    versions: Versions
    outcomes: tuple[Outcome, ...] | None
    timeout_ms: Millis | None = None  # how long a run may take
    on_timeout: OnTimeout = "fail"
    undo_ms: Millis | None = None  # how long what a failed run did may be undone; None: it is not
    record_inputs: bool | None = None
    lane: str | None = None
    width: int | None = None
    lane_max: int = PARKED_MAX
    on_blocked: OnBlocked = "keep"
    flow: RuleOptions = RuleOptions()


class Workflow(Generic[P, R]):
    """An async function that composes effects, waits and children durably."""

    def __init__(
        self,
        fn: Callable[P, Coroutine[Any, Any, R]],
        *,
        pack: str,
        key: str | None,
        traits: WorkflowTraits,
    ) -> None:
        if not inspect.iscoroutinefunction(fn):
            raise UsageError(f"workflow {_name_of(fn)!r} is not async", hint="Write it as `async def`.")
        self.fn = fn
        self.name = f"{pack}.{_name_of(fn)}"
        self.step_name = _name_of(fn)
        self.signature = Signature(fn, owner=f"workflow {self.name!r}")
        if self.signature.resources:
            raise UsageError(
                f"workflow {self.name!r} uses {', '.join(self.signature.resources)}",
                hint="Only effects touch the world: use the resource in an effect, and call that.",
            )
        self.key = (
            None if key is None else keys.parse(key, parameters=self.signature.names, owner=f"workflow {self.name!r}")
        )
        if self.key is not None:
            keys.check_start(self.key)
        self.lane = lane_options.declared(
            traits.lane,
            width=traits.width,
            parked_max=traits.lane_max,
            on_blocked=traits.on_blocked,
            parameters=self.signature.names,
            owner=f"workflow {self.name!r}",
        )
        self.signature.check_early(self.key, self.lane.template, arguments=True)
        self.retention_ms = traits.retention_ms
        self.queue = traits.queue
        self.version = traits.version
        self.versions: Versions = traits.versions
        self.outcomes = traits.outcomes
        self.undo_ms = traits.undo_ms
        self.record_inputs = traits.record_inputs
        self.timeout_ms = traits.timeout_ms
        self.on_timeout: OnTimeout = traits.on_timeout
        self.markers = states.declared(traits.markers, owner=f"workflow {self.name!r}")
        self.flow = traits.flow
        self.rules = flow_rules.declared(traits.flow, self._subject())
        self.input_name = f"the input of {self.name}"  # as errors name them
        self.result_name = f"the result of {self.name}"
        self.__doc__ = fn.__doc__

    def _subject(self) -> Subject:
        names = self.signature.names
        fields = None
        if self.flow.batch is not None and len(names) == 1 and self.signature.knows_types:
            fields = batches.fields_of(self.item_type)
        return Subject(
            owner=f"workflow {self.name!r}",
            parameters=names,
            has_key=self.key is not None,
            has_lane=self.lane.template is not None,
            item_fields=fields,
        )

    def check_batch(self) -> None:
        """Raises `UsageError` if the items of its batches cannot be gathered: their type is known by now."""
        if self.flow.batch is not None:
            flow_rules.declared(self.flow, replace(self._subject(), item_fields=batches.fields_of(self.item_type)))

    @property
    def item_type(self) -> Any:
        """The type of an item of its batches."""
        [parameter] = self.signature.names
        return batches.item_type(self.signature.type_of(parameter), owner=f"workflow {self.name!r}")

    def item(self, item: Any) -> ItemCall[Any]:
        """One item for a batch of this workflow: `await hf.start(embed.item(chunk))`. Its result is its own."""
        if self.rules.batch is None:
            raise UsageError(
                f"workflow {self.name!r} has no batch=",
                hint="Start it: hf.start(call). Items are for batch=Batch(...).",
            )
        return ItemCall(self, item)

    @property
    def steps_aside(self) -> bool:
        """Whether a blocked run gives up its place in its lane."""
        return self.lane.on_blocked == "step_aside"

    @property
    def pauses(self) -> bool:
        """Whether a cancelled run stands still, to be resumed, instead of being unwound."""
        return self.outcomes is not None and "resumable" in self.outcomes

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        return calls.Call(self, self.signature.bind(args, kwargs))

    def __repr__(self) -> str:
        return f"<workflow {self.name!r}>"


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
        self.resources: dict[str, Resource[Any]] = {}
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
    def resource(self, fn: Callable[[], AsyncIterator[R]], /) -> Resource[R]: ...
    @overload
    def resource(self, fn: Callable[[], Iterator[R]], /) -> Resource[R]: ...
    @overload
    def resource(self, fn: Callable[[], Coroutine[Any, Any, R]], /) -> Resource[R]: ...
    @overload
    def resource(self, fn: Callable[[], R], /) -> Resource[R]: ...
    def resource(self, fn: Callable[[], Any], /) -> Resource[Any]:
        """Something that effects share, such as a client or a pool: taken by `name: Type = resource.shared`.

        The function yields it, and closes it after that, or just returns it. It is called in each process by the first
        effect that uses the resource, and what it yielded is closed when the worker stops.
        """
        _check_options("resource", fn, None)
        self._claim_name(_name_of(fn))
        made: Resource[Any] = Resource(fn, pack=self.name)
        self.resources[made.name] = made
        return made

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
        undo: Effect[..., Any] | None = None,
        reconcile: Reconcile | None = None,
        remote: bool = False,
        breaker: Breaker | None = None,
        limit: Limit | None = None,
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
        undo: Effect[..., Any] | None = None,
        reconcile: Reconcile | None = None,
        remote: bool = False,
        breaker: Breaker | None = None,
        limit: Limit | None = None,
        **refused: object,
    ) -> Any:
        """A function that touches the world, async or sync (then it runs in a thread).

        `safety` says what a repetition means: "keyed", the world recognises `effect_key()`; "natural", a repetition
        does no harm; "once", it must never be called again unless `reconcile(key)` says that it did not happen.
        `undo` is the effect that takes it back if the run is cancelled: its parameters are named like this one's, or
        `result`. With `remote=True` the function only says what goes in and what comes out, and is never called:
        workers in any language claim its attempts over HTTP. `breaker` and `limit` are asked before each attempt, and
        shared by all replicas: an effect that may not begin yet waits, which uses up no attempt and needs no slot.
        """
        _refuse("effect", refused)
        _check_options("effect", fn, key)
        if retry is not None and not isinstance(retry, Retry):
            raise UsageError(f"retry={retry!r} is not a retry policy", hint="Write retry=Retry(attempts=5).")
        if reconcile is not None and not callable(reconcile):
            raise UsageError(f"reconcile={reconcile!r} cannot be called", hint="Pass a function that takes the key.")
        if undo is not None and not isinstance(undo, Effect):
            raise UsageError(f"undo={undo!r:.60} is not an effect", hint="Decorate it with @pack.effect first.")
        if safety not in {"keyed", "natural", "once"}:
            raise UsageError(f"safety={safety!r} is not known", hint="Use 'keyed', 'natural' or 'once'.")
        if reconcile is not None and safety != "once":
            raise UsageError("reconcile= is only asked for an effect with safety='once'", hint="Add safety='once'.")
        if not isinstance(remote, bool):
            raise UsageError(f"remote={remote!r:.60} is neither True nor False", hint="Write remote=True.")
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
            rules = rules_of(_name_of(fn), breaker, limit)
            effect: Effect[P, Any] = Effect(
                fn, pack=self.name, key=key, policy=policy, undo=undo, remote=remote, rules=rules
            )
            check_alike((each.name, each.rules) for each in (*self.effects.values(), effect) if each.rules is not None)
            self.effects[effect.name] = effect
            return effect

        return decorate if fn is None else decorate(fn)

    @overload
    def workflow(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
    @overload
    def workflow(
        self,
        fn: None = None,
        /,
        *,
        key: str | None = None,
        retention: Duration = "30d",
        queue: str = "default",
        markers: Markers = (),
        version: str | None = None,
        versions: Versions = "preferred",
        outcomes: Collection[Outcome] | None = None,
        on_failure: OnFailure = "keep",
        undo_deadline: Duration = "1h",
        record_inputs: bool | None = None,
        timeout: Duration | None = None,
        on_timeout: OnTimeout = "fail",
        lane: str | None = None,
        width: int | None = None,
        lane_max: int = PARKED_MAX,
        on_blocked: OnBlocked = "keep",
        throttle: Rate | None = None,
        fair: str | None = None,
        debounce: Debounce | None = None,
        batch: Batch | None = None,
    ) -> _WorkflowDecorator: ...
    def workflow(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        key: str | None = None,
        retention: Duration = "30d",
        queue: str = "default",
        markers: Markers = (),
        version: str | None = None,
        versions: Versions = "preferred",
        outcomes: Collection[Outcome] | None = None,
        on_failure: OnFailure = "keep",
        undo_deadline: Duration = "1h",
        record_inputs: bool | None = None,
        timeout: Duration | None = None,
        on_timeout: OnTimeout = "fail",
        lane: str | None = None,
        width: int | None = None,
        lane_max: int = PARKED_MAX,
        on_blocked: OnBlocked = "keep",
        throttle: Rate | None = None,
        fair: str | None = None,
        debounce: Debounce | None = None,
        batch: Batch | None = None,
        **refused: object,
    ) -> Any:
        """An async function that composes effects, waits and children durably.

        A finished run keeps its key and its result for `retention`. `queue` says which workers execute it. `markers`
        are its states of progress, in order, or from each those that may follow. `version` is kept with each run that
        is admitted under it, and such a run goes to a worker that serves this version if there is one; with
        `versions="pinned"` it waits until there is one. `outcomes` are those that a cancellation can have; with
        "resumable" among them a cancelled run stands still where it is, instead of being unwound. With
        `on_failure="undo"` a run whose code raises undoes what it has done, as a cancelled one does, and then fails;
        that may take `undo_deadline`. With `record_inputs=True` the arguments of its effects are recorded with what
        came of them; with False never, whatever the Holdfast says. A run that takes longer than `timeout` fails with
        `RunTimedOut`, or is cancelled, as `on_timeout` says.

        `lane` is a template, as `key` is: runs of one lane go one after the other in the order of their starts, or as
        many at once as it has `width`. A start is refused with `LaneFull` if `lane_max` runs wait there already. A run
        that is blocked keeps its place; with `on_blocked="step_aside"` it lets those behind it go first.
        No more runs begin than `throttle` says: `Rate(100, per="1m", burst=20, by="{tenant}")`; the others are late.
        With `fair="{tenant}"` tenants take turns, however much each has to do. With `debounce=Debounce("5s")` starts
        under one key become one run, with the arguments of the newest, as long as that has not begun. With
        `batch=Batch(100, wait="2s")` the function takes a list, and is started with single items: `workflow.item(...)`.
        """
        _refuse("workflow", refused)
        _check_options("workflow", fn, key)
        if version is not None and (not isinstance(version, str) or not 0 < len(version) <= keys.KEY_LENGTH_MAX):
            raise UsageError(f"version={version!r:.60} is not a short text", hint="Write version='2'.")
        if on_failure not in {"keep", "undo"}:
            raise UsageError(f"on_failure={on_failure!r:.60} is not known", hint="Use 'keep' or 'undo'.")
        if on_timeout not in {"fail", "cancel"}:
            raise UsageError(f"on_timeout={on_timeout!r:.60} is not known", hint="Use 'fail' or 'cancel'.")
        if versions not in get_args(Versions):
            raise UsageError(f"versions={versions!r:.60} is not known", hint="Use 'preferred' or 'pinned'.")
        if versions == "pinned" and version is None:
            raise UsageError("versions='pinned' has no version to be pinned to", hint="Add version='1'.")
        traits = WorkflowTraits(
            retention_ms=milliseconds(retention),
            queue=queue,
            markers=markers,
            version=version,
            versions=versions,
            outcomes=None if outcomes is None else _outcomes(outcomes),
            undo_ms=milliseconds(undo_deadline) if on_failure == "undo" else None,
            record_inputs=record_inputs,
            timeout_ms=None if timeout is None else milliseconds(timeout),
            on_timeout=on_timeout,
            lane=lane,
            width=width,
            lane_max=lane_max,
            on_blocked=on_blocked,
            flow=RuleOptions(throttle=throttle, fair=fair, debounce=debounce, batch=batch),
        )

        def decorate(fn: Callable[P, Coroutine[Any, Any, R]]) -> Workflow[P, R]:
            self._claim_name(_name_of(fn))
            workflow = Workflow(fn, pack=self.name, key=key, traits=traits)
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
        copy.effects, copy.workflows = self.effects, self.workflows
        copy.kernels, copy.resources = self.kernels, self.resources
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
        if "/" in name:  # it parts the task from the step in the ids of steps
            raise UsageError(f"{name!r} contains '/'", hint="Give the function a name without it.")
        named = (self.kernels, _short(self.effects), _short(self.workflows), _short(self.resources))
        if any(name in names for names in named):
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


def _outcomes(wanted: Collection[Outcome]) -> tuple[Outcome, ...]:
    if isinstance(wanted, str) or not isinstance(wanted, Collection):
        raise UsageError(f"outcomes={wanted!r} are not several texts", hint="Write ('no_effects', 'compensated').")
    for outcome in wanted:
        if outcome not in OUTCOMES:
            raise UsageError(f"{outcome!r} is no outcome of a cancellation", hint=f"They are: {', '.join(OUTCOMES)}.")
    return tuple(wanted)


def _refuse(kind: str, options: Mapping[str, object]) -> None:
    if "retry" in options:
        raise UsageError(f"retry= was given to a {kind}", hint=_ONLY_EFFECTS_RETRY)
    if options:
        raise UsageError(f"{kind} does not take {', '.join(sorted(options))}", hint="Check the spelling of the option.")

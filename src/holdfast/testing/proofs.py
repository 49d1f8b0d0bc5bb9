"""For users: declare what `holdfast prove` shall prove, and what stands for the world meanwhile.

    from holdfast.testing import FakeWorld, prove

    @prove(checkout, runs=[("o-1", 4200), ("o-2", 0)])
    def the_world(world: FakeWorld) -> None:
        world.stub(charge, returns="pay_1", loses_reply=True)
        world.stub(ship, fails=2, then="ok")

The function is called once for every world, before anything happens in it. Effects that it does not mention are
replaced by stand-ins that return a sample of their result's type: no effect is called for real unless it says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any, Literal, TypeVar, get_args

from msgspec import UNSET, Struct, UnsetType

from holdfast.effects import RUNNING_EFFECT
from holdfast.errors import HoldfastError, UsageError
from holdfast.kernel.units import Duration
from holdfast.pack import Effect, Workflow
from holdfast.testing.stubs import Stub, check_result, stub_of

Delivery = Literal["twice", "together", "late"]
R = TypeVar("R")
_NOTHING: Any = UNSET
LATENCY_SECONDS = 1.0
DELIVERIES: tuple[Delivery, ...] = get_args(Delivery)


def usual_latency(effect: Effect[..., Any]) -> float:
    """How many seconds a stub takes that does not say it: so long that a lease is renewed in the middle of some."""
    limit_ms = effect.policy.timeout_ms
    return LATENCY_SECONDS if limit_ms is None else min(LATENCY_SECONDS, limit_ms / 2000)


class WorldCall(Struct, frozen=True):
    """What the world outside was asked for by an effect that is called for real, and under which key."""

    what: str
    key: str
    run_id: str
    step: str


class FakeWorld:
    """What surrounds the workflows of one world: stand-ins, signals, and what is looked at in the end."""

    def __init__(self) -> None:
        self.stubs: dict[str, Stub] = {}
        self.real_effects: set[str] = set()
        self.payloads: dict[str, list[Any]] = {}
        self.observed: dict[str, Callable[[], object]] = {}
        self.seen: list[WorldCall] = []

    def stub(
        self,
        effect: Effect[..., R],
        *,
        returns: R = _NOTHING,
        fails: int | BaseException | type[BaseException] | None = None,
        then: R = _NOTHING,
        loses_reply: bool | int = False,
        latency: Duration | None = None,
        calls: Callable[..., Any] | None = None,
    ) -> None:
        """Say what an effect does, as `Simulated.stub` does. Where nothing says what it returns, that is a sample."""
        made = stub_of(
            effect,
            returns=returns,
            then=then,
            fails=fails,
            loses_reply=loses_reply,
            latency=usual_latency(effect) if latency is None and isinstance(effect, Effect) else latency,
            calls=calls,
        )
        for value in (returns, then):
            check_result(effect, value)
        self.stubs[effect.name] = made

    def real(self, *effects: Effect[..., Any]) -> None:
        """Call these effects themselves, in every world, as often as the engine does: with a pretended provider."""
        self.real_effects.update(effect.name for effect in effects)

    def signal(self, hook: str, *payloads: Any) -> None:
        """Send these to the hook of this name, one whenever a run waits for it. Otherwise samples of its type are."""
        self.payloads.setdefault(hook, []).extend(payloads)

    def observe(self, name: str, look: Callable[[], object]) -> None:
        """Compare what this returns at the end of each world.

        A run that ends as without faults leaves the same behind; one whose receipt says `no_effects` or `compensated`
        leaves what was there before it.
        """
        self.observed[name] = look

    def look(self) -> dict[str, object]:
        """What is observed now. Raises `UsageError`, which names the observation and the line, if its function does."""
        found: dict[str, object] = {}
        for name, look in self.observed.items():
            try:
                found[name] = look()
            except Exception as error:
                raise _raised(f"the observation {name!r}", look, error) from error
        return found

    def saw(self, what: str, key: str) -> None:
        """Say, in the place of a provider, that a request came in under this key: to be called by real effects."""
        scope: Any = RUNNING_EFFECT.get()
        run_id, step = ("", "") if scope is None else (str(scope.run_id), str(scope.step))
        self.seen.append(WorldCall(what, key, run_id, step))


class WorkflowProof(Struct, frozen=True):
    """A declaration: which workflow, with which inputs, delivered how, in which world."""

    workflow: Workflow[..., Any]
    runs: tuple[tuple[Any, ...], ...]
    deliver: tuple[Delivery, ...]
    arrange: Callable[[FakeWorld], None]
    fails: type[BaseException] | None = None  # what the clean run is to fail with
    declared_by: CodeType | None = None  # the code of the module that was executed, if it is declared in a module

    @property
    def name(self) -> str:
        return self.arrange.__name__

    @property
    def module(self) -> str:
        return self.arrange.__module__

    @property
    def place(self) -> str:
        return place_of(self.arrange)

    def __call__(self, world: FakeWorld) -> None:
        """Arrange a world. Raises `UsageError`, which names this proof and the line, if its function raises."""
        try:
            self.arrange(world)
        except Exception as error:
            raise _raised(f"the proof {self.name}", self.arrange, error) from error


def prove(
    workflow: Workflow[..., Any],
    *,
    runs: Iterable[Sequence[Any]] | UnsetType = UNSET,
    deliver: Sequence[Delivery] = DELIVERIES,
    fails: type[BaseException] | None = None,
) -> Callable[[Callable[[FakeWorld], None]], WorkflowProof]:
    """Declare a proof of `workflow`, once for each of these argument lists; without them, for a sample of its input.

    `deliver` says how starts and signals are repeated: twice in sequence, two together, once more after the end. With
    `fails` the run is to fail with this exception; without it, a run that fails by itself is not proved.
    """
    if not isinstance(workflow, Workflow):
        raise UsageError(f"{workflow!r:.60} is no workflow", hint="Write @prove(checkout, runs=[...]).")
    if unknown := [each for each in deliver if each not in DELIVERIES]:
        raise UsageError(f"deliver={unknown[0]!r} is not known", hint=f"Use one or more of {', '.join(DELIVERIES)}.")

    def decorate(arrange: Callable[[FakeWorld], None]) -> WorkflowProof:
        around = sys._getframe(1)  # noqa: SLF001 - the module, if it is declared in one
        is_in_module = around.f_locals is around.f_globals
        if is_in_module:
            _check_is_first(arrange, around)
        given = () if runs is UNSET else _arguments_of(runs, arrange)
        declared_by = around.f_code if is_in_module else None
        return WorkflowProof(workflow, given, tuple(deliver), arrange, fails, declared_by)

    return decorate


def place_of(fn: Callable[..., Any]) -> str:
    """Where a function begins: `proofs.py:12`."""
    code = fn.__code__
    return f"{PurePath(code.co_filename).name}:{code.co_firstlineno}"


def _raised(whose: str, fn: Callable[..., Any], error: Exception) -> UsageError:
    """What the user's own function has raised, with its line."""
    ours = isinstance(error, HoldfastError)
    words = error.message if ours else f"{type(error).__name__}: {error}"
    return UsageError(f"{whose} raises {words} ({_line_in(fn, error)})", hint=error.hint if ours else "")


def _line_in(fn: Callable[..., Any], error: Exception) -> str:
    """The line of this function at which an error was raised, however deep."""
    frames = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)][1:]  # without the caller's own
    own = getattr(fn, "__code__", None)  # a partial and what is written in C have none: the line that raised will do
    code, line = next((each for each in frames if each[0] is own), frames[-1] if frames else (None, 0))
    return repr(fn)[:60] if code is None else f"{PurePath(code.co_filename).name}:{line}"


def _check_is_first(arrange: Callable[[FakeWorld], None], module: FrameType) -> None:
    """A second proof of one name would take the first one's place in the module, and the first were never tried.

    A module that is loaded again is executed by other code, and so is each cell of a notebook.
    """
    before = module.f_globals.get(arrange.__name__)
    if isinstance(before, WorkflowProof) and before.declared_by is module.f_code:
        raise UsageError(
            f"there are two proofs named {arrange.__name__!r} in one module: {before.place} and {place_of(arrange)}",
            hint="Give each a name of its own: the second would replace the first.",
        )


def _arguments_of(runs: Iterable[Sequence[Any]], arrange: Callable[[FakeWorld], None]) -> tuple[tuple[Any, ...], ...]:
    proof = f"the proof {arrange.__name__} ({place_of(arrange)})"
    hint = 'Write a tuple of arguments for each run: runs=[("o-1", 4200)]. Without runs= a sample is taken.'
    if isinstance(runs, str | bytes) or not isinstance(runs, Iterable):
        raise UsageError(f"runs={runs!r:.60} of {proof} is no list of runs", hint=hint)
    given = list(runs)
    if not given:
        raise UsageError(f"{proof} has no runs: its runs= is empty", hint=hint)
    for each in given:
        if isinstance(each, str | bytes) or not isinstance(each, Sequence):
            raise UsageError(f"the run {each!r:.60} of {proof} is no tuple of arguments", hint=hint)
    return tuple(tuple(each) for each in given)

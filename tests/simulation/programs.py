"""Programs: what the workflows of a simulated world do, drawn from a seed.

A program is the input of its workflow: a small tree that one interpreter executes, so that a replay takes the same way.

    node                            what it does
    ──────────────────────────────  ────────────────────────────────────────────────────────────────
    ["do", effect, n, x]            awaits an effect; `n` is its number, `x` how long it takes or how often it fails
    ["all" | "group", [node, ...]]  gather, TaskGroup
    ["first", [node, node]]         awaits the first of them, and lets go of the other
    ["try", node]                   goes on if it raises
    ["limit", s, node]              timeout
    ["shield", s, node]             is not cancelled with the run, for so long
    ["sleep", s]                    a timer
    ["child", key, [node, ...]]     awaits a child run
    ["spawn", key, [node, ...]]     starts a child that goes on by itself
    ["wait", hook, s]               awaits a signal, for so long
    ["token", token, s]             the same, at a token
    ["tag", n]                      sets an attribute
    ["fail"]                        raises
    ["again", [node, ...]]          continues as new, with these; it is the last node

Effects write into the ledger of the world before they do anything else, and when they have ended.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from random import Random
from typing import Any, Protocol, Self

from holdfast import (
    Pack,
    Retry,
    continue_as_new,
    hook,
    set_attributes,
    shield,
    sleep,
    spawn,
    timeout,
)
from holdfast.effects import RUNNING_EFFECT, attempt, effect_key, heartbeat
from holdfast.errors import HookTaken, InputMismatch, NotPerformed

Node = list[Any]
pack = Pack("sim")
QUICK = Retry(attempts=3, base=0.2, cap=1.0)
HOOKS = ("go", "more")
TOKENS = ("red", "green")


class EffectWorld(Protocol):
    """The world that effects touch. It knows nothing of the engine."""

    def began(self, run: str, step: str, key: str, attempt: int, *, undo: bool) -> None: ...
    def ended(
        self, run: str, step: str, key: str, attempt: int, *, undo: bool, returned: bool, number: int
    ) -> None: ...
    def was_performed(self, key: str) -> int | None:
        """The number of the effect that was performed under this key; None if none was."""
        ...


class _Present:
    """The world that is simulated at present: there is one at a time in a process."""

    world: EffectWorld | None = None


PRESENT = _Present()


class Touch:
    """One call of an effect, as the world sees it."""

    def __init__(self, number: int, *, undo: bool = False) -> None:
        scope: Any = RUNNING_EFFECT.get()
        self.number = number
        self._about = (scope.run_id, scope.step, effect_key(), attempt())
        self._undo = undo

    def __enter__(self) -> Self:
        if PRESENT.world is not None:
            PRESENT.world.began(*self._about, undo=self._undo)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if PRESENT.world is not None and kind in {None, Trouble}:
            PRESENT.world.ended(*self._about, undo=self._undo, returned=kind is None, number=self.number)


class Trouble(Exception):
    """What an effect raises on purpose."""


@pack.effect(retry=QUICK)
async def plain(n: int, x: float = 0) -> int:
    with Touch(n):
        if x:
            await asyncio.sleep(x)
        return n


@pack.effect(retry=QUICK)
def sync(n: int, x: float = 0) -> int:
    with Touch(n):
        return n


@pack.effect(retry=Retry(attempts=5, base=0.3, cap=2.0))
async def flaky(n: int, x: float = 0) -> int:
    with Touch(n):
        if attempt() <= x:
            raise Trouble(n)
        return n


@pack.effect(retry=Retry(attempts=2, base=0.2))
async def broken(n: int, x: float = 0) -> int:
    with Touch(n):
        raise Trouble(n)


@pack.effect(safety="once")
async def once(n: int, x: float = 0) -> int:
    with Touch(n):
        await asyncio.sleep(x)
        return n


async def look(key: str) -> int:
    found = None if PRESENT.world is None else PRESENT.world.was_performed(key)
    if found is None:
        raise NotPerformed(key)
    return found


@pack.effect(safety="once", reconcile=look)
async def asked(n: int, x: float = 0) -> int:
    with Touch(n):
        await asyncio.sleep(x)
        return n


@pack.effect(retry=QUICK)
async def beating(n: int, x: float = 0) -> int:
    with Touch(n):
        begun = int(heartbeat() or 0)
        for count in range(begun, 3):
            heartbeat(count + 1)
            await asyncio.sleep(x / 3)
        return n


@pack.effect(retry=QUICK)
async def unreserve(n: int, result: int) -> int:
    with Touch(n, undo=True):
        assert result == n
        return n


@pack.effect(retry=QUICK, undo=unreserve)
async def reserve(n: int, x: float = 0) -> int:
    with Touch(n):
        if x:
            await asyncio.sleep(x)
        return n


EFFECTS = {each.step_name: each for each in (plain, sync, flaky, broken, once, asked, beating, reserve)}


# -- the interpreter


async def _each(nodes: list[Node]) -> list[Any]:
    return [await _one(node) for node in nodes]


async def _one(node: Node) -> Any:
    match node:
        case ["do", effect, n, x]:
            return await EFFECTS[effect](n, x)
        case ["sleep", seconds]:
            await sleep(seconds)
            return None
        case ["all", nodes]:
            return list(await asyncio.gather(*map(_one, nodes)))
        case ["group", nodes]:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(_one(each)) for each in nodes]
            return [task.result() for task in tasks]
        case ["first", nodes]:
            return await _first([asyncio.create_task(_one(each)) for each in nodes])
        case ["try", inner]:
            try:
                return await _one(inner)
            except Exception as error:
                return type(error).__name__
        case ["limit", seconds, inner]:
            try:
                async with timeout(seconds):
                    return await _one(inner)
            except TimeoutError:
                return "late"
        case ["shield", seconds, inner]:
            async with shield(seconds):
                return await _one(inner)
        case ["child", key, nodes]:
            try:
                child = await spawn(part(json.dumps(nodes)), key=key)
                return json.loads(await child.result())
            except InputMismatch:
                return "taken"
        case ["spawn", key, nodes]:
            await spawn(part(json.dumps(nodes)), key=key, detached=True)
            return None
        case ["wait", name, seconds]:
            return await _received(hook(name, type=str), seconds)
        case ["token", token, seconds]:
            return await _received(hook(f"at {token}", token, type=str), seconds)
        case ["tag", n]:
            await set_attributes(n=n)
            return None
        case ["fail"]:
            raise Trouble("on purpose")
        case _:
            raise AssertionError(node)


async def _first(tasks: list[asyncio.Task[Any]]) -> Any:
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    return [task.result() if task in done else None for task in tasks]


async def _received(inbox: Any, seconds: float) -> Any:
    async with inbox:
        try:
            async with timeout(seconds):
                return await inbox
        except TimeoutError:
            return "none"
        except HookTaken:
            return "taken"


async def _play(program: str, again: Callable[[str], Any]) -> str:
    nodes: list[Node] = json.loads(program)
    last = nodes[-1] if nodes else [""]
    if last[0] == "again":
        await _each(nodes[:-1])
        continue_as_new(again(json.dumps(last[1])))
    return json.dumps(await _each(nodes))


@pack.workflow
async def part(program: str) -> str:
    return await _play(program, part)


@pack.workflow
async def play(program: str) -> str:
    return await _play(program, play)


@pack.workflow(on_failure="undo", undo_deadline="20s")
async def saga(program: str) -> str:
    return await _play(program, saga)


@pack.workflow(outcomes=["resumable", "completed_first", "no_effects", "unknown", "partial", "compensated"])
async def pausing(program: str) -> str:
    return await _play(program, pausing)


WORKFLOWS = (play, saga, pausing)
UNKEYED = part


# -- drawing


class ProgramMaker:
    """Draws programs. Every effect of one has a number of its own."""

    def __init__(self, chance: Random, *, seconds: float) -> None:
        self._chance = chance
        self._seconds = seconds  # what counts as long here
        self._count = 0

    def program(self) -> str:
        """A program, as the text that its workflow takes."""
        self._count = 0
        nodes = self._nodes(self._chance.randint(1, 4), depth=0)
        if self._chance.random() < 0.12:
            nodes.append(["again", self._nodes(self._chance.randint(1, 2), depth=1)])
        elif self._chance.random() < 0.08:
            nodes.append(["fail"])
        return json.dumps(nodes)

    def _nodes(self, count: int, *, depth: int) -> list[Node]:
        return [self._node(depth) for _ in range(count)]

    def _node(self, depth: int) -> Node:
        chance = self._chance
        kind = chance.choices(_KINDS, _WEIGHTS if depth < 2 else _LEAVES)[0]
        match kind:
            case "do":
                return self._effect()
            case "sleep":
                return ["sleep", round(chance.choice((0.01, 0.3, 1.5, self._seconds)), 3)]
            case "all" | "group":
                return [kind, self._nodes(chance.randint(2, 3), depth=depth + 1)]
            case "first":
                return ["first", [self._effect(), ["sleep", round(chance.choice((0.01, 0.5)), 3)]]]
            case "try":
                return ["try", self._node(depth + 1)]
            case "limit" | "shield":
                return [kind, round(chance.choice((0.2, 2.0)), 3), self._node(depth + 1)]
            case "child" | "spawn":
                key = f"part-{chance.randint(0, 3)}" if chance.random() < 0.2 else None
                return [kind, key, self._nodes(chance.randint(1, 2), depth=depth + 1)]
            case "wait":
                return ["wait", chance.choice(HOOKS), round(chance.choice((0.5, 3.0, self._seconds)), 3)]
            case "token":
                return ["token", chance.choice(TOKENS), round(chance.choice((1.0, 3.0)), 3)]
            case _:
                return ["tag", chance.randint(0, 9)]

    def _effect(self) -> Node:
        chance = self._chance
        self._count += 1
        name = chance.choices(
            ("plain", "sync", "flaky", "broken", "once", "asked", "beating", "reserve"), (8, 4, 3, 1, 2, 2, 2, 6)
        )[0]
        match name:
            case "flaky":
                x: float = chance.randint(1, 3)
            case "sync" | "broken":
                x = 0
            case _:
                x = round(chance.choice((0, 0, 0.02, 0.4, self._seconds / 2)), 3)
        return ["do", name, self._count, x]


_KINDS = ("do", "sleep", "all", "group", "first", "try", "limit", "shield", "child", "spawn", "wait", "token", "tag")
_WEIGHTS = (40, 8, 6, 5, 3, 5, 3, 3, 6, 2, 8, 3, 4)
_LEAVES = (40, 8, 0, 0, 2, 0, 0, 0, 0, 0, 6, 0, 3)


# -- what it may have returned


def fits(nodes: list[Node], values: Any) -> bool:
    """Whether a run of this program may have returned this."""
    if nodes and nodes[-1][0] == "again":
        return fits(nodes[-1][1], values)
    return _each_fits(nodes, values)


def _each_fits(nodes: list[Node], values: Any) -> bool:
    return isinstance(values, list) and len(values) == len(nodes) and all(map(_fits, nodes, values))  # pyright: ignore[reportUnknownArgumentType]


def _fits(node: Node, value: Any) -> bool:
    match node:
        case ["do", effect, n, _]:
            return value == n and effect != "broken"
        case ["all" | "group", nodes]:
            return _each_fits(nodes, value)
        case ["first", nodes]:
            return len(value) == len(nodes) and all(
                each is None or _fits(inner, each) for inner, each in zip(nodes, value, strict=True)
            )
        case ["try", inner]:
            return isinstance(value, str) or _fits(inner, value)
        case ["limit", _, inner]:
            return value == "late" or _fits(inner, value)
        case ["shield", _, inner]:
            return _fits(inner, value)
        case ["child", _, nodes]:
            # A run of another input may hold its key, or one that its own children want, which it then fails with.
            return value == "taken" or fits(nodes, value)
        case ["wait" | "token", *_]:
            return isinstance(value, str)
        case _:
            return value is None

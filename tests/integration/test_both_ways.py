"""A lone effect is performed in the task of its run; several are tasks of their own. Both ways record the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from msgspec import json

from holdfast import Holdfast, Pack, Permanent, Retry, RunFailed, effect_key
from holdfast.engine.code.commands import Command
from holdfast.engine.runs.completions import Completion
from holdfast.engine.runs.loaded_run import LoadedRun

Program = list[Any]
lab = Pack("lab")
drivers: list[str] = []  # what drives the task in which each call of an effect was made


def _note_driver() -> None:
    task = asyncio.current_task()
    assert task is not None
    drivers.append(task.get_coro().__qualname__)  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]


@lab.effect(retry=Retry(attempts=3, base="1ms", cap="1ms"))
async def act(name: str, fails: int, waits: int) -> list[str]:
    _note_driver()
    for _ in range(waits):
        await asyncio.sleep(0)
    tries[effect_key()] = tries.get(effect_key(), 0) + 1
    if tries[effect_key()] <= fails:
        raise OSError(name)
    return [name, "x" * 10]


@lab.effect(retry=Retry(attempts=1))
async def refuse(name: str) -> str:
    _note_driver()
    raise Permanent(name)


@lab.effect(safety="once")
async def act_once(name: str) -> str:
    _note_driver()
    return name


@lab.effect
def act_in_a_thread(name: str) -> str:
    return name


@lab.workflow
async def follow(program: list[Any]) -> list[Any]:
    return [await _follow(step) for step in program]


async def _follow(step: list[Any]) -> Any:
    match step:
        case ["act", name, fails, waits]:
            return await act(name, fails, waits)
        case ["once", name]:
            return await act_once(name)
        case ["thread", name]:
            return await act_in_a_thread(name)
        case ["refuse", name]:
            try:
                return await refuse(name)
            except Exception as error:
                return f"{type(error).__name__}: {error}"
        case ["fail", name]:
            return await refuse(name)
        case ["together", *parts]:
            return await asyncio.gather(*(_follow(part) for part in parts))
        case ["sleep"]:
            return await asyncio.sleep(0.001)
        case _:
            raise AssertionError(step)


tries: dict[str, int] = {}
_names = st.sampled_from(["a", "b", "c"])
_lone = st.one_of(
    st.tuples(st.just("act"), _names, st.integers(0, 2), st.integers(0, 2)).map(list),
    st.tuples(st.just("once"), _names).map(list),
    st.tuples(st.just("thread"), _names).map(list),
    st.tuples(st.just("refuse"), _names).map(list),
    st.just(["sleep"]),
)
# Of effects that do not wait, the first to be asked for is the first to end: the journal has one order only.
_ready = st.tuples(st.just("act"), _names, st.just(0), st.just(0)).map(list)
_steps = st.one_of(_lone, st.lists(_ready, min_size=2, max_size=3).map(lambda parts: ["together", *parts]))
_programs = st.tuples(st.lists(_steps, max_size=5), st.booleans()).map(
    lambda drawn: [*drawn[0], ["fail", "end"]] if drawn[1] else drawn[0]
)


def _plain(value: Any) -> Any:
    """Without what differs from run to run."""
    match value:
        case dict():
            return {key: _plain(part) for key, part in value.items() if not key.endswith("_ms")}
        case list():
            return [_plain(part) for part in value]
        case _:
            return value


async def _lived(program: Program) -> tuple[list[Any], Any]:
    tries.clear()
    drivers.clear()
    async with Holdfast("memory://", packs=[lab]) as hf:
        run = (await hf.start(follow(program))).run
        try:
            result: Any = await run.result(timeout=30)
        except RunFailed as error:
            result = str(error).replace(run.id, "RUN")
        journal = json.decode(json.encode(list(await run.journal())).replace(run.id.encode(), b"RUN"))
        return _plain(journal), result


def _by_the_table(loaded: LoadedRun, command: Command, event: Any, completion: Completion) -> Any:
    decision = loaded._decide(command, event, waited=True)
    loaded._tell(decision, completion)
    return decision


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=_programs)
async def test_both_ways_record_the_same(program: Program) -> None:
    plain = await _lived(program)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LoadedRun, "is_all_there_is", lambda *_: False)
        patched.setattr(LoadedRun, "_perform", _by_the_table)
        general = await _lived(program)
    assert plain == general


async def test_lone_effects_are_performed_in_the_task_of_their_run():
    await _lived([["act", "a", 1, 1], ["once", "b"], ["refuse", "c"]])
    assert drivers == ["Activation.drive"] * 4


async def test_effects_that_are_asked_for_together_are_tasks_of_their_own():
    await _lived([["together", ["act", "a", 0, 0], ["act", "b", 0, 0]]])
    assert len(drivers) == 2
    assert "Activation.drive" not in drivers

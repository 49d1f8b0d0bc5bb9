"""What a process of a test may be told to do besides starting runs: supersede, release, signal, resume, cancel."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from holdfast import Holdfast, HoldfastError, Overtaken, Pack, Receipt, Run

Say = Callable[..., None]


class _Action(Struct, frozen=True, tag=str.lower):
    pass


class Supersede(_Action, frozen=True):
    """Start a run in place of `replaces`, or of the run that owns the key when the process looks."""

    workflow: str
    arguments: list[Any]
    replaces: str | None = None
    request_id: str | None = None


class Release(_Action, frozen=True):
    """Take the key from the run that owns it when the process looks."""

    workflow: str
    key: str


class Give(_Action, frozen=True):
    """Signal or start."""

    workflow: str
    arguments: list[Any]
    hook: str
    payload: Any
    dedupe: str | None = None


class Send(_Action, frozen=True):
    """A signal to a run."""

    run_id: str
    hook: str
    payload: Any
    dedupe: str | None = None


class Resume(_Action, frozen=True):
    """A payload for the run that holds the token."""

    token: str
    payload: Any
    dedupe: str | None = None


class Cancel(_Action, frozen=True):
    """Cancel a run, and say what the receipt says."""

    run_id: str
    deadline: str = "30s"
    reason: str | None = None


class Fork(_Action, frozen=True):
    """A new run that begins with what another did before a step."""

    run_id: str
    at: str


class Outlast(_Action, frozen=True):
    """Wait until the run that owns the key now has ended."""

    workflow: str
    key: str


class Meddle(_Action, frozen=True):
    """Cancel, resume, retry, fork and replace runs of a workflow, whatever they are doing, in an order of its own."""

    workflow: str
    arguments: list[list[Any]]
    verbs: list[str]
    times: int
    seed: int


ClientAction = Supersede | Release | Give | Send | Resume | Cancel | Fork | Outlast | Meddle


async def perform(action: ClientAction, hf: Holdfast, pack: Pack, say: Say) -> None:
    """Do it, and say what came of it: `did`, or `failed`."""
    try:
        await _perform(action, hf, pack, say)
    except Overtaken as error:
        say("overtaken", run=getattr(error.run, "id", None))
    except HoldfastError as error:
        say("failed", error=type(error).__name__, text=str(error))


async def _perform(action: ClientAction, hf: Holdfast, pack: Pack, say: Say) -> None:
    match action:
        case Supersede(workflow, arguments, replaces, request_id):
            call = pack.workflows[f"{pack.name}.{workflow}"](*arguments)
            owner = await (hf.get(replaces) if replaces else _owner(hf, pack, call))
            run, created = await hf.start(call, replace=owner, request_id=request_id)
            say("did", run=run.id, created=created, replaced=owner.id)
        case Release(workflow, key):
            run: Run[Any] = await hf.find(f"{pack.name}.{workflow}", key)
            await run.release_key("a person")
            say("did", run=run.id)
        case Give(workflow, arguments, hook, payload, dedupe):
            call = pack.workflows[f"{pack.name}.{workflow}"](*arguments)
            signal = (hook, payload) if dedupe is None else (hook, payload, dedupe)
            run, created = await hf.start(call, signal=signal)
            say("did", run=run.id, created=created, payload=payload)
        case Send(run_id, hook, payload, dedupe):
            await (await hf.get(run_id)).signal(hook, payload, dedupe=dedupe)
            say("did", run=run_id, payload=payload)
        case Resume(token, payload, dedupe):
            run = await hf.resume_hook(token, payload, dedupe=dedupe)
            say("did", run=run.id, payload=payload)
        case Fork(run_id, at):
            say("did", run=(await (await hf.get(run_id)).fork(at)).id)
        case Outlast(workflow, key):
            run = await hf.find(f"{pack.name}.{workflow}", key)
            await run.result()
            say("outlasted", run=run.id)
        case Meddle(workflow, arguments, verbs, times, seed):
            chance = random.Random(seed)
            calls = [pack.workflows[f"{pack.name}.{workflow}"](*each) for each in arguments]
            for _ in range(times):
                say("did", verb=await _meddle(hf, calls, chance.choice(verbs), chance))
        case Cancel(run_id, deadline, reason):
            receipt = await (await hf.get(run_id)).cancel(reason, deadline=deadline)
            say("did", **told(receipt))


async def _meddle(hf: Holdfast, calls: list[Any], verb: str, chance: random.Random) -> str:
    """One verb on one run. Most often something has been faster: then it is refused, and changes nothing."""
    run = chance.choice([run async for run in hf.runs(workflow=calls[0].target)])
    try:
        match verb:
            case "cancel":
                await run.cancel("meddled with")
            case "resume":
                await run.resume()
            case "retry":
                await run.retry()
            case "fork":
                steps = [entry.step for entry in await run.journal() if getattr(entry, "step", "")]
                await run.fork(at=chance.choice(steps or ["none yet"]))
            case _:
                await hf.start(
                    next(each for each in calls if each.target.key.fill(each.arguments) == run.key), replace=run
                )
    except (HoldfastError, StopIteration):  # not allowed now; a fork beside another run has no key
        return f"{verb} refused"
    return verb


async def _owner(hf: Holdfast, pack: Pack, call: Any) -> Run[Any]:
    key = call.target.key.fill(call.arguments)
    assert pack.workflows[call.target.name] is call.target
    return await hf.find(call.target, key)


def told(receipt: Receipt) -> dict[str, Any]:
    """A receipt as JSON."""
    return {
        "run": receipt.run_id,
        "outcome": receipt.outcome,
        "effects": [[str(left), left.name, left.state] for left in receipt.effects],
        "stopped": receipt.stopped,
    }

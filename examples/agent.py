"""An AI agent that does not pay again for a thought it has had.

    python -m examples.agent

The loop is the usual one: ask the model, run the tools it wants, tell it what they said, ask again. Each model call
and each tool call is an effect, so its result is recorded. The story kills the process with SIGKILL in the middle of
the second turn; another process goes on from the journal, and the provider's bill shows each thought once.

Had the process died after a call and before its record, that one call would be made again, with the same
`effect_key()`: pass the key on to a provider that honours idempotency keys, and even that costs nothing.

What to look at
- `gather` runs the tools of one turn side by side; each is a step of its own, with its own result.
- `timeout` gives up on a slow tool. The model is told so, and the agent goes on.
- The budget is counted from recorded results, so it survives the crash with everything else.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast import Holdfast, Pack, Retry, RetryAfter, effect_key, timeout

agents = Pack("agents")
LEASE = "1s"  # how long a dead process's work waits for another one; the default is 30 s


@dataclass
class ToolCall:
    tool: str
    argument: str


@dataclass
class Turn:
    """What the model said: text, the tools it wants, and what that cost."""

    text: str
    tokens: int
    tools: list[ToolCall] = field(default_factory=list)


@dataclass
class Report:
    answer: str
    tokens: int
    turns: int


class RateLimited(Exception):
    """How this provider's client says 429."""


@dataclass
class FakeModel:
    """Stands for a provider's client. The bill is a file outside the engine: one line per paid call."""

    bill: Path
    busy: int = 0

    def complete(self, key: str, messages: list[str]) -> Turn:
        if self.busy > 0:
            self.busy -= 1
            raise RateLimited
        turn = _script(sum(message.startswith("model:") for message in messages))
        with self.bill.open("a") as lines:
            lines.write(f"{key} {turn.tokens}\n")
        return turn


def _script(turn: int) -> Turn:
    match turn:
        case 0:
            wanted = [ToolCall("search", "holdfast botany"), ToolCall("search", "kelp"), ToolCall("crawl", "the web")]
            return Turn("I should look that up.", 120, wanted)
        case 1:
            return Turn("Let me read the best hit.", 340, [ToolCall("read", "kelp.example")])
        case _:
            return Turn("A holdfast is what anchors kelp to the rock.", 560)


model = FakeModel(Path(os.devnull))
mishaps: list[Callable[[], None]] = []  # what goes wrong while a page is read; the story puts a SIGKILL here


@agents.effect(retry=Retry(attempts=4, base="100ms"), timeout="60s")
async def think(messages: list[str]) -> Turn:
    try:
        return model.complete(effect_key(), messages)
    except RateLimited:
        raise RetryAfter(0.05) from None


@agents.effect
async def search(query: str) -> str:
    return f"three pages about {query}"


@agents.effect(safety="natural")  # reading does no harm, however often
async def read(url: str) -> str:
    for mishap in mishaps:
        mishap()
    return f"{url} says: holdfasts anchor kelp"


@agents.effect(safety="natural")
async def crawl(where: str) -> str:
    await asyncio.sleep(3600)
    return f"{where}, all of it"


TOOLS = {"search": search, "read": read, "crawl": crawl}


async def use(call: ToolCall) -> str:
    """One tool call, within its time. Not an effect: ordinary code of the workflow."""
    try:
        async with timeout("250ms"):
            said = await TOOLS[call.tool](call.argument)
    except TimeoutError:
        said = "no answer in time"
    return f"{call.tool}({call.argument}): {said}"


@agents.workflow(key="research:{question}")
async def research(question: str, budget: int) -> Report:
    messages, tokens, turns = [f"user: {question}"], 0, 0
    while tokens < budget:
        turn = await think(messages)
        tokens, turns = tokens + turn.tokens, turns + 1
        if not turn.tools:
            return Report(turn.text, tokens, turns)
        answers = await asyncio.gather(*(use(call) for call in turn.tools))
        messages = [*messages, f"model: {turn.text}", *answers]
    return Report("stopped: the budget is spent", tokens, turns)


async def story(directory: Path) -> Report:
    """Answer the question. A run that another process left behind is continued, not begun again."""
    model.bill = directory / "bill.txt"
    async with Holdfast(f"sqlite:///{directory}/agents.db", packs=[agents], lease=LEASE) as hf:
        run, created = await hf.start(research("what is a holdfast?", budget=2_000))
        print(f"process {os.getpid()} {'starts' if created else 'joins'} run {run.id}", flush=True)
        return await run.result(timeout="1m")


def main() -> None:
    with TemporaryDirectory() as name:
        directory = Path(name)
        killed = asyncio.run(_first_process(directory))
        print(f"the first process died by {signal.Signals(-killed).name}; its calls so far:")
        print(_indented(directory / "bill.txt"))
        report = asyncio.run(story(directory))
        print(f"answer: {report.answer} ({report.tokens} tokens in {report.turns} turns)")
        print("the bill, each thought once:")
        print(_indented(directory / "bill.txt"))


async def _first_process(directory: Path) -> int:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "examples.agent", str(directory))
    return await process.wait()


def _indented(path: Path) -> str:
    return "\n".join(f"    {line}" for line in path.read_text().splitlines())


if __name__ == "__main__":
    if len(sys.argv) > 1:  # the process that is to die
        mishaps.append(lambda: os.kill(os.getpid(), signal.SIGKILL))
        asyncio.run(story(Path(sys.argv[1])))
    else:
        main()

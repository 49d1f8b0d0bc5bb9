"""`make demo`: a worker dies between charging a card and recording it, and nothing goes wrong.

The story, told with real processes on one SQLite file in a temporary directory:

    two callers start one order ──▶ worker 1 charges the card ──▶ SIGKILL, before anything is recorded
    ──▶ its lease runs out ──▶ worker 2 takes over ──▶ the same key, so no second charge ──▶ one result for both

On a terminal it is a live view, elsewhere plain lines. It ends by itself, with 0 if everything came out as told.
"""

from __future__ import annotations

import asyncio
import io
import signal
import sys
import time
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from examples.demo_shop import (
    CHARGED,
    ENDED,
    LEASE_SECONDS,
    PATIENCE_SECONDS,
    READY,
    RESCUED,
    Confirmation,
    Item,
    NotAsTold,
    PaymentProvider,
    ProviderCall,
    Worker,
    checkout,
    shop,
    url_of,
)
from holdfast import Holdfast, HoldfastError, Run
from holdfast.kernel.journal import Entry, Performed
from holdfast.warnings import NoWorker

try:
    from rich import box
    from rich.console import Console, Group, RenderableType
    from rich.live import Live
    from rich.panel import Panel
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text
except ModuleNotFoundError:
    sys.exit("The demo draws with Rich, which is not installed here. Run it with `make demo`.")

ORDER = checkout("o-1001", "acct_42", [Item("anchor", 3900), Item("rope", 300)])
ORDER_KEY, CHARGE_KEY = "checkout:o-1001", "charge:o-1001"

READING_SECONDS = 1.7
FRAME_SECONDS = 0.1
WIDTH_MIN, WIDTH_MAX, HEIGHT_MIN = 80, 110, 24

Say = Callable[[str], Awaitable[None]]
Row = tuple[str, ...]
Column = tuple[str, int]  # its style and its width


# -- who takes part


@dataclass
class Caller:
    """A customer who wants the order to be placed, with a connection of their own."""

    name: str
    client: Holdfast
    run: Run[Confirmation] | None = None
    created: bool = False
    result: Confirmation | None = None

    async def start(self) -> None:
        self.run, self.created = await self.client.start(ORDER)

    async def wait(self) -> None:
        assert self.run is not None
        warnings.simplefilter("ignore", NoWorker)  # the workers come later, and die, in this story
        self.result = await self.run.result(timeout=PATIENCE_SECONDS)


@dataclass
class Scene:
    """Everything that can be seen. The story changes it, the views draw it."""

    provider: PaymentProvider
    callers: list[Caller] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    run: Run[Confirmation] | None = None
    journal: tuple[Entry, ...] = ()
    calls: list[ProviderCall] = field(default_factory=list)
    charges: int = 0
    captions: list[str] = field(default_factory=list)
    lease_ends: float | None = None  # at the latest, by the steady clock; None if nothing waits for it

    async def look(self) -> None:
        """See what has become of the run, and what the provider's ledger says."""
        if self.run is not None:
            self.run = await self.run.refresh()
            self.journal = await self.run.journal()
        self.calls, self.charges = self.provider.calls(), self.provider.charges()

    @property
    def has_recorded_the_charge(self) -> bool:
        return any(isinstance(entry, Performed) and entry.step == "charge#1" for entry in self.journal)


# -- the story


class Story:
    """What happens, one chapter after the other. Whatever it opens or starts is ended by `cleanup`."""

    def __init__(self, scene: Scene, directory: Path, *, say: Say, cleanup: AsyncExitStack) -> None:
        self._scene = scene
        self._database = directory / "holdfast.db"
        self._ledger = directory / "ledger.db"
        self._say_on_stage = say
        self._cleanup = cleanup

    async def tell(self) -> None:
        self._scene.provider.open(self._ledger)
        await self._start_twice()
        waiting = [asyncio.create_task(caller.wait()) for caller in self._scene.callers]
        for task in waiting:
            self._cleanup.callback(task.cancel)
        await self._charge()
        await self._kill()
        await self._take_over()
        for task in waiting:
            await task
        await self._say("Both callers have waited all the while. They get the same result.")

    async def _start_twice(self) -> None:
        callers = self._scene.callers
        for name in ("web", "phone"):
            client = Holdfast(url_of(self._database), packs=[shop], worker=False)
            callers.append(Caller(name, await self._cleanup.enter_async_context(client)))
        await self._say("A customer orders on the web and, impatient, on the phone as well.")
        await asyncio.gather(*(caller.start() for caller in callers))
        self._scene.run = callers[0].run
        await self._say("Two starts under one key: one creates the run, the other gets the same run.")

    async def _charge(self) -> None:
        first = await self._start_worker("worker 1")
        await first.until("calls reserve#1")
        await self._say("Worker 1 takes the run and reserves the goods.")
        await first.until(CHARGED)
        await self._say("Worker 1 has charged the card. The answer is on its way; nothing is recorded.")
        await self._start_worker("worker 2")
        await self._say("Worker 2 starts. It has nothing to do: worker 1 holds the run.")

    async def _kill(self) -> None:
        first = self._scene.workers[0]
        await first.kill()
        self._scene.lease_ends = time.monotonic() + LEASE_SECONDS
        await self._say(f"kill -9 {first.pid}: the ledger has the charge, the journal knows nothing of it.")
        if self._scene.has_recorded_the_charge:
            raise NotAsTold("The charge was recorded before worker 1 could be killed.")
        await self._say(f"The lease of worker 1, {LEASE_SECONDS:.0f} s, must run out before another takes its run.")

    async def _take_over(self) -> None:
        second = self._scene.workers[1]
        await second.until(RESCUED)
        self._scene.lease_ends = None
        await second.until("calls ship#1")
        await self._say("Worker 2 takes over and charges again, with the same key. It is recognised.")
        await second.until(ENDED)

    async def _start_worker(self, name: str) -> Worker:
        worker = await self._cleanup.enter_async_context(Worker.started(name, self._database, self._ledger))
        self._scene.workers.append(worker)
        await worker.until(READY)
        return worker

    async def _say(self, text: str) -> None:
        await self._scene.look()
        self._scene.captions.append(text)
        await self._say_on_stage(text)


def checks(scene: Scene) -> list[tuple[str, bool]]:
    """What the story promised, and whether it came true."""
    first, second = scene.workers
    run_ids = {caller.run.id for caller in scene.callers if caller.run}
    results = {caller.result for caller in scene.callers}
    return [
        ("both callers were given the same run", len(run_ids) == 1),
        ("one of them created it, the other did not", sum(caller.created for caller in scene.callers) == 1),
        ("worker 1 was killed by SIGKILL", first.killed),
        ("worker 2 did not reserve again: that was in the journal", "calls reserve#1" not in second.said),
        ("the provider was called twice, with one key", [call.key for call in scene.calls] == [CHARGE_KEY] * 2),
        ("the provider charged once", scene.charges == 1),
        ("both callers have one and the same result", len(results) == 1 and None not in results),
    ]


def broken(scene: Scene) -> list[str]:
    """The promises that did not come true."""
    return [promise for promise, kept in checks(scene) if not kept]


# -- the scene in rows, the same for every view


def caller_rows(scene: Scene) -> list[Row]:
    return [
        (
            caller.name,
            f"created={caller.created}" if caller.run else "",
            f"run …{caller.run.id[-6:]}" if caller.run else "",
            caller.result.payment if caller.result else "",
        )
        for caller in scene.callers
    ]


def worker_rows(scene: Scene) -> list[Row]:
    return [(worker.name, f"pid {worker.pid}", worker.state) for worker in scene.workers]


def journal_rows(scene: Scene) -> list[Row]:
    rows: list[Row] = []
    for position, entry in enumerate(scene.journal):
        step, key = (entry.step, entry.intent.key) if isinstance(entry, Performed) else ("", ORDER_KEY)
        # The journal does not say which process did it; the workers do.
        by = next((worker.name for worker in scene.workers if f"performed {step}" in worker.said), "")
        after = f"{(entry.at_ms - scene.journal[0].at_ms) / 1000:.2f} s"
        rows.append((str(position), type(entry).__name__.lower(), step, key, by, after))
    return rows


def ledger_rows(scene: Scene) -> list[Row]:
    names = {worker.pid: worker.name for worker in scene.workers}
    return [
        (
            f"call {call.number}",
            call.key,
            f"by {names.get(call.pid, call.pid)}",
            f"charged {call.cents / 100:.2f}" if call.charged else "known key, nothing charged",
        )
        for call in scene.calls
    ]


def ledger_sum(scene: Scene) -> str:
    return f"calls {len(scene.calls)}, charges {scene.charges}"


# -- the views


class PlainView:
    """Lines, for a pipe or a log: each thing once, when it is new."""

    def __init__(self, console: Console, scene: Scene) -> None:
        self._console = console
        self._scene = scene
        self._printed: set[str] = set()

    @asynccontextmanager
    async def showing(self) -> AsyncGenerator[None, None]:
        yield

    async def say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)
        for line in self._facts():
            if line not in self._printed:
                self._printed.add(line)
                self._console.print(f"    {line}", soft_wrap=True)

    def _facts(self) -> list[str]:
        scene = self._scene
        named = [("caller", caller_rows(scene)), ("worker", worker_rows(scene)), ("journal", journal_rows(scene))]
        named.append(("ledger", [*ledger_rows(scene), (ledger_sum(scene),)]))
        return [f"{name:8} {'  '.join(filter(None, row))}" for name, rows in named for row in rows]


class LiveView:
    """Panels that show the scene as it is. Looks ten times a second, and draws only what has changed."""

    def __init__(self, console: Console, scene: Scene) -> None:
        self._console = console
        self._scene = scene
        self._live = Live(console=console, auto_refresh=False)
        self._drawn: object = None

    @asynccontextmanager
    async def showing(self) -> AsyncGenerator[None, None]:
        with self._live:
            drawing = asyncio.create_task(self._draw_for_ever())
            try:
                yield
                await self._draw()
            finally:
                drawing.cancel()
                with suppress(asyncio.CancelledError):
                    await drawing

    async def say(self, text: str) -> None:
        del text  # it is the scene's last caption; here it only needs time to be read
        await asyncio.sleep(READING_SECONDS)

    async def _draw_for_ever(self) -> None:
        while True:
            await self._draw()
            await asyncio.sleep(FRAME_SECONDS)

    async def _draw(self) -> None:
        await self._scene.look()
        picture = frame(self._scene, width=width_of(self._console))
        lines = self._console.render_lines(picture)
        if lines != self._drawn:
            self._drawn = lines
            self._live.update(picture, refresh=True)


def width_of(console: Console) -> int:
    """Wide enough for the panels, narrow enough to read."""
    return min(console.width, WIDTH_MAX)


def frame(scene: Scene, *, width: int) -> RenderableType:
    """The whole picture. Panels and columns have their size from the start, so nothing ever jumps."""
    steps = [(number, what, step, after) for number, what, step, _, _, after in journal_rows(scene)]
    callers = panel("callers", caller_rows(scene), ("bold", 6), ("", 14), ("dim", 12), ("green", 10))
    workers = panel("workers", worker_rows(scene), ("bold", 9), ("dim", 12), ("", 19))
    journal = panel("journal", steps, ("dim", 2), ("", 10), ("bold", 10), ("dim", 7), height=8, note=run_note(scene))
    books = ("bold", 7), ("magenta", 15), ("", 13), ("", 26)
    ledger = panel("ledger of the payment provider", ledger_rows(scene), *books, note=ledger_sum(scene))
    left = max(46, width // 2)
    upper = Table.grid()
    upper.add_column(width=left)
    upper.add_column(width=width - left)
    upper.add_row(Group(callers, workers), journal)
    whole = Table.grid()
    whole.add_column(width=width)
    for part in (heading(), upper, ledger, *caption(scene)):
        whole.add_row(part)
    return whole


# Colours that can be read on a dark and on a light ground, for the words that matter; the rest is the terminal's own.
STYLES = {
    "created=True": "green",
    "idle": "dim",
    "idle again": "dim",
    "killed (SIGKILL)": "bold red",
    "takes over": "bold green",
    "waits for an answer": "magenta",
    "charged 42.00": "bold",
    "known key, nothing charged": "bold green",
}


def panel(title: str, rows: list[Row], *columns: Column, height: int = 4, note: str = "") -> Panel:
    grid = Table.grid()
    for style, width in columns:
        grid.add_column(style=style, width=width)
    for row in rows:
        grid.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    return Panel(
        grid,
        title=Text(title),
        title_align="left",
        subtitle=Text(note) if note else None,
        subtitle_align="right",
        border_style="dim",
        height=height,
    )


def heading() -> Text:
    return Text.assemble(
        ("Holdfast", "bold"), ("  an order, two callers, and a worker that dies at the worst moment", "dim")
    )


def run_note(scene: Scene) -> str:
    """How the run stands, and its fence, which grows when it changes hands."""
    return f"run {scene.run.status}, fence {scene.run.fence}" if scene.run else ""


def caption(scene: Scene) -> list[RenderableType]:
    """The last two things that were said, and the lease while it is waited for."""
    before, now = ["", "", *scene.captions][-2:]
    return [Text(before, style="dim"), Text(now, style="bold"), lease_bar(scene)]


def lease_bar(scene: Scene) -> RenderableType:
    if scene.lease_ends is None:
        return Text()
    left = max(0.0, scene.lease_ends - time.monotonic())
    bar = Table.grid(padding=(0, 2, 0, 0))
    bar.add_row(
        ProgressBar(total=LEASE_SECONDS, completed=left, width=30, style="dim", complete_style="red"),
        f"the lease has at most {left:.1f} s left" if left else "it has run out; worker 2 will see that now",
    )
    return bar


# -- the end


def ending(scene: Scene) -> RenderableType:
    """The journal as a table, what just happened, and what was checked."""
    assert scene.run is not None
    journal = Table("", "entry", "step", "key", "by", box=box.SIMPLE_HEAD, title_justify="left")
    journal.title = Text(f"The journal of run {scene.run.id}", style="bold")
    journal.add_column("after", justify="right")
    for row in journal_rows(scene):
        journal.add_row(*row)
    verdicts = Table.grid(padding=(0, 1, 0, 0))
    for promise, kept in checks(scene):
        verdicts.add_row(Text("ok", style="bold green") if kept else Text("NO", style="bold red"), promise)
    happened = "" if broken(scene) else what_happened(scene)
    return Group(Text(), journal, Text(happened), verdicts)


def what_happened(scene: Scene) -> str:
    """The story in a few sentences. True only if no promise was broken."""
    assert scene.run is not None
    return (
        f"The order came twice under the key {ORDER_KEY}, and one run was admitted for both callers.\n"
        "Worker 1 charged the card and was killed before it could record that. No engine can close this gap, since "
        "the provider is another system. So the charge was called again, with the same key, and the provider "
        f"recognised it. Its ledger says: {ledger_sum(scene)}.\n"
        "Worker 2 did not start over: it took from the journal what was there, and went on with what was not. The "
        f"fence of the run has grown to {scene.run.fence}, so a late write of worker 1 would be refused.\n"
    )


def chosen_console() -> Console:
    """Escape codes only for a terminal that understands them and is large enough for the panels."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # where there is no …, a question mark will do
    console = Console(highlight=False)
    if console.is_dumb_terminal or not sys.stdout.isatty() or console.width < WIDTH_MIN or console.height < HEIGHT_MIN:
        return Console(highlight=False, force_terminal=False, color_system=None, width=100)
    return console


async def demo(console: Console) -> None:
    """Tell the story and hold it to its promises. Raises `NotAsTold` if one of them was not kept."""
    stop_on_signals()
    scene = Scene(PaymentProvider())
    view = LiveView(console, scene) if console.is_terminal else PlainView(console, scene)
    with TemporaryDirectory(prefix="holdfast-demo-") as directory:
        async with AsyncExitStack() as cleanup:
            async with view.showing():
                await Story(scene, Path(directory), say=view.say, cleanup=cleanup).tell()
            console.print(ending(scene), width=width_of(console))
    if promises := broken(scene):
        raise NotAsTold(f"This did not come true: {'; '.join(promises)}.")


def stop_on_signals() -> None:
    """Let SIGTERM and SIGHUP end the demo as Ctrl-C does: in order, with its workers."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)


def main() -> int:
    console = chosen_console()
    try:
        asyncio.run(demo(console))
    except (NotAsTold, HoldfastError) as error:
        print(f"The demo did not come out as told. {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("The demo was stopped; its workers are gone.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())

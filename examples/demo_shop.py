"""The shop of the demo: one workflow with three effects, a payment provider, and a worker process.

The provider is not part of Holdfast: it keeps its own ledger in its own file, as a real one keeps its own books. All
it sees of Holdfast is the key that comes with a charge. It charges a key once, and
repeats the first result for a known one.

    python -m examples.demo_shop worker <database> <ledger>

works until it is told to stop, and says on its standard output, line by line, what it does. `examples.demo` listens.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sqlite3
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from holdfast import Holdfast, Pack, effect_key
from holdfast.events import EffectBegan, EffectPerformed, Event, RunEnded, RunsRescued

LEASE_SECONDS = 3.0
WORK_SECONDS = 0.5  # what the warehouse takes for anything, so that one can watch it
SLOW_ANSWER_SECONDS = 60.0
PATIENCE_SECONDS = 40.0
FAREWELL_SECONDS = 3.0
ROOT = Path(__file__).parent.parent

READY, CHARGED, RESCUED, ENDED = "ready", "charged", "rescued", "ended"

# -- the payment provider: a system of another company

LEDGER = """
create table if not exists charges (key text primary key, account text, cents integer, memo text, payment text);
create table if not exists calls (number integer primary key, key text, pid integer, charged integer);
"""


class ProviderCall(NamedTuple):
    """One call as the provider's ledger has it. `charged` is false if the key was known already."""

    number: int
    key: str
    pid: int
    charged: bool
    cents: int


class PaymentProvider:
    """Charges each key once."""

    def __init__(self) -> None:
        self._ledger = Path()

    def open(self, ledger: Path) -> None:
        """Keep the books in this file."""
        self._ledger = ledger
        with self._books() as books:
            books.executescript(LEDGER)

    async def charge(self, key: str, account: str, cents: int, *, memo: str) -> str:
        """Charge `account` and answer the payment's number; the first one, if `key` has been charged before."""
        payment, charged = self._book(key, account, cents, memo)
        if charged:
            # The money has moved, and nothing has been recorded yet. It is in this gap that the demo kills the worker.
            tell(CHARGED)
            await asyncio.sleep(SLOW_ANSWER_SECONDS)
        return payment

    def calls(self) -> list[ProviderCall]:
        """Every call that was ever made."""
        query = "select number, key, pid, charged, cents from calls join charges using (key) order by number"
        with self._books() as books:
            rows = books.execute(query).fetchall()
        return [ProviderCall(number, key, pid, bool(charged), cents) for number, key, pid, charged, cents in rows]

    def charges(self) -> int:
        """How often money has moved."""
        with self._books() as books:
            return books.execute("select count(*) from charges").fetchone()[0]

    def _book(self, key: str, account: str, cents: int, memo: str) -> tuple[str, bool]:
        with self._books() as books:
            books.execute("begin immediate")
            charged = books.execute(
                "insert into charges values (?, ?, ?, ?, ?) on conflict (key) do nothing",
                (key, account, cents, memo, f"pay_{secrets.token_hex(3)}"),
            ).rowcount
            books.execute("insert into calls (key, pid, charged) values (?, ?, ?)", (key, os.getpid(), charged))
            [payment] = books.execute("select payment from charges where key = ?", (key,)).fetchone()
        return payment, bool(charged)

    @contextmanager
    def _books(self) -> Generator[sqlite3.Connection, None, None]:
        books = sqlite3.connect(self._ledger, timeout=10)
        try:
            with books:
                yield books
        finally:
            books.close()


# -- the shop: what a user of Holdfast writes

shop = Pack("shop")
payments = PaymentProvider()


@dataclass(frozen=True)
class Item:
    name: str
    cents: int


@dataclass(frozen=True)
class Confirmation:
    payment: str
    parcel: str


@shop.kernel
def total(items: list[Item]) -> int:
    return sum(item.cents for item in items)


@shop.effect(key="reserve:{order}")
async def reserve(order: str, items: list[Item]) -> str:
    await asyncio.sleep(WORK_SECONDS)
    return f"shelf-{order}-{len(items)}"


@shop.effect(key="charge:{order}")
async def charge(order: str, account: str, cents: int) -> str:
    return await payments.charge(effect_key(), account, cents, memo=f"order {order}")


@shop.effect(key="ship:{order}")
async def ship(order: str) -> str:
    await asyncio.sleep(WORK_SECONDS)
    return f"parcel-{order}"


@shop.workflow(key="checkout:{order}")
async def checkout(order: str, account: str, items: list[Item]) -> Confirmation:
    await reserve(order, items)
    payment = await charge(order, account, total(items))
    return Confirmation(payment, await ship(order))


# -- the worker process, from the inside


def url_of(database: Path) -> str:
    return f"sqlite:///{database}"


def tell(line: str) -> None:
    """Say something to the process that started this one."""
    print(line, flush=True)


def report(event: Event) -> None:
    """Tell what the engine of this process does, as far as the demo shows it."""
    match event:
        case EffectBegan(step=step):
            tell(f"calls {step}")
        case EffectPerformed(step=step):
            tell(f"performed {step}")
        case RunsRescued():
            tell(RESCUED)
        case RunEnded():
            tell(ENDED)
        case _:
            pass


def stop_when_abandoned() -> None:
    """Ask this process to stop when its standard input ends: then the process that started it is gone."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_reader(sys.stdin)
        signal.raise_signal(signal.SIGTERM)

    loop.add_reader(sys.stdin, stop)


async def work(database: Path, ledger: Path) -> None:
    """Execute runs until SIGTERM, or until the process that started it is gone."""
    stop_when_abandoned()
    payments.open(ledger)
    worker = Holdfast(url_of(database), packs=[shop], lease=LEASE_SECONDS)
    worker.listen(report)
    async with worker:
        tell(READY)
        await worker.serve()


# -- the worker process, from the outside


class NotAsTold(Exception):
    """The story took another turn than the one it promises."""


class Worker:
    """A worker process, and what it has said so far."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.said: list[str] = []
        self._process = process
        self._log = log
        self._silent = False
        self._news = asyncio.Condition()
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    @asynccontextmanager
    async def started(cls, name: str, database: Path, ledger: Path) -> AsyncGenerator[Worker, None]:
        """A worker that is gone when the block ends, however it ends."""
        log = database.with_name(f"{name}.log")
        with log.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "examples.demo_shop", "worker", database, ledger),
                stdin=asyncio.subprocess.PIPE,  # closed when the demo itself is killed, and the worker stops then
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                start_new_session=True,  # Ctrl-C is for the demo; it stops its workers in order
            )
        worker = cls(name, process, log)
        try:
            yield worker
        finally:
            await worker.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def killed(self) -> bool:
        return self._process.returncode == -signal.SIGKILL

    @property
    def state(self) -> str:
        if self.killed:
            return "killed (SIGKILL)"
        words = {READY: "idle", CHARGED: "waits for an answer", RESCUED: "takes over", ENDED: "idle again"}
        return words.get(self.said[-1], self.said[-1]) if self.said else "starting"

    async def until(self, word: str) -> None:
        """Returns when the worker has said `word`."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), self._news:
                await self._news.wait_for(lambda: word in self.said or self._silent)
        except TimeoutError:
            raise NotAsTold(f"{self.name} never said {word!r}.{self._last_words()}") from None
        if word not in self.said:
            raise NotAsTold(f"{self.name} ended before it said {word!r}.{self._last_words()}")

    async def kill(self) -> None:
        """SIGKILL: no handler, no farewell."""
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def stop(self) -> None:
        """Ask it to stop, but not forever."""
        with suppress(ProcessLookupError):
            self._process.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._process.wait()
        await self.kill()
        await self._listening

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.said.append(line.decode().strip())
            await self._tell_waiters()
        self._silent = True
        await self._tell_waiters()

    async def _tell_waiters(self) -> None:
        async with self._news:
            self._news.notify_all()

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-15:]
        return "\n".join([" Its last words:", *lines]) if lines else ""


def main() -> None:
    match sys.argv[1:]:
        case ["worker", database, ledger]:
            asyncio.run(work(Path(database), Path(ledger)))
        case _:
            sys.exit("usage: python -m examples.demo_shop worker <database> <ledger>")


if __name__ == "__main__":
    main()

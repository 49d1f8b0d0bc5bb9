from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast.telemetry import logs

ROOT = Path(__file__).parents[2]
DEADLINE = 60.0
COMMANDS = get_command(app)  # once: building the tree of commands costs more than most of them do
logs.configure()  # before a runner swaps stderr: the handler of last resort keeps the stream that it first saw


def until(condition: Callable[[], object], about: Callable[[], object]) -> None:
    """Wait until `condition` holds; `about` says what there is instead when it does not in time."""
    give_up = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < give_up, about()
        time.sleep(0.05)


class Said:
    """What a command said, and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> Any:
        assert self.code == 0, self
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def problem(self) -> dict[str, Any]:
        return json.loads(self.err)

    def __repr__(self) -> str:
        return f"exit {self.code}\n{self.out}\n{self.err}"


class Cli:
    """Commands in this process, in an environment of their own."""

    def __init__(self, **environment: str | None) -> None:
        cleared = {name: None for name in os.environ if name.startswith("HOLDFAST_")}
        self._environment: Mapping[str, str | None] = {**cleared, "HOLDFAST_LOG": None, "COLUMNS": "200", **environment}

    def __call__(self, *arguments: str, input: str | None = None, **environment: str | None) -> Said:
        code: object = 0
        environment = {**self._environment, **environment}
        with CliRunner().isolation(input=input, env=environment) as (out, err, _):
            try:
                COMMANDS.main(args=list(arguments), prog_name="holdfast")
            except SystemExit as ended:
                code = ended.code or 0
            sys.stdout.flush()
            sys.stderr.flush()
            said, complained = out.getvalue().decode(), err.getvalue().decode()
        assert isinstance(code, int), code
        return Said(code, said, complained)


class Process:
    """A command in a process of its own."""

    def __init__(self, *arguments: str, cwd: Path, **environment: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        self._errors = (cwd / f"errors-{time.monotonic_ns()}.txt").open("w+")
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *arguments],
            cwd=cwd,
            env={**kept, "PYTHONPATH": f"{ROOT}/src:{ROOT}", "COLUMNS": "200", **environment},
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._lines: Queue[str] = Queue()
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            self._lines.put(line)
        self._lines.put("")

    def line(self) -> str:
        """The next line that it says."""
        line = self._lines.get(timeout=DEADLINE)
        assert line, f"it has ended: exit {self._popen.poll()}\n{self.errors()}"
        return line

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Its exit code, once it has stopped in order."""
        if self._popen.poll() is None:
            self._popen.send_signal(number)
        return self._popen.wait(DEADLINE)

    def ended(self) -> int:
        """Its exit code, once it has ended by itself."""
        return self._popen.wait(DEADLINE)

    def errors(self) -> str:
        self._errors.flush()
        return Path(self._errors.name).read_text()

    def close(self) -> None:
        if self._popen.poll() is None:
            self._popen.kill()
            self._popen.wait()
        self._reader.join(DEADLINE)
        if self._popen.stdout is not None:
            self._popen.stdout.close()
        self._errors.close()


@pytest.fixture(autouse=True)
def hangups_are_not_ignored() -> Iterator[None]:
    """Tests that were started with nohup ignore SIGHUP, and so would what they start."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Commands on an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    for attribute in ("handlers", "propagate", "level"):  # `dev` turns logs on for its process, which is this one
        monkeypatch.setattr(logs.log, attribute, getattr(logs.log, attribute))
    return Cli()


@pytest.fixture(scope="module")
def development(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """`holdfast dev` on the pack of these tests: where its gateway and its store are."""
    cwd = tmp_path_factory.mktemp("dev")
    process = Process("dev", "tests.cli.bakery", "--json", "--port", "0", cwd=cwd, HOLDFAST_LOG="json")
    try:
        ready = json.loads(process.line())
        yield {"gateway": ready["url"], "store": f"sqlite:///{cwd}/holdfast.db"}
        assert process.stop() == 0, process.errors()
    finally:
        process.close()


@pytest.fixture(params=["store", "gateway"])
def there(request: pytest.FixtureRequest, development: dict[str, str]) -> Cli:
    """Commands on what `holdfast dev` runs: through its store, or through its gateway."""
    packs = "tests.cli.bakery" if request.param == "store" else None
    return Cli(HOLDFAST_URL=development[request.param], HOLDFAST_PACKS=packs)

"""`make demo` as a user and as a CI job see it: real processes, a real SIGKILL, and nobody left behind."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from examples.demo import Scene, Story, broken
from examples.demo_shop import Confirmation, PaymentProvider

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "examples.demo"]
DEADLINE_SECONDS = 60.0

pytestmark = [pytest.mark.faults, pytest.mark.slow]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The demo's temporary directories go where the test can see them; the size of a terminal is what it says it is."""
    unwanted = ("HOLDFAST_", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_")
    ours = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    return ours | {"TMPDIR": str(tmp_path), "TERM": "xterm-256color", "PYTHONUTF8": "1"}


def run_demo(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        COMMAND, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )


def test_without_a_terminal_the_demo_tells_its_story_in_plain_lines(environment, tmp_path):
    done = run_demo(environment | {"FORCE_COLOR": "1"})

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    in_order(
        lines,
        r"caller (web|phone) created=(True|False) run …\w{6}",
        r"worker worker 1 pid \d+ calls reserve#1",
        r"worker worker 1 pid \d+ waits for an answer",
        r"ledger call 1 charge:o-1001 by worker 1 charged 42\.00",
        r"ledger calls 1, charges 1",
        r"worker worker 2 pid \d+ idle",
        r"kill -9 \d+: .*",
        r"worker worker 1 pid \d+ killed \(SIGKILL\)",
        r"journal 2 performed charge#1 charge:o-1001 worker 2 [\d.]+ s",
        r"ledger call 2 charge:o-1001 by worker 2 known key, nothing charged",
        r"ledger calls 2, charges 1",
        r"caller web created=(True|False) run …\w{6} pay_\w+",
        r"The journal of run \w{32}",
        r"0 started checkout:o-1001 0\.00 s",
        r"1 performed reserve#1 reserve:o-1001 worker 1 [\d.]+ s",
        r"2 performed charge#1 charge:o-1001 worker 2 [\d.]+ s",
        r"3 performed ship#1 ship:o-1001 worker 2 [\d.]+ s",
        r"4 completed checkout:o-1001 [\d.]+ s",
        r"ok the provider charged once",
    )
    answers = [re.findall(r"created=(\w+) run …(\w+) (pay_\w+)", line) for line in lines]
    (one, run, payment), (other, same_run, same_payment) = [found[0] for found in answers if found]
    assert {one, other} == {"True", "False"}
    assert (run, payment) == (same_run, same_payment)
    assert list(tmp_path.iterdir()) == []


def test_on_a_terminal_the_demo_is_a_live_view_that_ends_by_itself(environment):
    returncode, screen = run_on_a_terminal(environment, columns=100, rows=40)

    assert returncode == 0, screen
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen)
    for sight in ("╭─ callers", "╭─ workers", "╭─ journal", "╭─ ledger", "at most", "calls 2, charges 1"):
        assert sight in text
    assert re.search(r"pid \d+ +killed \(SIGKILL\)", text)
    assert screen.count("\x1b[?25l") == screen.count("\x1b[?25h") == 1  # the cursor is hidden, and given back
    assert max(map(len, text.replace("\r", "\n").split("\n"))) <= 100


def test_on_a_terminal_too_small_for_the_panels_the_demo_prints_lines(environment):
    returncode, screen = run_on_a_terminal(environment, columns=70, rows=20)

    assert returncode == 0, screen
    assert "\x1b" not in screen
    assert "ok the provider charged once" in screen


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_whatever_ends_the_demo_its_workers_go_with_it(environment, number):
    demo = subprocess.Popen(
        COMMAND, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with demo:
        assert demo.stdout is not None
        told = iter(demo.stdout.readline, "")
        worker = next(int(found[1]) for line in told if (found := re.search(r"worker 1 +pid (\d+)", line)))
        demo.send_signal(number)
        _, errors = demo.communicate(timeout=DEADLINE_SECONDS)

    assert eventually(lambda: not is_alive(worker))
    if number is not signal.SIGKILL:
        assert demo.returncode == 130
        assert errors == "The demo was stopped; its workers are gone.\n"


def test_when_something_goes_wrong_the_demo_says_what_and_fails(environment):
    done = run_demo(environment | {"HOLDFAST_PAYLOAD_MAX": "1"})

    assert done.returncode == 1
    assert done.stderr.startswith("The demo did not come out as told. the input of shop.checkout is")
    assert "Traceback" not in done.stderr


async def test_a_promise_that_did_not_come_true_is_named(tmp_path):
    scene = Scene(PaymentProvider())
    async with AsyncExitStack() as cleanup:
        await Story(scene, tmp_path, say=silence, cleanup=cleanup).tell()
    assert broken(scene) == []

    web, phone = scene.callers
    assert broken(replace(scene, charges=2)) == ["the provider charged once"]
    assert broken(replace(scene, calls=scene.calls[:1])) == ["the provider was called twice, with one key"]
    assert broken(replace(scene, callers=[web, replace(phone, result=Confirmation("pay_2", "parcel"))])) == [
        "both callers have one and the same result"
    ]
    assert broken(replace(scene, callers=[replace(web, created=True), replace(phone, created=True)])) == [
        "one of them created it, the other did not"
    ]
    assert broken(replace(scene, workers=scene.workers[::-1])) == [
        "worker 1 was killed by SIGKILL",
        "worker 2 did not reserve again: that was in the journal",
    ]


async def silence(text: str) -> None:
    pass


def in_order(lines: list[str], *patterns: str) -> None:
    """Each pattern matches a whole line, after the one that the pattern before it matched."""
    rest = iter(lines)
    for pattern in patterns:
        assert any(re.fullmatch(pattern, line) for line in rest), f"missing, or too early: {pattern}\n" + "\n".join(
            lines
        )


def run_on_a_terminal(environment: dict[str, str], *, columns: int, rows: int) -> tuple[int, str]:
    """The exit code of the demo, and every byte that the terminal got."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    demo = subprocess.Popen(COMMAND, cwd=ROOT, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    got = b""
    with suppress(OSError):  # on Linux the end of a terminal is an error
        while block := os.read(ours, 65536):
            got += block
    os.close(ours)
    return demo.wait(DEADLINE_SECONDS), got.decode()


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def is_alive(pid: int) -> bool:
    """Whether the process is there and not only its entry, which stays until somebody asks for the exit code."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # gone since, or a system without /proc
        return Path("/proc/self").exists() is False

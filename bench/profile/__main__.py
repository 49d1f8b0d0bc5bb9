"""`python -m bench.profile`: counts, samples, and writes the account again. docs/internals/budget.md explains it."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TypeVar

import msgspec

from bench.profile import drawings, machine, page
from bench.profile.account import Account, entry_points
from bench.profile.counts import Frame
from bench.profile.load import UNITS
from bench.profile.samples import Times
from bench.runner import ROOT

T = TypeVar("T")

PAGE = ROOT / "docs" / "internals" / "budget.md"
IMAGES = ROOT / "docs" / "images"
QUICK = ROOT / "bench" / ".cache" / "profile-quick"
# W2 is measured with as many effects as the benchmark has. A count needs few runs, and shares of the time many.
SIZES = {
    "counts": {"W1": 200, "W2": 2_000},
    "samples": {"W1": 10_000, "W2": 20_000},
    "machine": {"W1": 400, "W2": 2_000},
}
SIZES_QUICK = {"counts": {"W1": 50, "W2": 80}, "samples": {"W1": 300, "W2": 400}, "machine": {"W1": 50, "W2": 80}}


def main() -> None:
    wanted = _arguments()
    sizes = SIZES_QUICK if wanted.quick else SIZES
    accounts = [_account(workload, sizes) for workload in UNITS]
    if wanted.no_machine or not machine.is_there():
        print("Valgrind is not asked: there are no instructions of the processor on the page.", flush=True)
    else:
        _count_machine(accounts, sizes["machine"])
    text, images = (QUICK / "budget.md", QUICK) if wanted.quick else (PAGE, IMAGES)
    images.mkdir(parents=True, exist_ok=True)
    for account in accounts:
        _draw(account, images)
    text.write_text(page.replaced(PAGE.read_text(encoding="utf-8"), page.account_page(accounts)), encoding="utf-8")
    print(f"{text.relative_to(ROOT)}, {images.relative_to(ROOT)}/budget-*.svg")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, and the page beside the others in bench/.cache"
    )
    parser.add_argument("--no-machine", action="store_true", help="do not count with Valgrind, which takes minutes")
    return parser.parse_args()


def _account(workload: str, sizes: dict[str, dict[str, int]]) -> Account:
    size = sizes["counts"][workload]
    return Account(
        workload=workload,
        unit=UNITS[workload],
        size=size,
        tree=_asked("counts", "holdfast", workload, size, Frame),
        tree_of_sketch=_asked("counts", "sketch", workload, size, Frame),
        times=_asked("samples", "holdfast", workload, sizes["samples"][workload], Times),
    )


def _asked(module: str, contender: str, workload: str, size: int, as_type: type[T]) -> T:
    """What the program says, in a process of its own: nothing that was imported or cached here changes its counts."""
    print(f"{workload} {contender}: {module}", flush=True)
    command = [sys.executable, "-m", f"bench.profile.{module}", workload, "--contender", contender, "--size", str(size)]
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "found.json"
        # A fixed seed for the hashes of texts: sets are walked in the same order each time.
        subprocess.run([*command, "--out", str(out)], cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": "0"}, check=True)
        return msgspec.json.decode(out.read_bytes(), type=as_type)


def _count_machine(accounts: list[Account], sizes: dict[str, int]) -> None:
    for contender in ("holdfast", "sketch"):
        print(f"start and warm-up {contender}: machine", flush=True)
        without = machine.count(contender, accounts[0].workload, 0)
        for account in accounts:
            print(f"{account.workload} {contender}: machine", flush=True)
            size = sizes[account.workload]
            counted = machine.count(contender, account.workload, size)
            per_unit = {part: (n - without[part]) / size for part, n in counted.items()}
            if contender == "holdfast":
                account.machine = per_unit
            else:
                account.machine_of_sketch = sum(per_unit.values())


def _draw(account: Account, images: Path) -> None:
    total = account.total()
    shares = {
        "instructions": {name: n / total for name, n in account.instructions().items()},
        "time": account.times.causes,
    }
    what = f"{account.named} of {account.workload}"
    (images / f"budget-{account.unit}.svg").write_text(
        drawings.bars(f"How the causes share {what}", shares, sketch=account.total_of_sketch() / total),
        encoding="utf-8",
    )
    title = f"The functions of {what}: as wide as the bytecode instructions in them and in what they call"
    drawn = drawings.flame(title, entry_points(account.tree), account.size)
    (images / f"budget-{account.unit}-functions.svg").write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    main()

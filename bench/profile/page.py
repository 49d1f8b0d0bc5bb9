"""The generated part of `docs/internals/budget.md`."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from importlib import metadata

from bench.profile.account import Account
from bench.profile.causes import ACCOUNT, PACKAGE

BEGIN = "<!-- account: begin. `make profile` writes what follows, up to the end. -->"
END = "<!-- account: end -->"
LIBRARIES = ("apsw", "msgspec", "uvloop")
FILES_SHOWN = 40


def replaced(page: str, part: str) -> str:
    """The page with its generated part replaced."""
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"the page has no place for the account: {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n\n{part}\n{END}{after}"


def account_page(accounts: Sequence[Account]) -> str:
    lines = [f"Counted with {_circumstances()}."]
    for account in accounts:
        lines += ["", *_section(account)]
    if all(account.machine is not None for account in accounts):
        lines += ["", *_machine_section(accounts)]
    lines += ["", *_file_section(accounts)]
    return "\n".join(lines) + "\n"


def _circumstances() -> str:
    python = f"{platform.python_implementation()} {platform.python_version()}"
    libraries = [f"{name} {version}" for name in LIBRARIES if (version := _version(name))]
    return ", ".join([python, *libraries])


def _version(library: str) -> str | None:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None


def _section(account: Account) -> Iterator[str]:
    named, unit, instructions, total = account.named, account.unit, account.instructions(), account.total()
    yield f"## {named.capitalize()}"
    yield ""
    yield f"![How the causes share {named}](../images/budget-{unit}.svg)"
    yield ""
    yield "| cause | instructions | of them | of the time | what is done there |"
    yield "|---|--:|--:|--:|---|"
    for cause in ACCOUNT:
        share, of_time = instructions[cause.name] / total, account.times.causes[cause.name]
        yield f"| {cause.name} | {instructions[cause.name]:,.0f} | {share:.1%} | {of_time:.1%} | {cause.words} |"
    yield f"| **{named}** | **{total:,.0f}** | | | |"
    sketch = account.total_of_sketch()
    yield f"| the same by the sketch | {sketch:,.0f} | | | Holdfast executes {total / sketch:.1f} times as many |"
    yield ""
    times = account.times
    yield (
        f"The thread of the event loop executes for {times.loop:.0%} of the time, the writing thread without it for "
        f"{times.writer:.0%}, and neither for {times.neither:.0%}."
    )
    yield ""
    yield f"![The functions that {named} passes through](../images/budget-{unit}-functions.svg)"


def _machine_section(accounts: Sequence[Account]) -> Iterator[str]:
    yield "## By library"
    yield ""
    yield "Instructions of the processor, counted by Valgrind."
    yield ""
    units = [account.unit for account in accounts]
    yield "| | " + " | ".join(f"{unit} | of them" for unit in units) + " |"
    yield "|---|" + "--:|--:|" * len(units)
    known = [account.machine or {} for account in accounts]
    totals = [sum(machine.values()) for machine in known]
    for part in sorted(known[0], key=lambda part: -known[0][part]):
        counts = [(machine.get(part, 0.0), total) for machine, total in zip(known, totals, strict=True)]
        yield f"| {part} | " + " | ".join(f"{count:,.0f} | {count / total:.1%}" for count, total in counts) + " |"
    yield "| **all** | " + " | ".join(f"**{total:,.0f}** | " for total in totals) + " |"
    sketches = [(account.machine_of_sketch or 0.0, total) for account, total in zip(accounts, totals, strict=True)]
    cells = [f"{sketch:,.0f} | 1/{total / sketch:.1f}" for sketch, total in sketches]
    yield "| the same by the sketch | " + " | ".join(cells) + " |"


def _shown(place: str) -> str:
    is_ours = place.startswith("bench/") or (PACKAGE / place).is_file()
    return f"`{place}`" if is_ours else f"Python's {place}"


def _file_section(accounts: Sequence[Account]) -> Iterator[str]:
    files = [account.files() for account in accounts]
    totals = [account.total() for account in accounts]

    def share(place: tuple[str, str]) -> float:
        return sum(each.get(place, 0.0) / total for each, total in zip(files, totals, strict=True))

    largest = sorted({place for each in files for place in each}, key=lambda place: (-share(place), place))
    yield "## By file"
    yield ""
    yield f"Bytecode instructions, the {min(FILES_SHOWN, len(largest))} largest of {len(largest)}."
    yield ""
    yield "| file | cause | " + " | ".join(account.unit for account in accounts) + " |"
    yield "|---|---|" + "--:|" * len(accounts)
    for place in largest[:FILES_SHOWN]:
        cells = [f"{each.get(place, 0.0):,.0f}" for each in files]
        yield f"| {_shown(place[0])} | {place[1]} | " + " | ".join(cells) + " |"

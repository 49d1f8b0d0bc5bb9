"""`doctor`: whether what is here can work. Exit code 1 if something cannot."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

import apsw
import typer
from msgspec.structs import replace

from holdfast.cli import packs, render
from holdfast.cli.session import Session, missing_file
from holdfast.config import FILE, SETTINGS
from holdfast.errors import HoldfastError, InvalidConfig
from holdfast.ports.store import Finding

OTHERS = ("HOLDFAST_CONFIG", "HOLDFAST_LOG", "HOLDFAST_LOG_LEVEL", "HOLDFAST_PAYLOAD_MAX", "HOLDFAST_STRICT")


async def doctor(session: Session) -> None:
    """Check versions, settings, packs, and whether the store or the gateway can keep its promises."""
    found = [*_versions(), *_variables()]
    try:
        found.append(Finding("ok", "settings", _settings(session)))
    except InvalidConfig as error:
        found.append(Finding("error", "settings", error.message, error.hint))
    else:
        found += [_packs(session), *await _beyond(session)]
    session.out.show({"findings": found}, render.findings(found))
    if any(finding.level == "error" for finding in found):
        raise typer.Exit(1)


def _versions() -> Sequence[Finding]:
    uvloop = _version("uvloop")
    return (
        Finding(
            "ok",
            "Holdfast",
            f"{_version('holdfast')} on Python {platform.python_version()} with SQLite {apsw.sqlite_lib_version()}",
        ),
        Finding("ok", "event loop", f"uvloop {uvloop}")
        if uvloop
        else Finding("warning", "event loop", "asyncio's own", "The extra `speed` brings the faster uvloop."),
    )


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _variables() -> Sequence[Finding]:
    known = {setting.variable for setting in SETTINGS} | set(OTHERS)
    unknown = sorted(name for name in os.environ if name.startswith("HOLDFAST_") and name not in known)
    return [
        Finding("warning", "environment", f"{name} is set, and nothing reads it", "Is it a slip of the pen?")
        for name in unknown
    ]


def _settings(session: Session) -> str:
    """What is set, and whether a settings file is part of it."""
    config = session.config
    file = Path(os.environ.get("HOLDFAST_CONFIG") or FILE).absolute()
    told = f"{file} is read" if file.is_file() else f"there is no {file}"
    return f"{config.url_shown}, namespace {config.namespace!r}; {told}"


def _packs(session: Session) -> Finding:
    names = session.config.packs
    if not names:
        return Finding("ok", "packs", "none are named; `holdfast start` on a store needs --pack")
    try:
        found = packs.load(names)
    except HoldfastError as error:
        return Finding("error", "packs", error.message, error.hint)
    return Finding("ok", "packs", ", ".join(f"{pack.name} ({len(pack.workflows)} workflows)" for pack in found))


async def _beyond(session: Session) -> Sequence[Finding]:
    """What the store, or the gateway, says about itself."""
    config = session.config
    if not config.is_gateway and (path := missing_file(config)) is not None:
        return [
            Finding(
                "warning",
                "store",
                f"there is no file {path.absolute()}; {config.url_shown} was looked for, and nothing was made",
                "The first start makes it. If there should be one, check --url, HOLDFAST_URL and the directory.",
            )
        ]
    try:
        if not config.is_gateway:
            async with session.on(replace(config, packs=())).holdfast() as hf:
                return [*await hf.runtime.inspect(), _duties(await hf.runtime.leaders())]
        async with session.caller() as caller:
            known = await caller.workflows()
            return [Finding("ok", "gateway", f"{config.url_shown} can be reached and knows {len(known)} workflows")]
    except HoldfastError as error:
        return [Finding("error", "gateway" if config.is_gateway else "store", error.message, error.hint)]


def _duties(leaders: Mapping[str, str | None]) -> Finding:
    """Whether some process does what one process does for all."""
    unattended = [duty for duty, leader in leaders.items() if leader is None]
    if not unattended:
        return Finding("ok", "duties", ", ".join(f"{duty}: {leader}" for duty, leader in leaders.items()))
    return Finding(
        "warning",
        "duties",
        f"no process attends to {', '.join(unattended)}: what dead processes held stays there, what is over is kept",
        "Start `holdfast worker`, or a process with the role scheduler.",
    )

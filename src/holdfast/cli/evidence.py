"""Whether a worker may begin: where the settings ask for it, only with fresh evidence of `holdfast prove`.

One process that does one thing at a time needs none. To start without it takes a reason, which is logged.
"""

from __future__ import annotations

import os
import socket
from typing import Annotated

import typer

from holdfast.cli import packs
from holdfast.config import Config
from holdfast.errors import InvalidConfig
from holdfast.events import EvidenceWaived
from holdfast.telemetry import logs

WithoutEvidence = Annotated[
    str | None, typer.Option(metavar="REASON", help="Work although [prove] required is set and evidence is missing.")
]


def require_evidence(config: Config, *, processes: int, waived: str | None) -> None:
    """Raises `InvalidConfig` if evidence is required and missing, unless that is waived with a reason."""
    if waived is not None and not waived.strip():
        raise InvalidConfig("--without-evidence needs a reason", hint='Write --without-evidence "why".')
    if not config.prove_required or "worker" not in config.roles or (processes == 1 and config.concurrency == 1):
        return
    from holdfast.prove import evidence  # noqa: PLC0415 - other commands need none of it

    missing = evidence.missing(packs.load(config.packs))
    if not missing:
        return
    if waived is None:
        told = "".join(f"\n  {name}: {why}" for name, why in missing.items())
        raise InvalidConfig(
            f"there is no fresh evidence, and [prove] required is set:{told}\n",
            hint=f'Run: holdfast prove {" ".join(config.packs)}. Or start with --without-evidence "why".',
        )
    logs.configure()
    logs.log_events(f"{socket.gethostname()}-{os.getpid()}")(EvidenceWaived(waived.strip(), tuple(missing)))

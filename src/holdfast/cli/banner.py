"""What `dev` says first: where to click and what to type, with a workflow that is really there."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
from rich.text import Text

from holdfast.assembly import Holdfast
from holdfast.cli.output import Output, plain
from holdfast.config import Config
from holdfast.wire.samples import sample_start


async def banner(hf: Holdfast, config: Config, out: Output) -> Callable[[str], None]:
    """What to say as soon as the address is known."""
    sample = sample_start(await hf.workflows())

    def say(url: str) -> None:
        lines = [
            Text.assemble(("Holdfast", "bold"), " runs on ", plain(config.url_shown)),
            Text.assemble("  dashboard  ", (url, "bold cyan")),
            Text.assemble("  HTTP API   ", (f"{url}/v1", "cyan"), f"   described at {url}/docs"),
        ]
        if sample is not None:
            workflow, arguments = sample
            body = msgspec.json.encode({"input": arguments}).decode()
            pairs = " ".join(shlex.quote(f"{name}={_typed(value)}") for name, value in arguments.items())
            lines += [
                Text(f"Start a run of {workflow.name}:", style="bold"),
                plain(f"  curl -X POST '{url}/v1/workflows/{workflow.name}/runs?wait=30s' \\"),
                plain(f"    -H 'Content-Type: application/json' -d {shlex.quote(body)}"),
                plain(f"  {_command()} start {workflow.name} {pairs} --wait --url {url}"),
            ]
        lines.append(Text("Ctrl-C stops it in order.", style="dim"))
        document = {"store": config.url_shown, "url": url, "pid": os.getpid()}
        out.line(document, Text("\n").join(lines))

    return say


def _command() -> str:
    """How this very program was called, so that what is printed can be pasted."""
    called = sys.argv[0]
    return os.path.relpath(called) if Path(called).name == "holdfast" else "holdfast"


def _typed(value: object) -> str:
    """A value as one would type it behind `name=`: text plain, all else as JSON."""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()

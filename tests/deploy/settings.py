"""What `holdfast` understands, for those who hold other files to it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from typer.main import get_command

from holdfast import Holdfast, config
from holdfast.cli.doctor import OTHERS
from holdfast.cli.main import app

COMMANDS: Any = get_command(app)
VARIABLES = {setting.variable for setting in config.SETTINGS} | set(OTHERS)


def parsed(arguments: list[str]) -> dict[str, Any]:
    """The options that a command line gives to its command. Raises if the command line would be refused."""
    command, words = COMMANDS, list(arguments)
    while hasattr(command, "commands"):
        name, *words = words
        assert name in command.commands, f"there is no command {name!r}"
        command = command.commands[name]
    return command.make_context(command.name, words).params


def parsed_line(line: str) -> dict[str, Any]:
    """The same for a line as one types it, which begins with `holdfast`."""
    name, *arguments = shlex.split(line)
    assert name == "holdfast", line
    return parsed(arguments)


def accepted(environment: dict[str, str], directory: Path) -> config.Config:
    """The settings that these variables make, in a directory without a file of its own. Nothing is opened."""
    file = directory / config.FILE
    file.touch()
    read = config.read(file=file, environment=environment, options={})
    Holdfast(read.url, bus=read.bus, namespace=read.namespace, lease=read.lease, worker=False)  # or it would raise
    return read

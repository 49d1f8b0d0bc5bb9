"""`holdfast`: all commands, put together. Each is imported when it is called, or when its help is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any, cast

import typer
from typer.core import TyperGroup
from typer.main import get_command

from holdfast.cli.commands import ABOUT, GROUPS, PANELS
from holdfast.cli.help_page import help_page
from holdfast.cli.version import VersionOption

TABLE = {name: entry for commands in PANELS.values() for name, entry in commands.items()}


class Commands(Mapping[str, Any]):
    """Typer's commands by their names. To name them imports none: each is made when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        return _command(name)

    def __contains__(self, name: object) -> bool:
        return name in TABLE

    def __iter__(self) -> Iterator[str]:
        return iter(TABLE)

    def __len__(self) -> int:
        return len(TABLE)


class Root(TyperGroup):
    """The group of all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = cast("Any", Commands())  # Typer only reads them

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - Typer passes it
        """In the order of the table."""
        return list(self.commands)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - Typer passes them
        """The page that `holdfast --help` shows without Typer, for the other ways to see it."""
        # Typer prints here, too, and takes for granted that nothing is in the formatter when no command was given.
        typer.echo(help_page(), nl=False)


@cache
def _command(name: str) -> Any:
    """What Typer makes of a command, or of a group of commands."""
    where, words = TABLE[name]
    if name in GROUPS:
        made = typer.Typer(name=name, help=words, no_args_is_help=True, add_completion=False)
        made.callback()(_no_command)  # or Typer would take a group of one command for that command
        for inner, place in GROUPS[name].items():
            made.command(inner)(_function(place))
    else:
        made = typer.Typer(add_completion=False)
        made.command(name)(_function(where))
    return get_command(made)


def _no_command() -> None:
    """What a group does by itself: nothing."""


def _function(where: str) -> Callable[..., None]:
    """What Typer calls. Commands are async and have a session; `version` is a plain function, and needs none."""
    module, _, name = where.partition(".")
    action = getattr(import_module(f"holdfast.cli.{module}"), name)
    if not iscoroutinefunction(action):
        return action
    from holdfast.cli.session import command  # noqa: PLC0415 - it loads the engine

    return command(action)


app = typer.Typer(
    name="holdfast",
    cls=Root,
    help=ABOUT,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root(*, version: VersionOption = False) -> None:
    """Nothing, before each command. Without it, Typer takes an app to which no command was added for a mistake."""
    del version  # its callback has printed it

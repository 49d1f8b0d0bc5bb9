"""Writes the reference page of the command line from the commands themselves."""  # noqa: INP001 - see docs/generate.py

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from holdfast.cli.commands import PANELS
from holdfast.cli.main import app
from holdfast.cli.session import COMMON

INTRODUCTION = """\
`pip install '.[cli]'` in a clone installs the command `holdfast`. It talks to a store, or to a gateway:

```sh
holdfast runs --url sqlite:///shop.db
holdfast runs --url https://holdfast.example --api-key "$KEY"
```

Where not to be asked each time, put it into `holdfast.toml` or the environment: see [settings](settings.md).

A run is named by its id, by four or more characters from the beginning or the end of its id, or by its workflow and its
key: `holdfast show checkout/checkout:o-1`. Where a part of an id fits more than one run, the error lists them.

For programs, `--json` prints one JSON document on stdout, in the shapes of the HTTP API (`start` adds `created`, which
HTTP tells by its status). What has no end in sight
(`--watch`, `--follow`, `journal`) prints one document per line. Errors go to stderr: with `--json` as an object with
`code`, `message`, `hint` and `exit_code`, and `run_id` where one run is meant.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the run failed, was cancelled or is blocked; a check found something |
| 2 | the call is wrong: correct it |
| 75 | nothing was decided: try again |
| 130 | interrupted |

Colours are for terminals only, and `NO_COLOR` turns them off. `holdfast --install-completion` teaches your shell the
commands, their options, the names of workflows and the ids of recent runs.\
"""


def lines() -> Iterator[str]:
    """The page."""
    yield "# The command line"
    yield ""
    yield from INTRODUCTION.splitlines()
    root: Any = get_command(app)
    yield from ("", "## Options that every command has", "")
    yield from _table(parameter for parameter in root.commands["runs"].params if parameter.name in COMMON)
    for panel, names in PANELS.items():
        yield from ("", f"## {panel}")
        for name in names:
            command = root.commands[name]
            if (inner := getattr(command, "commands", None)) is None:
                yield from _command(name, command)
            else:
                for each, action in inner.items():
                    yield from _command(f"{name} {each}", action)


def _command(name: str, command: Any) -> Iterator[str]:
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    own = [parameter for parameter in shown if parameter.name not in COMMON and parameter.name != "help"]
    arguments = [parameter for parameter in own if parameter.param_type_name == "argument"]
    usage = " ".join([f"holdfast {name}", *map(_placed, arguments), "[OPTIONS]"])
    yield from ("", f"### `{name}`", "", "```text", usage, "```", "")
    yield from (command.help or "").splitlines()
    if own:
        yield ""
        yield from _table(own)


def _table(parameters: Iterator[Any] | list[Any]) -> Iterator[str]:
    yield from ("| | | default |", "|---|---|---|")
    for each in parameters:
        shown = each.default not in (None, False, ()) and each.param_type_name == "option"
        default = "" if not shown else f"`{each.opts[0]}`" if each.default is True else f"`{each.default}`"
        yield f"| {_written(each)} | {each.help.replace('<', '&lt;')} | {default} |"


def _written(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_placed(parameter)}`"
    forms = [*parameter.opts, *parameter.secondary_opts]
    return ", ".join(f"`{form}`" for form in forms)


def _placed(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    many = "..." if argument.nargs == -1 else ""
    return f"{name}{many}" if argument.required else f"[{name}]{many}"

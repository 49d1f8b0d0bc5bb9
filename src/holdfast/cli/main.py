"""`holdfast`: all commands, put together."""

from __future__ import annotations

from importlib import metadata

import typer

from holdfast.cli import bench, cluster, doctor, gate, inspect, keys, operations, runs, serving, starts
from holdfast.cli.session import Action, command

PANELS: dict[str, dict[str, Action[...]]] = {
    "Run things": {"dev": serving.dev, "serve": serving.serve, "worker": serving.worker},
    "Start work": {"start": starts.start, "result": starts.result, "input": starts.input_},
    "Look": {
        "runs": runs.runs,
        "show": runs.show,
        "explain": runs.explain,
        "journal": runs.journal,
        "workflows": inspect.workflows,
        "workers": inspect.workers,
    },
    "Act": {
        "signal": operations.signal,
        "resume-hook": operations.resume_hook,
        "cancel": operations.cancel,
        "receipt": operations.receipt,
        "resume": operations.resume,
        "retry": operations.retry,
        "fork": operations.fork,
        "release-key": operations.release_key,
    },
    "Operate": {
        "doctor": doctor.doctor,
        "bench": bench.bench,
        "gate": gate.gate,
        "replay-check": inspect.replay_check,
    },
}
CLUSTER: dict[str, Action[...]] = {
    "up": cluster.up,
    "status": cluster.status,
    "kill": cluster.kill,
    "stop": cluster.stop,
    "pause": cluster.pause,
    "resume": cluster.resume,
    "start": cluster.start,
    "down": cluster.down,
}
KEYS: dict[str, Action[...]] = {"create": keys.create, "list": keys.list_keys, "revoke": keys.revoke}

app = typer.Typer(
    name="holdfast",
    help="Durable execution, in which doing a thing once is the point.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for panel, commands in PANELS.items():
    for name, action in commands.items():
        app.command(name, rich_help_panel=panel)(command(action))

GROUPS = {"keys": ("API keys for gateways.", KEYS), "cluster": ("A whole cluster on this machine.", CLUSTER)}
for group, (about, commands) in GROUPS.items():
    group_app = typer.Typer(help=about, no_args_is_help=True)
    for name, action in commands.items():
        group_app.command(name)(command(action))
    app.add_typer(group_app, name=group, rich_help_panel="Operate")


@app.command(rich_help_panel="Operate")
def version() -> None:
    """Print the version."""
    typer.echo(metadata.version("holdfast"))

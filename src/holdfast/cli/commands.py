"""Every command: in which module it is, and what it is for.

Rules
- Data only: `holdfast --help` is told from this table, and nothing else is imported for it.
- A command is imported when it is called, or when its own help is asked for.
- The words are those of the command's docstring. They stand here a second time, and a test compares them.
"""

from __future__ import annotations

ABOUT = "Durable execution, in which doing a thing once is the point."

# By panel and name: module and function within `holdfast.cli`, and the words. A group has a table of its own below.
PANELS: dict[str, dict[str, tuple[str, str]]] = {
    "Run things": {
        "dev": (
            "serving.dev",
            "Start engine, HTTP API and dashboard on one SQLite file, for development on this machine.",
        ),
        "serve": (
            "serving.serve",
            "Serve the HTTP API and the dashboard, execute runs, attend to duties: what the roles say.",
        ),
        "worker": (
            "serving.worker",
            "Execute runs, and attend to duties, until told to stop. It listens on no port.",
        ),
    },
    "Start work": {
        "start": (
            "starts.start",
            "Start a run, once per key: if a live run holds the key, that run is joined.",
        ),
        "result": (
            "starts.result",
            "Wait for a run's result, and print it. Exit code 1 if the run failed, was cancelled or is blocked.",
        ),
        "input": ("starts.input_", "Print the arguments that a run was started with."),
    },
    "Look": {
        "runs": ("runs.runs", "List runs, newest first, a page at a time."),
        "show": (
            "runs.show",
            "Show a run: what it is, why it waits, what may be done now, and its steps with their attempts.",
        ),
        "explain": (
            "runs.explain",
            "Tell the story of a run: its journal in words, why it waits, what may be done now.",
        ),
        "journal": (
            "runs.journal",
            "Print the journal of a run, one JSON object per line: what it has recorded, in order.",
        ),
        "workflows": ("inspect.workflows", "List the workflows, and what each takes."),
        "workers": ("inspect.workers", "List the live workers, and how much there is to do."),
        "limits": (
            "limits.limits",
            "Show what the gateway limits and how much of it is left; or of a limit of your own. Takes nothing.",
        ),
        "slots": (
            "breakers.slots",
            "List the limits at effects: how many calls each lets be under way, and which instance has which slots.",
        ),
    },
    "Act": {
        "signal": ("operations.signal", "Send a payload to a hook of a run, durably."),
        "resume-hook": ("operations.resume_hook", "Send a payload to whichever live run holds a token."),
        "cancel": ("operations.cancel", "Cancel a run, wait until it has ended, and say what it left behind."),
        "receipt": ("operations.receipt", "Say again what a cancelled or failed run left behind."),
        "resume": ("operations.resume", "Let a cancelled run go on as if it had not been cancelled."),
        "retry": ("operations.retry", "Try a failed or blocked run again from its last record."),
        "retry-now": (
            "operations.retry_now",
            "Let the next attempt of an effect begin at once, instead of at the end of its pause. It is recorded.",
        ),
        "decide": (
            "operations.decide",
            "Say what came of a step whose outcome is not known, and let the run go on. It is recorded.",
        ),
        "fork": ("operations.fork", "Start a new run that begins with what this one did before a step."),
        "release-key": (
            "operations.release_key",
            "Take the key from a run, so that it can be used again. It is recorded.",
        ),
        "bulk": ("bulk", "Act on all runs that filters mean, as a run of its own."),
    },
    "Operate": {
        "doctor": (
            "doctor.doctor",
            "Check versions, settings, packs, and whether the store or the gateway can keep its promises.",
        ),
        "bench": (
            "bench.bench",
            "Measure starts, effects and latency on this machine and disk, against bare SQLite.",
        ),
        "gate": (
            "gate.gate",
            "Kill, stop and restart every part of an installation on this machine, and prove that nothing goes wrong.",
        ),
        "prove": (
            "prove.prove",
            "Crash, pause and cancel workflows at every boundary of a run, and prove that nothing is done twice.",
        ),
        "replay-check": (
            "inspect.replay_check",
            "Replay stored journals against the code of today. Exit code 1 if one does not fit. Changes nothing.",
        ),
        "journals": ("journals", "Journals as files, for a replay check where the store is not."),
        "version": ("version.version", "Print the version."),
        "breakers": ("breakers", "Circuit breakers of effects."),
        "lanes": ("lanes", "Lanes: runs that go one after the other, or a few at a time."),
        "keys": ("keys", "API keys for gateways."),
        "cluster": ("cluster", "A whole cluster on this machine."),
    },
}
GROUPS: dict[str, dict[str, str]] = {
    "bulk": {
        "retry": "bulk.retry",
        "cancel": "bulk.cancel",
        "resume": "bulk.resume",
        "signal": "bulk.signal",
    },
    "journals": {"export": "journals.export"},
    "breakers": {
        "list": "breakers.list_breakers",
        "show": "breakers.show",
        "open": "breakers.open_",
        "close": "breakers.close",
    },
    "lanes": {
        "list": "lanes.list_lanes",
        "show": "lanes.show",
        "set": "lanes.set_lane",
        "pause": "lanes.pause",
        "resume": "lanes.resume",
    },
    "keys": {"create": "keys.create", "list": "keys.list_keys", "revoke": "keys.revoke"},
    "cluster": {
        "up": "cluster.up",
        "status": "cluster.status",
        "kill": "cluster.kill",
        "stop": "cluster.stop",
        "pause": "cluster.pause",
        "resume": "cluster.resume",
        "start": "cluster.start",
        "down": "cluster.down",
    },
}

"""Writes the reference page of leases, cadences, patience and limits from the values of the code."""  # noqa: INP001 - see docs/generate.py

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from holdfast import config
from holdfast.buses.nats import link, topics
from holdfast.cli import watch
from holdfast.engine.pace import Pace
from holdfast.gateway import server
from holdfast.gateway.endpoints import GatewaySettings
from holdfast.gateway.limits import Limits
from holdfast.kernel import leaders, leases, units
from holdfast.kernel.supervision import SupervisionPolicy
from holdfast.stores.redis.net import connections, topologies, urls
from holdfast.stores.redis.pace import RedisPace
from holdfast.stores.sqlite.pace import SqlitePace
from holdfast.telemetry import metrics

Row = tuple[str, str, str]

PACE = Pace()
REDIS_PACE = RedisPace()
SQLITE_PACE = SqlitePace()
GATEWAY = GatewaySettings()
CONNECTIONS = Limits()
SUPERVISION = SupervisionPolicy()
LEASE = config.Config().lease
LEASES = ("3s", "10s", LEASE, "60s")
LEASE_MS = units.milliseconds(LEASE)
DUTY_MS = leaders.ttl_ms(LEASE_MS)
RESCUE_MS = LEASE_MS / 3  # see engine/duties/rescuer.py: a bite that was not full is followed by this pause
REDIS = urls.RedisUrl(kind="single", addresses=())

INTRODUCTION = f"""\
How long things last, and how often they are checked. One of these numbers is yours to set: the lease of a worker
(`HOLDFAST_LEASE`, `Holdfast(lease=...)`; {LEASE} unless you do). What follows from it is shown for {LEASE}. They are
bounds for bad days: on a good one a process is told, and no process waits for a poll.

A shorter lease means that the work of a killed process goes on sooner, and more writes: one per process and third of a
lease. It must be longer than any pause that you want to survive without losing work: of the machine, of the network, of
the event loop. [Scaling](../operating/scaling.md) says how to choose.\
"""


def lines() -> Iterator[str]:
    """The page."""
    yield "# Leases and cadences"
    yield ""
    yield from INTRODUCTION.splitlines()
    yield from _table("A worker's lease", "after", _lease_rows(LEASE_MS, "the lease"))
    yield from (
        "",
        f"So the runs of a worker that was killed go on elsewhere after at most {_shown(LEASE_MS + RESCUE_MS)}: its",
        "lease, and the time until the next check. Those of a worker that was told to stop go on at once.",
    )
    yield from _choices()
    yield from _table("The lease of a duty", "after", _lease_rows(DUTY_MS, "half the lease"))
    yield from (
        "",
        "One process leads each duty, and any scheduler or worker may. It is short enough that there is a leader again",
        "when the lease of a worker expires, even if both died together.",
    )
    yield from _table("Duties", "every", _duties())
    yield from _table("In case that a notice was lost", "every", _polls())
    yield from _table("Patience with servers", "for", _patience())
    yield from _table("After a trouble", "after", _after_trouble())
    yield from _table("Runs and callers", "for", _runs())
    yield from _table("HTTP", "for", _http())
    yield from _table("Stopping", "for", _stopping())
    yield from _table("A supervisor and its processes", "", _supervision())
    yield from _table("Limits", "at most", _limits())
    yield from ("", "## Connections of one process", "")
    yield from ("| to | how many |", "|---|---|")
    confirming = len(get_args(connections.Lane)) - 1
    yield "| each Redis primary | 1, for all calls |"
    yield f"| each Redis primary whose replicas confirm writes | {confirming} more, on which that is waited for |"
    yield "| a replica in a Redis Cluster | 1, once it was asked who serves what |"
    asked = _seconds(topologies.SENTINELS_SECONDS)
    yield f"| each Sentinel | 1, on which it is asked for the primary every {asked} |"
    yield "| one Redis server, if there is no bus | 2 more: one that hears by Pub/Sub, and one that tells |"
    yield "| NATS | 1 |"
    yield "| a SQLite file | 3, and a socket of its own; one more socket for each other process on the file |"


def _lease_rows(ttl_ms: int, rule: str) -> list[Row]:
    due_in_ms = leases.look_again_in_ms(0, ttl_ms=ttl_ms)
    return [
        ("it is renewed", _shown(due_in_ms), "a third of it"),
        (
            "a renewal that failed is tried again",
            _shown(leases.look_again_in_ms(due_in_ms, ttl_ms=ttl_ms)),
            "a fifteenth",
        ),
        (
            "its holder begins nothing new, if it could not be renewed",
            _shown(leases.reliable_for_ms(ttl_ms)),
            "two thirds",
        ),
        ("its holder gives up by itself", _shown(_gone_ms(ttl_ms)), "four fifths"),
        ("others may take over, by the clock of the store", _shown(ttl_ms), rule),
    ]


def _gone_ms(ttl_ms: int) -> int:
    """When a holder gives up a lease that it could not renew."""
    return next(age_ms for age_ms in range(ttl_ms) if leases.standing(age_ms, ttl_ms=ttl_ms) is leases.Standing.LOST)


def _choices() -> Iterator[str]:
    """What other leases would mean. The worst moment for a pause is the one before a renewal."""
    yield from (
        "",
        "| lease | the work of a killed process waits at most | a pause that costs no work |",
        "|---|---|---|",
    )
    for lease in LEASES:
        ttl_ms = units.milliseconds(lease)
        pause_ms = _gone_ms(ttl_ms) - leases.look_again_in_ms(0, ttl_ms=ttl_ms)
        yield f"| `{lease}` | {_rounded(ttl_ms + ttl_ms / 3)} | {_rounded(pause_ms)} |"


def _duties() -> list[Row]:
    rescued, pruned, relayed = PACE.rescue_max, PACE.prune_max, PACE.relay_max
    return [
        (
            f"rescuer: frees the runs of dead workers, up to {rescued} at a time",
            _shown(RESCUE_MS),
            "a third of the lease",
        ),
        ("… while there are more", _seconds(PACE.bite_pause_seconds), ""),
        (
            f"pruner: removes what is over, up to {pruned} at a time",
            _seconds(PACE.prune_seconds),
            "",
        ),
        ("… while there are more", _seconds(PACE.bite_pause_seconds), ""),
        (
            f"relay: delivers what crosses shards and was left behind, up to {relayed} at a time",
            f"{_seconds(PACE.relay_seconds)} to {_shown(RESCUE_MS)}",
            "less often while there is nothing",
        ),
        ("… while there are more", _seconds(PACE.bite_pause_seconds), ""),
        (
            f"timeouts: ends runs that have taken longer than they may, up to {PACE.timeouts_max} at a time",
            _seconds(PACE.timeouts_seconds),
            "",
        ),
        ("… while there are more", _seconds(PACE.bite_pause_seconds), ""),
    ]


def _polls() -> list[Row]:
    return [
        ("a worker looks whether a run is due", _seconds(PACE.wake_poll_seconds), "at the latest"),
        (
            "a worker looks again after a run was due",
            _seconds(2 * PACE.wake_again_seconds),
            "twice as long each time, until it has claimed one",
        ),
        ("a worker looks for signals to the runs that it has", _seconds(PACE.mail_poll_seconds), "at the latest"),
        ("who waits for a result looks at the run", _seconds(PACE.waiters_poll_seconds), "at the latest"),
        ("who follows the events of a run looks at it", _seconds(PACE.events_poll_seconds), "at the latest"),
        ("who waits for remote tasks looks at them", _seconds(PACE.tasks_poll_seconds), "at the latest"),
        ("a worker tells how many of its threads hang", _seconds(PACE.hangs_seconds), "only if that has changed"),
        (
            f"a worker looks whether its code fits runs that are blocked, {_count(PACE.uptake_max)} at a time",
            _seconds(PACE.uptake_seconds),
            "and when it has joined",
        ),
        ("an API key is read again", _shown(PACE.api_key_ms), "sooner, if a notice says that it has changed"),
        (
            "who waits for many results or tasks rests after each look",
            f"{PACE.rest_factor} times as long as it took",
            "so that the work is not held up",
        ),
        ("Redis: replicas are counted", _seconds(REDIS_PACE.count_seconds), "with `wait=auto`, while it is written to"),
        ("Redis: its clock, which decides, is read again", _seconds(REDIS_PACE.clock_seconds), ""),
        (
            "SQLite: the file is looked at for commits of others",
            _seconds(SQLITE_PACE.safety_seconds),
            "while all processes tell each other",
        ),
        (
            "… where this process has no socket, or another one does not tell",
            _seconds(SQLITE_PACE.notice_seconds),
            "",
        ),
        ("metrics: the store is asked", _shown(metrics.LOOK_EVERY_MS), "only when it is scraped"),
        ("`--watch` looks again", _seconds(watch.EVERY_SECONDS), ""),
    ]


def _patience() -> list[Row]:
    return [
        ("Redis: an answer may take", _shown(REDIS.timeout_ms), "`timeout=` in the URL"),
        (
            "Redis: what was not executed is tried again",
            _seconds(REDIS_PACE.patience_seconds),
            "failover, loading, moved slots",
        ),
        ("Redis: replicas may take to confirm a write", _shown(REDIS_PACE.confirm_ms), "`wait=` in the URL"),
        (
            "Redis: a replica may be silent before `wait=auto` does without it",
            _seconds(connections.LAG_SECONDS_MAX),
            "`cluster-node-timeout` should be shorter",
        ),
        (
            "Redis: a primary that has lost its last replica is mistrusted, with `wait=auto`",
            _seconds(REDIS_PACE.alone_seconds),
            "it may have been replaced, and not know it yet",
        ),
        ("Redis: connecting may take", _seconds(connections.CONNECT_SECONDS), ""),
        ("Redis: the longest pause between two attempts", _seconds(connections.BACKOFF_SECONDS_MAX), "with jitter"),
        ("NATS: connecting may take", _seconds(link.CONNECT_S), ""),
        ("NATS: the longest pause between two attempts", _seconds(link.PAUSE_S_MAX), "with jitter, forever"),
        ("NATS: a message for a topic is tried again", _seconds(topics.PATIENCE_S), "under the same id"),
        ("SQLite: a locked file is waited for", _shown(SQLITE_PACE.busy_ms), ""),
        ("`/readyz` waits for the store", _seconds(GATEWAY.store_seconds_max), "then it is not ready"),
        ("metrics wait for the store", _seconds(metrics.LOOK_SECONDS_MAX), "then what it would say is missing"),
    ]


def _after_trouble() -> list[Row]:
    return [
        ("a store that could not be reached is asked again", _seconds(PACE.trouble_pause_seconds), ""),
        ("… for a lease", _seconds(PACE.lease_trouble_pause_seconds), "which does not last long"),
        ("… by a duty", _seconds(PACE.duty_trouble_pause_seconds), ""),
        ("a part of the engine that has failed begins again", _seconds(PACE.fault_pause_seconds), ""),
        (
            "the system is asked again for a thread that it did not give",
            _seconds(PACE.start_thread_again_seconds),
            "",
        ),
    ]


def _runs() -> list[Row]:
    return [
        ("a run that waits stays in memory", _shown(PACE.idle_ms), "not at all, if only a later timer can wake it"),
        (
            "code of a workflow may compute without an await",
            f"{PACE.code_seconds_max:g} s",
            "then it is interrupted, and the run is blocked",
        ),
        (
            "a worker may say itself that the deadline of a cancellation has passed",
            _shown(PACE.cancel_grace_ms),
            "then the caller cancels the run",
        ),
        (
            "SQLite: what no process waits for is gathered, and told together",
            _seconds(SQLITE_PACE.gather_seconds),
            "that a run has gone on, that a lease was renewed",
        ),
        (
            "SQLite: a commit that was found may be told so much later",
            _shown(SQLITE_PACE.announced_ms),
            "else its process does not tell",
        ),
        (
            "SQLite: the file is looked at often after a commit that was not told",
            _shown(SQLITE_PACE.unannounced_ms),
            "a process without a socket tries again as often to get one",
        ),
        ("it is believed that a workflow is served", _shown(PACE.served_ms), "then the store is asked again"),
        (
            "Redis: what crosses shards is left to the process that committed it",
            _shown(REDIS_PACE.outbox_age_ms),
            "then the relay delivers it",
        ),
        (
            "Redis: a place in a lane is reserved for a run that is being admitted",
            _shown(REDIS_PACE.reserve_ms),
            "its admission is offered again after that",
        ),
        (
            "Redis: a place whose run has not come is taken back after so much more",
            _shown(REDIS_PACE.overdue_ms),
            "by the relay",
        ),
        (
            "Redis: what was delivered to another shard stays in the outbox",
            _seconds(REDIS_PACE.tidy_seconds),
            "a commit takes it along sooner",
        ),
    ]


def _http() -> list[Row]:
    return [
        ("the headers of a request may take", _seconds(CONNECTIONS.header_seconds_max), "from the first byte"),
        ("the body of a request may take", _seconds(GATEWAY.body_seconds_max), ""),
        ("a connection may be idle", _seconds(CONNECTIONS.idle_seconds_max), "between two requests"),
        ("what is sent may wait to be read", _seconds(CONNECTIONS.send_seconds_max), "then the connection is cut"),
        ("`?wait=` waits at most", _seconds(GATEWAY.wait_seconds_max), ""),
        (
            "a stream of events lasts at most",
            _seconds(GATEWAY.stream_seconds_max),
            "then its reader comes back, and shows the key again",
        ),
        ("a stream of events may say nothing", _seconds(GATEWAY.heartbeat_seconds), "then it sends a comment"),
        (
            "a page of the dashboard waits for a cancellation",
            _seconds(GATEWAY.cancel_seconds_max),
            "which goes on without it",
        ),
    ]


def _stopping() -> list[Row]:
    most = PACE.grace_seconds + 2 * PACE.last_words_seconds + server.LAST_SECONDS
    return [
        ("effects at work may end", _seconds(PACE.grace_seconds), "then their runs are given back"),
        ("cancelled effects may close what they have open", _seconds(PACE.clean_up_seconds), ""),
        ("requests at work may end", _seconds(CONNECTIONS.drain_seconds_max), "at the same time"),
        ("what is recorded may reach the store", _seconds(PACE.last_words_seconds), "else leases expire instead"),
        ("Redis: the outboxes may be tidied up", _seconds(REDIS_PACE.last_words_seconds), "else the relay does it"),
        ("SQLite: what is under way may end", _seconds(SQLITE_PACE.last_moment_seconds), ""),
        ("all of it", _seconds(most), "give a process longer than that before you kill it"),
    ]


def _supervision() -> list[Row]:
    return [
        ("a process that ends is started again", "at once", "if it had been ready for long"),
        ("… and not, if it had been ready for less than", _shown(SUPERVISION.soon_ms), "it has ended soon"),
        (
            "a process that has ended soon is started again after",
            _shown(SUPERVISION.rest_ms),
            f"twice as long each time, up to {_shown(SUPERVISION.rest_ms_max)}",
        ),
        (
            "all is given up when a process has ended soon",
            f"{SUPERVISION.failures_max} times in a row",
            "the others stop in order",
        ),
        ("a process that does not stop is killed after", _shown(SUPERVISION.grace_ms), ""),
        ("a second request to stop kills at once, if it comes after", _shown(SUPERVISION.again_ms), ""),
    ]


def _limits() -> list[Row]:
    return [
        ("runs that a worker claims at a time", _count(PACE.claim_max), "what is left is for the other workers"),
        ("runs or tasks that are looked up in one read", _count(PACE.look_up_max), ""),
        (
            "threads of a worker that were given up and still hang",
            _count(PACE.given_up_threads_max),
            "then effects wait",
        ),
        ("API keys that a process remembers", _count(PACE.api_keys_max), ""),
        ("API keys that are listed in one read", _count(PACE.api_keys_page), ""),
        ("HTTP: connections", _count(CONNECTIONS.connections_max), ""),
        ("HTTP: requests that wait", _count(GATEWAY.waiting_max), "long polls and streams"),
        ("HTTP: headers of a request", _bytes(CONNECTIONS.header_bytes_max), ""),
        ("HTTP: body of a request", _bytes(GATEWAY.body_bytes_max), ""),
        (
            "SQLite: runs in an index that a search sorts",
            _count(SQLITE_PACE.few_runs),
            "with more it walks another index in order",
        ),
        (
            "SQLite: a file whose pages `holdfast doctor` checks",
            _bytes(SQLITE_PACE.check_bytes_max),
            "a check reads all of it",
        ),
    ]


def _table(title: str, column: str, rows: list[Row]) -> Iterator[str]:
    yield from ("", f"## {title}", "", f"| what | {column} | |", "|---|---|---|")
    yield from (f"| {what} | {number} | {note} |" for what, number, note in rows)


def _shown(ms: float) -> str:
    return f"{ms:g} ms" if ms < 1000 else f"{ms / 1000:g} s"


def _count(number: int) -> str:
    return f"{number:,}"


def _bytes(number: int) -> str:
    return f"{number // 1024:,} KiB" if number < 1024**2 else f"{number // 1024**2:,} MiB"


def _rounded(ms: float) -> str:
    return f"{ms / 1000:.3g} s"


def _seconds(seconds: float) -> str:
    return _shown(seconds * 1000)

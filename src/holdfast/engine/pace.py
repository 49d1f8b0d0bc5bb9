"""How often the engine looks, how long it waits and how much it takes at a time: every such number, in one value.

They are no settings: the numbers suit every installation. Only how long code may compute without an await can be set,
as `busy_limit`. What follows from the lease is not among them, see `kernel.leases`. They are a value and no constants,
so that a test can have one Holdfast of another pace, and every other one of the process keeps its own.
`docs/reference/cadences.md` is generated from it.
"""

from __future__ import annotations

from msgspec import Struct

from holdfast.kernel.times import Millis


class Pace(Struct, frozen=True, kw_only=True):
    """The cadences and limits of one Holdfast."""

    # How often each part looks by itself, in case a notice was lost.
    wake_poll_seconds: float = 5.0
    mail_poll_seconds: float = 5.0
    waiters_poll_seconds: float = 5.0
    tasks_poll_seconds: float = 5.0
    rules_poll_seconds: float = 5.0  # breakers and limits of effects
    events_poll_seconds: float = 15.0

    wake_again_seconds: float = 0.05  # after it has rung for a run that is due; twice as long each time

    # The pause after the store could not be reached, or after a part of the engine has failed.
    trouble_pause_seconds: float = 0.2
    lease_trouble_pause_seconds: float = 0.1  # a lease does not last long
    duty_trouble_pause_seconds: float = 0.5
    fault_pause_seconds: float = 0.5

    # Stopping.
    grace_seconds: float = 10.0  # for effects in flight to end
    clean_up_seconds: float = 1.0  # for cancelled effects to close what they have open
    last_words_seconds: float = 2.0  # for the store to take what is said to it last

    # Runs in memory.
    code_seconds_max: float = 2.0  # of a workflow's own code without an await, then it is interrupted; 0: never
    claim_max: int = 16  # no more at a time: what is left is for the other workers
    idle_ms: Millis = Millis(1_000)  # a run that waits longer than this is let go
    given_up_threads_max: int = 1_000
    start_thread_again_seconds: float = 1.0  # where the system gives no thread

    # Effects that a breaker or a limit stands before.
    held_ms: Millis = Millis(30_000)  # a run that was let go is woken later by this at most, or by twice as much
    expected_ms: Millis = Millis(2_000)  # how long a run is expected that was woken since it is nearly its turn
    slots_look_seconds: float = 1.0  # how often a worker that lacks slots looks whether the owner of some has died

    # Duties.
    rescue_max: int = 100
    prune_max: int = 200
    relay_max: int = 200
    bite_pause_seconds: float = 0.05  # between two bites, while there is more to do than fits into one
    prune_seconds: float = 5.0
    timeouts_max: int = 100
    timeouts_seconds: float = 1.0  # how late a run may be ended that has taken longer than it may
    relay_seconds: float = 1.0
    hangs_seconds: float = 2.0
    limiters_seconds: float = 10.0
    limiters_max: int = 1_000  # how many replicas are counted
    uptake_seconds: float = 10.0
    uptake_max: int = 100

    # Callers.
    look_up_max: int = 500  # how many runs or tasks are looked up in one read
    rest_factor: int = 4  # after a look, rest this many times as long as it took: many waiters must not starve the work
    cancel_grace_ms: Millis = Millis(500)  # for a worker to say itself that the deadline of a cancellation has passed
    served_ms: Millis = Millis(1_000)  # how long it is believed that a workflow is served
    api_key_ms: Millis = Millis(2_000)  # how long a key that was read is believed
    api_keys_max: int = 1_000  # how many keys are remembered
    api_keys_page: int = 100  # how many keys are listed in one read

    # Limits.
    limit_seconds_max: float = 0.1  # then the store is away, and this process limits by itself
    limit_away_ms: Millis = Millis(1_000)  # how long it does, before one call tries the store again
    limit_said_ms: Millis = Millis(60_000)  # how often that is said at most

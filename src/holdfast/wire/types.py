"""The JSON that a gateway speaks, as types: a `View` is what it sends, a `Body` what is sent to it.

The gateway encodes them, the client decodes them, and the OpenAPI document is generated from them: nothing is said
twice. That document names a type without its suffix (`RunView` is published as `Run`), since inside this code `Run`,
`Task` or `Problem` are other things. Instants are RFC 3339 in UTC. An attribute that is an instant is written
`{"at": "..."}`, since JSON has no type of its own for it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from holdfast.engine.api.start_options import Priority
from holdfast.engine.remote.tasks import CLAIM_MAX, EFFECTS_MAX
from holdfast.kernel.apikeys import Scope
from holdfast.kernel.bulks import PREVIEW_MAX, BulkVerb
from holdfast.kernel.cancels import Outcome, State
from holdfast.kernel.lanes import WIDTH_MAX
from holdfast.kernel.times import Millis

WARNING = "Holdfast-Warning"  # a header of a reply to what was done, and was perhaps not meant; percent-encoded
NAMESPACE = "Holdfast-Namespace"  # a header of each reply to an authenticated request; percent-encoded
Timestamp = Annotated[datetime, Meta(tz=True)]
Text = Annotated[str, Meta(max_length=255)]
Key = Annotated[str, Meta(min_length=1, max_length=255)]
Duration = (
    Annotated[float, Meta(ge=0, description="Seconds.", examples=[1.5])]
    | Annotated[
        str,
        Meta(
            pattern=r"^[0-9]{1,12}(\.[0-9]{1,9})?\s*(ms|s|m|h|d)$",
            description="A number with a unit: 1500ms, 30s, 5m, 2h, 3d.",
            examples=["30s"],
        ),
    ]
)
Width = Annotated[int, Meta(ge=1, le=WIDTH_MAX, description="How many runs of the lane may be active at once.")]
Fence = Annotated[int, Meta(ge=0, le=2**53 - 1, description="As the claim has answered it.")]
PartState = Literal["ok", "failing", "slow", "lost", "closing"]
Status = Literal["pending", "running", "waiting", "blocked", "completed", "failed", "cancelled"]


class At(Struct, frozen=True, forbid_unknown_fields=True):
    """An instant, where JSON alone would only show text."""

    at: Timestamp


Attribute = str | int | float | bool | At
Bound = int | float | At


class Filter(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An instant that an attribute equals, or the range in which it lies."""

    at: Timestamp | None = None
    ge: Bound | None = None
    gt: Bound | None = None
    le: Bound | None = None
    lt: Bound | None = None


# -- what a gateway sends


class MarkerView(Struct, frozen=True):
    """A marker that a run has reached."""

    name: str
    at: Timestamp


class RunningEffectView(Struct, frozen=True, kw_only=True):
    """An attempt of an effect that runs; if it is `lost`, the lease of its instance has expired: it may have ended."""

    name: str
    attempt: int
    since: Timestamp
    timeout_ms: Millis | None
    remote: bool
    lost: bool
    heartbeat: Raw | UnsetType = UNSET
    heartbeat_at: Timestamp | None = None


class LaneWaitView(Struct, frozen=True, kw_only=True):
    """A place in a lane: how many runs are ahead, which is the first of them, and since when it is active."""

    ahead: int
    first: str | None
    since: Timestamp | None
    paused: bool


class WaitView(Struct, frozen=True, kw_only=True):
    """One thing that a run waits for; `text` says it in words.

    `effect` is what `instance` performs for it just now. `version` is there if it is a worker of that version, and
    `lane` if it is its turn in one. `ahead` is how many runs go before it; of a batch, how many items it has.
    """

    kind: str
    name: str
    until: Timestamp | None
    step: str
    text: str
    instance: str | UnsetType = UNSET
    effect: RunningEffectView | UnsetType = UNSET
    error: str | UnsetType = UNSET
    version: str | UnsetType = UNSET
    detail: str | UnsetType = UNSET
    lane: LaneWaitView | UnsetType = UNSET
    ahead: int | UnsetType = UNSET


class ErrorView(Struct, frozen=True, kw_only=True):
    """Why a run failed, or what blocks it. `line` is the line of your code that raised, if it is known."""

    type: str
    message: str
    line: str = ""


class RunView(Struct, frozen=True, kw_only=True):
    """A run as it is. `error` is there if it failed or is blocked; `result` if the request waited for it."""

    id: str
    workflow: str
    key: str | None
    holds_key: bool
    status: Status
    queue: str
    priority: int
    version: str | None
    fence: int
    attributes: dict[str, Attribute]
    markers: list[MarkerView]
    waiting_on: list[WaitView]
    next_actions: list[str]
    created_at: Timestamp
    finished_at: Timestamp | None
    expires_at: Timestamp | None
    result: Raw | UnsetType = UNSET
    error: ErrorView | UnsetType = UNSET
    times_out_at: Timestamp | UnsetType = UNSET
    lane: str | UnsetType = UNSET


class RunPageView(Struct, frozen=True):
    """Some of the runs that were searched for; `next` is where the next page begins."""

    runs: list[RunView]
    next: str | None


class PreviewedRunView(Struct, frozen=True):
    """A run, and why a verb would not be applied to it; empty if it would."""

    run: RunView
    refusal: str


class BulkPreviewView(Struct, frozen=True, kw_only=True):
    """What a bulk operation would do. `matched` runs are meant, or more if not `is_all`: counts stop at 10,000."""

    verb: BulkVerb
    matched: int
    is_all: bool
    first: list[PreviewedRunView]


class ResultView(Struct, frozen=True):
    """What a run returned."""

    result: Raw


class JournalView(Struct, frozen=True):
    """What a run has done; the first entry is at position `first`."""

    first: int
    entries: list[Raw]


class LeftEffectView(Struct, frozen=True, kw_only=True):
    """An effect that was begun, and what became of it."""

    key: str
    name: str
    step: str
    state: State
    problem: str


class LeftChildView(Struct, frozen=True, kw_only=True):
    """A child run, and what its own cancellation left behind."""

    run_id: str
    workflow: str
    outcome: Outcome


class ReceiptView(Struct, frozen=True, kw_only=True):
    """What a cancellation left behind."""

    run_id: str
    outcome: Outcome
    effects: list[LeftEffectView]
    children: list[LeftChildView]
    reason: str
    stopped: bool


class LineView(Struct, frozen=True):
    """One entry of the journal, in words; if it says that something was raised, with the frames of your code."""

    position: int
    at: Timestamp
    text: str
    counts: bool
    traceback: str | UnsetType = UNSET


class StoryView(Struct, frozen=True, kw_only=True):
    """What happened to a run, why it waits, and what may be done about it."""

    run_id: str
    headline: str
    waiting_on: list[WaitView]
    next_actions: list[str]
    lines: list[LineView]


class WorkflowView(Struct, frozen=True, kw_only=True):
    """What a workflow declares about itself."""

    name: str
    doc: str
    key: str | None
    version: str | None
    queue: str
    retention_ms: Millis
    markers: dict[str, list[str]]
    outcomes: list[Outcome] | None
    input_schema: dict[str, Any] | None
    result_schema: dict[str, Any] | None
    lane: str | UnsetType = UNSET
    rules: list[str] | UnsetType = UNSET


class WorkflowsView(Struct, frozen=True):
    """The workflows that this gateway knows."""

    workflows: list[WorkflowView]


class WorkerView(Struct, frozen=True, kw_only=True):
    """A live worker. `instance` is its process, as logs and metrics name it; `id` is that of its lease."""

    id: str
    host: str
    pid: int
    concurrency: int
    workflows: list[str]
    holds: int
    joined_at: Timestamp
    lease_until: Timestamp
    instance: str = ""


class WorkersView(Struct, frozen=True):
    """The live workers, in the order in which they joined."""

    workers: list[WorkerView]


class RateBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """So many in so long; `burst` of them at once after a rest, or all of them if that is left out."""

    count: Annotated[int, Meta(ge=1, le=1_000_000)]
    per: Duration
    burst: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


class SpendBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is counted, at which rate, and for how many this one counts; 0 takes nothing: it is a look."""

    name: Annotated[str, Meta(min_length=1, max_length=256)]
    rate: RateBody
    cost: Annotated[int, Meta(ge=0, le=1_000_000)] = 1


class LimitVerdictView(Struct, frozen=True, kw_only=True):
    """Whether as much may go now; if so, it is counted. After `retry_after` seconds it may, after `reset_after` all."""

    allowed: bool
    remaining: int
    retry_after: float
    reset_after: float


class LimitView(Struct, frozen=True, kw_only=True):
    """A limit of the gateway, and what is left of it to the caller. That of an address is no API key's to know."""

    limit: Literal["address", "api_key", "tenant", "start"]
    rate: str
    remaining: int | None = None
    reset_after: float | None = None


class LimitsView(Struct, frozen=True, kw_only=True):
    """What the gateway limits. `by_itself`: the store does not count, so each of the `replicas` does, to its share."""

    limits: list[LimitView]
    by_itself: bool
    replicas: int


class LaneView(Struct, frozen=True, kw_only=True):
    """A lane: how many of its runs are active and how many wait, and the first of them, in order.

    `head` is the run that has been there for longest: an active one, if there is any.
    """

    name: str
    width: int
    active: int
    parked: int
    paused: bool
    head: RunView | None
    active_runs: list[str]
    parked_runs: list[str]


class LanesView(Struct, frozen=True):
    """Some of the lanes, by name; `next` is where the next page begins."""

    lanes: list[LaneView]
    next: str | None


class DepthView(Struct, frozen=True, kw_only=True):
    """How many runs of a workflow wait for a worker, and since when."""

    workflow: str
    queue: str
    ready: int
    oldest_at: Timestamp | None


class BacklogView(Struct, frozen=True):
    """How much there is to do. Counts stop at 10,000."""

    statuses: dict[str, int]
    depths: list[DepthView]


class BreakerView(Struct, frozen=True, kw_only=True):
    """A circuit breaker of effects: closed, open or half-open. `until` is when an effect is tried next.

    `calls` and `failures` are those that were reported lately; `by` is who opened or closed it last (`did`).
    """

    name: str
    state: str
    since: Timestamp | None
    until: Timestamp | None
    calls: int
    failures: int
    successes: int
    prober: str
    by: str
    did: str
    by_at: Timestamp | None


class BreakersView(Struct, frozen=True):
    """The circuit breakers of a namespace, by name."""

    breakers: list[BreakerView]


class LimitShareView(Struct, frozen=True, kw_only=True):
    """What an instance has of a limit: its slots, and how many it could use."""

    instance: str
    slots: int
    wants: int


class EffectLimitView(Struct, frozen=True, kw_only=True):
    """A limit at effects: how many calls may be under way, and which instance has which slots."""

    name: str
    width: int | None
    taken: int
    shares: list[LimitShareView]


class EffectLimitsView(Struct, frozen=True):
    """The limits at effects of a namespace, by name."""

    limits: list[EffectLimitView]


class ApiKeyView(Struct, frozen=True, kw_only=True):
    """An API key, without its secret; `tail` are the last characters of the token."""

    id: str
    name: str
    namespace: str
    scope: Scope
    tail: str
    created_at: Timestamp
    expires_at: Timestamp | None
    revoked_at: Timestamp | None


class ApiKeysView(Struct, frozen=True):
    """The API keys of a namespace, those that no longer work included."""

    keys: list[ApiKeyView]


class NewApiKeyView(Struct, frozen=True, kw_only=True):
    """A key that was just made. The token is shown this once."""

    token: str
    key: ApiKeyView


class ProblemView(Struct, frozen=True, kw_only=True):
    """What went wrong, and what to do now (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str
    instance: str
    run_id: str | UnsetType = UNSET
    error: ErrorView | UnsetType = UNSET


class AliveView(Struct, frozen=True):
    """This process answers."""

    status: Literal["ok"] = "ok"


class ReadyView(Struct, frozen=True):
    """Whether requests should come here, and the state of each part that this takes."""

    ready: bool
    parts: dict[str, PartState]


class TaskView(Struct, frozen=True, kw_only=True):
    """One attempt of an effect. `input` has its arguments by name."""

    id: str
    effect: str
    key: str
    run: str
    attempt: int
    input: Raw
    fence: int
    lease_until: Timestamp
    last_heartbeat: Raw
    traceparent: str | UnsetType = UNSET


class ClaimedView(Struct, frozen=True):
    """The tasks that are the worker's now; none if there was nothing to do in time."""

    tasks: list[TaskView]


class BeatenView(Struct, frozen=True):
    """Whether anybody still wants the outcome, and until when the task is the worker's."""

    wanted: bool
    lease_until: Timestamp


class EndedView(Struct, frozen=True):
    """The task has ended, as this worker has said."""

    id: str


# -- what is sent to a gateway


class SentSignalBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A payload for a hook; once per `dedupe`."""

    hook: Key
    payload: Any = None
    dedupe: Key | None = None


class StartBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to start a run. `input` has the workflow's arguments by name."""

    input: Raw | UnsetType = UNSET
    key: Key | None = None
    attributes: dict[str, Attribute] | None = None
    retention: Duration | None = None
    delay: Duration | None = None
    priority: Priority = 0
    replace: Key | None = None
    signal: SentSignalBody | None = None
    request_id: Key | None = None
    # Not known to every gateway: left out unless they are given.
    timeout: Duration | UnsetType = UNSET
    lane: Key | UnsetType = UNSET
    width: Width | UnsetType = UNSET
    if_free: bool | UnsetType = UNSET


class CancelBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why to cancel, and how long its cleanup may take."""

    reason: Annotated[str, Meta(max_length=1000)] | None = None
    deadline: Duration = "30s"


class ForkBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The step before which the new run begins, and its key if it is to have another one."""

    at: Key
    key: Key | None = None


class DecideBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What came of a step in doubt: one of `returned`, `failed` and `not_performed`; who says so, and why they know."""

    step: Key
    returned: Any | UnsetType = UNSET
    failed: Annotated[str, Meta(max_length=1000)] | None = None
    not_performed: bool = False
    by: Annotated[str, Meta(max_length=255)] | None = None
    reason: Annotated[str, Meta(max_length=1000)] | None = None


class RetryNowBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The step whose next attempt shall begin; without one, every step that waits for it. Who says so, and why."""

    step: Key | None = None
    by: Annotated[str, Meta(max_length=255)] | None = None
    reason: Annotated[str, Meta(max_length=1000)] | None = None


class OpenBreakerBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who opens it, and for how long; without that, until it is closed by hand."""

    by: Annotated[str, Meta(max_length=255)] | None = None
    lasts: Duration | None = None


class CloseBreakerBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who closes it."""

    by: Annotated[str, Meta(max_length=255)] | None = None


class BulkRunsBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which runs are meant: those for which all of it holds, in the order of a search, and `limit` of them at most."""

    workflow: Text | None = None
    status: list[Status] | None = None
    attributes: dict[str, str | int | float | bool | Filter] | None = None
    key_prefix: Text | None = None
    created_after: Timestamp | None = None
    created_before: Timestamp | None = None
    finished_after: Timestamp | None = None
    finished_before: Timestamp | None = None
    newest_first: bool = True
    roots_only: bool = False
    limit: Annotated[int, Meta(ge=1, le=2**53 - 1)] | None = None


class BulkBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be done with which runs. `hook` and `payload` belong to signal, `deadline` belongs to cancel."""

    verb: BulkVerb
    runs: BulkRunsBody = BulkRunsBody()
    rate: (
        Annotated[str, Meta(max_length=40, description="How many at most in which time.", examples=["50/1s"])] | None
    ) = None
    reason: Annotated[str, Meta(max_length=1000)] | None = None
    deadline: Duration = "30s"
    hook: Key | None = None
    payload: Any = None
    key: Key | None = None
    request_id: Key | None = None


class DryRunBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What would be done with which runs, and how many of them to show."""

    verb: BulkVerb
    runs: BulkRunsBody = BulkRunsBody()
    hook: Key | None = None
    payload: Any = None
    first: Annotated[int, Meta(ge=0, le=PREVIEW_MAX)] = 10


class CreateApiKeyBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the key is for, and what it may do."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    scope: Scope
    expires_in: Duration | None = None


class SetLaneBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to set a lane; what is left out stays as it is."""

    width: Width | None = None
    paused: bool | None = None
    by: Text | None = None


class ReleaseKeyBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why the key is released."""

    reason: Annotated[str, Meta(max_length=1000)] | None = None


class ClaimBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker can do, and how long it waits for work."""

    effects: Annotated[list[Key], Meta(min_length=1, max_length=EFFECTS_MAX)]
    worker: Key
    limit: Annotated[int, Meta(ge=1, le=CLAIM_MAX)] = 1
    wait: Duration = 0.0
    lease: Duration = "30s"


class HeartbeatBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The task goes on; `details` say how far it has come."""

    fence: Fence
    details: Raw | UnsetType = UNSET


class CompleteBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the effect returned."""

    fence: Fence
    result: Raw | UnsetType = UNSET


class TaskErrorBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What went wrong."""

    type: Key
    message: str = ""


class FailBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why the attempt failed; without `retry` the effect is not tried again, with `retry_after` not before."""

    fence: Fence
    error: TaskErrorBody
    retry: bool = True
    retry_after: Duration | None = None


def published_name(name: str) -> str:
    """The name of a type in the OpenAPI document. Clients are generated from these names, so they never change."""
    return name.removesuffix("View").removesuffix("Body")

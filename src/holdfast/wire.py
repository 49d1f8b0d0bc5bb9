"""The JSON that a gateway speaks: what it is sent and what it answers, as types.

The gateway encodes them, the client decodes them, and the OpenAPI document is generated from them: nothing is said
twice. Instants are RFC 3339 in UTC. An attribute that is an instant is written `{"at": "..."}`, since JSON has no type
of its own for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from holdfast.errors import UsageError
from holdfast.kernel.apikeys import Scope
from holdfast.kernel.attributes import Scalar
from holdfast.kernel.cancels import ChildLeft, Left, Outcome, Receipt as ReceiptValue, State
from holdfast.kernel.searches import Range

Instant = Annotated[datetime, Meta(tz=True)]
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
Status = Literal["pending", "running", "waiting", "blocked", "completed", "failed", "cancelled"]


class At(Struct, frozen=True, forbid_unknown_fields=True):
    """An instant, where JSON alone would only show text."""

    at: Instant


Attribute = str | int | float | bool | At
Bound = int | float | At


class Filter(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An instant that an attribute equals, or the range in which it lies."""

    at: Instant | None = None
    ge: Bound | None = None
    gt: Bound | None = None
    le: Bound | None = None
    lt: Bound | None = None


# -- what is answered


class Marker(Struct, frozen=True):
    """A marker that a run has reached."""

    name: str
    at: Instant


class Wait(Struct, frozen=True, kw_only=True):
    """One thing that a run waits for; `text` says it in words."""

    kind: str
    name: str
    until: Instant | None
    step: str
    text: str


class Error(Struct, frozen=True, kw_only=True):
    """Why a run failed, or what blocks it."""

    type: str
    message: str


class Run(Struct, frozen=True, kw_only=True):
    """A run as it is. `result` or `error` is there if the request waited for the end, and it came."""

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
    markers: list[Marker]
    waiting_on: list[Wait]
    next_actions: list[str]
    created_at: Instant
    finished_at: Instant | None
    expires_at: Instant | None
    result: Raw | UnsetType = UNSET
    error: Error | UnsetType = UNSET


class RunPage(Struct, frozen=True):
    """Some of the runs that were searched for; `next` is where the next page begins."""

    runs: list[Run]
    next: str | None


class Result(Struct, frozen=True):
    """What a run returned."""

    result: Raw


class Journal(Struct, frozen=True):
    """What a run has done; the first entry is at position `first`."""

    first: int
    entries: list[Raw]


class LeftEffect(Struct, frozen=True, kw_only=True):
    """An effect that was begun, and what became of it."""

    key: str
    name: str
    step: str
    state: State
    problem: str


class LeftChild(Struct, frozen=True, kw_only=True):
    """A child run, and what its own cancellation left behind."""

    run_id: str
    workflow: str
    outcome: Outcome


class Receipt(Struct, frozen=True, kw_only=True):
    """What a cancellation left behind."""

    run_id: str
    outcome: Outcome
    effects: list[LeftEffect]
    children: list[LeftChild]
    reason: str
    stopped: bool


class Line(Struct, frozen=True):
    """One entry of the journal, in words."""

    position: int
    at: Instant
    text: str
    counts: bool


class Story(Struct, frozen=True, kw_only=True):
    """What happened to a run, why it waits, and what may be done about it."""

    run_id: str
    headline: str
    waiting_on: list[Wait]
    next_actions: list[str]
    lines: list[Line]


class Workflow(Struct, frozen=True, kw_only=True):
    """What a workflow declares about itself."""

    name: str
    doc: str
    key: str | None
    version: str | None
    queue: str
    retention_ms: int
    markers: dict[str, list[str]]
    outcomes: list[Outcome] | None
    input_schema: dict[str, Any] | None
    result_schema: dict[str, Any] | None


class Workflows(Struct, frozen=True):
    """The workflows that this gateway knows."""

    workflows: list[Workflow]


class Worker(Struct, frozen=True, kw_only=True):
    """A live worker."""

    id: str
    host: str
    pid: int
    concurrency: int
    workflows: list[str]
    holds: int
    joined_at: Instant
    lease_until: Instant


class Workers(Struct, frozen=True):
    """The live workers, in the order in which they joined."""

    workers: list[Worker]


class Depth(Struct, frozen=True, kw_only=True):
    """How many runs of a workflow wait for a worker, and since when."""

    workflow: str
    queue: str
    ready: int
    oldest_at: Instant | None


class Backlog(Struct, frozen=True):
    """How much there is to do. Counts stop at 10,000."""

    statuses: dict[str, int]
    depths: list[Depth]


class ApiKey(Struct, frozen=True, kw_only=True):
    """An API key, without its secret; `tail` are the last characters of the token."""

    id: str
    name: str
    namespace: str
    scope: Scope
    tail: str
    created_at: Instant
    expires_at: Instant | None
    revoked_at: Instant | None


class ApiKeys(Struct, frozen=True):
    """The API keys of a namespace, those that no longer work included."""

    keys: list[ApiKey]


class NewApiKey(Struct, frozen=True, kw_only=True):
    """A key that was just made. The token is shown this once."""

    token: str
    key: ApiKey


class Problem(Struct, frozen=True, kw_only=True):
    """What went wrong, and what to do now (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str
    instance: str
    run_id: str | UnsetType = UNSET
    error: Error | UnsetType = UNSET


# -- what is sent


class SentSignal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A payload for a hook; once per `dedupe`."""

    hook: Key
    payload: Any = None
    dedupe: Key | None = None


class Start(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to start a run. `input` has the workflow's arguments by name."""

    input: Raw | UnsetType = UNSET
    key: Key | None = None
    attributes: dict[str, Attribute] | None = None
    retention: Duration | None = None
    delay: Duration | None = None
    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] = 0
    replace: Key | None = None
    signal: SentSignal | None = None
    request_id: Key | None = None


class Cancel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why to cancel, and how long its cleanup may take."""

    reason: Annotated[str, Meta(max_length=1000)] | None = None
    deadline: Duration = "30s"


class Fork(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The step before which the new run begins, and its key if it is to have another one."""

    at: Key
    key: Key | None = None


class CreateApiKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the key is for, and what it may do."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    scope: Scope
    expires_in: Duration | None = None


class ReleaseKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why the key is released."""

    reason: Annotated[str, Meta(max_length=1000)] | None = None


# -- between these and the values that they stand for


def attributes_out(attributes: Mapping[str, Scalar]) -> dict[str, Attribute]:
    return {name: _out(value) for name, value in attributes.items()}


def attributes_in(attributes: Mapping[str, Attribute]) -> dict[str, Scalar]:
    return {name: value.at if isinstance(value, At) else value for name, value in attributes.items()}


def filters_in(wanted: Mapping[str, str | int | float | bool | Filter]) -> dict[str, Scalar | Range]:
    return {name: _filter_in(name, value) if isinstance(value, Filter) else value for name, value in wanted.items()}


def _out(value: Scalar) -> Attribute:
    return At(value) if isinstance(value, datetime) else value


def _filter_in(name: str, wanted: Filter) -> Scalar | Range:
    bounds = (wanted.ge, wanted.gt, wanted.le, wanted.lt)
    if wanted.at is not None and any(bound is not None for bound in bounds):
        raise UsageError(f"the filter of {name!r} has an instant and a range", hint="Send one of the two.")
    if wanted.at is not None:
        return wanted.at
    ge, gt, le, lt = map(_bound_in, bounds)
    return Range(ge=ge, gt=gt, le=le, lt=lt)


def _bound_in(bound: Bound | None) -> float | datetime | None:
    return bound.at if isinstance(bound, At) else bound


def receipt_out(receipt: ReceiptValue) -> Receipt:
    return Receipt(
        run_id=receipt.run_id,
        outcome=receipt.outcome,
        effects=[
            LeftEffect(key=str(left), name=left.name, step=left.step, state=left.state, problem=left.problem)
            for left in receipt.effects
        ],
        children=[
            LeftChild(run_id=each.run_id, workflow=each.workflow, outcome=each.outcome) for each in receipt.children
        ],
        reason=receipt.reason,
        stopped=receipt.stopped,
    )


def receipt_in(receipt: Receipt) -> ReceiptValue:
    return ReceiptValue(
        run_id=receipt.run_id,
        outcome=receipt.outcome,
        effects=tuple(
            Left(left.key, name=left.name, step=left.step, state=left.state, problem=left.problem)
            for left in receipt.effects
        ),
        children=tuple(ChildLeft(each.run_id, each.workflow, each.outcome) for each in receipt.children),
        reason=receipt.reason,
        stopped=receipt.stopped,
    )

"""Examples for the OpenAPI document and the reference page: what is sent and returned, by type, and by operation.

One order of one shop goes through all of them. Tests hold that each fits its type, and that none is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast import errors, wire
from holdfast.errors import HoldfastError
from holdfast.gateway import problems

RUN_ID = "0199a3f0c1d24a6f8b1e5c7d9a0b3e42"
TASK_ID = "0199a3f0c1d2-4a6f8b1e5c7d9a0b"
KEY_ID = "8c1f0a72d94e4b35"
_BEGUN, _LATER, _ENDED = "2026-11-16T12:00:00.153Z", "2026-11-16T12:00:00.201Z", "2026-11-16T12:00:01.042Z"
_INPUT: Mapping[str, Any] = {"order": "o-1", "customer": "ada", "items": [{"sku": "tea", "cents": 450}]}

PARAMETERS: Mapping[str, tuple[str, str]] = {
    "name": ("The name of a workflow: `checkout`, or with its pack `shop.checkout`.", "checkout"),
    "run_id": ("The id of a run.", RUN_ID),
    "token": ("The token of a hook, as the workflow has made it. It may have slashes.", "approve/o-4"),
    "task_id": ("The id of a task, as its claim has returned it.", TASK_ID),
    "key_id": ("The id of an API key, which is not its token.", KEY_ID),
}

_RUN: Mapping[str, Any] = {
    "id": RUN_ID,
    "workflow": "shop.checkout",
    "key": "checkout:o-1",
    "holds_key": True,
    "status": "completed",
    "queue": "default",
    "priority": 0,
    "version": None,
    "fence": 1,
    "attributes": {"customer": "ada"},
    "markers": [{"name": "paid", "at": _ENDED}],
    "waiting_on": [],
    "next_actions": ["fork", "release_key"],
    "created_at": _BEGUN,
    "finished_at": _ENDED,
    "expires_at": "2026-12-16T12:00:01.042Z",
}
_WORKFLOW: Mapping[str, Any] = {
    "name": "shop.checkout",
    "doc": "Sell what is in the basket.",
    "key": "checkout:{order}",
    "version": None,
    "queue": "default",
    "retention_ms": 2_592_000_000,
    "markers": {"paid": []},
    "outcomes": None,
    "input_schema": {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]},
    "result_schema": {"type": "object"},
}
_LANE: Mapping[str, Any] = {
    "name": "deploy:api",
    "width": 1,
    "active": 1,
    "parked": 2,
    "paused": False,
    "head": _RUN,
    "active_runs": [RUN_ID],
    "parked_runs": ["01a1f5bf3ab2412381a6138b29b8f743", "01a1f5bf3ab2412381a6146c0b14dae0"],
}
_API_KEY: Mapping[str, Any] = {
    "id": KEY_ID,
    "name": "web shop",
    "namespace": "default",
    "scope": "write",
    "tail": "x7Qf",
    "created_at": _BEGUN,
    "expires_at": None,
    "revoked_at": None,
}

_BREAKER = {
    "name": "stripe",
    "state": "half-open",
    "since": _BEGUN,
    "until": _LATER,
    "calls": 0,
    "failures": 0,
    "successes": 1,
    "prober": "app-1-4120-b7d0",
    "by": "",
    "did": "",
    "by_at": None,
}

# What is sent, and what is returned: by the type of the body.
OF_TYPE: Mapping[Any, Any] = {
    wire.StartBody: {"input": _INPUT, "attributes": {"customer": "ada"}},
    wire.CancelBody: {"reason": "the customer has changed their mind", "deadline": "30s"},
    wire.SpendBody: {"name": "mail:ada", "rate": {"count": 5, "per": "1h"}},
    wire.LimitVerdictView: {"allowed": True, "remaining": 4, "retry_after": 0.0, "reset_after": 720.0},
    wire.LimitsView: {
        "limits": [{"limit": "tenant", "rate": "1000/1s burst 2000", "remaining": 1999, "reset_after": 0.001}],
        "by_itself": False,
        "replicas": 2,
    },
    wire.DecideBody: {"step": "charge#1", "returned": {"receipt": "ch_1042"}, "reason": "seen at the provider"},
    wire.RetryNowBody: {"step": "charge#1", "reason": "the bank is back"},
    wire.BulkBody: {
        "verb": "retry",
        "runs": {"workflow": "checkout", "status": ["failed"], "created_after": "2026-11-16T00:00:00Z"},
        "rate": "50/1s",
        "reason": "the bank is back",
    },
    wire.DryRunBody: {"verb": "retry", "runs": {"workflow": "checkout", "status": ["failed"]}, "first": 1},
    wire.BulkPreviewView: {
        "verb": "retry",
        "matched": 500,
        "is_all": True,
        "first": [{"run": {**_RUN, "status": "failed", "next_actions": ["retry", "fork"]}, "refusal": ""}],
    },
    wire.ForkBody: {"at": "charge#1", "key": "checkout:o-1-again"},
    wire.SentSignalBody: {"hook": "approval", "payload": True, "dedupe": "click-1"},
    wire.SetLaneBody: {"width": 3, "by": "ada"},
    wire.ReleaseKeyBody: {"reason": "the order is entered again by hand"},
    wire.CreateApiKeyBody: {"name": "web shop", "scope": "write", "expires_in": "90d"},
    wire.ClaimBody: {"effects": ["shop.charge"], "worker": "node-1", "limit": 1, "wait": "30s", "lease": "30s"},
    wire.HeartbeatBody: {"fence": 1_763_294_400_153, "details": {"done": 40}},
    wire.CompleteBody: {"fence": 1_763_294_400_153, "result": {"receipt": "ch_1042"}},
    wire.FailBody: {
        "fence": 1_763_294_400_153,
        "error": {"type": "CardDeclined", "message": "the card has expired"},
        "retry": False,
    },
    wire.RunView: _RUN,
    wire.RunPageView: {"runs": [_RUN], "next": f"1763294400153.{RUN_ID}"},
    wire.ResultView: {"result": {"order": "o-1", "cents": 450}},
    wire.JournalView: {
        "first": 0,
        "entries": [
            {"what": "started", "at_ms": 1_763_294_400_153, "input": {"json": _INPUT}},
            {
                "what": "performed",
                "at_ms": 1_763_294_400_201,
                "step": "charge#1",
                "intent": {
                    "kind": "effect",
                    "name": "shop.charge",
                    "key": "charge:o-1",
                    "digest": "565b7ce7a07aa441271956586946dc31",
                    "line": "shop.py:41",
                },
                "attempt": 1,
                "value": {"json": {"receipt": "ch_1042"}},
            },
        ],
    },
    wire.StoryView: {
        "run_id": RUN_ID,
        "headline": f"shop.checkout run {RUN_ID} under key 'checkout:o-1' has completed",
        "waiting_on": [],
        "next_actions": ["fork", "release_key"],
        "lines": [
            {"position": 0, "at": _BEGUN, "text": "was admitted", "counts": True},
            {"position": 1, "at": _LATER, "text": "performed shop.charge (charge#1)", "counts": True},
        ],
    },
    wire.ReceiptView: {
        "run_id": RUN_ID,
        "outcome": "compensated",
        "effects": [{"key": "charge:o-1", "name": "shop.charge", "step": "charge#1", "state": "undone", "problem": ""}],
        "children": [],
        "reason": "the customer has changed their mind",
        "stopped": False,
    },
    wire.WorkflowView: _WORKFLOW,
    wire.WorkflowsView: {"workflows": [_WORKFLOW]},
    wire.WorkersView: {
        "workers": [
            {
                "id": "b7d0c2a94f61e358",
                "host": "app-1",
                "pid": 4120,
                "concurrency": 100,
                "workflows": ["shop.checkout"],
                "holds": 3,
                "joined_at": _BEGUN,
                "lease_until": "2026-11-16T12:00:30.153Z",
            }
        ]
    },
    wire.BacklogView: {
        "statuses": {"pending": 2, "running": 3, "completed": 1042},
        "depths": [{"workflow": "shop.checkout", "queue": "default", "ready": 2, "oldest_at": _BEGUN}],
    },
    wire.OpenBreakerBody: {"by": "ada", "lasts": "10m"},
    wire.CloseBreakerBody: {"by": "ada"},
    wire.BreakerView: _BREAKER,
    wire.BreakersView: {"breakers": [_BREAKER]},
    wire.EffectLimitsView: {
        "limits": [
            {
                "name": "stripe",
                "width": 10,
                "taken": 7,
                "shares": [{"instance": "app-1-4120-b7d0", "slots": 7, "wants": 9}],
            }
        ]
    },
    wire.LaneView: _LANE,
    wire.LanesView: {"lanes": [_LANE], "next": None},
    wire.ApiKeyView: _API_KEY,
    wire.ApiKeysView: {"keys": [_API_KEY]},
    wire.NewApiKeyView: {"token": "hf_8c1f0a72d94e4b35_...x7Qf", "key": _API_KEY},
    wire.AliveView: {"status": "ok"},
    wire.ReadyView: {"ready": True, "parts": {"gateway": "ok", "store": "ok", "worker": "ok"}},
    wire.ClaimedView: {
        "tasks": [
            {
                "id": TASK_ID,
                "effect": "shop.charge",
                "key": "charge:o-1",
                "run": RUN_ID,
                "attempt": 1,
                "input": {"order": "o-1", "cents": 450},
                "fence": 1_763_294_400_153,
                "lease_until": "2026-11-16T12:00:30.153Z",
                "last_heartbeat": None,
            }
        ]
    },
    wire.BeatenView: {"wanted": True, "lease_until": "2026-11-16T12:01:00.153Z"},
    wire.EndedView: {"id": TASK_ID},
}

# What has no type of its own: by the operation.
OF_BODY: Mapping[str, Any] = {"hooks.deliver": {"approved": True, "by": "ada"}}
OF_RESPONSE: Mapping[str, Any] = {
    "runs.input_of": _INPUT,
    "streams.events": f'id: 0\nevent: started\ndata: {{"what":"started","at_ms":1763294400153}}\n\n'
    f'event: end\ndata: {{"id":"{RUN_ID}","status":"completed"}}\n\n',
    "health.metrics": "# TYPE holdfast_runs_started_total counter\n"
    'holdfast_runs_started_total{workflow="shop.checkout"} 1042.0\n',
    "openapi.described": {"openapi": "3.1.0", "info": {"title": "Holdfast"}, "paths": {}},
    "reference.page": "<!doctype html>",
}

# One error for each status that is declared for problems.
OF_PROBLEM: Mapping[int, tuple[type[HoldfastError], str]] = {
    400: (problems.Malformed, "the body does not fit: Expected `str`, got `int` - at `$.key`"),
    401: (errors.NotAuthenticated, "the request has no Authorization header"),
    403: (errors.NotPermitted, "this endpoint needs the scope 'write'; this key has 'read'"),
    404: (errors.UnknownRun, f"there is no run {RUN_ID}"),
    408: (problems.TooSlow, "the body did not arrive within 30 s"),
    409: (errors.NotAllowedNow, f"run {RUN_ID} is running"),
    413: (problems.BodyTooLarge, "the body is over 1,048,576 bytes"),
    415: (problems.NotJson, "the body is 'text/plain'"),
    422: (errors.InputRefused, "shop.checkout cannot be started so: Expected `int`, got `str` - at `$.items[0].cents`"),
    429: (errors.LimitExceeded, "the limit 'tenant' of 1000/1s burst 2000 is exceeded"),
    503: (errors.StoreUnavailable, "the store did not respond in time"),
}

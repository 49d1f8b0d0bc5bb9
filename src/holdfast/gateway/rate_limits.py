"""Limits: what this gateway limits and how much of it is left, and limits of your own."""

from __future__ import annotations

from holdfast import wire
from holdfast.gateway.endpoints import ApiRequest, Endpoint, JsonResponse, NoParameters
from holdfast.kernel.limits import text_of
from holdfast.kernel.rates import Rate


async def listed(request: ApiRequest[NoParameters, None]) -> JsonResponse:
    """The limits of this gateway, with what is left to the API key that asks. To ask counts as a request."""
    context, caller = request.context, request.caller
    found = [] if context.limits is None else await context.limits.look(caller.id, caller.verbs.namespace)
    left = {cost.limit: verdict for cost, [verdict] in found}
    counting = context.hf.runtime.limits
    return JsonResponse(
        wire.LimitsView(
            limits=[
                wire.LimitView(
                    limit=name,  # pyright: ignore[reportArgumentType] - the names of the settings
                    rate=text_of(rate),
                    remaining=left[name].remaining if name in left else None,
                    reset_after=left[name].reset_ms / 1000 if name in left else None,
                )
                for name, rate in context.settings.rate_limits.by_name.items()
            ],
            by_itself=counting.is_away,
            replicas=counting.replicas,
        )
    )


async def spend(request: ApiRequest[NoParameters, wire.SpendBody]) -> JsonResponse:
    """Take `cost` of what may happen under a name of your own, if all of it may go now.

    It is counted for all gateways and workers of the namespace. The status is `200` whatever the verdict is.
    """
    body = request.body
    rate = Rate(body.rate.count, per=body.rate.per, burst=body.rate.burst)
    verdict = await request.caller.verbs.limit(body.name, rate, cost=body.cost)
    return JsonResponse(
        wire.LimitVerdictView(
            allowed=verdict.allowed,
            remaining=verdict.remaining,
            retry_after=verdict.retry_after,
            reset_after=verdict.reset_after,
        )
    )


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/limits",
        handler=listed,
        summary="What this gateway limits, and how much of it is left",
        scope="read",
        responses={200: wire.LimitsView},
    ),
    Endpoint(
        method="POST",
        path="/v1/limits",
        handler=spend,
        summary="Take of a limit of your own",
        scope="write",
        body=wire.SpendBody,
        responses={200: wire.LimitVerdictView},
    ),
)

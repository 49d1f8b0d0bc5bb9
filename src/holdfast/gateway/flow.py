"""Circuit breakers and limits of effects: what there is, and opening or closing a breaker by hand."""

from __future__ import annotations

from holdfast import wire
from holdfast.gateway.endpoints import ApiRequest, Endpoint, JsonResponse, NoParameters
from holdfast.wire import rules


async def breakers(request: ApiRequest[NoParameters, None]) -> JsonResponse:
    """Each from the first time that an effect of it wanted to begin."""
    return JsonResponse(rules.breakers(await request.caller.verbs.breakers()))


async def breaker(request: ApiRequest[NoParameters, None]) -> JsonResponse:
    """How it stands, until when, and who opened or closed it last by hand."""
    return JsonResponse(rules.breaker(await request.caller.verbs.breaker(request.path["name"])))


async def open_breaker(request: ApiRequest[NoParameters, wire.OpenBreakerBody]) -> JsonResponse:
    """Effects wait until it is closed by hand, or for as long as the body says. Who did it is kept with it."""
    by, lasts = request.caller.signed(request.body.by), request.body.lasts
    found = await request.caller.verbs.open_breaker(request.path["name"], by=by, lasts=lasts)
    return JsonResponse(rules.breaker(found))


async def close_breaker(request: ApiRequest[NoParameters, wire.CloseBreakerBody]) -> JsonResponse:
    """Effects begin at once, whatever was seen before. Who did it is kept with it."""
    by = request.caller.signed(request.body.by)
    return JsonResponse(rules.breaker(await request.caller.verbs.close_breaker(request.path["name"], by=by)))


async def effect_limits(request: ApiRequest[NoParameters, None]) -> JsonResponse:
    """How many calls each lets be under way, and which instance has which slots."""
    return JsonResponse(rules.limits(await request.caller.verbs.effect_limits()))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/breakers",
        handler=breakers,
        summary="The circuit breakers of effects",
        scope="read",
        responses={200: wire.BreakersView},
    ),
    Endpoint(
        method="GET",
        path="/v1/breakers/{name}",
        handler=breaker,
        summary="A circuit breaker",
        scope="read",
        responses={200: wire.BreakerView},
        refuses=(404,),
    ),
    Endpoint(
        method="POST",
        path="/v1/breakers/{name}/open",
        handler=open_breaker,
        summary="Open a circuit breaker by hand",
        scope="write",
        body=wire.OpenBreakerBody,
        responses={200: wire.BreakerView},
        refuses=(404,),
    ),
    Endpoint(
        method="POST",
        path="/v1/breakers/{name}/close",
        handler=close_breaker,
        summary="Close a circuit breaker by hand",
        scope="write",
        body=wire.CloseBreakerBody,
        responses={200: wire.BreakerView},
        refuses=(404,),
    ),
    Endpoint(
        method="GET",
        path="/v1/effect-limits",
        handler=effect_limits,
        summary="The limits at effects, and who has their slots",
        scope="read",
        responses={200: wire.EffectLimitsView},
    ),
)

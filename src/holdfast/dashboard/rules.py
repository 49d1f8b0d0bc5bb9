"""The page of what stands before effects: breakers with their buttons, and limits with who has their slots.

A form that is sent twice counts once: a breaker that is open already is opened until the same time, or later.
"""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from holdfast.dashboard.context import HtmlPage, Problem, Visit, problem_of, see
from holdfast.errors import HoldfastError


async def page(visit: Visit, *, problem: Problem | None = None) -> HtmlPage:
    breakers, limits = await asyncio.gather(visit.caller.breakers(), visit.caller.effect_limits())
    return HtmlPage(
        "rules.html",
        "Breakers and limits",
        {"breakers": breakers, "limits": limits, "problem": problem, "form": visit.form, "who": visit.who},
        status=200 if problem is None else problem.status,
    )


async def open_breaker(visit: Visit) -> HtmlPage | Response:
    form = visit.form
    try:
        await visit.caller.open_breaker(visit.part("name"), by=form["by"] or visit.who, lasts=form["lasts"] or None)
    except HoldfastError as error:
        return await page(visit, problem=problem_of(error))
    return see("/rules")


async def close_breaker(visit: Visit) -> HtmlPage | Response:
    try:
        await visit.caller.close_breaker(visit.part("name"), by=visit.form["by"] or visit.who)
    except HoldfastError as error:
        return await page(visit, problem=problem_of(error))
    return see("/rules")

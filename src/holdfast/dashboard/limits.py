"""The page of limits: what this gateway limits, how much of it is left, and how much of it was refused lately."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.dashboard.context import HtmlPage, Visit
from holdfast.dashboard.limit_counts import LimitFigures
from holdfast.engine.api.rate_limits import OWN
from holdfast.kernel.limits import Cost, text_of

COUNTED_FOR = {
    "address": "each address, in this process",
    "api_key": "each API key",
    "tenant": "the namespace",
    "start": "each start in the namespace",
    OWN: "each name that your code asks for",
}
_OF_THE_NAMESPACE = ("tenant", "start")


class LimitRow(NamedTuple):
    """A limit as it is shown; `remaining` is not known of limits that are not the namespace's."""

    name: str
    rate: str
    counted_for: str
    remaining: int | None
    figures: LimitFigures


async def page(visit: Visit) -> HtmlPage:
    counting, rows = visit.runtime.limits, list[LimitRow]()
    for name, rate in visit.rates.items():
        remaining = None
        if name in _OF_THE_NAMESPACE:
            [verdict] = await counting.spend(visit.caller.namespace, [Cost(name, "", rate, 0)])
            remaining = verdict.remaining
        rows.append(LimitRow(name, text_of(rate), COUNTED_FOR[name], remaining, visit.limit_counts.figures(name)))
    own = visit.limit_counts.figures(OWN)
    if own.granted or own.refused:
        rows.append(LimitRow(OWN, "as it is asked", COUNTED_FOR[OWN], None, own))
    return HtmlPage("limits.html", "Limits", {"rows": rows, "counting": counting})

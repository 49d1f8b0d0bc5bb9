"""Which lane a run shall enter: what its workflow declares, and what its start says.

    the start says      the workflow declares     the run enters
    ──────────────────  ────────────────────────  ─────────────────────────────────────────────────────────────
    a lane              anything                  that lane, as wide as the start says, or else as it is
    no lane             a lane                    the declared one, as wide as the start says, or else as declared
    no lane, but width
    or if_free          no lane                   UsageError: nothing says which lane is meant
    nothing             no lane                   none

Rules
- The name of a lane keeps the rules of keys, and so does a template that is filled with a call's arguments.
- At most as many runs are parked as the workflow declares, in whichever lane the run goes.
- A child must not wait for runs which wait for it. It would, if those that are active in its lane and came before it in
  its own family, its parent and the parents of that, leave no place there. A detached one is not waited for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from msgspec import Struct

from holdfast.errors import UsageError
from holdfast.kernel import keys, lanes
from holdfast.kernel.keys import Template
from holdfast.kernel.lanes import PARKED_MAX, Entering, LaneState

OnBlocked = Literal["keep", "step_aside"]


class LaneTraits(Struct, frozen=True, kw_only=True):
    """What a workflow declares about the lane of its runs. Without a `template` it is the start that names one.

    `owner` is the workflow, as errors name it.
    """

    owner: str
    template: Template | None = None
    width: int | None = None
    parked_max: int = PARKED_MAX
    on_blocked: OnBlocked = "keep"


def declared(
    lane: str | None,
    *,
    width: int | None,
    parked_max: int,
    on_blocked: OnBlocked,
    parameters: frozenset[str],
    owner: str,
) -> LaneTraits:
    """What a workflow says about its lane, or a `UsageError` that says what is wrong with it."""
    if on_blocked not in {"keep", "step_aside"}:
        raise UsageError(f"on_blocked={on_blocked!r:.60} is not known", hint="Use 'keep' or 'step_aside'.")
    if isinstance(parked_max, bool) or not isinstance(parked_max, int) or parked_max < 1:
        raise UsageError(
            f"lane_max={parked_max!r} of {owner} is not possible",
            hint="It is how many runs may wait in the lane: a whole number from 1.",
        )
    if lane is None:
        if width is not None:
            raise UsageError(
                f"{owner} has width={width!r} and no lane", hint="Add lane='account:{account}', or leave width= out."
            )
        return LaneTraits(owner=owner, parked_max=parked_max, on_blocked=on_blocked)
    if not isinstance(lane, str):
        raise UsageError(f"lane={lane!r} is not a template", hint="Write text such as 'account:{account}'.")
    template = keys.parse(lane, parameters=parameters, owner=owner, what="lane")
    fixed = "".join(field.before for field in template.fields) + template.after
    if fixed or not template.fields:
        lanes.checked_name(fixed)
    return LaneTraits(
        owner=owner,
        template=template,
        width=None if width is None else lanes.checked_width(width),
        parked_max=parked_max,
        on_blocked=on_blocked,
    )


def check(lane: str | None, width: int | None, *, if_free: bool) -> None:
    """Raises `UsageError` if a start has a lane or a width that is not possible."""
    if lane is not None:
        lanes.checked_name(lane)
    if width is not None:
        lanes.checked_width(width)
    if not isinstance(if_free, bool):
        raise UsageError(f"if_free={if_free!r:.60} is neither True nor False", hint="Write if_free=True.")


def entering(
    traits: LaneTraits,
    arguments: Mapping[str, Any],
    *,
    lane: str | None = None,
    width: int | None = None,
    if_free: bool = False,
) -> Entering | None:
    """The lane that a run with these arguments shall enter; None if it goes into none."""
    if lane is not None:
        return Entering(lane, width, traits.parked_max, if_free)
    if traits.template is not None:
        name = traits.template.fill(arguments)
        return Entering(name, traits.width if width is None else width, traits.parked_max, if_free)
    if width is not None or if_free:
        given = "if_free=True" if if_free else f"width={width}"
        raise UsageError(
            f"{given} says nothing without a lane, and {traits.owner} declares none",
            hint="Pass lane=..., or declare one: @pack.workflow(lane='account:{account}').",
        )
    return None


def would_wait_for_itself(entering: Entering, found: LaneState | None, *, family: Collection[str]) -> bool:
    """Whether a child in this lane waits for runs that wait for it. `family` are the runs that it comes from."""
    if found is None:
        return False
    width = lanes.declare(found.lane, entering.width).width
    return sum(run_id in family for run_id in found.first_active) >= width

"""Which lane a child enters. One in which it would wait for itself is refused."""

from __future__ import annotations

from holdfast.engine.code.commands import Command
from holdfast.errors import WaitsForItself
from holdfast.kernel import attributes, lane_options
from holdfast.kernel.attributes import PARENT
from holdfast.kernel.lanes import Entering
from holdfast.kernel.runs import Run
from holdfast.kernel.starts import Wanted
from holdfast.pack import Workflow
from holdfast.ports.store import Store


def lane_of_child(command: Command) -> Entering | None:
    """The lane that its parent has named, or else the one that its workflow declares."""
    assert command.call is not None
    workflow = command.call.target
    assert isinstance(workflow, Workflow)
    return lane_options.entering(workflow.lane, command.call.arguments, lane=command.lane, width=command.width)


async def check(store: Store, wanted: Wanted, parent: Run) -> None:
    """Raises `WaitsForItself` if the child could not become active before runs that wait for it have ended."""
    assert wanted.enters is not None
    found = await store.lane(wanted.namespace, wanted.enters.lane)
    active = () if found is None else found.first_active
    if not active or not lane_options.would_wait_for_itself(
        wanted.enters, found, family=await _family(store, parent, among=active)
    ):
        return
    if await _is_there(store, wanted):  # it has entered the lane before, or another run has its key
        return
    raise WaitsForItself(wanted.enters.lane, wanted.workflow, parent.id)


async def _family(store: Store, parent: Run, *, among: tuple[str, ...]) -> set[str]:
    """Those of the runs `among` that the child comes from."""
    family: set[str] = set()
    run: Run | None = parent
    while run is not None and not family.issuperset(among):
        family.add(run.id)
        above = attributes.decode(run.attributes).get(PARENT)
        run = None if above is None else await store.run(run.namespace, str(above))
    return family


async def _is_there(store: Store, wanted: Wanted) -> bool:
    if await store.run(wanted.namespace, wanted.run_id) is not None:
        return True
    if wanted.key is None:
        return False
    return await store.run_of_key(wanted.namespace, wanted.workflow, wanted.key) is not None

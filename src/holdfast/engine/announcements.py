"""What live workers have announced of their code, and which runs wait for a version that none of them serves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holdfast.kernel import handovers
from holdfast.kernel.handovers import Code
from holdfast.kernel.runs import Status
from holdfast.kernel.searches import Search
from holdfast.ports.store import Finding, Member, Store

LOOKED_AT = 500  # pending runs, the newest: an inspection is a look, and no count


async def announced_by(store: Store, namespace: str, members: Sequence[Member]) -> dict[str, dict[str, Code]]:
    """What these live workers have announced, by their names and their workflows."""
    places = [(namespace, handovers.CODE, member.owner) for member in members]
    return {each.id: handovers.codes_in(each) for each in (await store.named(places) if places else [])}


async def found_in(store: Store, namespace: str, workers: Sequence[Member]) -> Finding:
    """Whether runs wait for a version that no live worker serves; and which workflows are served with several codes."""
    announced = (await announced_by(store, namespace, workers)).values()
    codes: dict[str, set[Code]] = {}
    for each in announced:
        for workflow, code in each.items():
            codes.setdefault(workflow, set()).add(code)
    pending = Search(namespace=namespace, limit=LOOKED_AT, statuses=frozenset({Status.PENDING}))
    pinned = any(code.pinned for each in codes.values() for code in each)
    waiting = Counter(
        (run.workflow, run.version)
        for run in (await store.search(pending) if pinned else [])
        if handovers.lacks_version(run, codes.get(run.workflow, ()))
    )
    if waiting:
        listed = ", ".join(
            f"{count} run{'' if count == 1 else 's'} of version {version!r} of {workflow}"
            for (workflow, version), count in sorted(waiting.items())
        )
        hint = "Start a worker with the code of that version, or deploy code that is not pinned."
        return Finding("warning", "versions", f"no live worker serves what these are pinned to: {listed}", hint)
    several = sorted(workflow for workflow, each in codes.items() if len(each) > 1)
    if several:
        listed = ", ".join(f"{workflow} ({len(codes[workflow])})" for workflow in several)
        return Finding("ok", "versions", f"workflows that live workers serve with several codes: {listed}")
    return Finding("ok", "versions", "live workers that serve the same workflow have the same code")

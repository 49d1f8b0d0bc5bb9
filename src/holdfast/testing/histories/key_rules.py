"""Rules about keys: one run holds a key, and one start is told that it created a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from holdfast.testing.histories.history import HistoryViolation, RunMoved, StoreWrite
from holdfast.testing.histories.seen import Place, Seen


def two_holders(seen: Seen) -> Iterator[HistoryViolation]:
    """A run is admitted under a key that is free, or that it takes from the run that holds it."""
    holders: dict[Place, str] = {}
    accepted = {at for at, _ in seen.writes}
    for at, record in enumerate(seen.history):
        match record:
            case RunMoved(how="pruned", run=run):
                _free(holders, run)
            case StoreWrite(run=run) if at in accepted:
                _free(holders, record.took_key_from)
                place = (record.namespace, record.workflow, record.key)
                if record.admits and record.key and record.holds_key:
                    if holders.get(place, run) != run:
                        detail = f"{run} was admitted under {record.key}, which {holders[place]} held"
                        yield HistoryViolation("I1", "two_holders", record.key, detail)
                    holders[place] = run
            case _:
                pass


def final_holders(seen: Seen) -> Iterator[HistoryViolation]:
    """In the end one run at most holds a key, and the key says which."""
    holders: dict[Place, list[str]] = defaultdict(list)
    for final in seen.finals.values():
        if final.key and final.holds_key:
            holders[final.namespace, final.workflow, final.key].append(final.run)
    for (_, _, key), runs in holders.items():
        if len(runs) > 1:
            yield HistoryViolation("I1", "two_holders", key, f"{', '.join(sorted(runs))} hold it in the end")
    for each in seen.keys:
        runs = holders.get((each.namespace, each.workflow, each.key), [])
        if runs != [each.run] if each.run else runs:
            detail = f"it names {each.run or 'no run'}, and {', '.join(runs) or 'no run'} holds it"
            yield HistoryViolation("I1", "key_astray", each.key, detail)


def created_twice(seen: Seen) -> Iterator[HistoryViolation]:
    """Two requests were both told that they had created a run."""
    creators: dict[str, set[str]] = defaultdict(set)
    for each in seen.operations:
        if each.called.verb == "start" and each.outcome == "ok" and each.returned and each.returned.created:
            creators[each.run].add(each.called.request or each.called.op)
    for run, requests in creators.items():
        if len(requests) > 1:
            yield HistoryViolation("I1", "created_twice", run, f"by {', '.join(sorted(requests))}")


def _free(holders: dict[Place, str], run: str) -> None:
    for place in [place for place, holder in holders.items() if run and holder == run]:
        del holders[place]

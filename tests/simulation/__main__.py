"""`python -m tests.simulation`: whole clusters in virtual time, from seeds, under faults.

python -m tests.simulation --seeds 10000              a campaign
python -m tests.simulation --seed 4711                one seed again, exactly, with its shrunk schedule if it fails
python -m tests.simulation --plant "lost wake-up"     how many seeds it takes to find a planted bug
python -m tests.simulation --plants                   the same for each of them
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

import msgspec

from tests.simulation.batches import StopOnInterrupt, tallies
from tests.simulation.campaigns import SHARE_MIN, SOMETIMES, Tally, shrink
from tests.simulation.judging import Judged
from tests.simulation.plans import Plan, draw
from tests.simulation.plants import PLANTS, planted, seeds_needed
from tests.simulation.progress import Progress
from tests.simulation.worlds import simulate

WRONG_SHOWN = 5
INTERRUPTED = 130  # as of a process that SIGINT has ended


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="with this bug planted")
    parser.add_argument("--plants", action="store_true", help="how many seeds each planted bug takes")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes; 0: one for each core")
    options = parser.parse_args(arguments)
    if options.plants:
        return _all_plants(options.first, options.seeds)
    if options.seed is not None:
        with planted(options.plant):
            return _one(options.seed, options.plant)
    if options.plant is not None:
        return _plant(options.plant, options.first, options.seeds)
    return _campaign(range(options.first, options.first + options.seeds), options.jobs or os.cpu_count() or 1)


# -- a campaign


def _campaign(seeds: range, jobs: int) -> int:
    tally, began, progress = Tally(), time.monotonic(), Progress(len(seeds))
    with StopOnInterrupt() as stop:
        for part in tallies(seeds, jobs, stop):
            tally.add(part)
            progress.show(tally.seeds, len(tally.wrong))
    progress.end()
    if stop.is_set:
        _say(f"stopped after {tally.seeds:,} of {len(seeds):,} seeds")
    _report(tally, time.monotonic() - began)
    if stop.is_set:
        return INTERRUPTED
    for wrong in tally.wrong[:WRONG_SHOWN]:
        _one(wrong.seed, None)
    return 0 if tally.has_passed else 1


def _report(tally: Tally, seconds: float) -> None:
    rate = f"{tally.seeds / max(seconds, 1e-9):.1f} a second"
    rate += f", {tally.seeds / max(tally.cpu_seconds, 1e-9):.1f} a second of one core's time"
    operations = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(tally.operations.items()))
    _say(f"{tally.seeds:,} seeds in {seconds:.0f} s: {rate}")
    _say(f"{tally.virtual_seconds / 3600:,.1f} hours of virtual time; {tally.writes:,} writes, {tally.effects:,} calls")
    _say(f"of effects; operations: {operations}")
    _say(f"{tally.twice} seeds ran twice; {tally.undecided} with keys for which the search gave up")
    _say("")
    for label, count in sorted(tally.sometimes.items(), key=lambda each: -each[1]):
        needed = "" if label not in SOMETIMES else "" if count >= SHARE_MIN * tally.seeds else "   too few"
        _say(f"  {label:<22} {count:>8,}  {100 * count / tally.seeds:5.1f} %{needed}")
    for label in tally.vacuous:
        if not tally.sometimes[label]:
            _say(f"  {label:<22}        0    0.0 %   too few")
    _say("")
    _say(f"{len(tally.wrong)} seeds are wrong" if tally.wrong else "no violation")
    for wrong in sorted(tally.wrong, key=lambda each: each.seed):
        _say(f"  {wrong.seed}: {', '.join(wrong.kinds)}")


# -- one seed


def _one(seed: int, plant: str | None) -> int:
    plan = draw(seed)
    simulated = simulate(plan)
    judged = Judged(simulated)
    if not judged.violations:
        _say(f"seed {seed}: no violation; digest {simulated.digest}")
        return 0
    _say(f"\nseed {seed} is wrong; digest {simulated.digest}")
    for each in judged.violations:
        _say(f"  {each.invariant} {each.kind}: {each.about}: {each.detail}")
    _show_plan(shrink(plan, judged.kinds))
    again = f"python -m tests.simulation --seed {seed}" + (f' --plant "{plant}"' if plant else "")
    _say(f"  again: {again}")
    return 1


def _show_plan(plan: Plan) -> None:
    _say(f"  {plan.workers} workers, {plan.clients} clients, lease {plan.lease:g} s, {plan.shards} shards; it takes:")
    for fault in plan.faults:
        _say(f"    {fault.at:8.3f} s  {fault.kind}: {_fields(fault, 'at', 'kind')}")
    for act in plan.acts:
        _say(f"    client {act.client}    {act.verb}: {_fields(act, 'client', 'verb')}")


def _fields(struct: msgspec.Struct, *left_out: str) -> str:
    fields: dict[str, object] = msgspec.to_builtins(struct)
    return ", ".join(f"{name}={value}" for name, value in fields.items() if name not in left_out)


# -- planted bugs


def _plant(name: str, first: int, seeds: int) -> int:
    found = seeds_needed(name, range(first, first + seeds))
    if found is None:
        _say(f"{name}: not found in {seeds:,} seeds")
        return 1
    _say(f"{name}: found by seed {found.seed}, after {found.seed - first + 1} seeds: {', '.join(found.kinds)}")
    return 0


def _all_plants(first: int, seeds: int) -> int:
    return max(_plant(name, first, seeds) for name in sorted(PLANTS))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""A process that leads a duty is killed or paused: others go on, and what it does late is harmless (L5, S2)."""

from __future__ import annotations

import signal

import pytest

from holdfast.engine.duties.leaders import DUTIES
from tests.faults.cases import Case
from tests.faults.crash_at_store_call import Point
from tests.faults.holdfast_process import Start
from tests.faults.processes import Process, until
from tests.faults.workflows_held_by_flags import RUN, hold

pytestmark = pytest.mark.faults

LEASE = "4s"  # those of duties last half as long
LEASES = "SELECT id, body ->> 'instance', version, expires_ms FROM documents WHERE kind = 'duty'"


def leads(process: Process) -> bool:
    return {line["duty"] for line in process.logged("duty taken up")} == set(DUTIES)


async def test_a_killed_leader_is_replaced_when_its_leases_are_over_and_not_before(case: Case) -> None:
    """And the new leader frees what the dead one held as a worker."""
    first = await case.fork(pack=RUN, starts=[Start("hold", ["a"])], stay=True, lease=LEASE)
    await until(lambda: leads(first) and case.ledger.calls("grip"), "the leader, and its effect", first)
    second = await case.fork(pack=RUN, stay=True, lease=LEASE)
    await second.says("ready")
    first.signal(signal.SIGKILL)
    await first.ended()
    expiries = {duty: expires_at_ms for duty, _, _, expires_at_ms in case.ask(LEASES)}
    await until(lambda: leads(second), "the successor", second)
    for line in second.logged("duty taken up"):
        assert line["term"] >= expiries[line["duty"]]
    await until(lambda: second.logged("runs rescued"), "the rescue", second)
    case.raise_flag("go-a")
    async with case.client(RUN) as hf:
        assert await (await hf.find(hold, "hold:a")).result("45s") == "a"
    await second.leaves()
    assert case.ask(f"{LEASES} AND expires_ms > version") == []  # released: they ended when they were written
    case.ledger.check(lost={first.pid} | case.processes.overtaken())


@pytest.mark.parametrize("verb", ["rescue", "prune"])
async def test_a_leader_paused_past_its_lease_does_nothing_more_and_its_late_call_is_harmless(
    case: Case, verb: str
) -> None:
    """Stopped just before a call of its duty: it has looked at its lease, and the call goes out when it wakes."""
    point = Point(verb, 1, "before", signal.SIGSTOP)
    first = await case.fork(pack=RUN, stay=True, lease=LEASE, point=point)
    await until(first.is_stopped, "it to be stopped", first)
    second = await case.fork(pack=RUN, starts=[Start("hold", ["a"])], stay=True, lease=LEASE)
    await until(lambda: leads(second) and case.ledger.calls("grip"), "the successor, and its effect", second)
    terms = {duty: (owner, version) for duty, owner, version, _ in case.ask(LEASES)}

    first.signal(signal.SIGCONT)
    await until(lambda: len(first.logged("duty lost")) == len(DUTIES), "it to notice", first)
    case.raise_flag("go-a")
    async with case.client(RUN) as hf:
        assert await (await hf.find(hold, "hold:a")).result("45s") == "a"
    now = {duty: (owner, version) for duty, owner, version, _ in case.ask(LEASES)}
    assert {owner for owner, _ in now.values()} == {owner for owner, _ in terms.values()}
    assert all(now[duty][1] >= version for duty, (_, version) in terms.items())
    assert len(first.logged("duty taken up")) == len(DUTIES)  # long ago
    assert not second.logged("duty lost")
    assert not second.logged("run overtaken")  # a rescue goes by the leases in the store, whichever process asks for it
    await first.leaves()
    await second.leaves()
    assert (await first.says("done"))["counts"][verb] == 1  # the late one was the last
    case.ledger.check(lost=case.processes.overtaken())
    assert len(case.ledger.calls("grip")) == 1

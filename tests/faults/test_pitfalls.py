"""How comparable systems really broke, each as a test.

Pitfalls 1 to 22 are those of replicas on Redis and a bus: `PROVEN_BY` names the tests that would fail if we fell into
one. Pitfalls 23 to 33 are those of durable execution, and follow here.
"""

from __future__ import annotations

import ast
import asyncio
import signal
from collections import Counter
from pathlib import Path

import pytest

from holdfast import RunCancelled
from tests.contract.conftest import BACKENDS
from tests.faults.cases import Case
from tests.faults.client_actions import Cancel, Resume
from tests.faults.conftest import NewCase
from tests.faults.crash_at_store_call import Point, When
from tests.faults.holdfast_process import Start
from tests.faults.processes import KILLED, in_turns, until
from tests.faults.workflows_of_pitfalls import RUN, chain, forget, lasting, race, relief, slips, tracks

pytestmark = pytest.mark.faults

LEASE = "1s"
ENTRIES = "SELECT e.value ->> 'what', e.value ->> 'step' FROM journal j, json_each(j.entries) e WHERE j.run_id = ?"

HERE = "faults/test_pitfalls_of_replicas.py"
CROSSING = "faults/test_crossing_shards.py"
TROUBLE = "faults/test_redis_in_trouble.py"
PROVEN_BY: dict[int, dict[str, tuple[str, ...]]] = {
    # Cluster mode never worked, and no test used one. The contract suite runs on a cluster of six: `BACKENDS`.
    1: {
        "contract/test_tokens.py": ("test_of_64_claims_one_is_granted",),
        CROSSING: ("test_a_worker_killed_between_any_two_scripts_leaves_nothing_undone",),
        TROUBLE: ("test_the_slots_of_shards_move_to_another_node",),
    },
    # The parts were tested without the lock that the service took twice. These start what is shipped.
    2: {
        "integration/test_leaders.py": ("test_of_two_processes_one_attends_to_each_duty_and_everybody_sees_which",),
        "cli/test_serving.py": ("test_each_role_may_have_a_process_of_its_own",),
    },
    # Dedupe that was wired nowhere, and whose key lacked the consumer.
    3: {
        HERE: ("test_one_message_id_counts_for_each_receiver_by_itself",),
        "bus/test_topics.py": ("test_each_group_gets_every_message",),
    },
    # Poison messages and results of finished work were discarded during an outage.
    4: {
        HERE: ("test_a_message_that_nobody_understands_holds_up_no_other",),
        TROUBLE: ("test_redis_is_killed_and_started_again", "test_redis_hangs_longer_than_the_leases_last"),
        "bus/test_topics.py": ("test_a_message_whose_handler_raises_comes_again_and_says_how_often",),
    },
    # Shutdown acknowledged what it no longer processed.
    5: {
        "faults/test_graceful_stop.py": ("test_sigterm_under_load_gives_all_work_back_at_once",),
        "bus/test_topics.py": ("test_a_shutdown_acknowledges_nothing_that_was_not_handled",),
    },
    # "At least once" consumers were plain subscriptions. Ours are hints only, and topics are durable.
    6: {
        TROUBLE: ("test_nats_is_not_there_from_the_beginning_to_the_end",),
        "bus/test_topics.py": ("test_what_is_published_before_anybody_consumes_is_kept",),
        "bus/test_nats.py": ("test_the_messages_of_a_member_that_was_killed_go_to_another",),
    },
    # A state written before the publish; an ambiguous publish that ran twice.
    7: {
        CROSSING: ("test_a_signal_to_a_token_whose_sender_died_over_it_arrives_once",),
        TROUBLE: ("test_whatever_reply_is_lost_a_repetition_does_nothing_a_second_time",),
    },
    # Fences that writes did not use; a late holder deleted its successor's lock.
    8: {
        "faults/test_a_worker_that_lost_its_lease.py": (
            "test_a_late_write_is_refused_although_the_new_owner_has_written_nothing_yet",
        ),
        "contract/test_a_stale_fence_writes_nothing.py": ("test_a_write_at_another_fence_leaves_no_trace",),
        "unit/engine/duties/test_leaders.py": (
            "test_a_released_lease_is_free_at_once_and_a_late_release_leaves_the_successor_alone",
        ),
    },
    # A full pool was acknowledged and retried by a sweep much later.
    9: {
        HERE: ("test_who_has_no_room_passes_the_word_on",),
        "integration/test_slots.py": ("test_a_start_in_one_process_wakes_a_worker_in_another_that_had_no_room_then",),
    },
    # Limits counted what only waited; check-then-act without reservation.
    10: {
        "integration/test_slots.py": (
            "test_runs_that_wait_hold_no_slot",
            "test_no_more_effects_are_in_flight_than_the_concurrency_allows",
        ),
    },
    # One message at a time: one slow item blocked a replica.
    11: {
        "bus/test_topics.py": ("test_a_slow_message_holds_up_no_other",),
        "integration/test_effects.py": ("test_a_sync_effect_does_not_hold_up_the_others",),
    },
    # Timeouts set a state and nothing else.
    12: {
        "integration/test_retries.py": ("test_a_timeout_reaches_the_workflow_as_a_timeout",),
        "integration/test_remote_effects.py": ("test_the_timeout_counts_from_the_claim",),
    },
    # Compensation keyed by the definition, popped before it was done.
    13: {
        HERE: ("test_what_one_run_did_is_undone_for_that_run_alone",),
        "integration/test_undo.py": ("test_undoing_survives_a_change_of_hands_at_every_moment",),
    },
    14: {},  # a circuit breaker whose half-open state was not shared: we have no breaker
    # One delay timer per run.
    15: {HERE: ("test_each_of_several_waits_of_one_run_ends_in_its_own_time_though_its_worker_dies",)},
    # Sweeps that always read the first rows; indexes that never shrank.
    16: {
        HERE: ("test_what_lies_behind_hundreds_of_others_is_delivered_too",),
        "contract/test_leases.py": ("test_rescue_comes_in_bites_until_nothing_is_left",),
        "contract/test_documents.py": ("test_pruning_counts_runs_and_documents_and_comes_in_bites",),
        "integration/test_admission.py": ("test_row_counts_return_to_the_baseline",),
    },
    # Leader locks never released and not renewed: the real cadence was twice the intended one.
    17: {
        "unit/engine/duties/test_leaders.py": ("test_a_duty_ticks_at_its_own_pace_whatever_its_lease_does",),
        "integration/test_leaders.py": ("test_a_leader_that_stops_hands_over_at_once",),
        "faults/test_leaders_under_fire.py": (
            "test_a_killed_leader_is_replaced_when_its_leases_are_over_and_not_before",
        ),
    },
    # Documents rewritten whole without a version.
    21: {"contract/test_documents.py": ("test_of_many_who_replace_a_version_one_succeeds_each_time",)},
    # A gate that could not fail.
    22: {"gate/test_planted.py": ("test_the_gate_passes_a_healthy_system_and_finds_every_planted_bug",)},
}


def test_every_test_that_is_said_to_prove_something_exists() -> None:
    assert set(PROVEN_BY) == {*range(1, 18), 21, 22}
    assert {"redis", "cluster"} <= set(BACKENDS)  # so the contract is tested on both
    for proofs in PROVEN_BY.values():
        for file, names in proofs.items():
            tree = ast.parse((Path(__file__).parents[1] / file).read_text())
            known = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
            assert set(names) <= known, f"{file} has no {set(names) - known}"


async def test_of_twelve_processes_that_claim_one_token_one_becomes_its_owner(any_case: Case) -> None:
    """Pitfall 23: hook tokens by SELECT then INSERT: 12 of 12 concurrent processes became owner."""
    case = any_case
    gate = str(case.flag("go"))
    processes = [
        await case.fork(pack=RUN, starts=[Start("guard", ["gate", n])], start_gate=gate, stay=True) for n in range(12)
    ]
    await asyncio.gather(*(process.says("waits") for process in processes))
    case.raise_flag("go")
    await until(
        lambda: sum(len(process.said("result")) for process in processes) == 11, "eleven to be told", *processes
    )
    async with case.client(RUN) as hf:
        known = await hf.runtime.store.hook_of_token("default", "gate")
        assert known is not None
        assert [run.id async for run in hf.runs() if run.status != "completed"] == [known.run.id]
    await asyncio.gather(*(process.leaves() for process in processes))


async def test_a_cancellation_killed_between_any_two_statements_is_whole_or_nothing(new_case: NewCase) -> None:
    """Pitfall 24: state row and event row in two statements: a crash between them wedged the run forever."""

    async def cancelled(case: Case, statement: int) -> int:
        start = await case.fork(pack=RUN, worker=False, starts=[Start("relief", ["a"])], results=False)
        assert await start.ended() == 0
        [(run_id,)] = case.ask("SELECT id FROM runs")
        doomed = await case.fork(pack=RUN, worker=False, actions=[Cancel(run_id)], statement=statement)
        code = await doomed.ended()
        [(status, length)] = case.ask("SELECT status, length FROM runs")
        whats = [what for what, _ in case.ask(ENTRIES, run_id)]
        assert len(whats) == length
        assert ("cancelled" in whats) == (status == "cancelled")
        assert status in {"pending", "cancelled"}
        async with case.client(RUN) as hf:
            assert (await (await hf.get(run_id)).cancel()).outcome == "no_effects"
        return (await doomed.says("done"))["statements"] if code == 0 else 0

    count = await cancelled(new_case("dry"), 0)
    assert count > 4
    await in_turns([lambda n=n: cancelled(new_case(f"statement-{n}"), n) for n in range(1, count + 1)], at_once=6)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_parallel_sequences_have_ids_of_their_own_whoever_replays_them(new_case: NewCase, when: When) -> None:
    """Pitfall 25: positional step ids plus several replays of one run at once. Here: lineage ids, one fenced writer."""

    async def one(n: int) -> None:
        case = new_case(f"commit-{n}")
        workers = [await case.fork(pack=RUN, stay=True, lease=LEASE) for _ in range(2)]
        starts = [Start("tracks", ["a"])]
        doomed = await case.fork(pack=RUN, starts=starts, lease=LEASE, point=Point("commit", n, when))
        assert await doomed.ended() in {KILLED, 0}
        async with case.client(RUN) as hf:
            run, _ = await hf.start(tracks("a"))
            assert await run.result("45s") == [[10, 11, 12], [20, 21, 22], [30, 31, 32]]
        await asyncio.gather(*(worker.leaves() for worker in workers))
        steps = Counter(step for what, step in case.ask(ENTRIES, run.id) if what == "performed")
        assert len(steps) == 9
        assert set(steps.values()) == {1}
        case.ledger.check(lost={doomed.pid} | case.processes.overtaken())

    await in_turns([lambda n=n: one(n) for n in (2, 4, 6)], at_once=3)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_resume_is_answered_when_it_is_durable_and_a_repeated_one_is_no_second(case: Case, when: When) -> None:
    """Pitfall 26: a resume API that acknowledged before the durable write lost payloads; a retried call came twice."""
    worker = await case.fork(pack=RUN, stay=True, lease=LEASE, starts=[Start("guard", ["gate", 1])])
    await worker.says("started")
    await until(lambda: case.ask("SELECT 1 FROM hooks WHERE token = 'gate'"), "the token", worker)
    worker.signal(signal.SIGKILL)
    await worker.ended()
    action = Resume("gate", "open", "call-1")
    doomed = await case.fork(pack=RUN, worker=False, actions=[action], point=Point("commit", 1, when))
    assert await doomed.ended() == KILLED
    assert doomed.said("did") == []
    there = case.ask("SELECT count(*) FROM inbox WHERE id LIKE 'signal/%'")
    assert there == [(int(when == "after"),)]
    again = await case.fork(pack=RUN, worker=False, actions=[action, action])
    assert await again.ended() == 0
    assert len(again.said("did")) == 2
    successor = await case.fork(pack=RUN, stay=True, lease=LEASE)
    [(run_id,)] = case.ask("SELECT id FROM runs")
    async with case.client(RUN) as hf:
        assert await (await hf.get(run_id)).result("45s") == ["open"]
    await successor.leaves()
    assert case.ask("SELECT count(*) FROM inbox WHERE id LIKE 'signal/%'") == [(1,)]


async def test_a_key_and_its_result_live_equally_long_counted_from_the_end(case: Case) -> None:
    """Pitfall 27: a live key pointed to an expired result; retention counted from creation, a long run had none."""
    worker = await case.fork(pack=RUN, stay=True, lease=LEASE)
    await worker.says("ready")
    async with case.client(RUN) as hf:
        run, _ = await hf.start(lasting("a"), retention="1s")
        [(created_at_ms, retention_ms)] = case.ask("SELECT created_ms, retention_ms FROM runs")
        assert retention_ms == 1000
        # It takes longer than its retention, by the clock of the file: leases are renewed for a second at a time.
        leased = "SELECT max(until_ms) FROM leases"
        await until(lambda: case.ask(leased)[0][0] > created_at_ms + 1000 + 2 * retention_ms, "a long time", worker)
        assert (await hf.start(lasting("a"))).created is False
        case.raise_flag("go-a")
        assert await run.result("45s") == "x" * 300_000
        again, created = await hf.start(lasting("a"))
        assert (again.id, created) == (run.id, False)
        assert await again.result("45s") == "x" * 300_000
        [(finished_at_ms, expires_at_ms)] = case.ask("SELECT finished_ms, expires_ms FROM runs")
        assert expires_at_ms == finished_at_ms + retention_ms
        await until(lambda: not case.ask("SELECT 1 FROM runs WHERE id = ?", run.id), "the pruner", worker)
        assert case.ask("SELECT count(*) FROM blobs") == case.ask("SELECT count(*) FROM journal") == [(0,)]
        later, created = await hf.start(lasting("a"))
        assert created
        assert await later.result("45s") == "x" * 300_000
    await worker.leaves()


async def test_waiting_for_children_takes_no_slot_and_a_restart_wakes_nobody(case: Case) -> None:
    """Pitfall 28: restart re-enqueued every parked run. Waiting on a child held a worker slot: pool deadlock."""
    first = await case.fork(pack=RUN, stay=True, lease=LEASE, concurrency=1, starts=[Start("chain", ["a", 4])])
    await until(lambda: case.ledger.calls("wait"), "the last of the chain, with one slot for all", first)
    parked = "SELECT id, epoch, length FROM runs WHERE key <> 'chain:a:0' AND owner IS NULL ORDER BY 1"
    await until(lambda: len(case.ask(parked)) == 4, "the others to be let go", first)
    before = case.ask(parked)
    first.signal(signal.SIGKILL)
    await first.ended()
    second = await case.fork(pack=RUN, stay=True, lease=LEASE, concurrency=1)
    await until(lambda: len(case.ledger.calls("wait")) == 2, "the takeover", second)
    assert case.ask(parked) == before
    case.raise_flag("go-a")
    async with case.client(RUN) as hf:
        assert await (await hf.find(chain, "chain:a:4")).result("45s") == 4
    await second.leaves()
    case.ledger.check(lost={first.pid})


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_race_has_one_winner_whoever_dies(new_case: NewCase, when: When) -> None:
    """Pitfall 29: concurrent step sequences "not allowed"; `gather` raced; race winners differed on replay."""

    async def one(n: int) -> None:
        case = new_case(f"commit-{n}")
        doomed = await case.fork(pack=RUN, starts=[Start("race", ["a"])], lease=LEASE, point=Point("commit", n, when))
        assert await doomed.ended() in {KILLED, 0}
        successor = await case.fork(pack=RUN, stay=True, lease=LEASE)
        async with case.client(RUN) as hf:
            run, _ = await hf.start(race("a"))
            winner = await run.result("45s")
        await successor.leaves()
        [crowned] = {line["step"] for line in case.ledger.calls() if line["step"].startswith("crown")}
        assert crowned == f"crown {winner}"
        finished = [step for what, step in case.ask(ENTRIES, run.id) if what == "performed"]
        assert len(finished) == len(set(finished))
        case.ledger.check(lost={doomed.pid} | case.processes.overtaken())

    await in_turns([lambda n=n: one(n) for n in range(1, 6)], at_once=5)


async def test_the_work_of_one_who_never_returns_is_done_and_that_of_the_living_is_left_alone(case: Case) -> None:
    """Pitfall 30: recovery only of one's own executor id; replicas that share a default id re-run each other's work."""
    dead = await case.fork(pack=RUN, stay=True, lease=LEASE, starts=[Start("lasting", ["dead"])])
    await until(lambda: case.ledger.calls("last"), "its effect", dead)
    dead.signal(signal.SIGKILL)
    await dead.ended()
    living = await case.fork(pack=RUN, stay=True, lease=LEASE, concurrency=2, starts=[Start("lasting", ["living"])])
    others = [await case.fork(pack=RUN, stay=True, lease=LEASE) for _ in range(2)]
    await until(lambda: len(case.ledger.calls("last")) == 3, "both effects", living)
    [(owner, until_ms)] = case.ask(
        "SELECT l.owner, l.until_ms FROM leases l JOIN runs r ON r.owner = l.owner WHERE r.key = 'lasting:living'"
    )
    renewed = "SELECT until_ms FROM leases WHERE owner = ?"
    await until(lambda: case.ask(renewed, owner)[0][0] > until_ms + 2000, "several renewals", living)
    for name in ("dead", "living"):
        case.raise_flag(f"go-{name}")
    async with case.client(RUN) as hf:
        for name in ("dead", "living"):
            assert await (await hf.find(lasting, f"lasting:{name}")).result("45s")
    await asyncio.gather(*(worker.leaves() for worker in (living, *others)))
    case.ledger.check(lost={dead.pid} | case.processes.overtaken())
    if not case.processes.overtaken():
        assert Counter(line["order"] for line in case.ledger.calls("last")) == {"dead": 2, "living": 1}


async def test_no_work_is_lost_when_the_store_is_out_of_reach_during_a_recovery(case: Case) -> None:
    """Pitfall 31, first part: work lost when the database restarted during recovery."""
    first = await case.fork(pack=RUN, stay=True, lease=LEASE, starts=[Start("tracks", [f"{n}"]) for n in range(5)])
    await until(lambda: len(case.ledger.calls()) > 5, "some work", first)
    first.signal(signal.SIGKILL)
    await first.ended()
    second = await case.fork(pack=RUN, stay=True, lease=LEASE)
    await second.says("ready")
    with case.locked():  # it has begun to look, and cannot write
        await until(lambda: second.logged("store in trouble"), "the trouble", second)
    async with case.client(RUN) as hf:
        for n in range(5):
            run, _ = await hf.start(tracks(f"{n}"))
            assert len(await run.result("45s")) == 3
    await second.leaves()
    case.ledger.check(lost={first.pid} | case.processes.overtaken())


async def test_a_cancellation_that_races_the_end_is_never_lost_and_never_both(case: Case) -> None:
    """Pitfall 31, second part: cancel lost against completion (C3)."""
    worker = await case.fork(pack=RUN, stay=True)
    outcomes: Counter[str] = Counter()
    async with case.client(RUN) as hf:
        for n in range(40):
            run, _ = await hf.start(relief(f"{n}"))
            canceller = asyncio.create_task(run.cancel()) if n % 2 else None
            if n == 1:  # the first two are decided; who wins the others depends on how busy the machine is
                assert canceller is not None
                await canceller
            else:
                await run.signal("relief", n)
            if n == 0:
                await run.result("45s")
            receipt = await (canceller or run.cancel())
            run = await run.refresh()
            whats = [what for what, _ in case.ask(ENTRIES, run.id)]
            assert whats.count("completed") + whats.count("cancelled") == 1
            if receipt.outcome == "completed_first":
                assert run.status == "completed"
                assert await run.result("45s") == n
            else:
                assert run.status == "cancelled"
                with pytest.raises(RunCancelled):
                    await run.result("45s")
            assert await run.receipt() == receipt
            outcomes[run.status] += 1
    await worker.leaves()
    assert outcomes.total() == 40
    assert set(outcomes) == {"completed", "cancelled"}


async def test_a_task_that_nobody_holds_is_not_collected_while_it_runs(case: Case) -> None:
    """Pitfall 31, third part: fire-and-forget tasks garbage-collected while running. A kill on top of it."""
    first = await case.fork(pack=RUN, stay=True, lease=LEASE, starts=[Start("forget", ["a"])])
    await until(lambda: case.ledger.calls("sweep"), "the collection", first)
    first.signal(signal.SIGKILL)
    await first.ended()
    case.raise_flag("go-a")
    second = await case.fork(pack=RUN, stay=True, lease=LEASE)
    async with case.client(RUN) as hf:
        assert await (await hf.find(forget, "forget:a")).result("45s") == "kept"
    await second.leaves()
    case.ledger.check(lost={first.pid})


async def test_an_idle_worker_with_many_waiting_runs_asks_for_next_to_nothing(case: Case) -> None:
    """Pitfall 32: polling: 300,000 useless queries a day, 25-36 % idle CPU, pool exhaustion by fan-out waits."""
    setter = await case.fork(pack=RUN, starts=[Start("relief", [f"{n}"]) for n in range(300)], results=False, stay=True)
    await setter.says("ready")
    waiting = "SELECT count(*) FROM runs WHERE status = 'waiting' AND owner IS NULL"
    await until(lambda: case.ask(waiting) == [(300,)], "all to wait", setter)
    await setter.leaves()
    idle = await case.fork(pack=RUN, stay=True, lease="3s")
    await idle.says("ready")
    [(joined_at_ms,)] = case.ask("SELECT until_ms FROM leases")
    await until(lambda: case.ask("SELECT until_ms FROM leases")[0][0] >= joined_at_ms + 3000, "three renewals", idle)
    await idle.leaves()
    [report] = idle.said("done")
    counts: Counter[str] = Counter(report["counts"])
    assert counts["renew"] >= 3
    assert counts["commit"] == counts["histories"] == 0, counts
    others = counts.total() - counts["renew"]
    assert others <= 40, counts  # a few looks per second, whatever is waiting: nothing that grows with the runs
    assert case.ask(waiting) == [(300,)]


async def test_a_start_of_an_attempt_that_dies_uses_no_attempt_up(case: Case) -> None:
    """Pitfall 33: step attempts counted starts, not failures: concurrent first starts used up the retries."""
    lost: set[int] = set()
    for n in range(4):  # it may fail only once
        doomed = await case.fork(pack=RUN, stay=True, lease=LEASE, starts=[Start("slips", ["a"])])
        await until(lambda n=n: len(case.ledger.calls("slip")) == n + 1, "the attempt", doomed)
        doomed.signal(signal.SIGKILL)
        await doomed.ended()
        lost.add(doomed.pid)
    case.raise_flag("go-a")
    last = await case.fork(pack=RUN, stay=True, lease=LEASE)
    async with case.client(RUN) as hf:
        assert await (await hf.find(slips, "slips:a")).result("45s") == 2
    await last.leaves()
    attempts = [line["attempt"] for line in case.ledger.calls("slip")]
    assert attempts == [1, 1, 1, 1, 1, 2]

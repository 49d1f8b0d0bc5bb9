"""What a scenario has seen, as a history: so that the checker which judges simulations judges a real installation, too.

Readers of events, searches, API keys and what schedulers say of themselves have no place in a history: the gate's own
rules are about them.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.kernel import hooks
from holdfast.kernel.journal import IntentEntry, Received
from holdfast.kernel.times import EPOCH, NO_TIME, Instant
from holdfast.lab.gate.evidence import Evidence, FaultKind, Final, InjectedFault, SentWord, Violation
from holdfast.lab.gate.explained_repeats import CLOCK_SLACK_MS
from holdfast.lab.gate.pack import KNOCK, WORD, errand
from holdfast.lab.gate.run_rules import content
from holdfast.testing.histories.checker import check
from holdfast.testing.histories.history import (
    EffectObserved,
    FaultApplied,
    FaultName,
    FinalRun,
    HistoryHead,
    LeaderActed,
    LeaseChanged,
    OperationCalled,
    OperationReturned,
    Record,
    RunMoved,
)

FAULTS: dict[FaultKind, FaultName] = {
    "kill": "killed",
    "stop": "paused",
    "continue": "continued",
    "terminate": "ended",
    "start": "started",
    "forget": "forgot",
}
UNDER_WAY = frozenset({"pending", "running"})


def violations_of_history(evidence: Evidence) -> tuple[Violation, ...]:
    """What the checker of histories finds."""
    found = check(history_of(evidence))
    return tuple(Violation(each.kind, each.about, f"{each.invariant}: {each.detail}") for each in found)


def history_of(evidence: Evidence) -> tuple[Record, ...]:
    """All of it in the order in which it happened."""
    happened = sorted(
        (*_starts(evidence), *_signals(evidence), *_calls(evidence), *_faults(evidence), *_notices(evidence)),
        key=lambda record: record.at_ms,
    )
    ends_at_ms = max((record.at_ms for record in happened), default=EPOCH)
    head = HistoryHead(source="gate", lease_ms=evidence.lease_ms, slack_ms=CLOCK_SLACK_MS)
    return (head, *happened, *(_final(final, ends_at_ms) for final in evidence.finals))


def _starts(evidence: Evidence) -> Iterator[Record]:
    workflows = dict.fromkeys(evidence.orders, errand.name) | {each.key: each.workflow for each in evidence.others}
    again = {each.key for each in evidence.others if each.again}
    delays_ms = {each.key: each.delay_ms for each in evidence.others if each.delay_ms}
    for at, answer in enumerate(evidence.accepted_starts):
        op = f"start-{at}"
        yield OperationCalled(
            at_ms=_first(answer.first_asked_at_ms, answer.asked_at_ms, answer.at_ms),
            op=op,
            client=answer.gateway,
            verb="start",
            workflow=workflows.get(answer.order, errand.name),
            key=answer.order,
            request=answer.request,
            delay_ms=delays_ms.get(answer.order, NO_TIME),
        )
        yield OperationReturned(at_ms=answer.at_ms, op=op, outcome="ok", run=answer.run, created=answer.created)
    # Some are started in a way that says nothing of the run: by a signal to their key, or by a call that failed.
    for order in sorted(workflows.keys() - {answer.order for answer in evidence.accepted_starts}):
        hook = WORD if order in again else ""
        yield OperationCalled(
            op=f"start-{order}", client="", verb="start", workflow=workflows[order], key=order, hook=hook
        )


def _signals(evidence: Evidence) -> Iterator[Record]:
    runs = {final.key: final.id for final in evidence.finals}
    runs |= {answer.order: answer.run for answer in evidence.accepted_starts}
    again = {each.key: each.workflow for each in evidence.others if each.again}
    finals: dict[str, list[Final]] = {}
    for final in evidence.finals:
        finals.setdefault(final.key, []).append(final)
    for at, sent in enumerate(evidence.sent):
        by_key = sent.order in again
        message = _message(sent, finals.get(sent.order, []), by_key=by_key)
        op, run = f"signal-{at}", "" if by_key else runs.get(sent.order, "")
        yield OperationCalled(
            at_ms=_first(sent.asked_at_ms, sent.at_ms),
            op=op,
            client=sent.sender,
            verb="signal",
            workflow=again.get(sent.order, ""),
            key=sent.order if by_key else "",
            run=run,
            hook=sent.hook,
            message=message,
            sender=sent.sender,
            number=sent.number,
        )
        yield OperationReturned(at_ms=sent.at_ms, op=op, outcome="ok", run=run)


def _message(sent: SentWord, finals: list[Final], *, by_key: bool) -> str:
    """The id of a signal. Its word is its dedupe id; a journal may know the word under another id all the same."""
    if sent.hook == KNOCK:
        message = hooks.token_signal_id(sent.order, sent.word)
    else:
        message = (hooks.key_signal_id if by_key else hooks.signal_id)(sent.hook, sent.word)
    received = [entry for final in finals for entry in final.journal if isinstance(entry, Received)]
    if any(entry.id == message for entry in received):
        return message
    return next((entry.id for entry in received if content(entry.value) == sent.word), message)


def _calls(evidence: Evidence) -> Iterator[Record]:
    """The ledger knows a step by the name of its effect, which is called once in a run."""
    steps = {
        (final.id, entry.intent.name.rpartition(".")[2]): entry.step
        for final in evidence.finals
        for entry in final.journal
        if isinstance(entry, IntentEntry)
    }
    for call in evidence.calls:
        yield EffectObserved(
            at_ms=call.at_ms,
            host=str(call.pid),
            run=call.run,
            step=steps.get((call.run, call.step), call.step),
            key=call.key,
            phase="began",
            attempt=call.attempt,
        )


def _faults(evidence: Evidence) -> Iterator[Record]:
    for fault in evidence.faults:
        if fault.deed == "forget":
            yield FaultApplied(at_ms=fault.at_ms, fault="forgot", detail=fault.part)
        elif _is_of_the_store(fault):
            yield FaultApplied(at_ms=fault.at_ms, fault="store down", detail=f"{fault.deed} {fault.part}")
        else:
            name = FAULTS[fault.deed]
            yield FaultApplied(at_ms=fault.at_ms, fault=name, host=str(fault.pid), detail=fault.part)


def _is_of_the_store(fault: InjectedFault) -> bool:
    return fault.role == "redis" and fault.deed in {"kill", "stop", "terminate"}


def _notices(evidence: Evidence) -> Iterator[Record]:
    for notice in evidence.notices:
        host = str(notice.pid)
        match notice.said:
            case "rescued":
                for run in notice.runs:
                    yield RunMoved(at_ms=notice.at_ms, how="rescued", run=run)
            case "overtaken" | "lease lost" | "stale":
                for run in notice.runs or ("",):
                    yield LeaseChanged(at_ms=notice.at_ms, how="lost", host=host, run=run)
            case "elected" | "deposed":
                yield LeaderActed(at_ms=notice.at_ms, how=notice.said, host=host, duty=notice.duty, term=notice.term)
            case "taken back":
                pass


def _final(final: Final, at_ms: Instant) -> FinalRun:
    return FinalRun(
        at_ms=at_ms,
        run=final.id,
        workflow=final.workflow,
        status=final.status,
        key=final.key,
        due=final.status in UNDER_WAY,
        length=len(final.journal),
        journal=final.journal,
        result=final.result,
    )


def _first(*instants_at_ms: Instant) -> Instant:
    """The first instant that is known."""
    return next((at_ms for at_ms in instants_at_ms if at_ms != EPOCH), EPOCH)

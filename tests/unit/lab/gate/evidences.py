"""Evidence of a flawless scenario, to plant bugs in."""

from __future__ import annotations

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from holdfast.kernel.journal import (
    Completed,
    Elapsed,
    Entry,
    Intent,
    Joined,
    Performed,
    Received,
    Spawned,
    Started,
    Value,
)
from holdfast.lab.gate.evidence import (
    AcceptedStart,
    DutySeen,
    EffectCall,
    Evidence,
    Final,
    Heard,
    InjectedFault,
    KeyUse,
    LogNotice,
    OtherOrder,
    Searched,
    SentWord,
)
from holdfast.lab.gate.pack import CHILD_STEPS, GO, STEPS, WORD, chat, errand, expected, nap, parcel

ORDERS = ("kills-00001", "kills-00002")
NAP, CHAT = "kills-00003", "kills-00004"
WORKER, OTHER = 101, 102
LEADER, CANDIDATE = 201, 202
WORDS = ("a/1", "a/2", "b/1")
KILLED_MS = 50_000
LEASE_MS = 3_000


def value(of: object) -> Value:
    return Value(json=Raw(msgspec.json.encode(of)))


def performed(order: str, step: str, at_ms: int) -> Performed:
    return Performed(at_ms, step, Intent("effect", f"gate.{step}", key=f"{order}/{step}"), 1, value(f"{order} {step}"))


def final(order: str, began_at_ms: int) -> Final:
    journal: tuple[Entry, ...] = (
        Started(began_at_ms, value({"order": order})),
        performed(order, "reserve", began_at_ms + 10),
        Received(began_at_ms + 20, GO, "dedupe", value(f"{order} go")),
        performed(order, "charge", began_at_ms + 30),
        Elapsed(began_at_ms + 80, "sleep", began_at_ms + 80),
        Spawned(began_at_ms + 90, "parcel", Intent("child", parcel.name), f"child-{order}", f"{order}/parcel"),
        Joined(began_at_ms + 120, "parcel", f"child-{order}", value(f"{order} wrap")),
        performed(order, "ship", began_at_ms + 130),
        Completed(began_at_ms + 131),
    )
    result = msgspec.json.encode(expected(order)).decode()
    return Final(f"run-{order}", errand.name, order, "completed", journal, result)


def child(order: str, began_at_ms: int) -> Final:
    journal = (
        Started(began_at_ms + 95, value({"order": order})),
        performed(order, "wrap", began_at_ms + 110),
        Completed(began_at_ms + 111),
    )
    return Final(f"child-{order}", parcel.name, f"{order}/parcel", "completed", journal, f'"{order} wrap"')


def calls(order: str, began_at_ms: int) -> list[EffectCall]:
    instants = {"reserve": 9, "charge": 29, "wrap": 109, "ship": 129}
    runs = dict.fromkeys(STEPS, f"run-{order}") | dict.fromkeys(CHILD_STEPS, f"child-{order}")
    return [
        EffectCall(f"{order}/{step}", runs[step], step, order, 1, WORKER, began_at_ms + after)
        for step, after in instants.items()
    ]


def accepted_starts(order: str, at_ms: int) -> list[AcceptedStart]:
    given = ((True, "r1", "a"), (True, "r1", "b"), (False, "r2", "b"))
    return [
        AcceptedStart(
            order=order, run=f"run-{order}", created=created, request=request, gateway=gateway, tries=1, at_ms=at_ms
        )
        for created, request, gateway in given
    ]


def napped() -> Final:
    """A nap of a second and a half, which was to begin 300 ms after its start at 12,000."""
    journal = (
        Started(12_010, value({"order": NAP, "sleep_ms": 1_500})),
        performed(NAP, "doze", 12_320),
        Elapsed(13_821, "sleep", 13_821),
        performed(NAP, "wake", 13_830),
        Completed(13_831),
    )
    return Final(f"run-{NAP}", nap.name, NAP, "completed", journal, f'["{NAP} doze","{NAP} wake"]')


def chatted() -> Final:
    """A chat that took two words, and got a third before it ended."""
    words = tuple(Received(14_010 + at, WORD, word, value(word)) for at, word in enumerate(WORDS))
    journal = (Started(14_000, value({"order": CHAT, "words": 2})), *words, Completed(14_020))
    return Final(f"run-{CHAT}", chat.name, CHAT, "completed", journal, '["a/1","a/2"]')


def nap_calls() -> list[EffectCall]:
    instants = {"doze": 12_315, "wake": 13_826}
    return [EffectCall(f"{NAP}/{step}", f"run-{NAP}", step, NAP, 1, WORKER, at_ms) for step, at_ms in instants.items()]


def sent() -> tuple[SentWord, ...]:
    numbered = (word.split("/") for word in WORDS)
    return tuple(
        SentWord(order=CHAT, hook=WORD, word=f"{sender}/{number}", sender=sender, number=int(number))
        for sender, number in numbered
    )


def sights() -> tuple[DutySeen, ...]:
    """One leads, is deposed, and the other one is elected."""
    told = ((LEADER, True, 1), (CANDIDATE, False, 0), (LEADER, False, 2), (CANDIDATE, True, 1), (LEADER, False, 2))
    return tuple(DutySeen(at, pid, "rescuer", leads, elections) for at, (pid, leads, elections) in enumerate(told))


def flawless() -> Evidence:
    """Two errands, one after the other, a nap and a chat. Nothing is done to the workers that have them."""
    began = {order: 10_000 + 1_000 * nth for nth, order in enumerate(ORDERS)}
    return Evidence(
        lease_ms=LEASE_MS,
        orders=ORDERS,
        accepted_starts=(
            *(each for order, at_ms in began.items() for each in accepted_starts(order, at_ms)),
            replace(accepted_starts(NAP, 12_005)[0], asked_at_ms=12_000),
        ),
        others=(OtherOrder(workflow=nap.name, key=NAP, delay_ms=300), OtherOrder(workflow=chat.name, key=CHAT)),
        calls=(*(each for order, at_ms in began.items() for each in calls(order, at_ms)), *nap_calls()),
        finals=(
            *(each for order, at_ms in began.items() for each in (final(order, at_ms), child(order, at_ms))),
            napped(),
            chatted(),
        ),
        sent=sent(),
        heard=(Heard(f"run-{CHAT}", (0, 1, 2, 3, 4), 3),),
        searched=(Searched("closed", (f"run-{CHAT}",), (f"run-{CHAT}",)), Searched("open", (), ())),
        key_uses=(
            KeyUse(gateway="a", after_ms=100, accepted=True),
            KeyUse(gateway="a", after_ms=2_300, accepted=False),
        ),
        sights=sights(),
        faults=(InjectedFault(at_ms=KILLED_MS, deed="kill", part="worker-1", role="worker", pid=OTHER),),
        notices=(LogNotice(KILLED_MS + 3_000, "rescued", WORKER, ("run-kills-00001",)),),
    )


def with_final(seen: Evidence, order: str, **changes: object) -> Evidence:
    """The same with another end of an order's run."""
    finals = tuple(replace(each, **changes) if each.id == f"run-{order}" else each for each in seen.finals)
    return replace(seen, finals=finals)


def with_calls(seen: Evidence, *more: EffectCall) -> Evidence:
    """The same with further calls in the ledger, at its end."""
    return replace(seen, calls=(*seen.calls, *more))

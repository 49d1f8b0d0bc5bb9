"""Hand-overs: which worker continues a run while workers with different code are there at the same time.

Each worker announces, beside its lease, the code of every workflow that it serves: a digest, and the declared version.

A worker has claimed a run:

    version of the run      another live worker serves it    declared here    what the worker does
    ──────────────────────  ───────────────────────────────  ───────────────  ──────────────────────────────────────
    none, or the one here   -                                -                executes it
    another one             yes                              -                hands it over to that worker
    another one             no                               -                executes it
    another one             no                               pinned           gives it back: it waits for that version

It has replayed the journal:

    what it found                          other live code, not tried    what the worker does
    ─────────────────────────────────────  ────────────────────────────  ─────────────────────────────────────────────
    the code fits                          -                             goes on
    the code contradicts the journal       yes                           hands the run over to a worker with that code
    the code contradicts the journal       no                            blocks it
    the journal has a patch that the       yes                           hands the run over to a worker with that code
    code does not ask for                  no                            goes on

It has joined, and there is a run that is blocked because code contradicted its journal:

    its code        what the worker does
    ──────────────  ────────────────────────────
    not tried yet   takes the run up
    tried already   leaves it blocked

Rules
- Code counts as tried for a run until the run makes progress: until its journal is longer than it was. A retry by a
  person is an entry of the journal, so all code may be tried again then. That the run was blocked, and taken up by a
  worker, are entries as well, and are no progress.
- What was tried is one document per run, beside the run. It is written only for runs whose code did not fit, and before
  the run is handed over or blocked: the next worker has to know.
- A worker that announces nothing is of an earlier version of Holdfast. What it runs is other code, which has no digest.
- Where the version is pinned, a run that has one goes to no worker that serves another.
- A patch that the code does not ask for is no contradiction: once no run needs the old way, a patch may be removed. But
  this may also be the old code, which knows nothing of the patch, and would leave the new way unnoticed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from holdfast.errors import ReplayDiverged
from holdfast.kernel.documents import Document, Writing, next_version
from holdfast.kernel.journal import Failure
from holdfast.kernel.runs import Run, Status
from holdfast.kernel.times import Instant, Millis

CODE = "code"  # what a worker announces, under the name of its lease
TRIED = "tried"  # which code contradicted a run, under the id of the run
CALL = "handed"  # tells workers to look at what they hold: a run was handed to one of them
ANNOUNCED_MS = Millis(3_600_000)
TRIED_MS = Millis(30 * 86_400_000)
CALL_MS = Millis(60_000)
PINNED_MS = Millis(5_000)  # until a worker looks again whether there is one of the right version


class Code(Struct, frozen=True, gc=False, omit_defaults=True):
    """The code of one workflow, as a worker announces it."""

    digest: str = ""
    version: str = ""
    pinned: bool = False


class Peer(Struct, frozen=True, gc=False):
    """Another live worker that serves the workflow, its code, and how many runs it has room for."""

    owner: str
    code: Code
    room: int = 0


class TriedCode(Struct, frozen=True, gc=False):
    """Code that contradicted a run when its journal was so long."""

    length: int
    digests: tuple[str, ...]
    reluctant: tuple[str, ...] = ()  # code that fits, and gave the run to others which might fit better


class ExecuteHere(Struct, frozen=True, gc=False):
    """ExecuteHere it here."""


class HandTo(Struct, frozen=True, gc=False):
    """Hand it over to this worker. `tried` is to be written before."""

    owner: str
    tried: Writing | None = None


class WaitForVersion(Struct, frozen=True, gc=False):
    """Give it back until then: no worker serves its version."""

    wake_at_ms: Instant


class NoCodeFits(Struct, frozen=True, gc=False):
    """No live code fits: block it. `tried` is to be written before."""

    tried: Writing


Route = ExecuteHere | HandTo | WaitForVersion
_decode_codes = msgspec.json.Decoder(dict[str, Code]).decode
_decode_tried = msgspec.json.Decoder(TriedCode).decode
_decode_failure = msgspec.json.Decoder(Failure).decode
_encode = msgspec.json.Encoder().encode


# -- what workers announce


def announce(
    namespace: str, owner: str, codes: Mapping[str, Code], *, last: Document | None, now_ms: Instant
) -> Writing | None:
    """What a worker writes about its code; None if that is stored, and does not expire soon."""
    if last is not None and last.expires_at_ms is not None and last.expires_at_ms - now_ms > ANNOUNCED_MS // 2:
        return None
    replaces = None if last is None else last.version
    version = next_version(replaces, now_ms=now_ms)
    document = Document(namespace, CODE, owner, version, _encode(dict(codes)), expires_at_ms=now_ms + ANNOUNCED_MS)
    return Writing(document, replaces)


def withdraw(last: Document, *, now_ms: Instant) -> Writing:
    """What a worker writes that leaves."""
    version = next_version(last.version, now_ms=now_ms)
    return Writing(msgspec.structs.replace(last, version=version, expires_at_ms=now_ms), last.version)


def codes_in(document: Document) -> dict[str, Code]:
    """What a worker has announced, by workflow."""
    return _decode_codes(document.body)


# -- when a run was claimed


def is_elsewhere(run: Run, version: str) -> bool:
    """Whether the run was admitted under another version than the one that is served here."""
    return run.version not in {"", version}


def route(run: Run, here: Code, peers: Sequence[Peer], told: Document | None, *, now_ms: Instant) -> Route:
    """What a worker does with a run that it has claimed, and that was admitted under another version than its own."""
    if not is_elsewhere(run, here.version):
        return ExecuteHere()
    tried = tried_in(run, told)
    serving = [each for each in peers if each.code.version == run.version and each.code.digest not in tried]
    if serving:
        return HandTo(_best(serving).owner)
    return WaitForVersion(now_ms + PINNED_MS) if here.pinned else ExecuteHere()


def lacks_version(run: Run, codes: Iterable[Code]) -> bool:
    """Whether the run waits for its version: it is pinned, and none of these live workers serves it."""
    known = list(codes)
    return bool(run.version) and any(each.pinned for each in known) and run.version not in {c.version for c in known}


# -- when its journal was replayed


def diverged(
    run: Run, here: Code, peers: Sequence[Peer], told: Document | None, *, now_ms: Instant
) -> HandTo | NoCodeFits:
    """What a worker does with a run whose journal contradicts its code."""
    tried, reluctant = {*tried_in(run, told), here.digest}, reluctant_in(run, told) - {here.digest}
    fit = _others(run, here, peers, tried | reluctant) or _others(run, here, peers, tried)
    if fit:
        return _hand_to(_best(fit, run.version), run, tried, reluctant, told, now_ms=now_ms)
    # The entry that says that it is blocked is no progress.
    return NoCodeFits(_note(run, tried, told, length=run.length + 1, now_ms=now_ms))


def prefer_other(
    run: Run, here: Code, peers: Sequence[Peer], told: Document | None, *, now_ms: Instant
) -> HandTo | ExecuteHere:
    """What a worker does with a run that has gone through a patch which the code here does not ask for."""
    tried, reluctant = tried_in(run, told), {*reluctant_in(run, told), here.digest}
    fit = _others(run, here, peers, tried | reluctant)
    return _hand_to(_best(fit, run.version), run, tried, reluctant, told, now_ms=now_ms) if fit else ExecuteHere()


def _hand_to(
    peer: Peer, run: Run, tried: Collection[str], reluctant: Collection[str], told: Document | None, *, now_ms: Instant
) -> HandTo:
    length = run.length
    if not peer.code.digest:  # an earlier version notes nothing: it is noted for it, with the entry by which it blocks
        tried, length = {*tried, ""}, run.length + 1
    return HandTo(peer.owner, _note(run, tried, told, length=length, now_ms=now_ms, reluctant=reluctant))


def tried_in(run: Run, told: Document | None) -> frozenset[str]:
    """The code that contradicted the run since its last progress."""
    if told is None:
        return frozenset()
    tried = _decode_tried(told.body)
    return frozenset(tried.digests) if tried.length == run.length else frozenset()


def reluctant_in(run: Run, told: Document | None) -> frozenset[str]:
    """The code that fits the run, and gave it to others since its last progress."""
    if told is None:
        return frozenset()
    tried = _decode_tried(told.body)
    return frozenset(tried.reluctant) if tried.length == run.length else frozenset()


def call(run: Run, owner: str, *, now_ms: Instant) -> Writing:
    """Tells the worker that the run was handed to it. It would find the run anyway, when it renews its lease."""
    version = next_version(None, now_ms=now_ms)
    body = _encode({"owner": owner})
    name = f"{run.id}.{run.epoch}"
    return Writing(Document(run.namespace, CALL, name, version, body, expires_at_ms=now_ms + CALL_MS), None)


# -- when a worker has joined


def may_take_up(run: Run, here: Code, told: Document | None) -> bool:
    """Whether a worker with this code takes the run up by itself."""
    if run.status is not Status.BLOCKED or run.error is None or (run.key is not None and not run.holds_key):
        return False
    if _decode_failure(run.error).type != ReplayDiverged.code or here.digest in tried_in(run, told):
        return False
    return not (here.pinned and is_elsewhere(run, here.version))


def take_up(run: Run, told: Document | None, *, now_ms: Instant) -> Writing | None:
    """What is written before a worker takes the run up: what was tried stays tried, though the journal grows by one."""
    tried = tried_in(run, told)
    return _note(run, tried, told, length=run.length + 1, now_ms=now_ms) if tried else None


def _others(run: Run, here: Code, peers: Sequence[Peer], tried: Collection[str]) -> list[Peer]:
    fit = [each for each in peers if each.code.digest not in tried]
    return [each for each in fit if each.code.version == run.version] if here.pinned and run.version else fit


def _best(peers: Sequence[Peer], version: str | None = None) -> Peer:
    return max(peers, key=lambda each: (each.code.version == version, each.room, each.owner))


def _note(
    run: Run,
    tried: Collection[str],
    told: Document | None,
    *,
    length: int,
    now_ms: Instant,
    reluctant: Collection[str] = (),
) -> Writing:
    replaces = None if told is None else told.version
    version = next_version(replaces, now_ms=now_ms)
    body = _encode(TriedCode(length, tuple(sorted(tried)), tuple(sorted(reluctant))))
    return Writing(Document(run.namespace, TRIED, run.id, version, body, expires_at_ms=now_ms + TRIED_MS), replaces)

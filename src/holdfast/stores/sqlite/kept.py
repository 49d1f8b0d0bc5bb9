"""Outs and audits: kept in the transaction of the change that brings them, read in order, dropped by their number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import asdict

from holdfast.kernel.audits import Audit, Audits, KeptAudit
from holdfast.kernel.outs import KeptOut, Out, Outs
from holdfast.stores.sqlite.files import Database
from holdfast.stores.sqlite.queries import SQL


def keep(db: Database, outs: Iterable[Out], audits: Iterable[Audit]) -> None:
    for out in outs:
        db.execute(SQL["keep_out"], asdict(out))
    for audit in audits:
        db.execute(SQL["keep_audit"], asdict(audit))


def outs(db: Database, namespace: str, *, after: str, limit: int) -> Outs:
    rows = _page(db, "outs", namespace, after=after, limit=limit)
    return Outs(tuple(KeptOut(str(number), Out(*row)) for number, *row in rows), str(rows[-1][0]) if rows else after)


def audits(db: Database, namespace: str, *, after: str, limit: int) -> Audits:
    rows = _page(db, "audits", namespace, after=after, limit=limit)
    kept = tuple(KeptAudit(str(number), Audit(*row)) for number, *row in rows)
    return Audits(kept, str(rows[-1][0]) if rows else after)


def drop(db: Database, statement: str, namespace: str, places: Sequence[str]) -> None:
    for place in places:
        db.execute(SQL[statement], {"namespace": namespace, "number": int(place)})


def _page(db: Database, statement: str, namespace: str, *, after: str, limit: int) -> list[tuple[Any, ...]]:
    bounds = {"namespace": namespace, "after": int(after or 0), "limit": max(0, limit)}
    return db.execute(SQL[statement], bounds).fetchall()

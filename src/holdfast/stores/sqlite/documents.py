"""Documents: how they are written, found and removed (the rules are the kernel's, in `holdfast.kernel.documents`)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import astuple

from holdfast.kernel.documents import Document, Writing
from holdfast.kernel.times import Instant
from holdfast.stores.sqlite.files import Database
from holdfast.stores.sqlite.queries import SQL


def write(db: Database, writing: Writing, *, now_ms: Instant) -> bool:
    """Store the document if it replaces what is there; whether it is stored now."""
    new = writing.document
    values = astuple(new)
    row = {
        **dict(zip(Document.__struct_encode_fields__, values, strict=True)),
        "now_ms": now_ms,
        "replaces": writing.replaces,
    }
    db.execute(SQL["create_document" if writing.replaces is None else "replace_document"], row)
    # It may have been stored before, and the reply was lost.
    return bool(db.changes()) or db.execute(SQL["stored_document"], row).fetchall() == [values]


def one(db: Database, namespace: str, kind: str, id: str, *, now_ms: Instant) -> Document | None:
    place = {"namespace": namespace, "kind": kind, "id": id, "now_ms": now_ms}
    rows = db.execute(SQL["document"], place).fetchall()
    return Document(*rows[0]) if rows else None


def page(db: Database, namespace: str, kind: str, *, after: str, limit: int, now_ms: Instant) -> list[Document]:
    place = {"namespace": namespace, "kind": kind, "after": after, "now_ms": now_ms, "limit": max(0, limit)}
    rows = db.execute(SQL["documents"], place).fetchall()
    return [Document(*row) for row in rows]


def due(db: Database, namespace: str, kinds: Sequence[str], limit: int, *, now_ms: Instant) -> list[Document]:
    """The first ones of each kind, merged: so each kind is a stretch of the index."""
    place = {"namespace": namespace, "now_ms": now_ms, "limit": max(0, limit)}
    found = [
        Document(*row)
        for kind in dict.fromkeys(kinds)
        for row in db.execute(SQL["due_documents"], {**place, "kind": kind}).fetchall()
    ]
    found.sort(key=lambda document: (document.due_at_ms, document.kind, document.id))
    return found[: max(0, limit)]


def prune(db: Database, limit: int, *, now_ms: Instant) -> int:
    """Remove expired documents; how many."""
    over = db.execute(SQL["over_documents"], {"now_ms": now_ms, "limit": limit}).fetchall()
    for (rowid,) in over:
        db.execute(SQL["forget_document"], {"rowid": rowid})
    return len(over)

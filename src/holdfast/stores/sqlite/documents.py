"""Documents: how they are written, found and removed (the rules are the kernel's, in `holdfast.kernel.documents`)."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.kernel.documents import Document, Writing
from holdfast.stores.sqlite.files import Database
from holdfast.stores.sqlite.queries import SQL


def write(db: Database, writing: Writing, *, now_ms: int) -> bool:
    """Store the document if it replaces what is there; whether it is stored now."""
    new = writing.document
    place = (new.namespace, new.kind, new.id)
    value = (new.version, new.body, new.due_ms, new.expires_ms)
    if writing.replaces is None:
        db.execute(SQL["create_document"], (*place, *value, now_ms))
    else:
        db.execute(SQL["replace_document"], (*place, *value, now_ms, writing.replaces))
    # It may have been stored before, and the reply was lost.
    return bool(db.changes()) or db.execute(SQL["stored_document"], place).fetchall() == [(*place, *value)]


def one(db: Database, namespace: str, kind: str, id: str, *, now_ms: int) -> Document | None:
    rows = db.execute(SQL["document"], (namespace, kind, id, now_ms)).fetchall()
    return Document(*rows[0]) if rows else None


def page(db: Database, namespace: str, kind: str, *, after: str, limit: int, now_ms: int) -> list[Document]:
    rows = db.execute(SQL["documents"], (namespace, kind, after, now_ms, max(0, limit))).fetchall()
    return [Document(*row) for row in rows]


def due(db: Database, namespace: str, kinds: Sequence[str], limit: int, *, now_ms: int) -> list[Document]:
    """The first ones of each kind, merged: so each kind is a stretch of the index."""
    found = [
        Document(*row)
        for kind in dict.fromkeys(kinds)
        for row in db.execute(SQL["due_documents"], (namespace, kind, now_ms, max(0, limit))).fetchall()
    ]
    found.sort(key=lambda document: (document.due_ms, document.kind, document.id))
    return found[: max(0, limit)]


def prune(db: Database, limit: int, *, now_ms: int) -> int:
    """Remove expired documents; how many."""
    over = db.execute(SQL["over_documents"], (now_ms, limit)).fetchall()
    for row in over:
        db.execute(SQL["forget_document"], row)
    return len(over)

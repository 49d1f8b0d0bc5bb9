"""What stores tell others of that they have written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.kernel import leaders
from holdfast.kernel.documents import Writing
from holdfast.ports.notices import NOTHING, Notice


def of_documents(writings: Sequence[Writing], stored: Iterable[bool]) -> Notice:
    """What others are told of documents that were written.

    Leases of duties are renewed all the time, and no part of another process waits for them: they are left out, or an
    idle cluster would wake every process several times a second.
    """
    written = (each.document for each, is_stored in zip(writings, stored, strict=True) if is_stored)
    kinds = {(document.namespace, document.kind) for document in written if document.kind != leaders.KIND}
    return Notice(documents=tuple(sorted(kinds))) if kinds else NOTHING

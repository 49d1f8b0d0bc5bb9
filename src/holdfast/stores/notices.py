"""What stores tell others of that they have written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.kernel import leaders, limits
from holdfast.kernel.documents import Writing
from holdfast.ports.notices import NOTHING, Notice

_UNTOLD = frozenset({leaders.KIND, limits.KIND})


def of_documents(writings: Sequence[Writing], stored: Iterable[bool]) -> Notice:
    """What others are told of documents that were written.

    Leases of duties are renewed all the time, and processes say again and again that they limit something. No part of
    another process waits for either: they are left out, or an idle cluster would wake every process all the time.
    """
    written = (each.document for each, is_stored in zip(writings, stored, strict=True) if is_stored)
    kinds = {(document.namespace, document.kind) for document in written if document.kind not in _UNTOLD}
    return Notice(documents=tuple(sorted(kinds))) if kinds else NOTHING

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw

from holdfast.errors import UsageError
from holdfast.kernel import exports
from holdfast.kernel.journal import Value
from holdfast.kernel.runs import Run
from tests.builders import performed, running, with_journal

RUN, JOURNAL = with_journal(running(version="2"), performed(), performed("ship#1", value={"a": [1, None]}))


def test_a_run_is_read_back_as_it_was_exported():
    data = exports.encode(exports.export(RUN, JOURNAL, {"d1": b'"large"', "d2": b"\xff\x00"}))
    exported = exports.decode(data, name="run-1.json")
    assert (exported.journal, exported.blobs) == (JOURNAL, {"d1": b'"large"', "d2": b"\xff\x00"})
    row = exported.row()
    for name in ("id", "namespace", "workflow", "key", "version", "status", "length", "created_at_ms", "started_at_ms"):
        assert getattr(row, name) == getattr(RUN, name)


def test_values_stay_as_they_were_byte_for_byte():
    odd = Value(Raw(b'{"b": 1,  "a":2.50}'))
    journal = (JOURNAL[0], msgspec.structs.replace(performed(), value=odd))
    [_, entry] = exports.decode(exports.encode(exports.export(RUN, journal, {})), name="f").journal
    assert bytes(entry.value.json) == b'{"b": 1,  "a":2.50}'


def test_a_file_has_the_name_of_its_run():
    assert exports.name_of("01a1-3") == "01a1-3.json"


def _exported(**fields: object) -> bytes:
    document = msgspec.json.decode(exports.encode(exports.export(RUN, JOURNAL, {}))) | fields
    return msgspec.json.encode(document)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is not an exported journal"),
        (b"[]", "is not an exported journal"),
        (b"\xff", "is not an exported journal"),
        (b"[" * 100_000, "is not an exported journal"),
        (_exported(journal=[]), "it is cut off"),
        (_exported(journal=[{"what": "unheard_of"}]), "is not an exported journal"),
        (_exported(format=2), "has format 2, this version reads 1"),
    ],
    ids=["empty", "no object", "no text", "too deep", "no entries", "unknown entry", "newer"],
)
def test_what_cannot_be_read_is_refused_with_the_name_of_the_file(data: bytes, why: str):
    with pytest.raises(UsageError, match=why) as refused:
        exports.decode(data, name="odd.json")
    assert "odd.json" in str(refused.value)


def test_a_journal_that_is_longer_than_its_run_is_refused():
    short: Run = msgspec.structs.replace(RUN, length=1)
    with pytest.raises(UsageError, match="it is cut off"):
        exports.decode(exports.encode(exports.export(short, JOURNAL, {})), name="odd.json")

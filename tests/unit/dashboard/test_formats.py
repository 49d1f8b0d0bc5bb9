from __future__ import annotations

from msgspec import Raw

from holdfast.dashboard import formats
from holdfast.kernel.journal import Value


def test_long_values_are_clipped_and_large_ones_only_counted():
    assert formats.clipped("abc", 2) == ("ab …", True)
    assert formats.clipped("abc", 3) == ("abc", False)
    assert formats.kept(None) == ""
    assert formats.kept(Value(json=Raw(b'{"a":1}'))) == '{\n  "a": 1\n}'
    assert formats.kept(Value(blob="d", size=5_000_000)) == "4.8 MiB"
    assert formats.kept(Value(json=Raw(b'"c2VjcmV0"'), sealed="k1")) == "sealed under key k1"

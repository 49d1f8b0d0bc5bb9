"""What is damaged in a message concerns that one alone."""

from __future__ import annotations

import pytest

from holdfast.stores.sqlite import rows
from tests.builders import a_signal


@pytest.mark.parametrize("damaged", [b"{", b'{"what":"teleported"}', b'{"what":"signal","id":"\xff"}'])
def test_a_message_that_cannot_be_read_is_none(damaged: bytes) -> None:
    message = a_signal()
    assert rows.message_of(rows.encode_message(message)) == message
    assert rows.message_of(damaged) is None

from __future__ import annotations

from holdfast.kernel.explanations import worded
from holdfast.kernel.journal import Failed, Failure
from holdfast.kernel.times import EPOCH


def test_the_members_of_a_group_are_told_up_to_a_limit():
    members = tuple(Failure("KeyError", f"{number}") for number in range(12))
    text = worded(Failed(EPOCH, Failure("ExceptionGroup", "two", members=members)))
    assert text.startswith("failed with ExceptionGroup: two [KeyError: 0; KeyError: 1;")
    assert text.endswith("KeyError: 9; and 2 more]")

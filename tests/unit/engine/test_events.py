from __future__ import annotations

import pytest

from holdfast.events import Event, Events, RunsClaimed


def test_every_listener_hears_every_event_until_it_leaves():
    events, one, two = Events(), [], []
    leave = events.listen(one.append)
    events.listen(two.append)
    events.emit(RunsClaimed(1))
    leave()
    leave()  # twice does no harm
    events.emit(RunsClaimed(2))
    assert one == [RunsClaimed(1)]
    assert two == [RunsClaimed(1), RunsClaimed(2)]


class Strange(BaseException):
    """No Exception: what catches only those lets it through."""


@pytest.mark.parametrize("kind", [ValueError, SystemExit, Strange])
def test_a_listener_that_raises_harms_neither_the_engine_nor_the_others(capsys, kind):
    events, heard = Events(), []

    def broken(event: Event) -> None:
        raise kind("a bug of the listener's")

    events.listen(broken)
    events.listen(heard.append)
    events.emit(RunsClaimed(1))
    assert heard == [RunsClaimed(1)]
    assert "a bug of the listener's" in capsys.readouterr().err


def test_a_listener_may_leave_while_it_is_being_told():
    events, heard = Events(), []

    def once(event: Event) -> None:
        leave()

    leave = events.listen(once)
    events.listen(heard.append)
    events.emit(RunsClaimed(1))
    events.emit(RunsClaimed(2))
    assert heard == [RunsClaimed(1), RunsClaimed(2)]

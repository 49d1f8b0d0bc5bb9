from __future__ import annotations

import pytest

from tests.cli.conftest import Cli


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--only", "earthquake"), "no scenario earthquake"),
        (("--only", "soak"), "how long"),
        (("--soak", "long"), "not a duration"),
        (("--html", "nowhere/gate.html"), "no such directory"),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_started(
    arguments: tuple[str, ...], says: str, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = Cli()("gate", *arguments)
    assert said.code == 2
    assert says in said.err
    assert list(tmp_path.iterdir()) == []

"""`holdfast limits`: what is limited, how much of it is left, and what is left of a limit of one's own."""

from __future__ import annotations

from pathlib import Path

PACK = ("--pack", "tests.cli.bakery")


def test_the_limits_of_the_settings_are_shown_with_what_is_left(cli):
    cli("start", "bake", "name=a", *PACK)
    Path("holdfast.toml").write_text('[limits]\napi_key = "100/1s burst 200"\ntenant = "10/1m"\n')
    shown = cli("limits", "--json").json
    assert shown == {
        "limits": [
            {"limit": "api_key", "rate": "100/1s burst 200", "remaining": None, "reset_after": None},
            {"limit": "tenant", "rate": "10/1m", "remaining": 10, "reset_after": 0.0},
        ],
        "by_itself": False,
        "replicas": 1,
    }
    said = cli("limits")
    assert "namespace" in said.out
    assert "10/1m" in said.out


def test_without_limits_it_says_so(cli):
    cli("start", "bake", "name=a", *PACK)
    assert "Nothing is limited" in cli("limits").out


def test_a_limit_of_ones_own_is_looked_at_and_not_spent(cli):
    cli("start", "bake", "name=a", *PACK)
    for _ in range(2):
        assert cli("limits", "mail:ada", "--rate", "5/1h", "--json").json["remaining"] == 5
    assert "5 left, it is full" in cli("limits", "mail:ada", "--rate", "5/1h").out


def test_a_limit_of_ones_own_is_named_with_its_rate(cli):
    assert "by its name and its rate" in cli("limits", "mail:ada").err
    said = cli("limits", "mail:ada", "--rate", "often")
    assert said.code == 2
    cli("start", "bake", "name=a", *PACK)
    assert "is not a limit" in cli("limits", "mail:ada", "--rate", "often").err

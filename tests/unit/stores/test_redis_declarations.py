"""What is generated from the declaration of a script: its names in Lua, the order of a call, the parts of a reply."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import NamedTuple

import pytest

from holdfast.stores.redis import scripts
from holdfast.stores.redis.declarations import Script, each, flag, hash_fields, number, records
from holdfast.stores.redis.net.client import Reply

KEYS = {"run": b"{1}run", "mail": b"{1}mail", "aux": b"{1}aux"}


class Parts(NamedTuple):
    verdict: Reply
    row: Reply = None
    told: Reply = None


def declared() -> Script[Parts]:
    return Script(
        "hash",
        keys=("run", "aux"),
        further_keys=(("next_run", "next_mail"), ("left", "right")),
        args=("id", each("read"), flag("ends"), number("limit"), records("moves", "id", "scope")),
        row=("s", "e"),
        reply=Parts,
    )


def test_a_call_sends_values_first_and_each_list_behind_its_length() -> None:
    call = declared().call(KEYS, moves=[("m-1", b"s"), ("m-2", b"")], limit=7, ends=True, read=["a", "b"], id="run-1")
    assert call.keys == (b"{1}run", b"{1}aux")
    assert call.args == ("run-1", b"1", 7, 2, "a", "b", 2, "m-1", b"s", "m-2", b"")


def test_empty_lists_at_the_end_are_not_sent() -> None:
    def sent(read: list[str], moves: list[tuple[str, bytes]]) -> tuple[object, ...]:
        return declared().call(KEYS, moves=moves, limit=7, ends=True, read=read, id="run-1").args[3:]

    assert sent([], []) == ()
    assert sent(["a"], []) == (1, "a")
    assert sent([], [("m-1", b"s")]) == (0, 1, "m-1", b"s")


def test_of_hash_fields_only_the_values_are_sent() -> None:
    script = Script("hash", keys=("hash",), args=("id", hash_fields("moved", "s", "e"), each("read")))
    assert script.call({"hash": b"{1}run"}, read=["a"], moved=("running", 3), id="run-1").args == (
        *("run-1", "running", 3),
        *(1, "a"),
    )
    source = script.source.decode()
    assert "local moved = {'s', ARGV[2], 'e', ARGV[3]}\n" in source
    assert "local next_argument = 4\n" in source
    with pytest.raises(AssertionError):
        script.call({"hash": b"{1}run"}, read=[], moved=("running",), id="run-1")


def test_further_keys_are_sent_if_they_are_there() -> None:
    keys = KEYS | {"next_mail": b"{1}next-mail", "next_run": b"{1}next-run"}
    call = declared().call(keys, moves=(), limit=1, ends=False, read=(), id="run-1")
    assert call.keys == (b"{1}run", b"{1}aux", b"{1}next-run", b"{1}next-mail")
    assert call.args == ("run-1", b"0", 1)


def test_a_group_of_further_keys_goes_behind_those_before_it() -> None:
    further = {"next_mail": b"{1}next-mail", "next_run": b"{1}next-run", "left": b"{1}left", "right": b"{1}right"}
    call = declared().call(KEYS | further, moves=(), limit=1, ends=False, read=(), id="run-1")
    assert call.keys == (b"{1}run", b"{1}aux", b"{1}next-run", b"{1}next-mail", b"{1}left", b"{1}right")


@pytest.mark.parametrize("args", [{"id": "run-1"}, {"id": "", "read": (), "ends": 1, "limit": 1, "moves": (), "x": 1}])
def test_a_call_has_all_arguments_and_no_others(args: dict[str, object]) -> None:
    with pytest.raises(AssertionError):
        declared().call(KEYS, **args)


def test_lua_gets_a_local_for_each_name_in_the_order_of_the_call() -> None:
    source = declared().source.decode()
    assert "local run, aux, next_run, next_mail, left, right = KEYS[1], KEYS[2], KEYS[3], KEYS[4], " in source
    assert "local id, ends, limit = ARGV[1], ARGV[2] == '1', tonumber(ARGV[3])\n" in source
    assert "local next_argument = 4\n" in source
    assert source.index("local read = next_list()\n") < source.index("local moves = next_records('id', 'scope')\n")
    assert "('HMGET', key, 's', 'e')\n" in source
    assert "{parts.verdict or false, parts.row or false, parts.told or false}" in source


def test_a_reply_is_read_by_name() -> None:
    assert declared().read([b"ok", None, [b"run-2"]]) == Parts(b"ok", None, [b"run-2"])
    assert declared().read([b"ok"]) == Parts(b"ok", None, None)


def test_no_script_counts_the_places_of_its_keys_and_arguments() -> None:
    generated = {"next_list.lua", "next_records.lua"}  # these read the lists, for all of them
    for file in (files("holdfast.stores.redis") / "lua").iterdir():
        if file.name not in generated:
            assert not re.search(r"\b(KEYS|ARGV)\b", file.read_text(encoding="utf-8")), file.name


def test_every_text_is_used_by_a_script() -> None:
    sources = "\n".join(each.source.decode() for each in vars(scripts).values() if isinstance(each, Script))
    for file in (files("holdfast.stores.redis") / "lua").iterdir():
        assert file.read_text(encoding="utf-8") in sources, file.name

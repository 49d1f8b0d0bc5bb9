"""How a script is declared, and what is generated from that.

A script names its keys, its arguments and the parts of its reply once, in `scripts`. From the names come the first
lines of its Lua text, which give each key and each argument a local of that name; the order in which `call` sends them;
and both ends of its reply: the Lua function `reply`, and `read`. So neither Lua nor Python counts places, and a key
that is added in one of them cannot shift the others.

Rules
- Arguments with one value go first, each in a place of its own; then the values of fields whose names the script has.
  Lists follow, each behind its length; those at the end that are empty are not sent. Every word of a call costs both
  sides: reading them is most of what a small script does.
- A reply has its parts in order; those that a script does not name are false in Lua, and None here. A script whose
  reply has no parts returns one value as it is.
- Every key that a script touches is among its KEYS. So while a slot moves to another node, Redis itself sees that some
  of them are not there, and lets us wait, instead of showing half a shard. One look is exempt: see `lua/beside.lua`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import chain
from operator import itemgetter
from typing import Any, Generic, TypeVar, cast, overload

from msgspec import Struct

from holdfast.stores.redis.net.client import LuaSource, Reply, ScriptCall, Word
from holdfast.stores.redis.rows import items

R = TypeVar("R")
_FLAG = "{} == '1'"


class Argument(Struct, frozen=True):
    """An argument with one value, and the Lua expression that reads it from its place."""

    name: str
    lua: str = "{}"


class HashFields(Struct, frozen=True):
    """The values of certain fields of a hash. Lua gets names and values in turns, as HSET takes them."""

    name: str
    fields: tuple[str, ...]

    def lua(self, first_place: int) -> str:
        pairs = (f"'{field}', ARGV[{place}]" for place, field in enumerate(self.fields, first_place))
        return "{" + ", ".join(pairs) + "}"


class Listing(Struct, frozen=True):
    """An argument with any number of values. With `fields`, each of them is a record, which Lua gets as a table."""

    name: str
    fields: tuple[str, ...] = ()

    @property
    def lua(self) -> str:
        names = ", ".join(f"'{field}'" for field in self.fields)
        return f"next_records({names})" if self.fields else "next_list()"


def number(name: str) -> Argument:
    return Argument(name, "tonumber({})")


def flag(name: str) -> Argument:
    return Argument(name, _FLAG)


def instant(name: str) -> Argument:
    """The instant of the script: Redis' own, unless a test sends one. See `lua/clock.lua`."""
    return Argument(name, "instant({})")


def instant_when_asked(name: str) -> Argument:
    """The same as a function, for scripts that seldom need it. In a script Redis' clock stands still."""
    return Argument(name, "function() return instant({}) end")


def hash_fields(name: str, *fields: str) -> HashFields:
    return HashFields(name, fields)


def each(name: str) -> Listing:
    return Listing(name)


def records(name: str, *fields: str) -> Listing:
    return Listing(name, fields)


class Script(LuaSource, Generic[R]):
    """A script of `lua/`, behind the files that it uses and the lines that are generated for it."""

    @overload
    def __init__(
        self: Script[Reply],
        name: str,
        *,
        keys: Sequence[str],
        args: Sequence[str | Argument | HashFields | Listing] = (),
        uses: Sequence[str] = (),
        further_keys: Sequence[Sequence[str]] = (),
        row: Sequence[str] = (),
        key_list: str = "",
    ) -> None: ...

    @overload
    def __init__(
        self,
        name: str,
        *,
        keys: Sequence[str],
        args: Sequence[str | Argument | HashFields | Listing] = (),
        uses: Sequence[str] = (),
        further_keys: Sequence[Sequence[str]] = (),
        row: Sequence[str] = (),
        reply: type[R],
    ) -> None: ...

    def __init__(
        self,
        name: str,
        *,
        keys: Sequence[str],
        args: Sequence[str | Argument | HashFields | Listing] = (),
        uses: Sequence[str] = (),
        further_keys: Sequence[Sequence[str]] = (),  # groups; each is sent whole, behind those before it, or not at all
        row: Sequence[str] = (),  # the fields that its `row_of(key)` reads, in this order
        reply: type[R] | None = None,
        key_list: str = "",  # what Lua calls all keys together, of a script that takes any number of one kind
    ) -> None:
        self._key_list = key_list
        declared = [Argument(arg) if isinstance(arg, str) else arg for arg in args]
        self.name = name
        self._keys = tuple(keys)
        self._further_keys = [tuple(group) for group in further_keys]
        self._values = [arg for arg in declared if isinstance(arg, Argument)]
        self._hashes = [arg for arg in declared if isinstance(arg, HashFields)]
        self._lists = [arg for arg in declared if isinstance(arg, Listing)]
        self._size = len(declared)
        self._take_keys: Callable[[Mapping[str, bytes]], tuple[bytes, ...]] = _taker(self._keys)
        self._take_further_keys: list[tuple[str, Callable[[Mapping[str, bytes]], tuple[bytes, ...]]]] = [
            (group[0], _taker(group)) for group in self._further_keys
        ]
        self._take_values: Callable[[Mapping[str, Any]], tuple[Word, ...]] = _taker([arg.name for arg in self._values])
        self._flags = [place for place, arg in enumerate(self._values) if arg.lua == _FLAG]
        self._row = tuple(row)
        self._reply = reply
        super().__init__("\n".join([*map(_text, uses), *self._head(), _text(name)]))

    def call(self, keys: Mapping[str, bytes], **args: Any) -> ScriptCall:
        """The call with these keys, which may have more than the script takes, and these arguments.

        A group of further keys is sent if its first one is among the keys.
        """
        assert len(args) == self._size, (self.name, sorted(args))  # each of ours is taken by its name
        sent = list(self._take_values(args))
        for place in self._flags:
            sent[place] = b"1" if sent[place] else b"0"
        for hash_ in self._hashes:
            sent += args[hash_.name]
            assert len(args[hash_.name]) == len(hash_.fields), (self.name, hash_.name)
        empty = 0  # lists since the last one that was sent
        for listing in self._lists:
            values = args[listing.name]
            if not values:
                empty += 1
                continue
            sent += [0] * empty
            empty = 0
            sent.append(len(values))
            sent += chain.from_iterable(values) if listing.fields else values
        taken = self._take_keys(keys)
        for first, take in self._take_further_keys:
            if first not in keys:
                break
            taken += take(keys)
        return ScriptCall(self, taken, tuple(sent))

    def call_each(self, keys: Sequence[bytes], **args: Any) -> ScriptCall:
        """The call of a script that takes any number of keys of one kind."""
        return self.call({}, **args)._replace(keys=tuple(keys))

    def read(self, reply: Reply) -> R:
        """The parts of a reply, by name."""
        return cast("R", reply) if self._reply is None else self._reply(*items(reply))

    def _head(self) -> list[str]:
        """The generated lines."""
        keys = (*self._keys, *chain.from_iterable(self._further_keys))
        lines = [_locals(keys, [f"KEYS[{place}]" for place, _ in enumerate(keys, 1)])] if keys else []
        if self._key_list:
            lines.append(f"local {self._key_list} = KEYS")
        if self._values:
            reads = [arg.lua.format(f"ARGV[{place}]") for place, arg in enumerate(self._values, 1)]
            lines.append(_locals([arg.name for arg in self._values], reads))
        next_place = len(self._values) + 1
        for hash_ in self._hashes:
            lines.append(_locals([hash_.name], [hash_.lua(next_place)]))
            next_place += len(hash_.fields)
        if self._lists:
            lines += [f"local next_argument = {next_place}", _text("next_list")]
            if any(listing.fields for listing in self._lists):
                lines.append(_text("next_records"))
            lines += [_locals([listing.name], [listing.lua]) for listing in self._lists]
        if self._row:
            lines.append(_row_function(self._row))
        if self._reply is not None:
            lines.append(_reply_function(list(self._reply.__annotations__)))
        return lines


def _taker(names: Sequence[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Takes the values of these names, in this order. Every call of a script does it, so it must cost little."""
    match names:
        case []:
            return lambda _: ()
        case [name]:
            return lambda values: (values[name],)
        case _:
            return itemgetter(*names)


@cache
def _text(name: str) -> str:
    return (files("holdfast.stores.redis") / "lua" / f"{name}.lua").read_text(encoding="utf-8")


def _reply_function(parts: Sequence[str]) -> str:
    """Lua that puts the parts in order. If there is only the first, it sends no other: most replies are one word."""
    first, *others = (f"parts.{part}" for part in parts)
    return f"""\
local function reply(parts)
  if not ({" or ".join(others)}) then
    return {{{first}}}
  end
  return {{{", ".join(f"{part} or false" for part in (first, *others))}}}
end"""


def _row_function(fields: Sequence[str]) -> str:
    """Lua that reads these fields of a hash; false if it is not there, or if `redis.pcall` may not look at it."""
    names = ", ".join(f"'{field}'" for field in fields)
    return f"""\
local function row_of(key, call)
  local values = (call or redis.call)('HMGET', key, {names})
  return not values.err and values[1] and values
end"""


def _locals(names: Sequence[str], values: Sequence[str]) -> str:
    return f"local {', '.join(names)} = {', '.join(values)}"

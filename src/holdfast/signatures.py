"""The parameters and types of an author's function: binding calls, and reading stored arguments back."""

from __future__ import annotations

import contextlib
import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from functools import cached_property
from hashlib import blake2b
from pathlib import PurePath
from typing import Any

import msgspec
from msgspec.structs import astuple

from holdfast.errors import UsageError
from holdfast.kernel import key_types, readable_types
from holdfast.kernel.keys import Template
from holdfast.ports.codec import Codec
from holdfast.resources import Resource

_EQUAL_IS_SAME = {type(None), bool, int, str, bytes}  # of these types, equal values are stored alike
_BY_NAME = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
_OF_A_CLASS = {"self", "cls"}
_UNNAMED = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}


class Essence(msgspec.Struct, frozen=True, gc=False):
    """A call without what its defaults say: the arguments that were given, and a digest of each default left out."""

    given: bytes
    left_out: dict[str, str]


class Signature:
    """What a function takes and returns.

    Arguments are stored by name, so that adding a parameter with a default breaks no stored run.
    """

    def __init__(self, fn: Callable[..., Any], *, owner: str) -> None:
        whole = inspect.signature(fn)
        defaults: dict[str, Any] = {name: parameter.default for name, parameter in whole.parameters.items()}
        self.resources: dict[str, Resource[Any]] = {
            name: default for name, default in defaults.items() if isinstance(default, Resource)
        }
        parameters = [parameter for name, parameter in whole.parameters.items() if name not in self.resources]
        self._signature = whole.replace(parameters=parameters)
        self._owner = owner
        self._fn = fn
        self._locals = _author_locals()
        if parameters and parameters[0].name in _OF_A_CLASS:
            raise UsageError(
                f"{owner} ({_place_of(fn)}) takes {parameters[0].name!r}, as a method does",
                hint="Write it as a function: an object cannot be recorded. What effects share can be a resource, "
                "which is opened once in each process: @pack.resource.",
            )
        for parameter in parameters:
            if parameter.kind in _UNNAMED:
                raise UsageError(
                    f"{owner} ({_place_of(fn)}) takes *{parameter.name}",
                    hint="Name each parameter: arguments are stored by name.",
                )
        self.names = frozenset(parameter.name for parameter in parameters)
        self._order = tuple(parameter.name for parameter in parameters)
        self._by_position = not self.resources and all(
            parameter.kind is not inspect.Parameter.KEYWORD_ONLY for parameter in parameters
        )
        self._defaults = {
            parameter.name: parameter.default
            for parameter in parameters
            if parameter.default is not inspect.Parameter.empty
        }
        self.required = self.names - frozenset(self._defaults)
        self._hints: dict[str, Any] | None = None
        self._checked: set[bool] = set()  # with which `arguments` it has been found to be right
        self._of_defaults: _Defaults | None = None

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, defaults included."""
        if not kwargs and self._by_position and len(args) == len(self._order):
            return dict(zip(self._order, args))  # noqa: B905 - they are as many; `strict` makes it half as fast
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise UsageError(
                f"{self._owner} was called with wrong arguments: {error}", hint=f"It takes {self._signature}."
            ) from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def apply(self, fn: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """`fn` called with arguments that were bound by name."""
        if self._by_position:
            return fn(*map(arguments.__getitem__, self._order))
        positional: list[Any] = []
        named: dict[str, Any] = {}
        # A parameter behind that of a resource, which is filled in apart, cannot be given by its position.
        by_name = _BY_NAME if self.resources else {inspect.Parameter.KEYWORD_ONLY}
        for name, parameter in self._signature.parameters.items():
            if parameter.kind in by_name:
                named[name] = arguments[name]
            else:
                positional.append(arguments[name])
        return fn(*positional, **named)

    def call(self, fn: Callable[..., Any], arguments: msgspec.Struct) -> Any:
        """`fn` called with decoded arguments."""
        if self._by_position:
            return fn(*astuple(arguments))
        return self.apply(fn, self.named(arguments))

    def named(self, arguments: msgspec.Struct) -> dict[str, Any]:
        """Decoded arguments, by name."""
        return {name: getattr(arguments, name) for name in self._order}

    def essence(self, arguments: Mapping[str, Any], encoded: bytes, codec: Codec) -> Essence:
        """What makes a call this call: its arguments, less those that have their default value.

        So a parameter that is added with a default later does not make another call of it. What was left out is told,
        too: the value of a default may be changed by a deploy.
        """
        if not self._defaults:
            return Essence(encoded, {})
        if self._of_defaults is None or self._of_defaults.codec is not codec:
            self._of_defaults = _Defaults(codec, self._defaults)
        left_out = self._of_defaults.among(arguments)
        if not left_out:
            return Essence(encoded, left_out)
        return Essence(codec.encode(_without(left_out, arguments), what=self._owner), left_out)

    @cached_property
    def returns(self) -> Any:
        """The declared type of the result; Any if there is none."""
        return self._types().get("return", Any)

    @property
    def knows_types(self) -> bool:
        """Whether its annotations could be resolved by now: they may name what is defined further down."""
        return self._hints is not None

    def type_of(self, parameter: str) -> Any:
        """The type of a parameter."""
        return self._types().get(parameter, Any)

    @cached_property
    def arguments_type(self) -> type[msgspec.Struct]:
        """A Struct type that stored arguments are decoded into."""
        types = self._types()
        fields: list[Any] = [
            (name, types.get(name, Any))
            if parameter.default is inspect.Parameter.empty
            else (name, types.get(name, Any), _default(parameter.default))
            for name, parameter in self._signature.parameters.items()
        ]
        return msgspec.defstruct("Arguments", fields, kw_only=True)

    def check_key(self, template: Template) -> None:
        """Raises `UsageError` if the annotations of its fields let distinct values give one key."""
        key_types.check(template, self._types(), owner=self._owner)

    def check_types(self, *, arguments: bool) -> None:
        """Raises `UsageError` if what is stored of it, its result and its `arguments`, could never be read back."""
        if arguments in self._checked:  # each Holdfast that is made of a pack asks
            return
        for name, annotation in self._types().items():
            if name != "return" and (not arguments or name not in self.names):
                continue
            found = readable_types.unreadable(annotation)
            if found is not None:
                what = "its result" if name == "return" else f"parameter {name!r}"
                raise UsageError(
                    f"{self._owner} ({_place_of(self._fn)}) declares {what} as {_shown(annotation)}, which could never "
                    f"be read back: {found.part} says nothing about its values",
                    hint=found.cure,
                )
        self._checked.add(arguments)

    def check_early(self, *templates: Template | None, arguments: bool) -> None:
        """All of it, as far as its types are defined by now: when the pack is used, it is looked at again."""
        with contextlib.suppress(Exception):  # whatever an annotation raises, it is raised again then
            self._types()
        if self._hints is not None:
            self.check_types(arguments=arguments)
            for template in templates:
                if template is not None and template.fields:
                    self.check_key(template)

    def _types(self) -> dict[str, Any]:
        if self._hints is None:
            try:
                hints = typing.get_type_hints(self._fn, localns=self._locals, include_extras=True)
            except NameError as error:
                raise UsageError(
                    f"an annotation of {self._owner} cannot be resolved: {error}",
                    hint="Define the type before its use.",
                ) from error
            self._hints = {name: Any if hint is object else hint for name, hint in hints.items()}
            self._locals.clear()
        return self._hints


def _author_locals() -> dict[str, Any]:
    """The local names of the place where the function is being decorated.

    Types may be written as text and defined beside the function, inside another function.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - the only way to see them
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("holdfast."):
        frame = frame.f_back
    return {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)


def _place_of(fn: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return "a callable" if code is None else f"{PurePath(code.co_filename).name}:{code.co_firstlineno}"


def _shown(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _without(left_out: Mapping[str, str], arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in left_out}


class _Defaults:
    """The default values of a function, as one codec writes them.

    An argument has its default value if it is of the same type, equal to it, and stored as the same bytes. Python calls
    more things equal than are the same: -0.0 and 0.0, [True] and [1], {"limit": 1.0} and {"limit": 1}. The type and
    the equality are asked first because that is cheap, and because calls of earlier versions were told apart by them.
    """

    def __init__(self, codec: Codec, values: Mapping[str, Any]) -> None:
        self.codec = codec
        self._values = values
        self._stored: dict[str, bytes] = {}
        self._digests: dict[str, str] = {}

    def among(self, arguments: Mapping[str, Any]) -> dict[str, str]:
        """The arguments that have their default value, each with a digest of it."""
        return {name: self._digest(name) for name in self._values if self._has(name, arguments[name])}

    def _has(self, name: str, value: Any) -> bool:
        default = self._values[name]
        if type(value) is not type(default):
            return False
        if type(value) in _EQUAL_IS_SAME:
            return bool(value == default)
        try:
            is_equal = value is default or bool(value == default)
        except Exception:  # noqa: BLE001 - types may compare as they like (arrays do not answer with a truth value)
            return False
        # Even the very object may be another value by now: what is mutable may have been changed.
        return is_equal and self.codec.encode(value, what=name) == self._bytes(name)

    def _bytes(self, name: str) -> bytes:
        if name not in self._stored:
            self._stored[name] = self.codec.encode(self._values[name], what=name)
        return self._stored[name]

    def _digest(self, name: str) -> str:
        if name not in self._digests:
            self._digests[name] = blake2b(self._bytes(name), digest_size=8).hexdigest()
        return self._digests[name]


def _default(value: Any) -> Any:
    # A Struct refuses a mutable default as such; a factory that returns the same object is what Python does.
    return msgspec.field(default_factory=lambda: value)

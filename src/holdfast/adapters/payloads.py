"""The default codec: JSON by msgspec. No pickle anywhere.

Rules
- What is encoded is canonical: mappings and sets are sorted, so equal inputs give equal bytes, hence equal digests.
- Nothing is silently changed: NaN and the infinities, which JSON cannot hold, are refused.
- A refusal names the path to the offending part, found by looking only after the fast encoder has failed.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from typing import Any

import msgspec

from holdfast.calls import Call
from holdfast.errors import NotSerializable, PayloadTooLarge, UsageError

PAYLOAD_MAX = 16 * 1024 * 1024


class JsonCodec:
    """Encodes JSON types, dataclasses, Structs, pydantic models, datetime, Decimal, UUID, Enum and bytes."""

    def __init__(self, *, limit: int = PAYLOAD_MAX) -> None:
        self._limit = limit
        self._encoder = msgspec.json.Encoder(enc_hook=_encode_model, order="deterministic")
        self._decoders: dict[Any, msgspec.json.Decoder[Any]] = {}

    def encode(self, value: object, *, what: str) -> bytes:
        try:
            data = self._encoder.encode(value)
        except Exception as error:  # noqa: BLE001 - a foreign type may raise anything while it is written
            data = self._encoded_anyhow(value, what, error)
        # msgspec writes NaN as null; only text that holds a null needs the slow look.
        if data.find(b"null") >= 0:  # `in` asks bytes for a number first, and raises and drops an error for it
            for path, part in _parts(value):
                if isinstance(part, float) and not math.isfinite(part):
                    raise NotSerializable(f"{_at(what, path)} is {part}, which JSON cannot hold")
        if len(data) > self._limit:
            raise PayloadTooLarge(what, len(data), self._limit)
        return data

    def decode(self, data: bytes, as_type: Any) -> Any:
        try:
            return (self._decoders.get(as_type) or self._decoder(as_type)).decode(data)
        except Exception as error:  # a foreign type may raise anything while it is made
            raise NotSerializable(
                f"a stored value does not fit the type {as_type!r}: {_words_of(error)}",
                hint="The annotation and the value disagree; correct the annotation or the value.",
            ) from error

    def check(self, as_type: Any, *, what: str) -> None:
        try:
            self._decoder(as_type)
        except (TypeError, NameError) as error:
            raise UsageError(
                f"{what} has a type that cannot be read back: {error}",
                hint="Tag the types of a union, or use another type.",
            ) from error

    def schema(self, as_type: Any) -> dict[str, Any] | None:
        try:
            schema = msgspec.json.schema(as_type, schema_hook=_model_schema)
        except (TypeError, NotImplementedError):
            return None
        return schema or None

    def _decoder(self, as_type: Any) -> msgspec.json.Decoder[Any]:
        decoder = self._decoders.get(as_type)
        if decoder is None:
            decoder = self._decoders[as_type] = msgspec.json.Decoder(as_type, dec_hook=_decode_model)
        return decoder

    def _encoded_anyhow(self, value: object, what: str, error: Exception) -> bytes:
        """What the encoder has refused, in another form if there is an obvious one."""
        if not isinstance(error, TypeError):
            raise _refusal(value, what, error) from None
        try:
            return self._encoder.encode(_with_text_keys(value))
        except Exception as again:  # noqa: BLE001 - as above
            raise _refusal(value, what, again) from None


def _with_text_keys(value: object) -> object:
    # The sorting encoder takes text keys only; dict[int, ...] is common and has an obvious form.
    plain = msgspec.to_builtins(value, str_keys=True, order="deterministic", enc_hook=_encode_model)
    for path, part in _containers(value):
        if isinstance(part, Mapping) and len({str(key) for key in part}) != len(part):  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            raise TypeError(f"two keys of {''.join(path) or 'it'} look the same as text")
    return plain


def _encode_model(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)  # pydantic, without importing it
    if dump is None:
        raise TypeError(f"{type(value).__name__} cannot be stored")
    return dump(mode="json")


def _decode_model(as_type: Any, value: Any) -> Any:
    validate = getattr(as_type, "model_validate", None)
    if validate is None:
        raise msgspec.ValidationError(f"{as_type.__name__} cannot be read back")
    try:
        return validate(value)
    except ValueError as error:  # pydantic's ValidationError is one
        raise msgspec.ValidationError(str(error)) from error


def _model_schema(as_type: Any) -> dict[str, Any]:
    describe = getattr(as_type, "model_json_schema", None)
    if describe is None:
        raise NotImplementedError
    # Where it is nested, the references of pydantic's own definitions would lead nowhere: then anything goes.
    schema: dict[str, Any] = describe()
    return {} if "$defs" in schema else schema


Path = tuple[str, ...]
Children = list[tuple[str, object]]


def _refusal(value: object, what: str, error: Exception) -> NotSerializable:
    if issubclass(type(error), RecursionError):
        return NotSerializable(f"{what} is nested too deeply, or contains itself")
    try:
        return _refusal_of_a_part(value, what, error)
    except Exception:  # noqa: BLE001 - it cannot be stored, and not be looked through either
        return NotSerializable(f"{what} cannot be stored: {_words_of(error)}")


def _refusal_of_a_part(value: object, what: str, error: Exception) -> NotSerializable:
    for path, part in _containers(value):
        for key in part if isinstance(part, Mapping) else ():  # pyright: ignore[reportUnknownVariableType]
            if not _encodes({key: None}):  # pyright: ignore[reportUnknownArgumentType]
                return NotSerializable(f"{_at(what, path)} has the key {key!r}, which cannot be stored")
    for path, part in _parts(value):
        if isinstance(part, Call):
            return NotSerializable(f"{_at(what, path)} is the call {part!r}, not its result", hint="Await it.")
        if not _encodes(part):
            return NotSerializable(f"{_at(what, path)} is {_described(part)}, which cannot be stored")
    return NotSerializable(f"{what} cannot be stored: {_words_of(error)}")


def _words_of(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - it may be of a foreign type, too
        return type(error).__name__


def _encodes(part: object) -> bool:
    try:
        msgspec.json.encode(part, enc_hook=_encode_model)
    except Exception:  # noqa: BLE001 - whatever a foreign type raises, it is this part that did
        return False
    return True


def _parts(value: object) -> Iterator[tuple[Path, object]]:
    """The leaves of `value` with the paths to them."""
    return ((path, part) for path, part, children in _walk(value) if children is None)


def _containers(value: object) -> Iterator[tuple[Path, object]]:
    return ((path, part) for path, part, children in _walk(value) if children is not None)


def _walk(value: object) -> Iterator[tuple[Path, object, Children | None]]:
    """All of `value`, in order. Not recursive: what is looked at may be deeper than Python's own stack."""
    left: list[tuple[Path, object]] = [((), value)]
    seen: set[int] = set()  # a value may contain itself
    while left:
        path, part = left.pop()
        children = _children(part)
        if children is not None:
            if id(part) in seen:
                continue
            seen.add(id(part))
        yield path, part, children
        left += [((*path, name), child) for name, child in reversed(children or [])]


def _children(value: object) -> Children | None:
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", child) for key, child in value.items()]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return [(f"[{index}]", child) for index, child in enumerate(value)]
    if isinstance(value, AbstractSet):
        return [("{...}", child) for child in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f".{field.name}", getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, msgspec.Struct):
        return [(f".{name}", getattr(value, name)) for name in value.__struct_fields__]
    if hasattr(value, "model_dump") and hasattr(type(value), "model_fields"):  # pydantic, without importing it
        return [(f".{name}", getattr(value, name)) for name in type(value).model_fields]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType, reportUnknownArgumentType]
    return None


def _at(what: str, path: Path) -> str:
    return f"{what}{''.join(path)}"


def _described(part: object) -> str:
    try:
        text = repr(part)
    except Exception:  # noqa: BLE001 - it cannot be stored, and not be described either
        text = ""
    return f"{type(part).__name__} {text if len(text) <= 60 else text[:57] + '...'}"

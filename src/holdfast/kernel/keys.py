"""Business keys: templates such as `"charge:{account}:{order}"` filled from a call's arguments.

Rules
- A key is at most 255 characters and never empty.
- A template is injective: distinct field values of the same types never give the same key. Each field is escaped so
  that it contains neither `%` nor the character that ends it in the template, hence the first such character after a
  field is where the field stops. Two fields with nothing between them cannot be told apart and are refused. A field
  whose annotation allows values of two types that look alike is refused as well: see `key_types`.
- The same arguments give the same key in every process, host, time zone and version: only types with one
  obvious text are accepted, aware datetimes are written in UTC.
- A field is a parameter's name, or a dotted path into it (`{order.id}`).
- Keys of runs that begin with `idem:` are made by the gateway, from a caller's own id and its `Idempotency-Key`. They
  are refused wherever callers and authors choose a key: else one caller could take the key of another's request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import NamedTuple

from holdfast.errors import ReservedKey, UsageError

KEY_LENGTH_MAX = 255
RESERVED = "idem:"  # as it always was: requests of earlier versions are found under their keys
_ALWAYS_ESCAPED = "%:/{}"
_FIELD = re.compile(r"\{([^{}]*)\}")
_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_HINT_TYPES = "Key fields may be str, int, float, bool, Decimal, UUID, Enum, date or datetime."


class Field(NamedTuple):
    """One `{field}` of a template, with the literal text before it and the characters it may not contain."""

    before: str
    parameter: str
    path: tuple[str, ...]  # into the value of the parameter; nearly always there is none
    escaped: re.Pattern[str]


class Template(NamedTuple):
    """A parsed template: of a key, or of what else is named by the rules of keys."""

    text: str
    fields: tuple[Field, ...]
    after: str
    what: str = "key"

    @property
    def described(self) -> str:
        """The template, as errors name it."""
        return f"{self.what} template {self.text!r}"

    @property
    def parameters(self) -> frozenset[str]:
        """The parameters whose values the template needs."""
        return frozenset(field.parameter for field in self.fields)

    def fill(self, arguments: Mapping[str, object]) -> str:
        """The key for these arguments."""
        key = ""
        _, fields, after, what = self
        for before, parameter, path, escaped in fields:
            value = arguments[parameter]
            if path:
                value = _value_at(value, parameter, path, self)
            text = value if type(value) is str else _text_of(value, (parameter, *path), self)
            key += before + escaped.sub(_percent, text)
        key += after
        return key if 0 < len(key) <= KEY_LENGTH_MAX and key.isascii() else checked(key, what=what)


def parse(text: str, *, parameters: frozenset[str], owner: str, what: str = "key") -> Template:
    """The template `text` of `owner`, or a `UsageError` that says what is wrong with it."""
    told = f"{what} template {text!r} of {owner}"
    pieces = _FIELD.split(text)  # literal, field, literal, field, ..., literal
    literals, paths = pieces[0::2], pieces[1::2]
    for literal in literals:
        if "{" in literal or "}" in literal:
            raise UsageError(f"{told} has an unmatched brace")
    for literal in literals[1:-1]:
        if not literal:
            raise UsageError(
                f"{told} has two fields side by side",
                hint=f"Put a character between them, such as ':', or distinct arguments could give one {what}.",
            )
    fields: list[Field] = []
    for before, path, after in zip(literals[:-1], paths, literals[1:], strict=True):
        if not _PATH.fullmatch(path):
            raise UsageError(f"{told} has the field {path!r}", hint="Use {name} or {name.attribute}.")
        if path.split(".")[0] not in parameters:
            raise UsageError(
                f"{told} names {path!r}, which is not a parameter",
                hint=f"Its parameters are: {', '.join(sorted(parameters)) or 'none'}.",
            )
        reserved = re.escape(_ALWAYS_ESCAPED + after[:1])
        parameter, *names = path.split(".")
        fields.append(Field(before, parameter, tuple(names), re.compile(rf"[{reserved}\x00-\x20\x7f]")))
    return Template(text, tuple(fields), literals[-1], what)


class MadeKey(str):
    """A key that Holdfast has made itself."""

    __slots__ = ()


def of_request(request_id: str) -> MadeKey:
    """The key of a run that is known by its request alone."""
    return MadeKey(RESERVED + request_id)


def check_start(template: Template) -> None:
    """Raises `ReservedKey` if whatever fills the template of a workflow gives a reserved key."""
    if template.text.startswith(RESERVED):
        raise ReservedKey(template.text, RESERVED)


def of_run(key: str, *, owned: str | None = None) -> str:
    """The key of a run, as a caller or an author has chosen it, or Holdfast itself. Raises `ReservedKey`.

    `owned` is the key of a run that is named together with it, to be succeeded or forked: that one may stay.
    """
    return unreserved(checked(key), owned)


def unreserved(key: str, owned: str | None = None) -> str:
    """The same, of one that has the form of a key."""
    if key.startswith(RESERVED) and not isinstance(key, MadeKey) and key != owned:
        raise ReservedKey(key, RESERVED)
    return str(key)


def checked(key: str, *, what: str = "key") -> str:
    """`key` itself, or a `UsageError` if it is empty, too long or not text. Other names keep the rules of keys too."""
    if not isinstance(key, str):  # callers without a type checker may pass anything
        raise UsageError(f"a {what} must be text, not {type(key).__name__}", hint="Pass a str.")
    if not key:
        hint = "Leave it out for work without a business key." if what == "key" else "Give it a name."
        raise UsageError(f"a {what} must not be empty", hint=hint)
    if len(key) > KEY_LENGTH_MAX:
        raise UsageError(
            f"{what} {key[:40]!r}... is {len(key)} characters long; the limit is {KEY_LENGTH_MAX}",
            hint=f"Build the {what} from an id instead of from content, or from a hash of the content.",
        )
    if not key.isascii() and _SURROGATE.search(key):
        raise UsageError(f"{what} {key!r} contains a lone surrogate", hint="It must be valid Unicode text.")
    return key


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())


def _value_at(value: object, parameter: str, path: tuple[str, ...], template: Template) -> object:
    for name in path:
        try:
            value = getattr(value, name)
        except AttributeError:
            whole = ".".join((parameter, *path))
            raise UsageError(
                f"{template.described} needs {whole!r}, but {type(value).__name__} has no {name!r}"
            ) from None
    return value


def _text_of(value: object, path: tuple[str, ...], template: Template) -> str:
    try:
        return text_of(value)
    except UsageError as error:
        raise UsageError(f"{template.described} got {error.message} for {'.'.join(path)!r}", hint=error.hint) from None


def text_of(value: object) -> str:
    """The text of a field with this value. Raises `UsageError` if it has not one obvious text."""
    if isinstance(value, Enum):
        value = value.value
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | Decimal():
            return str(value)
        case float():
            return repr(value)
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).isoformat()
        case datetime():
            raise UsageError(
                "a datetime without time zone",
                hint="Make it aware, for example with tzinfo=UTC: a naive one means another instant on another host.",
            )
        case date():
            return value.isoformat()
        case _ if type(value).__module__ == "uuid":  # by name: the kernel imports no source of chance
            return str(value)
        case _:
            raise UsageError(type(value).__name__, hint=_HINT_TYPES)

"""Values to bytes and back."""

from __future__ import annotations

from typing import Any, Protocol


class Codec(Protocol):
    """How user values are stored. A codec of your own may encrypt them: wrap the default one."""

    def encode(self, value: object, *, what: str) -> bytes:
        """`value` as JSON text. `what` names it in errors, which also name the path to the offending part."""
        ...

    def check(self, as_type: Any, *, what: str) -> None:
        """Raises `UsageError` if values of this type could never be read back."""
        ...

    def schema(self, as_type: Any) -> dict[str, Any] | None:
        """What JSON a value of this type may be, as a JSON Schema; None if anything goes, or if it is not known."""
        ...

    def decode(self, data: bytes, as_type: Any) -> Any:
        """The value of type `as_type` that `data` holds; plain JSON types if `as_type` is Any."""
        ...

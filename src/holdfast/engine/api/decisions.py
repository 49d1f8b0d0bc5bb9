"""What a caller says about a step in doubt, as it was said."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct

from holdfast.errors import UsageError


class Said(Struct, frozen=True, kw_only=True):
    """One of `returned`, `failed` and `not_performed`; who says it, and why they know."""

    returned: Any = UNSET
    failed: str | None = None
    not_performed: bool = False
    by: str = ""
    reason: str = ""

    def check(self) -> None:
        """Raises `UsageError` unless exactly one thing is said."""
        if (self.returned is not UNSET) + (self.failed is not None) + bool(self.not_performed) != 1:
            raise UsageError(
                "decide() takes one of returned=, failed= and not_performed=True",
                hint="Say what came of the step: its value, why it failed, or that it never happened.",
            )
        for name, text in (("failed", self.failed or ""), ("by", self.by), ("reason", self.reason)):
            if not isinstance(text, str):
                raise UsageError(f"{name}={text!r:.60} is not text", hint="Say it in words.")

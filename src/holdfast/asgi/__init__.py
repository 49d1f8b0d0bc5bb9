"""For people's own web applications: middleware for any ASGI framework. No framework is imported here."""

from holdfast.asgi.idempotent import Idempotent

__all__ = ["Idempotent"]

"""The files that pages refer to. They are few and small: read once, kept in memory, named by what is in them."""

from __future__ import annotations

from hashlib import blake2b
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

_MEDIA = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_FOREVER = "public, max-age=31536000, immutable"


class Files:
    """Style, script and icon."""

    def __init__(self) -> None:
        found = [each for each in files("holdfast.dashboard").joinpath("static").iterdir() if each.is_file()]
        self._bodies = {each.name: each.read_bytes() for each in found}
        self._versions = {name: blake2b(body, digest_size=6).hexdigest() for name, body in self._bodies.items()}

    def address(self, name: str) -> str:
        """Where a file is. The address changes with the file, so that browsers may keep it forever."""
        return f"/static/{name}?v={self._versions[name]}"

    def response(self, name: str, request: Request) -> Response:
        body = self._bodies.get(name)
        if body is None:
            return Response("there is no such file", status_code=404, media_type="text/plain")
        version = self._versions[name]
        headers = {"Cache-Control": _FOREVER if request.query_params.get("v") == version else "no-cache"}
        return Response(body, media_type=_MEDIA[name.rpartition(".")[2]], headers=headers)

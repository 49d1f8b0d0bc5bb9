"""What a server says about itself over HTTP."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException

from holdfast.lab.cluster.ports import HOST

OK = 200
TIMEOUT_SECONDS = 5.0


def is_ok(port: int, path: str) -> bool:
    """Whether a request to this path returns 200."""
    connection = HTTPConnection(HOST, port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()

"""What commands need that a plain install does not bring: the extra `lab`."""

from __future__ import annotations

from importlib.util import find_spec

from holdfast.errors import InvalidConfig

# `holdfast.lab` itself is missing where a package of Holdfast leaves it out.
LAB_MODULES = ("holdfast.lab", "hiredis", "nats")


def require_lab(command: str) -> None:
    """Raise `InvalidConfig` with what to install, before anything is started, if the extra `lab` is not there."""
    missing = [module for module in LAB_MODULES if find_spec(module) is None]
    if missing:
        raise InvalidConfig(
            f"`holdfast {command}` needs Holdfast's extra `lab`, and {' and '.join(missing)} cannot be imported",
            hint="Install it in a clone of Holdfast: pip install '.[lab]'",
        )

"""`python -m holdfast`, and the command `holdfast`."""

from __future__ import annotations

import sys


def main() -> None:
    """The command line, or a word about how to get it."""
    try:
        from holdfast.cli.main import app  # noqa: PLC0415 - without the extra, this is what fails
    except ModuleNotFoundError as missing:
        if missing.name not in {"typer", "rich"}:
            raise
        sys.stderr.write(
            f"The command line needs {missing.name!r}, which is not installed.\n"
            "Install it with Holdfast's extra `cli`: pip install '.[cli]'\n"
        )
        sys.exit(2)
    app()


if __name__ == "__main__":
    main()

"""`python -m holdfast`, and the command `holdfast`."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def main() -> None:
    """The command line, or a word about how to get it."""
    for needed in ("typer", "rich"):
        if find_spec(needed) is None:
            sys.stderr.write(
                f"The command line needs {needed!r}, which is not installed.\n"
                "Install it with Holdfast's extra `cli`: pip install '.[cli]'\n"
            )
            sys.exit(2)
    if sys.argv[1:] in (["--help"], ["-h"]):
        from holdfast.cli.help_page import help_page  # noqa: PLC0415 - the page without Typer, which shows the same one

        sys.stdout.write(help_page())
        return
    from holdfast.cli.main import app  # noqa: PLC0415 - only what is used is loaded

    app()


if __name__ == "__main__":
    main()

"""What a replay check found, by cause: one change of the code is one finding, however many runs it concerns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from holdfast.cli.output import plain
from holdfast.client import Replayed

SHOWN = 20
_OF_ONE_RUN = re.compile(r", key (?:'[^']*'|\"[^\"]*\")|, input [0-9a-f]{8}\b|\b[0-9a-f]{32}\b")
_VALUES = re.compile(r"\. (?:What was recorded|The code asks with|If the code has not changed)")
_CURE = (
    'If the code was changed on purpose, keep the old way for these runs: `if patched("name"):` takes the new one, '
    "`else:` the old one."
)


def by_cause(replayed: Sequence[Replayed]) -> list[list[Replayed]]:
    """Runs that do not fit for the same cause come together: the same step of one workflow, whatever its values."""
    causes: dict[tuple[str, str], list[Replayed]] = {}
    for each in replayed:
        if each.divergence:
            said = _VALUES.split(each.divergence, maxsplit=1)[0]
            causes.setdefault((each.workflow, _OF_ONE_RUN.sub("", said)), []).append(each)
    return list(causes.values())


def shown(causes: Sequence[Sequence[Replayed]]) -> RenderableType:
    """Each cause once, in the words of its first run, with the runs below it; and what to do, once."""
    lines = list[Text]()
    for alike in causes:
        first = alike[0]
        many = "1 run" if len(alike) == 1 else f"{len(alike):,} runs"
        why = first.divergence.removeprefix(f"run {first.run_id}: ")
        lines.append(Text.assemble((f"{many} of ", "bold"), plain(first.workflow, "bold"), plain(f": {why}")))
        lines += [Text(f"  {each.run_id}") for each in alike[:SHOWN]]
        if len(alike) > SHOWN:
            lines.append(Text(f"  and {len(alike) - SHOWN:,} more, see --json", style="dim"))
    if any("the journal has" in alike[0].divergence for alike in causes):
        lines.append(Text(_CURE, style="yellow"))
    return Group(*lines)

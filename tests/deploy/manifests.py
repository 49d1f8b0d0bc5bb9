"""Reads `deploy/` as strictly as its users' tools do, and merges compose files by their rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"


class Replaced(NamedTuple):
    """What Compose's `!override` marks: it takes the place of what it would else be merged with."""

    value: Any


class Loader(yaml.SafeLoader):
    """Plain YAML, in which a key stands once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        assert len(names) == len(set(names)), f"a key stands twice in {sorted(names)} ({node.start_mark})"
        return super().construct_mapping(node, deep=deep)


def _replaced(loader: Loader, node: yaml.Node) -> Replaced:
    if isinstance(node, yaml.MappingNode):
        return Replaced(loader.construct_mapping(node, deep=True))
    assert isinstance(node, yaml.SequenceNode), node
    return Replaced(loader.construct_sequence(node, deep=True))


Loader.add_constructor("!override", _replaced)


def documents(path: Path) -> list[Any]:
    """Every document of a file."""
    with path.open(encoding="utf-8") as file:
        return list(yaml.load_all(file, Loader))


def compose(*names: str) -> dict[str, Any]:
    """The compose files as one, each over those before it, without what only carries anchors."""
    whole: dict[str, Any] = {}
    for name in names:
        [document] = documents(DEPLOY / name)
        whole = merged(whole, {part: value for part, value in document.items() if not part.startswith("x-")})
    return whole


def merged(below: Any, above: Any, *, name: str = "") -> Any:
    """What Compose makes of a value and the one of a later file: mappings are joined, lists appended."""
    if isinstance(above, Replaced):
        return above.value
    if isinstance(above, dict):
        kept = below if isinstance(below, dict) else {}
        return {**kept, **{part: merged(kept.get(part), value, name=part) for part, value in above.items()}}
    if isinstance(below, list) and isinstance(above, list) and name not in {"command", "test"}:
        return below + above
    return above

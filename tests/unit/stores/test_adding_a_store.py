"""The page about adding a store names every verb of the port."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.ports.store import Store

PAGE = Path(__file__).parents[3] / "docs" / "internals" / "adding-a-store.md"


def test_every_verb_of_a_store_stands_on_its_page() -> None:
    verbs = {name for name in vars(Store) if not name.startswith("_")}
    named = set(re.findall(r"`(\w+)[(`]", PAGE.read_text(encoding="utf-8")))
    assert len(verbs) > 30
    assert verbs - named == set()

"""Followers are told of what they follow, and of nothing else, however namespaces, kinds and ids are named."""

from __future__ import annotations

import pytest

from holdfast.engine.api.subscriptions import Subscriptions

PLACES = [("", "k", "1"), ("a", "b", "c/d"), ("a/b", "c", "d"), ("a", "b/c", "d"), ("a/b", "k", "")]


@pytest.mark.parametrize("place", PLACES)
async def test_a_change_of_documents_of_a_kind_is_told_to_those_who_follow_one(place: tuple[str, str, str]) -> None:
    subscriptions = Subscriptions()
    with subscriptions.following(place) as changed:
        for namespace, kind, _ in PLACES:
            if (namespace, kind) != place[:2]:
                subscriptions.documents_changed(namespace, kind)
        assert not changed.is_set()
        subscriptions.documents_changed(*place[:2])
        assert changed.is_set()


async def test_a_run_is_no_document() -> None:
    subscriptions = Subscriptions()
    with subscriptions.following("a/b/c") as run, subscriptions.following(("a", "b", "c")) as document:
        subscriptions.changed(("a", "b", "c"))
        assert (run.is_set(), document.is_set()) == (False, True)
        subscriptions.changed("a/b/c")
        assert run.is_set()

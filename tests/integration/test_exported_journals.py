"""Journals are exported from a store, and replayed without it: by the code that wrote them, and by other code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Client, Holdfast, Pack, Permanent, UsageError, hook, random, sleep
from holdfast.errors import ReplayDiverged, UnknownWorkflow
from holdfast.events import RunBlocked
from holdfast.testing import replay_exported
from tests.integration.conftest import PATIENCE_SECONDS, Home, heard
from tests.integration.ledgers import until_recorded

LARGE = "x" * 400_000
Body = Callable[[Any], Awaitable[Any]]


class Release:
    def __init__(self, body: Body) -> None:
        self.pack = Pack("shop")

        @self.pack.effect(key="{name}")
        async def act(name: str, size: int = 0, note: str = "") -> str:
            if name == "fails":
                raise Permanent("no such order")
            return LARGE if name == "large" else name

        @self.pack.workflow(key="order:{n}")
        async def order(n: int, text: str = "") -> Any:
            return await body(act)

        self.order = order


async def before(act: Any) -> str:
    await act("a", 3)
    large = await act("large")
    draws = [random() for _ in range(3)]
    await asyncio.gather(act("b"), act("c"), sleep("1ms"))
    await hook("word")
    return f"{len(large)} {draws}"


async def other_input(act: Any) -> str:
    await act("a", 4)
    return await before(act)


async def other_step(act: Any) -> str:
    await act("z")
    return await before(act)


async def ends(act: Any) -> str:
    return "done"


async def gives_up(act: Any) -> str:
    try:
        await act("fails")
    except Permanent:
        await hook("word")
    return "failed"


async def asks_otherwise(act: Any) -> str:
    try:
        await act("fails", 7)
    except Permanent:
        await hook("word")
    return "failed"


async def export(home: Home, release: Release, directory: Path, *, step: str, **options: Any) -> str:
    async with home.holdfast(release.pack) as hf:
        run = (await hf.start(release.order(1, LARGE))).run
        await until_recorded(run, step)
        exported = await hf.export_journals(directory, **options)
        assert [path.name for path in exported.files] == [f"{run.id}.json"]
        assert exported.left_out == ()
        return run.id


async def test_an_exported_journal_is_replayed_without_the_store(home: Home, tmp_path: Path) -> None:
    run_id = await export(home, Release(before), tmp_path / "out", step="1/act#1")
    for replayed in (replay_exported, await_in_a_loop):  # in a test with a loop, and from one without
        [fits] = await asyncio.to_thread(replayed, tmp_path / "out", packs=[Release(before).pack])
        assert fits == (run_id, "shop.order", "")
    [fits] = replay_exported(str(tmp_path / "out"), packs=[Release(before).pack], workflow="order")
    assert fits.divergence == ""


def await_in_a_loop(directory: Path, *, packs: list[Pack]) -> Any:
    async def replay() -> Any:
        return replay_exported(directory, packs=packs)

    return asyncio.run(replay())


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            other_input,
            (
                '"size":4',
                "of the input that was recorded only the digest is kept",
                'What was recorded returned "a"',
                "the time, chance, a global, the order of a set, the environment",
            ),
        ),
        (other_step, ("the journal has performed act#1", "key 'a'", "the code asks for effect shop.act, key 'z'")),
        (ends, ("the code has already ended there", 'What was recorded returned "a"')),
    ],
)
async def test_a_divergence_shows_what_is_known_of_the_values(
    home: Home, tmp_path: Path, body: Body, told: tuple[str, ...]
) -> None:
    await export(home, Release(before), tmp_path, step="1/act#1")
    [found] = replay_exported(tmp_path, packs=[Release(body).pack])
    for part in told:
        assert part in found.divergence


async def test_a_recorded_failure_is_shown_as_well(home: Home, tmp_path: Path) -> None:
    await export(home, Release(gives_up), tmp_path, step="act#1")
    [found] = replay_exported(tmp_path, packs=[Release(asks_otherwise).pack])
    assert "What was recorded failed with holdfast.errors.Permanent: no such order" in found.divergence


async def test_large_values_are_cut(home: Home, tmp_path: Path) -> None:
    async def larger(act: Any) -> str:
        await act("a", 3, LARGE)
        return ""

    await export(home, Release(before), tmp_path, step="1/act#1")
    [found] = replay_exported(tmp_path, packs=[Release(larger).pack])
    assert "characters)" in found.divergence
    assert len(found.divergence) < 2_000


async def test_a_blocked_run_has_the_values_on_record_and_the_log_does_not(home: Home) -> None:
    async with home.holdfast(Release(before).pack) as hf:
        run = (await hf.start(hf.call("order", {"n": 1}))).run
        await until_recorded(run, "1/act#1")
    release = Release(other_input)
    async with home.holdfast(release.pack) as hf:
        await (await hf.get(run.id)).signal("word")
        blocked = await heard(hf).until(RunBlocked)
        assert "size" not in blocked.message
        with pytest.raises(ReplayDiverged, match=r'The code asks with \{.*"size":4'):
            await (await hf.get(run.id)).result(timeout=PATIENCE_SECONDS)


async def test_a_run_that_is_too_large_is_left_out_and_named(home: Home, tmp_path: Path) -> None:
    release = Release(before)
    async with home.holdfast(release.pack) as hf:
        run = (await hf.start(release.order(1))).run
        await until_recorded(run, "1/act#1")
        exported = await hf.export_journals(tmp_path, bytes_max=1_000)
    assert exported == ((), (run.id,))


async def test_what_is_exported_can_be_chosen(home: Home, tmp_path: Path) -> None:
    release = Release(ends)
    async with home.holdfast(release.pack) as hf:
        for n in range(3):
            await (await hf.start(release.order(n))).run.result(timeout=PATIENCE_SECONDS)
        assert (await hf.export_journals(tmp_path)).files == ()  # none is live
        assert len((await hf.export_journals(tmp_path, "order", "completed", 2)).files) == 2
        assert len((await hf.export_journals(tmp_path, status="completed")).files) == 3
        with pytest.raises(UsageError, match="cannot be written"):
            await hf.export_journals(next(each for each in tmp_path.iterdir() if each.is_file()), status="completed")
    assert {each.divergence for each in replay_exported(tmp_path, packs=[release.pack])} == {""}


async def test_a_directory_without_journals_and_a_workflow_that_is_gone_are_said(home: Home, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there are no exported journals"):
        replay_exported(tmp_path / "nothing", packs=[Release(before).pack])
    await export(home, Release(before), tmp_path, step="1/act#1")
    [found] = replay_exported(tmp_path, packs=[Pack("other")])
    assert "shop.order" in found.divergence
    with pytest.raises(UnknownWorkflow):
        replay_exported(tmp_path, packs=[Release(before).pack], workflow="gone")


async def test_a_gateway_does_not_export(tmp_path: Path) -> None:
    async with Client("http://localhost:1") as client:
        with pytest.raises(UsageError, match="not over a gateway"):
            await client.export_journals(tmp_path)


def test_the_blocking_client_exports(home: Home, tmp_path: Path) -> None:
    release = Release(ends)
    with Holdfast.blocking(f"sqlite:///{tmp_path}/a.db", packs=[release.pack], worker=True) as hf:
        run, _ = hf.start(release.order(1))
        run.result()
        assert len(hf.export_journals(tmp_path / "out", status="completed").files) == 1

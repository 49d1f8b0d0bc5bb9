"""Journals that were exported from a store, replayed against the code of today: in CI, without the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.adapters.payloads import JsonCodec
from holdfast.client import Replayed
from holdfast.engine.api.registry import Registry
from holdfast.engine.replay_check import divergence_of, prepare
from holdfast.errors import UsageError
from holdfast.kernel import exports
from holdfast.kernel.exports import ExportedJournal
from holdfast.pack import Pack


def replay_exported(directory: str | Path, *, packs: Iterable[Pack], workflow: str | None = None) -> list[Replayed]:
    """Replay the journals that `hf.export_journals` or `holdfast journals export` has written, by the code of `packs`.

    Nothing is performed. `divergence` of each is empty if the code fits, and else says where it does not.
    """
    return list(_replayed(_exported_in(Path(directory)), packs, workflow))


def replay(journal_file: str | Path, *, packs: Iterable[Pack]) -> Replayed:
    """Replay one file of those, by the code of `packs`: for a test that keeps the journal of a run beside it.

    Nothing is performed. `divergence` is empty if the code fits, and else says where it does not.
    """
    path = Path(journal_file)
    if not path.is_file():
        raise UsageError(f"there is no exported journal {path}", hint="Write some: holdfast journals export DIR")
    [replayed] = _replayed([exports.decode(path.read_bytes(), name=str(path))], packs)
    return replayed


def _replayed(
    exported: Iterable[ExportedJournal], packs: Iterable[Pack], workflow: str | None = None
) -> Iterator[Replayed]:
    codec = JsonCodec()
    registry = Registry(packs, codec=codec)
    wanted = None if workflow is None else registry.workflow(workflow).name
    prepare()
    for each in exported:
        if wanted in {None, each.run.workflow}:
            divergence = divergence_of(each.row(), each.journal, each.blobs, registry=registry, codec=codec)
            yield Replayed(each.run.id, each.run.workflow, divergence)


def _exported_in(directory: Path) -> Iterator[ExportedJournal]:
    files = sorted(directory.glob(f"*{exports.SUFFIX}")) if directory.is_dir() else []
    if not files:
        raise UsageError(
            f"there are no exported journals in {directory}", hint="Write some: holdfast journals export DIR"
        )
    for file in files:
        yield exports.decode(file.read_bytes(), name=str(file))

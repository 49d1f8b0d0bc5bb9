"""Evidence: what was proved of a workflow, bound to its code, as in `.holdfast/evidence/shop.checkout.json`.

It is fresh as long as the digest is: that of the workflow's code, of the effects and kernels of its pack, of their
declared policies, of the files of all modules of the user's own that the modules of the pack import, and of the
versions of Holdfast and Python. What was tried with a small budget is kept, and is not enough for a worker that needs
evidence: each case must have had the whole budget, or all of its worlds.
"""

from __future__ import annotations

import inspect
import platform
from collections.abc import Callable, Iterable
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from holdfast.engine.code.digests import digest_of_code
from holdfast.pack import Pack, Workflow
from holdfast.prove.sources import own_modules

DIRECTORY = Path(".holdfast") / "evidence"
PACKAGES = ("holdfast", "msgspec")
BUDGET = 2_000  # worlds of a case; beyond that, some are drawn


class CaseEvidence(Struct, frozen=True):
    """How much of one case was tried."""

    name: str
    worlds: int
    worlds_known: int

    @property
    def is_enough(self) -> bool:
        return self.worlds >= min(self.worlds_known, BUDGET)


class ProofEvidence(Struct, frozen=True, kw_only=True):
    """What was proved of one workflow."""

    workflow: str
    verdict: Literal["proved"] = "proved"
    digest: str
    worlds: int
    worlds_known: int
    boundaries: int
    seed: int
    budget: int
    at: str
    versions: dict[str, str]
    with_processes: bool = False
    cases: tuple[CaseEvidence, ...] = ()

    @property
    def too_little(self) -> str:
        """Why it is not enough for a worker; nothing if it is."""
        if self.worlds < min(self.worlds_known, BUDGET):
            return f"only {self.worlds} of its {self.worlds_known} worlds were tried"
        for case in self.cases:
            if not case.is_enough:
                return f"only {case.worlds} of the {case.worlds_known} worlds of {case.name} were tried"
        return ""


def digest_of(workflow: Workflow[..., Any], pack: Pack) -> str:
    """The digest to which evidence is bound."""
    digest = blake2b(digest_size=16)
    parts = [digest_of_code(workflow)]
    for name, effect in sorted(pack.effects.items()):
        policy = pack.policies.get(name, effect.policy)
        undo = "" if effect.undo is None else effect.undo.name
        declared = (effect.key and effect.key.text, policy.retry, policy.timeout_ms, policy.safety, undo, effect.remote)
        parts += [name, repr(declared), _source(effect.fn)]
    for name, kernel in sorted(pack.kernels.items()):
        parts += [name, _source(kernel)]
    functions = [workflow.fn, *(effect.fn for effect in pack.effects.values()), *pack.kernels.values()]
    modules = {str(getattr(inspect.unwrap(fn), "__module__", "")) for fn in functions}
    for name, data in sorted(own_modules(modules - {"", "__main__"}).items()):
        parts += [name, blake2b(data, digest_size=16).hexdigest()]
    parts += [f"{name} {number}" for name, number in versions().items()]
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """What the code ran on."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


def file_of(workflow: str, directory: Path = DIRECTORY) -> Path:
    """Where the evidence of this workflow is."""
    return directory / f"{workflow}.json"


def write(evidence: ProofEvidence, directory: Path = DIRECTORY) -> Path:
    """Keep it, in the place of what was there."""
    directory.mkdir(parents=True, exist_ok=True)
    file = file_of(evidence.workflow, directory)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(evidence), indent=2) + b"\n")
    return file


def missing(packs: Iterable[Pack], directory: Path = DIRECTORY) -> dict[str, str]:
    """The workflows for which there is no fresh evidence, and why each is not."""
    found: dict[str, str] = {}
    for pack in packs:
        for name, workflow in pack.workflows.items():
            try:
                evidence = msgspec.json.decode(file_of(name, directory).read_bytes(), type=ProofEvidence)
            except FileNotFoundError:
                found[name] = "it was never proved"
                continue
            except (OSError, msgspec.MsgspecError):
                found[name] = f"{file_of(name, directory)} cannot be read"
                continue
            if evidence.digest != digest_of(workflow, pack):
                found[name] = "its code has changed since it was proved"
            elif too_little := evidence.too_little:
                found[name] = too_little
    return found


def _source(fn: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(inspect.unwrap(fn))
    except (OSError, TypeError):
        return getattr(fn, "__qualname__", "")

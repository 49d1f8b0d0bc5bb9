"""Evidence is fresh as long as nothing has changed that was proved."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import Pack, Retry
from holdfast.cli.prove import prove as prove_command
from holdfast.prove import evidence
from holdfast.prove.evidence import CaseEvidence, ProofEvidence, digest_of, file_of, missing, write
from holdfast.prove.sources import own_modules


def a_pack(*, attempts: int = 3, safety: Any = "keyed", is_other: bool = False) -> Pack:
    pack = Pack("evident_unit")

    @pack.effect(key="charge:{order}", retry=Retry(attempts=attempts), safety=safety)
    async def charge(order: str) -> str:
        return order

    if is_other:

        @pack.workflow(key="{order}")
        async def checkout(order: str) -> str:
            return f"{await charge(order)}!"
    else:

        @pack.workflow(key="{order}")
        async def checkout(order: str) -> str:
            return await charge(order)

    return pack


def digest(pack: Pack) -> str:
    return digest_of(pack.workflows["evident_unit.checkout"], pack)


def evidence_of(pack: Pack, **changes: Any) -> ProofEvidence:
    made = ProofEvidence(
        workflow="evident_unit.checkout",
        digest=digest(pack),
        worlds=100,
        worlds_known=100,
        boundaries=12,
        seed=1,
        budget=evidence.BUDGET,
        at="2026-01-01T00:00:00+00:00",
        versions=evidence.versions(),
    )
    return replace(made, **changes)


def test_equal_code_has_an_equal_digest():
    assert digest(a_pack()) == digest(a_pack())


@pytest.mark.parametrize(
    "changed",
    [{"attempts": 4}, {"safety": "once"}, {"is_other": True}],
    ids=["the retry of an effect", "the safety of an effect", "the code of the workflow"],
)
def test_what_changes_the_workflow_or_its_effects_changes_the_digest(changed):
    assert digest(a_pack(**changed)) != digest(a_pack())


def test_another_version_changes_the_digest(monkeypatch):
    before = digest(a_pack())
    monkeypatch.setattr(evidence, "versions", lambda: {"python": "4.0"})
    assert digest(a_pack()) != before


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        ({"worlds": evidence.BUDGET, "worlds_known": 10 * evidence.BUDGET}, None),
        ({"worlds": 20}, "only 20 of its 100 worlds were tried"),
        ({"digest": "of other code"}, "its code has changed since it was proved"),
        (
            {
                "worlds": 2 * evidence.BUDGET,
                "worlds_known": 9_000,
                "cases": (CaseEvidence("a", 3_000, 8_000), CaseEvidence("b", 1_000, 1_001)),
            },
            "only 1000 of the 1001 worlds of b were tried",
        ),
    ],
)
def test_evidence_is_missing_with_a_reason(tmp_path: Path, changes, why):
    pack = a_pack()
    write(evidence_of(pack, **changes), tmp_path)
    assert missing([pack], tmp_path) == ({} if why is None else {"evident_unit.checkout": why})


def test_what_is_not_there_or_cannot_be_read_is_missing(tmp_path: Path):
    pack = a_pack()
    assert missing([pack], tmp_path) == {"evident_unit.checkout": "it was never proved"}
    file = file_of("evident_unit.checkout", tmp_path)
    file.write_text("{")
    assert missing([pack], tmp_path) == {"evident_unit.checkout": f"{file} cannot be read"}


def test_the_budget_of_the_command_is_what_a_worker_needs():
    assert inspect.signature(prove_command).parameters["budget"].default == evidence.BUDGET


FILES = {
    "evident_shop/__init__.py": "",
    "evident_shop/rates.py": "RATE = 2",
    "evident_shop/unused.py": "",
    "evident_helper.py": "def price(order): return 1",
    "evident_lazy.py": "",
    "evident_shop/orders.py": """
        from holdfast import Pack
        from evident_helper import price
        from .rates import RATE

        pack = Pack("evident_files")

        @pack.workflow(key="{order}")
        async def checkout(order: str) -> int:
            import evident_lazy
            return price(order) * RATE
    """,
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "evident_shop").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(dedent(text))
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("evident_shop", "evident_shop.rates", "evident_shop.orders", "evident_helper", "evident_lazy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "is_changed"),
    [
        ("evident_helper.py", True),
        ("evident_shop/rates.py", True),
        ("evident_shop/__init__.py", True),
        ("evident_lazy.py", True),
        ("evident_shop/unused.py", False),
    ],
)
def test_what_the_modules_of_a_pack_import_of_the_users_own_is_covered(project: Path, file, is_changed):
    pack = importlib.import_module("evident_shop.orders").pack
    before = digest_of(pack.workflows["evident_files.checkout"], pack)
    assert digest_of(pack.workflows["evident_files.checkout"], pack) == before
    with (project / file).open("a") as text:
        text.write("\nCHANGED = 1\n")
    assert (digest_of(pack.workflows["evident_files.checkout"], pack) != before) == is_changed


def test_what_is_installed_is_not_the_users_own(project: Path):
    (project / "evident_helper.py").write_text("import json, pytest, holdfast.workflow\n")
    assert set(own_modules(["evident_shop.orders"])) == {
        "evident_shop",
        "evident_shop.orders",
        "evident_shop.rates",
        "evident_helper",
        "evident_lazy",
    }

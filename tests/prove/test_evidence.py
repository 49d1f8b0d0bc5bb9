"""Evidence is bound to the code, and workers may be made to need it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli.evidence import require_evidence
from holdfast.cli.main import app
from holdfast.config import Config, read
from holdfast.errors import InvalidConfig

PACK = """
from holdfast import Pack

shop = Pack("evident")

@shop.effect(key="charge:{order}")
async def charge(order: str) -> str:
    return f"%s {order}"

@shop.workflow(key="{order}")
async def checkout(order: str) -> str:
    return await charge(order)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "evident_pack", raising=False)
    (tmp_path / "evident_pack.py").write_text(PACK % "paid")
    return tmp_path


CONFIG = Config(packs=("evident_pack",), roles=("worker",), prove_required=True)


def test_a_worker_needs_fresh_evidence_where_the_settings_say_so(
    here: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InvalidConfig, match="it was never proved") as refused:
        require_evidence(CONFIG, processes=2, waived=None)
    assert "holdfast prove evident_pack" in refused.value.hint

    ran = CliRunner().invoke(app, ["prove", "evident_pack", "--budget", "20"])
    assert ran.exit_code == 0, ran.output
    with pytest.raises(InvalidConfig, match=r"only 20 of its [0-9]+ worlds were tried"):
        require_evidence(CONFIG, processes=2, waived=None)

    ran = CliRunner().invoke(app, ["prove", "evident_pack", "--html", "report.html"])
    assert ran.exit_code == 0, ran.output
    assert (here / ".holdfast" / "evidence" / "evident.checkout.json").exists()
    assert "evident.checkout" in (here / "report.html").read_text()
    require_evidence(CONFIG, processes=2, waived=None)

    (here / "evident_pack.py").write_text(PACK % "charged")
    monkeypatch.delitem(sys.modules, "evident_pack")
    with pytest.raises(InvalidConfig, match="its code has changed since it was proved"):
        require_evidence(CONFIG, processes=2, waived=None)
    require_evidence(CONFIG, processes=2, waived="a fire")


def test_one_process_that_does_one_thing_at_a_time_needs_none(here: Path) -> None:
    require_evidence(
        Config(packs=CONFIG.packs, roles=("worker",), prove_required=True, concurrency=1), processes=1, waived=None
    )
    require_evidence(Config(packs=CONFIG.packs, roles=("gateway",), prove_required=True), processes=2, waived=None)


def test_a_waiver_needs_a_reason(here: Path) -> None:
    with pytest.raises(InvalidConfig, match="needs a reason"):
        require_evidence(CONFIG, processes=2, waived=" ")


def test_the_setting_is_a_table_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("port = 1234\n[prove]\nrequired = true\n")
    assert read(file=file, environment={}, options={}).prove_required
    file.write_text("[prove]\nrequires = true\n")
    with pytest.raises(InvalidConfig, match="no setting has this name"):
        read(file=file, environment={}, options={})


def test_a_failing_world_is_lived_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path.cwd()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(root))
    target = "tests.prove.mistakes.effect_before_check"
    ran = CliRunner().invoke(app, ["prove", target, "--budget", "60"])
    assert ran.exit_code == 1, ran.output
    assert "left something else behind" in ran.stdout
    assert "is killed right after charge#1 is done" in ran.stdout
    file = next((tmp_path / ".holdfast" / "prove").glob("*.json"))
    again = CliRunner().invoke(app, ["prove", "--repeat", str(file)])
    assert again.exit_code == 1
    assert "charge#1 was called twice" in again.stdout

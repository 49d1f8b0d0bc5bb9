"""The documentation is true: its code runs, its links lead somewhere, its generated pages are what the code says."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from typer.main import get_command

from docs import generate
from holdfast.cli.main import app
from tests.deploy import settings
from tests.examples.pages import ROOT, blocks, name_of, pages, printed_as, run_page, scripts

RUN = [page for page in pages() if any(block.info == "python run" for block in blocks(page))]
SCRIPTS = [(page, *script) for page in pages() for script in scripts(page)]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
KNOWN_FENCES = {
    *("", "python", "python run", "python script", "python file"),
    *("text", "mermaid", "sh", "json", "js", "sql", "yaml"),
}


@pytest.mark.parametrize("page", RUN, ids=name_of)
async def test_the_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    await run_page(page)


@pytest.mark.parametrize(
    ("page", "script", "expected"), SCRIPTS, ids=[f"{name_of(page)}:{script.line}" for page, script, _ in SCRIPTS]
)
def test_a_program_of_a_page_runs_and_prints_what_the_page_says(page, script, expected, tmp_path):
    (tmp_path / "program.py").write_text(script.body)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    if expected is not None:
        assert printed_as(expected, done.stdout), done.stdout


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page):
    for found in LINK.finditer(re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)):
        target, _, anchor = found["target"].partition("#")
        if target.startswith(("http:", "https:", "mailto:")):
            continue
        linked = (page.parent / target).resolve() if target else page
        assert linked.exists(), f"{name_of(page)} links to {target}"
        if anchor and linked.suffix == ".md":
            assert anchor in anchors(linked), f"{name_of(page)} links to {target}#{anchor}"


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_block_of_a_page_says_what_it_is(page):
    assert {block.info for block in blocks(page)} <= KNOWN_FENCES


def test_every_page_can_be_reached_from_the_index():
    reached, ahead = set(), [ROOT / "docs" / "index.md"]
    while ahead:
        page = ahead.pop()
        if page in reached:
            continue
        reached.add(page)
        for found in LINK.finditer(page.read_text(encoding="utf-8")):
            linked = (page.parent / found["target"].partition("#")[0]).resolve()
            if linked.suffix == ".md" and linked.is_file():
                ahead.append(linked)
    assert {page for page in pages() if "docs" in page.parts} - reached == set()


def test_the_generated_pages_are_what_the_code_says():
    assert generate.stale() == [], "run `python -m docs.generate`"


def test_the_reference_describes_every_public_name():
    assert generate.missing() == set()


def test_every_command_stands_on_its_page():
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    commands = get_command(app).commands
    names = {
        f"{name} {inner}" if inner else name
        for name, command in commands.items()
        for inner in getattr(command, "commands", [""])
    }
    assert len(names) > 20
    assert {name for name in names if f"### `{name}`\n" not in page} == set()


def test_every_setting_stands_on_its_page():
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    assert len(settings.VARIABLES) > 10
    assert {name for name in settings.VARIABLES if f"`{name}`" not in page} == set()


def anchors(page):
    """The anchors of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

"""The account is complete: every module of the engine has a cause, and the page shows every cause."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

import pytest

from bench.profile.causes import ACCOUNT, CAUSES, cause_of
from bench.profile.page import BEGIN, END
from tests.unit.repository.sources import ROOT, sources

PAGE = (ROOT / "docs" / "internals" / "budget.md").read_text(encoding="utf-8")
PATTERNS = [pattern for cause in CAUSES.values() for pattern in cause.patterns]


@pytest.mark.parametrize("module", sorted(path for path in sources() if path.startswith("engine/")))
def test_every_module_of_the_engine_has_a_cause(module):
    assert module.endswith("/__init__.py") or cause_of(module) is not None, "give it a cause in bench/profile/causes.py"


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_fits_a_module_and_a_function_that_is_there(pattern):
    path, _, function = pattern.partition(":")
    fitting = [source for module, source in sources().items() if fnmatchcase(module, path)]
    assert fitting
    for name in filter(None, function.split(".")):
        assert any(re.search(rf"(class|def) {name}\b", source) for source in fitting), f"there is no {name} in {path}"


def test_no_pattern_stands_for_two_causes():
    assert len(set(PATTERNS)) == len(PATTERNS)


def test_a_function_may_have_another_cause_than_its_module():
    assert cause_of("engine/runs/activation.py") is CAUSES["recording"]
    assert cause_of("engine/runs/activation.py", "Activation._commit") is CAUSES["recording"]
    assert cause_of("engine/runs/activation.py", "Activation.__init__") is CAUSES["building the run"]


def test_the_page_has_the_account_with_every_cause_and_its_drawings():
    account = PAGE.split(BEGIN)[1].split(END)[0]
    for cause in ACCOUNT:
        assert account.count(f"| {cause.name} |") >= 2  # of a run, and of an effect
    drawings = re.findall(r"\]\(\.\./images/([\w-]+\.svg)\)", account)
    assert len(drawings) == 4
    assert all((ROOT / "docs" / "images" / name).is_file() for name in drawings)

"""The digest of a workflow's code: the same wherever the code is the same, another where it asks for something else."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine.code.digests import digest_of_code

TEMPLATE = """\
import functools
from holdfast import Pack

shop = Pack("shop")

@shop.effect(key="charge:{order}")
async def charge(order: str, cents: int = 1) -> str:
    return "charged"

@shop.effect
async def ship(order: str) -> str:
    return "shipped"

def total(order: str) -> int:
    return 10

class Basket:
    def size(self) -> int:
        return 1

def tracing(fn):
    @functools.wraps(fn)
    async def traced(*args, **kwargs):
        return await fn(*args, **kwargs)
    return traced

LIMIT = 5

@shop.workflow(key="order:{order}")
async def order(order: str) -> str:
    async def inner() -> str:
        return await charge(order, total(order))
    if order in {"a", "b", "c"}:
        return await ship(order)
    Basket().size()
    return await inner()
"""


def digest(source: str, *, name: str = "order", file: str = "shop.py") -> str:
    names: dict[str, Any] = {"__name__": "shopping.orders"}
    exec(compile(source, file, "exec"), names)
    return digest_of_code(names[name])


@functools.cache
def before() -> str:
    return digest(TEMPLATE)


def changed(old: str, new: str) -> str:
    assert TEMPLATE.count(old) >= 1, old
    return TEMPLATE.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("shop = Pack", "\n\n# a comment, and other lines\nshop = Pack"),
        ('return "charged"', 'return "charged otherwise"'),
        ("LIMIT = 5", "LIMIT = 6"),
    ],
)
def test_what_does_not_concern_the_workflow_leaves_it_as_it_is(old: str, new: str) -> None:
    assert digest(changed(old, new)) == before()


def test_it_does_not_depend_on_where_the_file_lies() -> None:
    assert digest(TEMPLATE, file="/srv/release-7/shop.py") == before()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return await inner()", "await ship(order)\n    return await inner()"),
        ("return await charge(order, total(order))", "return await charge(order, 1 + total(order))"),
        ("return 10", "return 11"),
        ("return 1\n\ndef tracing", "return 2\n\ndef tracing"),
        ('{"a", "b", "c"}', '{"a", "b", "d"}'),
        ('key="charge:{order}"', 'key="pay:{order}"'),
        ("cents: int = 1", "cents: int = 2"),
        ('workflow(key="order:{order}")', 'workflow(key="order:{order}", version="2")'),
        ("async def order(order: str)", "async def order(order: str, note: str = '')"),
    ],
)
def test_what_the_workflow_asks_for_changes_it(old: str, new: str) -> None:
    assert digest(changed(old, new)) != before()


def test_a_decorated_workflow_has_the_digest_of_what_it_wraps_and_a_method_counts() -> None:
    decorated = changed("async def order(order: str) -> str:", "@tracing\nasync def order(order: str) -> str:")
    assert digest(decorated) != digest(decorated.replace("return 10", "return 11"))


def test_functions_of_other_modules_count_if_they_are_of_the_same_package(tmp_path: Path) -> None:
    package = tmp_path / "parcels"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "orders.py").write_text(
        textwrap.dedent("""
        import json
        from holdfast import Pack
        from parcels import steps

        shop = Pack("shop")

        @shop.workflow
        async def order() -> str:
            return json.dumps(steps.weigh())
        """)
    )

    def digest_with(weight: int) -> str:
        (package / "steps.py").write_text(f"def weigh() -> int:\n    return {weight}\n")
        return elsewhere("parcels.orders", path=tmp_path)

    assert digest_with(1) == digest_with(1) != digest_with(2)


def test_it_is_the_same_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "shopping.py").write_text(TEMPLATE)
    assert elsewhere("shopping", path=tmp_path, seed="1") == elsewhere("shopping", path=tmp_path, seed="2")


def elsewhere(module: str, *, path: Path, seed: str = "0") -> str:
    """The digest as another process finds it."""
    code = f"import {module} as m; from holdfast.engine.code.digests import *; print(digest_of_code(m.order))"
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(path), environment.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True
    ).stdout.decode()

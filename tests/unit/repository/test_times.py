"""Times: what is annotated as an instant, a duration or a reading of the steady clock has a name that says so."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest

from tests.unit.repository.sources import sources

# By the name: what the annotation has to be. The first that fits counts.
NAMES = {
    "Steady": re.compile(r"(.*_)?steady_ms"),
    "Instant": re.compile(r"(.*_)?(at|now|since|until|wall)_ms"),
    "Millis": re.compile(r"(.*_)?ms(_max|_min)?"),
}
# A number with a fraction: how long something took, or how far two clocks are apart.
FRACTION = "float"
# These are the arguments of effects and workflows, and those of users are plain numbers.
OF_USERS = {"lab/gate/pack.py"}


class Named(NamedTuple):
    file: str
    line: int
    name: str
    annotation: str
    is_function: bool = False

    @property
    def kinds(self) -> set[str]:
        """Of what the thing is, or what it returns when it is called; None and containers are left out."""
        types = self.annotation.removeprefix("Callable[[], ").removesuffix("]").split(" | ")
        return set(types) - {"None"}

    @property
    def is_time(self) -> bool:
        return bool(self.kinds & NAMES.keys())

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.name}: {self.annotation}"


def kind_of(name: str) -> str | None:
    return next((kind for kind, form in NAMES.items() if form.fullmatch(name.lower())), None)


def _named(file: str, tree: ast.AST) -> Iterator[Named]:
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name, annotation=ast.expr() as annotation):
                yield Named(file, node.lineno, name, ast.unparse(annotation))
            case ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name), annotation=annotation):
                yield Named(file, node.lineno, name, ast.unparse(annotation))
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.returns is not None:
                yield Named(file, node.lineno, node.name, ast.unparse(node.returns), is_function=True)
            case _:
                pass


@cache
def annotated() -> tuple[Named, ...]:
    """Everything that has an annotation, of modules that speak of milliseconds."""
    return tuple(
        named
        for file, source in sources().items()
        if file not in OF_USERS and ("_ms" in source or "kernel.times" in source)
        for named in _named(file, ast.parse(source))
    )


@pytest.mark.parametrize("kind", NAMES)
def test_there_is_something_to_compare(kind):
    assert sum(kind in each.kinds for each in annotated()) > 5


def test_a_name_in_milliseconds_says_of_which_type_it_is():
    """Containers and callables with arguments are left out; a fraction may be a duration only."""
    wrong = [
        str(each)
        for each in annotated()
        if (kind := kind_of(each.name)) is not None
        and each.kinds & {"int", FRACTION, *NAMES} - ({FRACTION} if kind == "Millis" else set()) - {kind}
    ]
    assert wrong == []


def test_what_has_the_type_of_a_time_has_its_name():
    """A function may also be named by what it does."""
    wrong = [str(each) for each in annotated() if each.is_time and not each.is_function and kind_of(each.name) is None]
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("wake_at_ms", "Instant"),
        ("_now_ms", "Instant"),
        ("until_ms", "Instant"),
        ("began_steady_ms", "Steady"),
        ("steady_ms", "Steady"),
        ("_reliable_until_steady_ms", "Steady"),
        ("late_ms", "Millis"),  # ends in "ate", not in "at"
        ("DELAY_MS_MAX", "Millis"),
        ("created_at", None),
        ("terms", None),
    ],
)
def test_kinds_are_told_by_the_last_word(name, kind):
    assert kind_of(name) == kind

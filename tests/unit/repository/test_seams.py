"""Time, chance and order come from outside: what a simulation cannot replay is not in the engine.

Adapters read the clock and draw chance, and hand them in. Whatever else of the package does so stands below, with why.
The engine walks over no set: its order would follow from the hashes of texts, which differ from process to process.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.unit.repository.sources import sources

READS = {"time", "random", "secrets", "uuid"}
OF = {"os", "datetime", "date"}
CALLS = {"urandom", "getrandom", "now", "utcnow", "today"}
LOOP_TIME = "loop.time"

# What reads time or chance by itself, and why that decides nothing that a run does.
MAY_READ = {
    "adapters/machine.py": "the adapter that hands out the machine's own clock and chance",
    "engine/api/apikeys.py": "secrets of API keys have to be unpredictable, whatever a test injects",
    "engine/code/sandbox.py": "refuses `time.sleep` in workflows, and never calls it",
    "engine/code/shields.py": "the loop is that of the run, whose time follows from its journal",
    "engine/worker/watchdog.py": "measures the processor's time of code that computes; a simulation switches it off",
    "stores/sqlite/files.py": "waits for locks of the file, in threads of its own",
    "stores/sqlite/peers.py": "the name of a socket, which no other process may have",
    "testing/simulation/hosts.py": "chance that a seed decides",
    "testing/simulation/world.py": "chance that a seed decides",
    "workflow.py": "only the type UUID; its bits follow from the journal",
}
# What belongs to a machine, a terminal or a server, and is never part of a simulated world.
OUTSIDE = (
    *("cli/", "lab/", "prove/", "dashboard/", "gateway/", "gateway_client/"),
    *("asgi/", "buses/", "stores/redis/", "telemetry/"),
)


def reads_in(source: str) -> Iterator[str]:
    """What reads time or chance in a module."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names if each.name.partition(".")[0] in READS)
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in READS:
                yield module
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)) if name in OF and attr in CALLS:
                yield attr
            case ast.Call(func=ast.Attribute(value=value, attr="time")) if ast.unparse(value).endswith("loop"):
                yield LOOP_TIME
            case _:
                pass


def test_nothing_reads_time_or_chance_but_adapters() -> None:
    found = {path: sorted(set(reads_in(text))) for path, text in sources().items() if not path.startswith(OUTSIDE)}
    assert {path for path, reads in found.items() if reads} == MAY_READ.keys()


def test_the_kernel_reads_neither() -> None:
    assert not [path for path in MAY_READ if path.startswith("kernel/")]


# -- sets


def _is_set(node: ast.expr | None) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor(), right=right):
            return _is_set(left) or _is_set(right) or _is_keys(left) or _is_keys(right)
        case _:
            return False


def _is_keys(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "keys"


def _is_annotated_as_set(node: ast.expr) -> bool:
    words = ast.unparse(node)
    return words.partition("[")[0] in {"set", "frozenset", "AbstractSet", "MutableSet"}


def _sets_of(tree: ast.AST) -> set[str]:
    """The names and attributes of a module that hold sets."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets, value=value) if _is_set(value):
                found |= {ast.unparse(target) for target in targets}
            case ast.AnnAssign(target=target, annotation=annotation) if _is_annotated_as_set(annotation):
                found.add(ast.unparse(target))
            case ast.arg(arg=name, annotation=ast.expr() as annotation) if _is_annotated_as_set(annotation):
                found.add(name)
            case _:
                pass
    return found


ORDERED_BY = {"sorted", "set", "frozenset", "any", "all", "sum", "len", "min", "max"}  # or the order does not matter


def walks_over_sets(source: str) -> Iterator[str]:
    """Loops over sets whose order may show, as `line: what`."""
    tree = ast.parse(source)
    sets = _sets_of(tree)
    unordered = {
        id(argument)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ORDERED_BY
        for argument in node.args
    }
    for node in ast.walk(tree):
        walked: list[ast.expr] = []
        match node:
            case ast.For(iter=over) | ast.AsyncFor(iter=over):
                walked.append(over)
            case ast.ListComp(generators=generators) | ast.DictComp(generators=generators):
                walked += [] if id(node) in unordered else [each.iter for each in generators]
            case ast.GeneratorExp(generators=generators) if id(node) not in unordered:
                walked += [each.iter for each in generators]
            case ast.Call(func=ast.Name(id="list" | "tuple" | "iter" | "next" | "enumerate" | "zip"), args=args):
                walked += args
            case ast.Starred(value=value):
                walked.append(value)
            case _:
                pass
        for over in walked:
            if _is_set(over) or ast.unparse(over) in sets:
                yield f"{over.lineno}: {ast.unparse(over)}"


PATHS, OF_THESE = "sysconfig.get_path(name)", "for name in ('stdlib', 'platstdlib')"
# By module and what is walked over: why its order does not show.
MAY_WALK = {
    ("engine/failures.py", f"{{f'{{{PATHS}}}/' {OF_THESE}}}"): "prefixes of paths",
    ("engine/worker/watchdog.py", f"{{{PATHS} {OF_THESE}}}"): "prefixes of paths",
    ("kernel/forks.py", "copied"): "another name of the module is a set; this one is a generator",
}


@pytest.mark.parametrize("room", ["engine/", "kernel/"])
def test_no_set_is_walked_over_where_its_order_could_show(room: str) -> None:
    found = [
        f"{path}:{walk}"
        for path, text in sources().items()
        if path.startswith(room)
        for walk in walks_over_sets(text)
        if (path, walk.partition(": ")[2]) not in MAY_WALK
    ]
    assert not found


def test_both_searches_find_what_they_look_for() -> None:
    assert set(reads_in("import time\nfrom random import random\nx = os.urandom(3)\nloop.time()")) == {
        "time",
        "random",
        "urandom",
        LOOP_TIME,
    }
    walked = "names: set[str] = set()\nfor name in names: pass\nlist({1, 2})\nfor name in sorted(names): pass\n"
    assert len(list(walks_over_sets(walked))) == 2

"""The tables of `docs/operating/scaling.md` that follow from what was measured, and its picture.

What stands between the two marks of the page is written from `results/published/capacity.json`; a test holds that it
is.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.workloads import WORKLOADS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "operating" / "scaling.md"
PICTURE = ROOT / "docs" / "images" / "capacity.png"
BEGIN = "<!-- Written by `python -m bench.capacity --measure`. -->"
END = "<!-- End of what is written. -->"
STORES = {"sqlite": "SQLite", "redis": "Redis"}
PARTS = {"client_us": "client", "workers_us": "worker", "store_us": "store", "bus_us": "NATS"}
TITLES = {
    "W9-core": "1 worker, all on one core",
    "W9": "1 worker",
    "W9-2": "2 workers",
    "W9-4": "4 workers",
}
FEW = 0.75  # of the cores: what was measured with less is said to be so
Rows = Sequence[Sequence[str]]


def lines(whole: Mapping[str, Any]) -> Iterator[str]:
    """What is written into the page."""
    of = whole["circumstances"]
    yield f"The constants are those of one machine: {of['system']}, {of['cores']} cores, Python {of['python']}."
    if any(each["cores"] < FEW * WORKLOADS[each["workload"]].cores_of(of["cores"]) for each in whole["checks"]):
        yield "Other programs had most of it meanwhile: processor times say something, rates and the sync hardly any."
    yield from _constants(whole["constants"])
    yield from _checks(whole["checks"])
    yield from _machines(whole["predictions"])
    yield from _clusters(whole["predictions"])


def _constants(constants: Mapping[str, Any]) -> Iterator[str]:
    yield from ("", "**What a run costs**, in microseconds of processor time:", "")
    rows = []
    for store, title in STORES.items():
        for workload, figures in constants[store].items():
            cells = [f"{figures[part]:,.0f}" if part in figures else "" for part in PARTS]
            rows.append([title, TITLES[workload], *cells])
    yield from _table(["store", "with", *PARTS.values()], rows)
    writer = constants["writer"]
    yield ""
    yield f"A change holds SQLite's writer for {writer['change_us']:,.0f} µs; each transaction syncs, which takes it"
    yield f"{writer['sync_us']:,.0f} µs more, however many changes are in it."


def _checks(checks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from ("", "**Measured here, and predicted for the same** (runs per second):", "")
    rows = [
        [
            STORES[each["store"]],
            TITLES[each["workload"]],
            f"{each['cores']:.1f}",
            f"{each['measured']:,.0f} ({each['least']:,.0f} to {each['greatest']:,.0f})",
            f"{each['ceiling']:,.0f}",
            each["limit"],
            f"{each['simulated']:,.0f}",
        ]
        for each in checks
    ]
    yield from _table(["store", "with", "cores to be had", "measured", "ceiling", "by", "simulated"], rows)


def _machines(predictions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from ("", "**Predicted** for one machine, and for six (runs per second):", "")
    rows = [
        [
            STORES[each["store"]]
            + (f", {each['primaries']} primaries, {each['shards']} shards" if each["primaries"] > 1 else ""),
            f"{each['name']} cores".replace("of 1 cores", "of 1 core"),
            f"{each['clients']} + {each['workers']}",
            _rounded(each["ceiling"]),
            each["limit"],
            _rounded(each["simulated"]),
        ]
        for each in predictions
        if "machine" in each["name"]
    ]
    yield from _table(["store", "on", "clients + workers", "ceiling", "by", "simulated"], rows)


def _clusters(predictions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from ("", "**Predicted** for a Redis Cluster, each primary on a machine of its own:", "")
    rows = [
        [
            f"{each['primaries']}" if each["primaries"] else "",
            f"{each['shards']}",
            _rounded(each["ceiling"]),
            each["limit"],
            _rounded(each["simulated"]),
            f"{each['cores']}",
        ]
        for each in _by_primaries(predictions)
    ]
    yield from _table(["primaries", "shards", "ceiling", "by", "simulated", "cores for clients and workers"], rows)


def _by_primaries(predictions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    clusters = [each | {"primaries": primaries_of(each)} for each in predictions if "Cluster" in each["name"]]
    return sorted(clusters, key=lambda each: (each["primaries"], each["shards"]))


def primaries_of(cluster: Mapping[str, Any]) -> int:
    """All of them: some may have no shard."""
    return int(cluster["name"].rpartition(" ")[2])


def _rounded(rate: float) -> str:
    """Two digits: it is a prediction."""
    return f"{float(f'{rate:.2g}'):,.0f}"


def _table(headings: Sequence[str], rows: Rows) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield "|" + "---|" * len(headings)
    yield from (f"| {' | '.join(row)} |" for row in rows)


def write(whole: Mapping[str, Any]) -> None:
    """Page and picture."""
    from bench import capacity_plot

    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text("\n".join([head + BEGIN, "", *lines(whole), "", END + tail]), encoding="utf-8")
    capacity_plot.draw(PICTURE, whole)


def written() -> str:
    """What the page has between its marks."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip("\n")

"""The dashboard for Grafana asks only for what Holdfast tells, and in a way that makes sense of it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from holdfast.telemetry.metrics import METRICS, OF_THE_PROCESS, Metric
from tests.deploy.manifests import DEPLOY

DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "holdfast.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel.get("targets", ())]
KINDS = {metric.name: metric for metric in METRICS}
PARTS = ("_bucket", "_sum", "_count")
ALWAYS = {"job", "instance", "instance_id"}  # Prometheus adds the first two, every process of ours the third
GROUPED = re.compile(r"\bby \(([^)]*)\)")
ASKED = re.compile(r"(?P<before>(?:rate|increase)\()?(?P<name>holdfast_\w+)(?:\{(?P<matchers>[^}]*)\})?(?P<range>\[)?")

each_query = pytest.mark.parametrize(
    ("title", "query"), QUERIES, ids=[f"{number} {title}" for number, (title, _) in enumerate(QUERIES)]
)


def meant(name: str) -> Metric:
    """The metric that a series belongs to: that of a histogram has more than one."""
    base = next((name.removesuffix(part) for part in PARTS if name.endswith(part)), name)
    if base != name and KINDS.get(base) is not None:
        assert KINDS[base].kind == "histogram"
        return KINDS[base]
    assert name in KINDS, f"there is no metric {name}"
    assert KINDS[name].kind != "histogram", f"{name} is a histogram: ask for its buckets, its sum or its count"
    return KINDS[name]


@each_query
def test_every_query_names_metrics_that_exist(title, query):
    assert [meant(asked["name"]) for asked in ASKED.finditer(query)]


@each_query
def test_every_query_uses_labels_that_its_metrics_have(title, query):
    known = {label for asked in ASKED.finditer(query) for label in meant(asked["name"]).labels} | ALWAYS
    if "_bucket" in query:
        known.add("le")
    grouped = {label.strip() for group in GROUPED.findall(query) for label in group.split(",")}
    matched = {
        label for asked in ASKED.finditer(query) for label in re.findall(r"(\w+)\s*=~?\s*\"", asked["matchers"] or "")
    }
    assert grouped | matched <= known


@each_query
def test_what_only_grows_is_shown_as_a_rate_and_what_is_now_is_not(title, query):
    for asked in ASKED.finditer(query):
        grows = meant(asked["name"]).kind != "gauge"
        assert (asked["before"] is not None) is (asked["range"] is not None) is grows, asked["name"]


@each_query
def test_what_every_process_answers_alike_is_not_added_up(title, query):
    for name in [metric.name for metric in METRICS if metric.kind == "gauge" and metric.name not in OF_THE_PROCESS]:
        asked = re.findall(rf"\b{name}\{{", query)
        assert len(re.findall(rf"\bmax(?: by \([^)]*\))? ?\({name}\{{", query)) == len(asked)


@each_query
def test_every_query_asks_for_the_chosen_jobs_only(title, query):
    for asked in ASKED.finditer(query):
        assert 'job=~"$job"' in (asked["matchers"] or "")


def test_every_metric_is_on_the_dashboard():
    shown = {meant(asked["name"]).name for _, query in QUERIES for asked in ASKED.finditer(query)}
    assert shown == set(KINDS)


@pytest.mark.parametrize(
    ("panel", "target"),
    [(panel, target) for panel in PANELS for target in panel.get("targets", ())],
    ids=[f"{panel['id']}{target['refId']}" for panel in PANELS for target in panel.get("targets", ())],
)
def test_legends_name_labels_that_are_there(panel, target):
    used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    outermost = GROUPED.search(target["expr"])
    assert used <= ({label.strip() for label in outermost[1].split(",")} if outermost else set())


def test_panels_have_ids_of_their_own_and_do_not_overlap():
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in PANELS)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24

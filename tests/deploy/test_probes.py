"""Processes started as the manifests start them answer what the manifests ask."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Process
from tests.deploy.test_kubernetes import DEPLOYMENTS, only

ELSEWHERE = {"0.0.0.0": "127.0.0.1", "8787": "0"}


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Process, str]]]:
    """One process for each Deployment, on one store, and where it listens."""
    cwd: Path = tmp_path_factory.mktemp("replicas")
    settings = {"HOLDFAST_URL": f"sqlite:///{cwd}/shop.db", "HOLDFAST_PACKS": "tests.cli.bakery"}
    processes: dict[str, Process] = {}
    try:
        for name, deployment in DEPLOYMENTS.items():
            arguments = [ELSEWHERE.get(word, word) for word in only(deployment).args]
            processes[name] = Process(*arguments, "--json", cwd=cwd, **settings)
        yield {name: (process, json.loads(process.line())["url"]) for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.close()


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_replica_answers_its_probes_and_stops_when_told(name, replicas):
    process, url = replicas[name]
    container = only(DEPLOYMENTS[name])
    for probe in (container.startup_probe, container.liveness_probe, container.readiness_probe):
        assert status(url + probe.http_get.path) == 200
    assert status(f"{url}/metrics") == 200
    assert status(f"{url}/v1/runs") == (200 if name == "holdfast-gateway" else 404)
    assert process.stop() == 0, process.errors()

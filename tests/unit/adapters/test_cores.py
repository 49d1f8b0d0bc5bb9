from __future__ import annotations

import os

import pytest

from holdfast.adapters.cores import usable_cores


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    return 8


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("max 100000\n", 8),
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),  # one process would leave half a core
        ("50000 100000\n", 1),
        ("6400000 100000\n", 8),
        ("", 8),
        ("nonsense", 8),
    ],
)
def test_a_container_has_the_cores_that_it_is_given(bound, tmp_path, quota, cores):
    file = tmp_path / "cpu.max"
    file.write_text(quota)
    assert usable_cores(file) == cores


def test_without_a_container_all_cores_that_the_process_is_bound_to_count(bound, tmp_path):
    assert usable_cores(tmp_path / "cpu.max") == bound


def test_where_processes_are_not_bound_to_cores_all_of_the_machine_count(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert usable_cores(tmp_path / "cpu.max") == 3

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast.lab.gate import reader
from holdfast.lab.gate.evidence import LogNotice

LOG = """\
Serving redis://127.0.0.1:6379 at http://127.0.0.1:8787 (process 7).
{"time":"1970-01-01T00:00:01.500+00:00","event":"run admitted","run_id":"a","instance":"h-7-00ff"}
{"time":"1970-01-01T00:00:02.000+00:00","event":"runs rescued","run_ids":["a","b"],"instance":"h-7-00ff"}
{"time":"1970-01-01T00:00:03.000+00:00","event":"run overtaken","run_id":"a","instance":"my-host-8-00ff"}
{"time":"1970-01-01T00:00:04.000+00:00","event":"lease lost","owner":"x","dropped":3,"age_ms":250,"instance":"h-7-00ff"}
{"time":"1970-01-01T00:00:04.500+00:00","event":"duty taken up","duty":"relay","term":5,"instance":"h-9-00ff"}
{"time":"1970-01-01T00:00:04.600+00:00","event":"stale write refused","run_id":"b","instance":"-7-"}
{"time":"1970-01-01T00:00:05.000+00:00","event":"lease lost","owne"""


def test_a_log_is_read_for_runs_that_changed_hands_up_to_the_line_in_which_its_writer_died(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    members = [SimpleNamespace(log=tmp_path / "log"), SimpleNamespace(log=tmp_path / "not there")]
    assert reader.notices(members, since_ms=2_000) == (
        LogNotice(2_000, "rescued", 7, ("a", "b")),
        LogNotice(3_000, "overtaken", 8, ("a",)),
        LogNotice(4_000, "lease lost", 7, age_ms=250),
        LogNotice(4_500, "elected", 9, duty="relay", term=5),
        LogNotice(4_600, "stale", 7, ("b",)),
    )
    assert [notice.at_ms for notice in reader.notices(members, since_ms=4_550)] == [4_600]


@pytest.mark.parametrize(
    ("instance", "pid"), [("my-host-4711-a0b1", 4711), ("host-12-ffff", 12), ("", 0), ("a-b-c", 0)]
)
def test_the_pid_is_read_from_the_instance_id(instance: str, pid: int) -> None:
    assert reader.pid_of(instance) == pid

from __future__ import annotations

import subprocess
import sys

import pytest


def printed(program: str) -> str:
    """What a fresh process prints: here, much is loaded already."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_neither_prometheus_nor_opentelemetry_is_loaded_until_it_is_used():
    program = """
import sys
from holdfast import Holdfast
from holdfast.telemetry.metrics import METRICS
from holdfast.telemetry.traces import configured
assert configured() is None
Holdfast("memory://")
loaded = {name.partition(".")[0] for name in sys.modules}
print(*loaded & {"prometheus_client", "opentelemetry"})
"""
    assert printed(program) == ""


@pytest.mark.parametrize(("setting", "found"), [("pass", "False"), ("trace.set_tracer_provider(provider)", "True")])
def test_the_tracer_provider_of_the_process_is_found_if_there_is_one(setting, found):
    program = f"""
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from holdfast.telemetry.traces import configured
provider = TracerProvider()
{setting}
print(configured() is provider)
"""
    assert printed(program) == found

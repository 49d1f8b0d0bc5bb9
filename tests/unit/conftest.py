"""One Hypothesis profile for all unit tests: enough examples to find what is there, few enough to be quick.

`HYPOTHESIS_PROFILE=deep pytest tests/unit` looks for longer; `make check` looks for a moment only.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "unit",
    max_examples=50,
    stateful_step_count=50,
    deadline=None,  # the machine may be busy; slowness is the benchmark's matter
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("coverage", settings.get_profile("unit"), max_examples=10)
settings.register_profile("check", settings.get_profile("unit"), max_examples=4)
settings.register_profile("deep", settings.get_profile("unit"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "unit"))

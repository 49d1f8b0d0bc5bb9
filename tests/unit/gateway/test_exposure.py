from __future__ import annotations

import pytest

from holdfast.errors import InvalidConfig
from holdfast.gateway.server import check_exposure


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_a_gateway_may_be_open_to_its_own_machine(host):
    check_exposure(host, require_keys=False)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.7", "192.168.1.2", "203.0.113.9", "example.org", "", "2130706433"]
)
def test_a_gateway_that_others_can_reach_requires_keys(host):
    check_exposure(host, require_keys=True)
    with pytest.raises(InvalidConfig, match="no API keys are required"):
        check_exposure(host, require_keys=False)

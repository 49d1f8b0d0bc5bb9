"""`Client`: the verbs of a `Holdfast` over a gateway, without credentials for the store."""

from holdfast.gateway_client.apikeys import GatewayApiKeys
from holdfast.gateway_client.client import Client
from holdfast.wire.types import LimitsView, LimitView

__all__ = ["Client", "GatewayApiKeys", "LimitView", "LimitsView"]
